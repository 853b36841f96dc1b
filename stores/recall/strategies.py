"""What a question's intent adds to its hits, over the graph of the scope.

* why: the causal chain, breadth-first from the hits over causal, derived_from and supersedes edges;
* when: the turns before and after the hits in their sessions;
* who, what: the memories of the entities that the question names.

Every addition reports how it was reached and has a score (0..1) of its own, below that of the hit
that it was reached from. All are of one scope and active, and bounded by `StrategySettings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice

import duckdb

from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import Segment
from palimpsest.stores.index.stored_scopes import Graph
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import NamedEntity, mentioning
from palimpsest.stores.recall.intent import Intent
from palimpsest.stores.recall.query import Mark

_WORDS = {
    ("causal", True): "was caused by",
    ("causal", False): "led to",
    ("derived_from", True): "gave",
    ("derived_from", False): "was drawn from",
    ("supersedes", True): "was replaced by",
    ("supersedes", False): "replaced",
}
"""What a memory that is reached along an edge (True) or against it is to the one before."""


_EDGES = """
WITH front AS (SELECT unnest($1) AS id),
edges AS (SELECT source_id, target_id, relation_type, weight * confidence AS strength
    FROM memory_edges WHERE scope = $2 AND relation_type IN (SELECT unnest($3)))
SELECT id, target_id, relation_type, strength, true FROM edges JOIN front ON source_id = id
UNION ALL
SELECT id, source_id, relation_type, strength, false FROM edges JOIN front ON target_id = id
ORDER BY 4 DESC, 1, 2, 3 LIMIT $4"""
"""(from, to, relation, weight x confidence, whether along the edge), the strongest first."""


@dataclass(frozen=True, slots=True)
class Related:
    """A memory that the intent added, with its score 0..1. `path` is how it was reached, from the
    hit (or the entity's name) on, and `reason` its last step in words. `marks` say which of its
    statements no longer hold."""

    id: str
    content: str
    type: str
    who: str
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
    hits: Mapping[str, float],
    named: Sequence[NamedEntity],
    depth: int,
    allowed: VisibilityMask,
    settings: StrategySettings = DEFAULTS,
) -> tuple[Related, ...]:
    """Returns what the intent adds, best first, ties by id, without the hits themselves and without
    what is not `allowed`.

    `hits` are scores (0..1) by memory id, best first; `named` are the entities of the question;
    `depth` in edges. Memories that are only passed on the way need not be allowed. Raises what the
    database raises.
    """
    walk = partial(_walk, cursor, allowed.query.scope, limit=settings.max_edges)
    seeds = [
        Addition(memory_id, score, "", (memory_id,), 0)
        for memory_id, score in islice(hits.items(), settings.seeds)
    ]
    if intent == "why":
        relations = ("causal", "derived_from", "supersedes")
        found = walk(seeds, relations, depth, settings.causal_share)
    elif intent == "when":
        # A fact has the places of its turns.
        found = walk(seeds, ("derived_from",), 1, 1.0, both_ways=False)
        places = [*seeds, *(replace(turn, distance=0) for turn in found)]
        found += walk(places, ("temporal",), depth, settings.temporal_share)
    elif intent in ("who", "what") and named:
        found = _of_entities(graph, hits, named, allowed, settings)
    else:
        return ()
    new = [addition for addition in found if addition.memory_id not in hits]
    allowed = allowed.including([addition.memory_id for addition in new])
    visible = allowed.among(addition.memory_id for addition in new)
    with allowed.index.lock:
        related = [
            _related(each, allowed.index, *place)
            for each in new
            if each.memory_id in visible and (place := allowed.index.find(each.memory_id))
        ]
    related.sort(key=lambda each: (-each.score, each.id))
    return tuple(related[: settings.max_additions])


def _related(addition: Addition, index: ScopeIndex, segment: Segment, place: int) -> Related:
    return Related(
        id=addition.memory_id,
        content=segment.contents[place],
        type=segment.name(place, "kind"),
        who=segment.name(place, "who"),
        occurred_at=index.said_at(segment, place),
        role=segment.name(place, "role"),
        score=addition.score,
        reason=addition.reason,
        path=addition.path,
    )


def _of_entities(
    graph: Graph,
    hits: Mapping[str, float],
    named: Sequence[NamedEntity],
    allowed: VisibilityMask,
    settings: StrategySettings,
) -> list[Addition]:
    """Memories that mention the entities of the question (`mentioning`). Without a hit there is no
    score to multiply, and they get the entity's share alone."""
    most = settings.max_additions + len(hits)
    share = max(hits.values(), default=1.0) * settings.entity_share
    return [
        Addition(
            memory_id,
            share * confidence * len(names) / len(named),
            f"mentions {', '.join(names)}",
            tuple(names),
            1,
        )
        for memory_id, names, confidence in mentioning(graph, named, most, allowed)
    ]


def _walk(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    seeds: Iterable[Addition],
    relations: Sequence[str],
    depth: int,
    share: float,
    limit: int,
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
        given = [list(front), scope, list(relations), limit]
        edges = cursor.execute(_EDGES, given).fetchall()
        for origin, other, relation, strength, forward in edges:
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
