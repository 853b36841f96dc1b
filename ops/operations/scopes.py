"""Memory spaces: their list, their sizes and their flags."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Write, merged
from palimpsest.ops.reading.rows import all_rows, rows, rows_of

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources


class Counts(Answer):
    """Counts of what is remembered; `types` has the count of each type."""

    scope: str | None
    active: int
    turns: int
    memories: int
    pinned: int
    forgotten: int
    embedded: int
    sessions: int
    entities: int
    types: dict[str, int]


class Stats(Read[Counts]):
    """Count what is remembered, by state and type.

    Example: palimpsest stats --scope support
    """

    scope: shared.AnyScope = None

    surface: ClassVar = Surface(
        ("GET", "/api/stats"), tag="overviews", command="stats", tool="memory_stats", overview=True
    )

    def read(self, sources: Sources) -> Json:
        scope = {"scope": self.scope}
        counts = rows_of(sources, self.scope, _COUNTS, scope)
        types = rows_of(sources, self.scope, _TYPES, scope)
        names = [each.name for each in fields(Counts) if each.name not in ("scope", "types")]
        total = merged([dict.fromkeys(names, 0), *counts])
        by_type = merged([{}, *({row["type"]: row["number"]} for row in types)])
        return {"scope": self.scope, **total, "types": by_type}


_COUNTS = """
SELECT count(*) FILTER (NOT is_deleted) AS active,
    count(*) FILTER (NOT is_deleted AND type = 'episodic') AS turns,
    count(*) FILTER (NOT is_deleted AND type <> 'episodic') AS memories,
    count(*) FILTER (NOT is_deleted AND pinned) AS pinned,
    count(*) FILTER (is_deleted) AS forgotten,
    count(*) FILTER (NOT is_deleted AND embedding_key IN (
        SELECT embedding_key FROM embeddings WHERE model = $space)) AS embedded,
    (SELECT count(*) FROM session_rows WHERE coalesce(scope = $scope, true)) AS sessions,
    (SELECT count(DISTINCT entity_id) FROM name_rows WHERE coalesce(scope = $scope, true))
        AS entities
FROM memory_rows WHERE coalesce(scope = $scope, true)
"""
_TYPES = """
SELECT type, count(*) AS number FROM memory_rows
WHERE NOT is_deleted AND coalesce(scope = $scope, true) GROUP BY type ORDER BY type
"""


class Hub(Answer):
    """An entity with the number of others that it is related to."""

    name: str
    related: int


class GraphCounts(Answer):
    """Counts of the graph: entities, relations between them and edges between memories, each by
    type, the most frequent first. `aliases` are further names of entities, `summarized` entities
    with a summary, `orphans` entities that no present memory names and nothing is related to.
    `hubs` are the entities related to most others. `aspects` counts aspects, attributes and what
    recalls and time did to them: `confirmed` aspects by so many `confirmations`, `decayed` aspects,
    attributes `by_model` and those `superseded` because their memory was forgotten or has ended."""

    entities: int
    aliases: int
    orphans: int
    summarized: int
    mentions: int
    entity_types: dict[str, int]
    relation_types: dict[str, int]
    edge_types: dict[str, int]
    aspects: dict[str, int]
    hubs: tuple[Hub, ...]


class GraphStatistics(Read[GraphCounts]):
    """Count entities, relations and edges by type, entities without any, and the largest hubs.

    Example: palimpsest graph-stats --scope support
    """

    scope: shared.Scope = ""
    limit: Annotated[int, Doc("maximum number of hubs", ge=0, le=100)] = 10

    surface: ClassVar = Surface(
        ("GET", "/api/graph/stats"),
        tag="graph",
        command="graph-stats",
        panel="Explain and review",
        tool="graph_stats",
        overview=True,
    )

    def read(self, sources: Sources) -> Json:
        shard, scope = sources.shard_of(self.scope), {"scope": self.scope}
        counts = rows(shard, _GRAPH_COUNTS, scope)[0]
        by_type = {
            name: {row["type"]: row["number"] for row in rows(shard, query, scope)}
            for name, query in _BY_TYPE.items()
        }
        hubs = rows(shard, _HUBS, {**scope, "limit": self.limit})
        aspects = rows(shard, _ASPECT_COUNTS, scope)[0]
        return {**counts, **by_type, "aspects": aspects, "hubs": hubs}


_ENDS = """(SELECT source_entity_id AS id, target_entity_id AS other FROM main.relations
    WHERE scope = $scope
    UNION ALL SELECT target_entity_id, source_entity_id FROM main.relations WHERE scope = $scope)"""
_GRAPH_COUNTS = f"""
SELECT count(*) AS entities, CAST(coalesce(sum(len(aliases)), 0) AS BIGINT) AS aliases,
    count(*) FILTER (summary IS NOT NULL) AS summarized,
    count(*) FILTER (mentions = 0 AND entity_id NOT IN (SELECT id FROM {_ENDS})) AS orphans,
    CAST(coalesce(sum(mentions), 0) AS BIGINT) AS mentions
FROM main.entities WHERE scope = $scope AND NOT archived
"""
_ASPECT_COUNTS = """
SELECT count(*) AS aspects, count(*) FILTER (confirmations > 0) AS confirmed,
    CAST(coalesce(sum(confirmations), 0) AS BIGINT) AS confirmations,
    count(decayed_at) AS decayed, any_value(t.attributes) AS attributes,
    any_value(t.by_model) AS by_model, any_value(t.superseded) AS superseded
FROM (SELECT count(*) FILTER (status = 'active') AS attributes,
        count(*) FILTER (status = 'active' AND by_model) AS by_model,
        count(*) FILTER (status = 'superseded') AS superseded
    FROM main.entity_attributes WHERE scope = $scope) t
    LEFT JOIN main.entity_aspects a ON a.scope = $scope
"""
_BY_TYPE = {
    name: f"SELECT {column} AS type, count(*) AS number FROM {table} WHERE scope = $scope"
    " GROUP BY 1 ORDER BY number DESC, type"
    for name, column, table in (
        ("entity_types", "entity_type", "(FROM main.entities WHERE NOT archived)"),
        ("relation_types", "relation_type", "main.relations"),
        ("edge_types", "relation_type", "memory_edges"),
    )
}
_HUBS = f"""
SELECT e.name, count(DISTINCT r.other) AS related
FROM {_ENDS} r JOIN known_entities e ON e.entity_id = r.id AND e.scope = $scope
GROUP BY e.entity_id, e.name ORDER BY related DESC, e.name LIMIT $limit
"""


class ScopeRow(Answer):
    """A memory space with the counts of its turns and other memories that are not forgotten;
    `facts` counts all extracted facts, whatever their outcome."""

    scope: str
    turns: int
    memories: int
    facts: int
    last_activity: datetime | None


class ScopeList(Answer):
    """Memory spaces, the most recently active first."""

    scopes: tuple[ScopeRow, ...]


class Scopes(Read[ScopeList]):
    """List the memory spaces with their counts, the most recently active first.

    Example: palimpsest scopes
    """

    surface: ClassVar = Surface(
        ("GET", "/api/scopes"), tag="overviews", command="scopes", routing="all", overview=True
    )
    order: ClassVar = ("-last_activity", "-scope")

    def read(self, sources: Sources) -> Json:
        """Unprocessed turns do not count."""
        select = "SELECT scope, turns, memories, facts, last_activity FROM main.scopes"
        return self.merge([{"scopes": all_rows(sources, select)}])


class ScopeFlags(Answer):
    """Flags with the `value` in effect and its origin in `from`: the scope or the settings."""

    scope: str
    flags: tuple[dict[str, Any], ...]


class Flags(Read[ScopeFlags]):
    """Show the flags in effect for a scope and the origin of each."""

    scope: shared.Scope = ""

    surface: ClassVar = Surface(("GET", "/api/flags"), tag="operation")

    def read(self, sources: Sources) -> Json:
        names = [*_flags(SetFlags(self.scope))]
        stored = rows(
            sources.shard_of(self.scope),
            f"SELECT {', '.join((*names, _EARNED))} FROM main.scope_flags WHERE scope = ?",
            [self.scope],
        )
        own = stored[0] if stored else {}
        earned = bool(own.pop(_EARNED, False)) and own["allow_update_delete"] is None
        shown = []
        for name in names:
            value, origin = own.get(name), "this scope"
            if name == "allow_update_delete" and earned:
                value, origin = True, "what this scope has earned"
            elif value is None:
                value = bool(getattr(sources.settings.pipeline, name))
                origin = f"setting pipeline.{name}"
            shown.append({"flag": name, "value": value, "from": origin})
        return {"scope": self.scope, "flags": shown}


_EARNED = "earned_update_delete"


class FlagsSet(Applied, kw_only=True):
    """The scope's own flags after the change; None where the settings apply."""

    status: str
    flags: dict[str, bool | None]


class SetFlags(Write[FlagsSet | ScopeFlags]):
    """Show the flags of a scope, or override some of the settings' flags; changes are audited.

    Example: palimpsest flags support --allow-update-delete
    """

    scope: shared.OwnScope = ""
    enabled: Annotated[bool | None, Doc("extract from turns")] = None
    shadow_mode: Annotated[bool | None, Doc("decide, but write nothing")] = None
    allow_update_delete: Annotated[bool | None, Doc("apply UPDATE and DELETE")] = None
    mutations_frozen: Annotated[bool | None, Doc("change nothing at all")] = None
    autonomous_frozen: Annotated[bool | None, Doc("no timers")] = None
    self_teaching_enabled: Annotated[
        bool | None, Doc("let agents' tools write long-term memories")
    ] = None
    reason: shared.Reason = ""

    body: ClassVar = "SetFlagsCommand"
    surface: ClassVar = Surface(
        ("POST", "/api/flags"),
        tag="operation",
        command="flags",
        panel="Run and operate",
        permission="admin",
    )

    def instead(self) -> Flags | None:
        unset = all(value is None for value in _flags(self).values())
        return Flags(self.scope) if unset else None


def _flags(request: SetFlags) -> dict[str, bool | None]:
    other = {"scope", "reason", "key", "wait"}
    return {e.name: getattr(request, e.name) for e in fields(request) if e.name not in other}
