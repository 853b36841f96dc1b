"""What a query needs of a scope that is not resident.

Its filters are here a condition on stored rows, which chooses what is looked at; what is shown
passes `stores.recall.filters.Allowed` in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from palimpsest.stores.index.need import EVERYTHING, Need
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.centring import Side
from palimpsest.stores.recall.query import METADATA_PASSES, Query
from palimpsest.stores.recall.ranking import RankingParameters
from palimpsest.stores.settings import RecallSettings

_SAID_BY: Final = (
    "({0} OR m.memory_id IN (SELECT e.source_id FROM memory_edges e"
    " JOIN memory_rows t ON t.memory_id = e.target_id WHERE e.scope = $scope"
    " AND e.relation_type = 'derived_from' AND {1}))"
)
_WHO: Final = "lower({}.who) = lower($who)"
_ROLE: Final = "list_contains(list_transform($roles, lambda role: lower(role)), lower({}.role))"
_CONDITIONS: Final = {
    "types": "list_contains($types, m.type)",
    "who": _SAID_BY.format(_WHO.format("m"), _WHO.format("t")),
    "roles": _SAID_BY.format(_ROLE.format("m"), _ROLE.format("t")),
    "session_id": "m.session_id = $session_id",
    "project": "coalesce(m.project, '') = $project",
    "pinned": "m.pinned = $pinned",
    "min_importance": "m.importance >= $min_importance",
    "since": "m.occurred_at >= $since",
    "until": "m.occurred_at < $until",
    "tags": "list_has_any(m.tags, $tags)",
    "all_tags": "list_has_all(m.tags, $all_tags)",
    "categories": "list_has_any(m.categories, $categories)",
    "metadata": METADATA_PASSES.format(wanted="$metadata", memory="m."),
    "valid_at": "(m.valid_until IS NULL OR m.valid_until > $valid_at)",
    "as_of": "m.created_at <= $as_of",
}


def need_of(
    query: Query,
    terms: Sequence[str],
    vector: Vector | None,
    ids: Collection[str],
    settings: RecallSettings,
    parameters: RankingParameters,
) -> Need:
    """For a search by these terms and this vector, which `ids` are found by, too."""
    passes, values = _passing(query)

    def side(mean: Vector, count: int) -> Side:
        assert vector is not None
        return Side.of(vector, mean, count, parameters)

    return Need(
        query.scope,
        terms=terms,
        vector=vector,
        centred=side,
        count=max(settings.pool, query.limit),
        ids=ids,
        # What is said near the furthest of them counts as its own.
        reach=parameters.reach + parameters.context_reach + query.neighbours,
        passes=passes,
        values=values,
        k1=parameters.k1,
        b=parameters.b,
    )


def _passing(query: Query) -> tuple[str, Mapping[str, object]]:
    """As `stores.index.need.Need` has `passes` and `values`."""
    given = {name: getattr(query, name) for name in _CONDITIONS}
    values = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if value is not None and value != ()
    }
    return " AND ".join(_CONDITIONS[name] for name in values) or EVERYTHING, values
