"""What a question's intent adds to its hits, over the graph of the scope.

* why: the causal chain, breadth-first from the hits over causal, derived_from and supersedes edges;
* when: the turns before and after the hits in their sessions;
* who, what: the memories of the entities that the question names.

Every addition reports how it was reached and has a score (0..1) of its own, below that of the hit
that it was reached from. All are of one scope and active, and bounded by `StrategySettings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import duckdb

from palimpsest.stores.index.scope_graph import Graph
from palimpsest.stores.index.segment import Segment, from_microseconds
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import NamedEntity, mentioning
from palimpsest.stores.recall.intent import Intent
from palimpsest.stores.recall.query import Mark

CAUSAL_RELATIONS = ("causal", "derived_from", "supersedes")
TEMPORAL_RELATIONS = ("temporal",)
_WORDS = {
    ("causal", True): "was caused by",
    ("causal", False): "led to",
    ("derived_from", True): "gave",
    ("derived_from", False): "was drawn from",
    ("supersedes", True): "was replaced by",
    ("supersedes", False): "replaced",
}
"""What a memory that is reached along an edge (True) or against it is to the one before."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that the search found, with its score 0..1."""

    memory_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Related:
    """A memory that the intent added, with its score 0..1. `path` is how it was reached, from the
    hit (or the entity's name) on, and `reason` its last step in words. `marks` say which of its
    statements no longer hold."""

    id: str
    content: str
    type: str
    who: str
    session_id: str
    occurred_at: datetime
    role: str
    score: float
    reason: str
    path: tuple[str, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Addition:
    """A memory reached from hits, before its row is read; `distance` is in edges."""

    memory_id: str
    score: float
    reason: str
    path: tuple[str, ...]
    distance: int


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """The walk starts at `seeds` hits and follows a maximum of `max_edges` edges a step, to a
    maximum of `max_additions` memories. The shares multiply a score at every edge (or once, for a
    memory of an entity); they are chosen, not measured."""

    seeds: int = 10
    max_edges: int = 200
    max_additions: int = 20
    causal_share: float = 0.7
    temporal_share: float = 0.5
    entity_share: float = 0.5


DEFAULTS = StrategySettings()


def additions(
    cursor: duckdb.DuckDBPyConnection,
    graph: Graph,
    intent: Intent,
    hits: Sequence[Hit],
    named: Sequence[NamedEntity],
    depth: int,
    allowed: VisibilityMask,
    settings: StrategySettings = DEFAULTS,
) -> tuple[Related, ...]:
    """Returns what the intent adds, best first, ties by id, without the hits themselves and without
    what is not `allowed`.

    `hits` best first; `named` are the entities of the question; `depth` in edges. Memories that are
    only passed on the way need not be allowed. Raises what the database raises.
    """
    scope = allowed.query.scope
    if intent == "why":
        found = causal_chain(cursor, scope, hits, depth, settings)
    elif intent == "when":
        found = adjacent_turns(cursor, scope, hits, depth, settings)
    elif intent in ("who", "what"):
        found = of_entities(graph, hits, named, allowed, settings)
    else:
        return ()
    known = {hit.memory_id for hit in hits}
    new = [addition for addition in found if addition.memory_id not in known]
    allowed = allowed.including([addition.memory_id for addition in new])
    visible = allowed.among(addition.memory_id for addition in new)
    with allowed.index.lock:
        related = [
            Related(each.memory_id, *_shown(*place), each.score, each.reason, each.path)
            for each in new
            if each.memory_id in visible and (place := allowed.index.find(each.memory_id))
        ]
    related.sort(key=lambda each: (-each.score, each.id))
    return tuple(related[: settings.max_additions])


def _shown(segment: Segment, place: int) -> tuple[str, str, str, str, datetime, str]:
    """Content, type, speaker, session, time and role."""
    meta, name = segment.meta[place], segment.numbers.name
    kind, who, session, role = (name(int(meta[key])) for key in ("kind", "who", "session", "role"))
    at = from_microseconds(int(meta["occurred"]))
    return segment.contents[place], kind, who, session, at, role


def causal_chain(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    hits: Sequence[Hit],
    depth: int,
    settings: StrategySettings = DEFAULTS,
) -> list[Addition]:
    """Causes and effects, sources and what was derived from them, along the edges both ways."""
    seeds = [_seed(hit) for hit in hits[: settings.seeds]]
    return _walk(cursor, scope, seeds, CAUSAL_RELATIONS, depth, settings.causal_share, settings)


def adjacent_turns(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    hits: Sequence[Hit],
    depth: int,
    settings: StrategySettings = DEFAULTS,
) -> list[Addition]:
    """The turns up to `depth` places before and after each hit; a fact has the places of its
    turns."""
    seeds = [_seed(hit) for hit in hits[: settings.seeds]]
    turns = _walk(cursor, scope, seeds, ("derived_from",), 1, 1.0, settings, both_ways=False)
    places = [*seeds, *(replace(turn, distance=0) for turn in turns)]
    share = settings.temporal_share
    return [*turns, *_walk(cursor, scope, places, TEMPORAL_RELATIONS, depth, share, settings)]


def of_entities(
    graph: Graph,
    hits: Sequence[Hit],
    named: Sequence[NamedEntity],
    allowed: VisibilityMask,
    settings: StrategySettings = DEFAULTS,
) -> list[Addition]:
    """Memories that mention the entities of the question (`mentioning`). Without a hit there is no
    score to multiply, and they get the entity's share alone."""
    if not named:
        return []
    best = max((hit.score for hit in hits), default=1.0)
    return [
        Addition(
            memory_id,
            best * settings.entity_share * confidence * len(names) / len(named),
            f"mentions {', '.join(names)}",
            tuple(names),
            1,
        )
        for memory_id, names, confidence in mentioning(
            graph, named, settings.max_additions + len(hits), allowed
        )
    ]


def _seed(hit: Hit) -> Addition:
    return Addition(hit.memory_id, hit.score, "", (hit.memory_id,), 0)


def _walk(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    seeds: Iterable[Addition],
    relations: Sequence[str],
    depth: int,
    share: float,
    settings: StrategySettings,
    both_ways: bool = True,
) -> list[Addition]:
    """Breadth-first over edges. A memory is added where it is first reached, from the best of the
    memories that reach it; its score is that one's x share x weight x confidence."""
    front: dict[str, Addition] = {}
    for seed in seeds:
        front.setdefault(seed.memory_id, seed)
    reached = dict(front)
    found: list[Addition] = []
    for _ in range(depth):
        if not front:
            break
        new: dict[str, Addition] = {}
        for origin, other, relation, strength, forward in _edges(
            cursor, scope, list(front), relations, settings.max_edges
        ):
            if other in reached or not (forward or both_ways):
                continue
            addition = _step(front[origin], other, relation, forward, share * strength)
            if other not in new or addition.score > new[other].score:
                new[other] = addition
        reached.update(new)
        found += new.values()
        front = new
    return found


def _step(origin: Addition, other: str, relation: str, forward: bool, factor: float) -> Addition:
    if relation == "temporal":
        places = origin.distance + 1
        side = "after" if forward else "before"
        reason = f"{places} turn{'s' if places > 1 else ''} {side} {origin.path[0]}"
    else:
        reason = f"{_WORDS[relation, forward]} {origin.memory_id}"
    return Addition(
        other,
        origin.score * min(max(factor, 0.0), 1.0),
        reason,
        (*origin.path, other),
        origin.distance + 1,
    )


def _edges(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    front: Sequence[str],
    relations: Sequence[str],
    limit: int,
) -> list[tuple[str, str, str, float, bool]]:
    """(from, to, relation, weight x confidence, whether along the edge), the strongest first."""
    return cursor.execute(
        """WITH front AS (SELECT unnest($1) AS id),
        edges AS (SELECT source_id, target_id, relation_type, weight * confidence AS strength
            FROM memory_edges
            WHERE scope = $2 AND relation_type IN (SELECT unnest($3)))
        SELECT id, target_id, relation_type, strength, true
        FROM edges JOIN front ON source_id = id
        UNION ALL
        SELECT id, source_id, relation_type, strength, false
        FROM edges JOIN front ON target_id = id
        ORDER BY 4 DESC, 1, 2, 3 LIMIT $4""",
        [list(front), scope, list(relations), limit],
    ).fetchall()
