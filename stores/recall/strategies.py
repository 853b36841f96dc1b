"""What a question's intent adds to its hits, over the graph of the scope.

* why: the causal chain, breadth-first from the hits over causal, derived_from and supersedes edges;
* when: the turns before and after the hits in their sessions;
* who, what: the memories of the entities that the question names.

Every addition says how it was reached and has a score (0..1) of its own, below that of the hit
that it was reached from. Everything is within one scope, living, and bounded by `StrategySettings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb

from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph_boost import NamedEntity
from palimpsest.stores.recall.intent import Intent
from palimpsest.stores.recall.query import Mark
from palimpsest.stores.recall.resident_graph import ResidentGraph

CAUSAL_RELATIONS = ("causal", "derived_from", "supersedes")
TEMPORAL_RELATIONS = ("temporal",)
EVERY = 2**62
"""More rows than there are."""
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
    hit (or the entity's name) on, and `reason` its last step in words. `marks` tell what of it no
    longer holds."""

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
    """`seeds` hits are walked from, over at most `max_edges` edges a step, to at most
    `max_additions` memories. The shares multiply a score at every edge (or once, for a memory of
    an entity); they are chosen, not measured."""

    seeds: int = 10
    max_edges: int = 200
    max_additions: int = 20
    causal_share: float = 0.7
    temporal_share: float = 0.5
    entity_share: float = 0.5


DEFAULTS = StrategySettings()


def additions(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    intent: Intent,
    hits: Sequence[Hit],
    named: Sequence[NamedEntity],
    depth: int,
    settings: StrategySettings = DEFAULTS,
    allowed: VisibilityMask | None = None,
    resident: ResidentGraph | None = None,
) -> tuple[Related, ...]:
    """What the intent adds, best first, ties by id; hits themselves are left out, and what is not
    `allowed` (None: all that lives is).

    `hits` best first; `named` are the entities of the question; `depth` in edges. What is walked
    over on the way need not be allowed. What is `resident` is asked there, with the same answers.
    Raises what the database raises.
    """
    if intent == "why":
        found = causal_chain(cursor, scope, hits, depth, settings)
    elif intent == "when":
        found = beside_in_time(cursor, scope, hits, depth, settings)
    elif intent in ("who", "what"):
        found = of_entities(cursor, scope, hits, named, settings, allowed, resident)
    else:
        return ()
    known = {hit.memory_id for hit in hits}
    new = [addition for addition in found if addition.memory_id not in known]
    ids = [addition.memory_id for addition in new]
    texts = _living(cursor, scope, ids) if resident is None else resident.living(ids)
    may = texts.keys() if allowed is None else allowed.among(texts)
    related = [
        Related(each.memory_id, *texts[each.memory_id], each.score, each.reason, each.path)
        for each in new
        if each.memory_id in may
    ]
    related.sort(key=lambda each: (-each.score, each.id))
    return tuple(related[: settings.max_additions])


def causal_chain(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    hits: Sequence[Hit],
    depth: int,
    settings: StrategySettings = DEFAULTS,
) -> list[Addition]:
    """Causes and effects, sources and what was drawn from them, both ways along the edges."""
    seeds = [_seed(hit) for hit in hits[: settings.seeds]]
    return _walk(cursor, scope, seeds, CAUSAL_RELATIONS, depth, settings.causal_share, settings)


def beside_in_time(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    hits: Sequence[Hit],
    depth: int,
    settings: StrategySettings = DEFAULTS,
) -> list[Addition]:
    """The turns up to `depth` places before and after each hit; a fact is where its turns are."""
    seeds = [_seed(hit) for hit in hits[: settings.seeds]]
    turns = _walk(cursor, scope, seeds, ("derived_from",), 1, 1.0, settings, both_ways=False)
    places = [*seeds, *(replace(turn, distance=0) for turn in turns)]
    share = settings.temporal_share
    return [*turns, *_walk(cursor, scope, places, TEMPORAL_RELATIONS, depth, share, settings)]


def of_entities(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    hits: Sequence[Hit],
    named: Sequence[NamedEntity],
    settings: StrategySettings = DEFAULTS,
    allowed: VisibilityMask | None = None,
    resident: ResidentGraph | None = None,
) -> list[Addition]:
    """Memories that mention the entities of the question: those of the most of them first, then
    the surest, the most important and the newest. Without a hit there is no measure to score them
    by, and they get the entity's share alone."""
    if not named:
        return []
    enough = settings.max_additions + len(hits)
    if resident is not None:
        rows = resident.mentioning(named, enough, allowed)
    else:
        rows = _mentioning(cursor, scope, named, enough, allowed)
    best = max((hit.score for hit in hits), default=1.0)
    return [
        Addition(
            memory_id,
            best * settings.entity_share * confidence * len(names) / len(named),
            f"mentions {', '.join(names)}",
            tuple(names),
            1,
        )
        for memory_id, names, confidence in rows
    ]


def _mentioning(
    cursor: duckdb.DuckDBPyConnection,
    scope: str,
    named: Sequence[NamedEntity],
    enough: int,
    allowed: VisibilityMask | None,
) -> list[tuple[str, list[str], float]]:
    """Memories with the names of those entities that they mention, and how sure that is."""
    is_filtered = allowed is not None and allowed.is_filtered
    rows = cursor.execute(
        """WITH named AS (SELECT unnest($1) AS entity_id, unnest($2) AS name)
        SELECT m.memory_id, list(DISTINCT named.name ORDER BY named.name), max(m.confidence)
        FROM present_mentions m JOIN named USING (entity_id) JOIN memory_rows r USING (memory_id)
        WHERE m.scope = $3 AND r.scope = $3
        GROUP BY m.memory_id, r.importance, r.occurred_at
        ORDER BY count(DISTINCT entity_id) DESC, max(m.confidence) DESC, r.importance DESC,
            r.occurred_at DESC, m.memory_id
        LIMIT $4""",
        [
            [entity.entity_id for entity in named],
            [entity.name for entity in named],
            scope,
            # Filters come before the count of what is taken.
            EVERY if is_filtered else enough,
        ],
    ).fetchall()
    if allowed is not None and is_filtered:
        may = allowed.among(row[0] for row in rows)
        rows = [row for row in rows if row[0] in may][:enough]
    return rows


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
    """Breadth-first over edges. A memory is taken where it is first reached, from the
    best of those that reach it; its score is that one's x share x weight x confidence."""
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


def _living(
    cursor: duckdb.DuckDBPyConnection, scope: str, ids: Sequence[str]
) -> dict[str, tuple[str, str, str, str, datetime, str]]:
    """Content, type, who, session, time and role of those that live, by id."""
    if not ids:
        return {}
    marks = ", ".join("?" * len(ids))
    rows = cursor.execute(
        "SELECT memory_id, content, type, who, session_id, occurred_at, role FROM memory_rows"
        f" WHERE memory_id IN ({marks}) AND scope = ? AND NOT is_deleted",
        [*ids, scope],
    )
    return {
        memory_id: (content, kind, who, session, at.astimezone(UTC), role)
        for memory_id, content, kind, who, session, at, role in rows.fetchall()
    }
