"""What a search needs of a scope."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from palimpsest.stores.index.segment import Floats
from palimpsest.stores.index.vector_column import HalfVectors, Vector

EVERYTHING = "true"


class Centred(Protocol):
    """A query's vector as it is compared with those of a scope."""

    @property
    def query(self) -> Vector: ...

    def cosines(self, vectors: HalfVectors) -> Floats:
        """Of vectors (n, d), as (n,)."""
        ...


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The memories that a search considers, for an index that need not contain all of a scope:
    the best `count` by `terms` and by `vector` (if `reach` is given and these are fewer, the newest
    too), those with these `ids`, facts `written_after` a write sequence, and those that have a term
    of each of `words`; with them the turns up to `reach` places away in their sessions, and the
    facts and turns that these were derived from or into (None: none).

    Without `centred` all vectors are compared. With it an approximate index may be used: the
    nearest are then those with the highest cosines when the vector is `centred` by the mean of the
    scope's vectors and their number.

    `facts_only` leaves turns out, also of the statistics; `passes` is a condition on the best, in
    SQL over `memory_rows m` with `values`. `k1` and `b` are those of the search.
    """

    scope: str
    terms: Sequence[str] = ()
    vector: Vector | None = None
    centred: Callable[[Vector, int], Centred] | None = None
    count: int = 0
    ids: Collection[str] = ()
    written_after: int | None = None
    words: Sequence[Sequence[str]] = ()
    reach: int | None = None
    facts_only: bool = False
    passes: str = EVERYTHING
    values: Mapping[str, object] = field(default_factory=dict)
    k1: float = 1.2
    b: float = 0.4
