"""What a search needs of a scope."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.ranking import DEFAULTS, RankingParameters

EVERYTHING = "true"


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The memories that a search considers, for an index that need not contain all of a scope:
    the best `count` by `terms` and by `vector` (if `reach` is given and these are fewer, the newest
    too), those with these `ids`, and facts `written_after` a write sequence; with them the turns up
    to `reach` places away in their sessions, and the facts and turns that these were derived from
    or into (None: none).

    Vectors are compared centred, for which an approximate index may be used. `facts_only` compares
    all vectors of facts as they are, and leaves turns out, also of the statistics. `passes` is a
    condition on the best, in SQL over `memory_rows m` with `values`.
    """

    scope: str
    terms: Sequence[str] = ()
    vector: Vector | None = None
    ranking: RankingParameters = DEFAULTS
    count: int = 0
    ids: Collection[str] = ()
    written_after: int | None = None
    reach: int | None = None
    facts_only: bool = False
    passes: str = EVERYTHING
    values: Mapping[str, object] = field(default_factory=dict)
