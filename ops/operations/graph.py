"""The graph: entities, their relations, and aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied, StoredMemory
from palimpsest.ops.operations.memories import stored_memories
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Write
from palimpsest.ops.reading.rows import no_cursor, rows, where

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.stores.shard import Shard
    from palimpsest.streams.text.entity_names import KnownEntity, MergeEvidence

_GRAPH = partial(Surface, tag="graph")
_REVIEW = partial(_GRAPH, panel="Explain and review", overview=True)


class EntityRow(Answer):
    """A person or thing. `mentions` counts the memories that name it, `times_told` all its
    mentions. `archived`: it is out of the graph. `version` rises with each edit."""

    id: str
    scope: str
    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    mentions: int
    times_told: int
    pinned: bool
    archived: bool
    version: int
    first_seen: datetime
    updated_at: datetime


class EntityPage(Answer):
    """Entities, the most mentioned first; `next_cursor` is None on the last page."""

    entities: tuple[EntityRow, ...]
    next_cursor: str | None


class Entities(Read[EntityPage]):
    """List the entities of a scope, the most mentioned first, page by page.

    Example: palimpsest entities --scope support
    """

    query: Annotated[
        str | None, Doc("part of a name", min_length=1, max_length=2_000, not_blank=True)
    ] = None
    archived: Annotated[
        bool, Doc("those that were archived instead of all others", option="--archived")
    ] = False
    scope: shared.Scope = ""
    limit: shared.Limit = 50
    cursor: shared.Cursor = None

    surface: ClassVar = _GRAPH(("GET", "/api/entities"), command="entities")

    def read(self, sources: Sources) -> Json:
        from palimpsest.schemas.normal_forms import canonical_name

        named = None if self.query is None else canonical_name(self.query)
        condition, values = where(
            [("scope = ?", self.scope), ("archived = ?", self.archived), (_NAMED, named)]
        )
        if self.cursor is not None:
            condition += " AND (times_told < ? OR (times_told = ? AND entity_id > ?))"
            mentioned, _, entity_id = self.cursor.partition("/")
            if not (mentioned.isascii() and mentioned.isdecimal() and len(mentioned) <= 18):
                raise no_cursor(self.cursor)
            values += [int(mentioned), int(mentioned), entity_id]
        found = rows(
            sources.shard_of(self.scope),
            f"SELECT {_ENTITY} FROM main.entities WHERE {condition}"
            " ORDER BY times_told DESC, entity_id LIMIT ?",
            [*values, self.limit],
        )
        last = found[-1] if len(found) == self.limit else None
        return {
            "entities": found,
            "next_cursor": last and f"{last['times_told']}/{last['id']}",
        }


_NAMED = (
    "(contains(canonical_name, ?) OR len(list_filter(aliases,"
    " lambda alias: contains(alias, ?))) > 0)"
)
_ENTITY = (
    "entity_id AS id, scope, name, entity_type AS type, aliases, summary, mentions, times_told,"
    " pinned, archived, version, first_seen, updated_at"
)


class Entity(EntityRow):
    """An entity with its relations, its attributes, those of the weightiest aspect first, and the
    newest memories that name it: facts before the turns."""

    relations: tuple[dict[str, Any], ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()
    memories: tuple[StoredMemory, ...] = ()


class GetEntity(Read[Entity]):
    """Show the person or thing with this name: other names, relations, and memories that name it.

    Example: palimpsest entity Ana --scope support
    """

    name: Annotated[
        str,
        Doc("any name of a person or a thing", min_length=1, max_length=2_000, argument=True),
    ]
    scope: shared.Scope = ""
    limit: shared.Limit = 20

    surface: ClassVar = _GRAPH(
        ("GET", "/api/entities/{name:path}"), command="entity", tool="get_entity_info"
    )

    def read(self, sources: Sources) -> Json:
        from palimpsest.schemas.rows.memories import SOURCE_LIST

        shard = sources.shard_of(self.scope)
        entity = {"id": _id_of(shard, self.scope, self.name), "scope": self.scope}
        found = rows(
            shard,
            f"SELECT {_ENTITY} FROM main.entities WHERE scope = $scope AND entity_id = $id",
            entity,
        )
        if not found:
            raise _unknown(shard, self.scope, self.name)
        memories = stored_memories(
            sources,
            shard,
            "memory_id IN (SELECT memory_id FROM present_mentions"
            " WHERE entity_id = ? AND scope = ?) AND NOT is_deleted"
            f" ORDER BY type IN {SOURCE_LIST}, occurred_at DESC, created_at DESC, memory_id DESC"
            " LIMIT ?",
            [entity["id"], self.scope, self.limit],
        )
        return {
            **found[0],
            "relations": rows(shard, _RELATIONS, entity),
            "attributes": rows(shard, _ATTRIBUTES, entity),
            "memories": memories,
        }


def _id_of(shard: Shard, scope: str, name: str) -> str:
    """The id of the entity with this name. Raises RequestError and NotFoundError."""
    from palimpsest.schemas.normal_forms import canonical_name

    if not name.strip():
        raise RequestError("the name is empty")
    found = rows(
        shard,
        "SELECT entity_id AS id FROM known_entities WHERE scope = $scope"
        " AND (canonical_name = $name OR list_contains(aliases, $name))",
        {"scope": scope, "name": canonical_name(name)},
    )
    if not found:
        raise _unknown(shard, scope, name)
    return str(found[0]["id"])


def _unknown(shard: Shard, scope: str, name: str) -> NotFoundError:
    """Names the known name nearest to a misspelled one, if one is near."""
    import difflib

    from palimpsest.schemas.normal_forms import canonical_name

    known = rows(shard, "SELECT name FROM main.entities WHERE scope = ?", [scope])
    names = {canonical_name(row["name"]): row["name"] for row in known}
    near = difflib.get_close_matches(canonical_name(name), names, 1, 0.5)
    nearest = f"; did you mean {names[near[0]]}?" if near else ""
    return NotFoundError(f"nothing called {name} is known in this scope{nearest}")


_RELATIONS = """
SELECT CASE WHEN r.source_entity_id = $id THEN 'out' ELSE 'in' END AS direction,
    r.relation_type AS relation, e.name, e.entity_type AS type, r.mentions, r.confidence
FROM main.relations r JOIN known_entities e ON e.scope = r.scope AND e.entity_id =
    CASE WHEN r.source_entity_id = $id THEN r.target_entity_id ELSE r.source_entity_id END
WHERE r.scope = $scope AND (r.source_entity_id = $id OR r.target_entity_id = $id)
ORDER BY r.mentions DESC, r.confidence DESC, e.name, relation
"""
_ATTRIBUTES = """
SELECT a.name AS aspect, a.weight, t.kind, t.by_model, m.memory_id, m.content, t.confidence,
    t.importance
FROM main.entity_aspects a
    JOIN main.entity_attributes t ON t.aspect_id = a.aspect_id AND t.scope = a.scope
    JOIN memory_rows m ON m.memory_id = t.memory_id
WHERE a.scope = $scope AND a.entity_id = $id AND t.status = 'active' AND NOT m.is_deleted
ORDER BY a.weight DESC, a.name, m.occurred_at, m.created_at, m.memory_id
"""


class Aliased(Applied, kw_only=True):
    """The outcome for two names: they already named one entity (`already`), one became a name of
    the other's entity (`added`), or two entities became one (`merged`)."""

    status: str


Name = Annotated[str, Doc("a name", min_length=1, max_length=256, argument=True)]
_PAIR = partial(_GRAPH, panel="Change", permission="modify", rate="modify")


class Alias(Write[Aliased]):
    """Record that two names mean the same person, place or thing.

    Example: palimpsest alias PostgreSQL Postgres --scope support
    """

    name: Name
    alias: Annotated[
        str, Doc("another name of the same", min_length=1, max_length=256, argument=True)
    ]
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "AliasCommand"
    surface: ClassVar = _PAIR(("POST", "/api/entities/{name:path}/aliases"), command="alias")


class NamedEntity(Answer):
    """An entity by its names."""

    entity_id: str
    name: str
    aliases: tuple[str, ...]


class Unaliased(Applied, kw_only=True):
    """The outcome for two names: they name two entities again (`separated`), still one through
    other names (`still_joined`), or were two and will not be proposed as one (`kept_apart`).
    `entities` are the entities of the two names."""

    status: str
    entities: tuple[NamedEntity, ...]


class Unalias(Write[Unaliased]):
    """Take back that two names mean the same: both entities are as they would be without it.

    Example: palimpsest unalias PostgreSQL Postgres --scope support
    """

    name: Name
    alias: Annotated[
        str, Doc("a name of something else", min_length=1, max_length=256, argument=True)
    ]
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "UnaliasCommand"
    surface: ClassVar = _PAIR(
        ("DELETE", "/api/entities/{name:path}/aliases/{alias:path}"), command="unalias"
    )


class SharedRelation(Answer):
    """A relation that two entities have to the same third one; `direction` as seen from them."""

    relation: str
    direction: str
    name: str


class ProposedMerge(Answer):
    """Two entities that may be one. `names_are` says how their names are alike: `equal`,
    `initials`, `nickname`, `part` or `spelling`; `shared` is what both have, the most specific
    first; `score` is higher the more specific that is."""

    name: str
    alias: str
    names_are: str
    shared: tuple[SharedRelation, ...]
    score: float


class MergeList(Answer):
    """Entities that may be one, the best supported first."""

    merges: tuple[ProposedMerge, ...]


class ProposedMerges(Read[MergeList]):
    """List entities that may be one, with the evidence: the best supported first.

    Nothing is merged by itself. `alias` makes them one, `unalias` keeps them apart for good.

    Example: palimpsest merges --scope support
    """

    scope: shared.Scope = ""
    limit: shared.Limit = 20

    surface: ClassVar = _REVIEW(("GET", "/api/merges"), command="merges")

    def read(self, sources: Sources) -> Json:
        from palimpsest.streams.text.entity_names import merge_evidence

        shard = sources.shard_of(self.scope)
        scope = {"scope": self.scope}
        known, degrees = _known_entities(shard, self.scope)
        apart = {frozenset((row["a"], row["b"])) for row in rows(shard, _TOLD_APART, scope)}
        found: list[tuple[MergeEvidence, str, str]] = []
        for one, other in _with_something_in_common(known, degrees):
            if frozenset((one, other)) in apart:
                continue
            evidence = merge_evidence(known[one], known[other], degrees)
            if evidence is not None:
                first, second = sorted((one, other), key=lambda each: known[each].names)
                found.append((evidence, first, second))
        found.sort(key=lambda each: (-each[0].score, known[each[1]].names, known[each[2]].names))
        merges = [
            {
                "name": known[one].names[0],
                "alias": known[other].names[0],
                "names_are": evidence.names,
                "shared": [
                    {"relation": relation, "direction": "out" if out else "in", "name": end}
                    for relation, out, end in evidence.shared
                ],
                "score": round(evidence.score, 3),
            }
            for evidence, one, other in found[: self.limit]
        ]
        return {"merges": merges}


_MOST_RELATED = 50
"""An entity that more are related to shows of no two of them that they are one."""
_RELATED = """
SELECT s.entity_id AS source, s.name AS source_name, r.relation_type AS relation,
    t.entity_id AS target, t.name AS target_name
FROM main.relations r JOIN known_entities s ON s.entity_id = r.source_entity_id
        AND s.scope = r.scope
    JOIN known_entities t ON t.entity_id = r.target_entity_id AND t.scope = r.scope
WHERE r.scope = $scope ORDER BY ALL
"""
_KNOWN = """
SELECT n.entity_id AS id,
    list(n.name ORDER BY n.chosen DESC, n.name_id <> n.entity_id, n.canonical_name) AS names,
    any_value(e.entity_type) AS type
FROM name_rows n JOIN known_entities e USING (entity_id, scope)
WHERE n.scope = $scope GROUP BY n.entity_id ORDER BY n.entity_id
"""
_TOLD_APART = """
SELECT a.entity_id AS a, b.entity_id AS b
FROM name_links l JOIN name_rows a ON a.name_id = l.name_id
    JOIN name_rows b ON b.name_id = l.alias_id
WHERE l.scope = $scope AND NOT l.is_active
"""


def _known_entities(shard: Shard, scope: str) -> tuple[dict[str, KnownEntity], dict[str, int]]:
    """The entities of a scope that have a relation, by id, and with how many others each name is
    related."""
    from palimpsest.streams.text.entity_names import KnownEntity

    relations: dict[str, set[tuple[str, bool, str]]] = {}
    ends: dict[str, set[str]] = {}
    for row in rows(shard, _RELATED, {"scope": scope}):
        relations.setdefault(row["source"], set()).add((row["relation"], True, row["target_name"]))
        relations.setdefault(row["target"], set()).add((row["relation"], False, row["source_name"]))
        ends.setdefault(row["target_name"], set()).add(row["source"])
        ends.setdefault(row["source_name"], set()).add(row["target"])
    known = {
        row["id"]: KnownEntity(tuple(row["names"]), row["type"], frozenset(relations[row["id"]]))
        for row in rows(shard, _KNOWN, {"scope": scope})
        if row["id"] in relations
    }
    return known, {name: len(others) for name, others in ends.items()}


def _with_something_in_common(
    known: Mapping[str, KnownEntity], degrees: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Pairs of entities that have the same relation to the same third one; each pair once."""
    having: dict[tuple[str, bool, str], list[str]] = {}
    for entity_id, entity in known.items():
        for each in entity.relations:
            if degrees[each[2]] <= _MOST_RELATED:
                having.setdefault(each, []).append(entity_id)
    seen: set[tuple[str, str]] = set()
    for ids in having.values():
        for pair in combinations(sorted(ids), 2):
            if pair not in seen:
                seen.add(pair)
                yield pair


GraphFormat = Literal["nodes", "graphml", "json-ld", "svg"]


class GraphEdge(Answer):
    """A relation between two entities, by their ids."""

    source: str
    target: str
    relation: str
    mentions: int
    confidence: float


class EntityGraph(Answer):
    """Entities, the nearest and most mentioned first, with all relations between them. `complete`:
    whether no entity was left out for the limit. `document` is the graph in another format."""

    nodes: tuple[EntityRow, ...]
    edges: tuple[GraphEdge, ...]
    complete: bool
    document: str | None = None


class ShowGraph(Read[EntityGraph]):
    """Draw the graph around an entity, or export the graph of a scope as GraphML, JSON-LD or SVG.

    Example: palimpsest graph Ana --scope support
    """

    name: Annotated[
        str | None, Doc("any name of an entity; without it the whole scope", argument=True)
    ] = None
    scope: shared.Scope = ""
    depth: Annotated[int, Doc("relations from the entity to the farthest", ge=1, le=4)] = 2
    limit: Annotated[int, Doc("maximum number of entities", ge=1, le=100_000)] = 300
    format: Annotated[
        GraphFormat,
        Doc("entities and relations alone, or a document as GraphML, JSON-LD or SVG too"),
    ] = "nodes"

    surface: ClassVar = _REVIEW(("GET", "/api/graph"), command="graph")

    def read(self, sources: Sources) -> Json:
        from palimpsest.ops.graphs.formats import graphml, json_ld, svg

        shard = sources.shard_of(self.scope)
        edges = rows(shard, _EDGES, {"scope": self.scope})
        query = f"SELECT {_ENTITY} FROM main.entities WHERE scope = ? AND NOT archived"
        query += " ORDER BY times_told DESC, id"
        nodes = rows(shard, query, [self.scope])
        if self.name is not None:
            start = _id_of(shard, self.scope, self.name)
            if all(row["id"] != start for row in nodes):
                is_archived = "scope = ? AND entity_id = ? AND archived"
                if rows(shard, f"FROM known_entities WHERE {is_archived}", [self.scope, start]):
                    raise NotFoundError(
                        f"{self.name} is archived: to restore it, set archived to false with"
                        " edit-entity"
                    )
                raise _unknown(shard, self.scope, self.name)
            distances = _distances(start, edges, self.depth)
            nodes = [row for row in nodes if row["id"] in distances]
            nodes.sort(key=lambda row: distances[row["id"]])  # stable: then the most mentioned
        shown = nodes[: self.limit]
        ids = {row["id"] for row in shown}
        edges = [row for row in edges if row["source"] in ids and row["target"] in ids]
        write = {"graphml": graphml, "json-ld": json_ld, "svg": svg}.get(self.format)
        return {
            "nodes": shown,
            "edges": edges,
            "complete": len(shown) == len(nodes),
            "document": None if write is None else write(shown, edges),
        }


_EDGES = """
SELECT source_entity_id AS source, target_entity_id AS target, relation_type AS relation, mentions,
    confidence
FROM main.relations WHERE scope = $scope
ORDER BY mentions DESC, confidence DESC, source, target, relation
"""


def _distances(start: str, edges: Sequence[Json], depth: int) -> dict[str, int]:
    """How many relations each entity is away from the first, up to `depth`."""
    around: dict[str, list[str]] = {}
    for edge in edges:
        around.setdefault(edge["source"], []).append(edge["target"])
        around.setdefault(edge["target"], []).append(edge["source"])
    distances, reached = {start: 0}, [start]
    for distance in range(1, depth + 1):
        reached = [
            other for each in reached for other in around.get(each, ()) if other not in distances
        ]
        distances.update(dict.fromkeys(reached, distance))
    return distances
