"""Builds the results shown, from the index: no table is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from palimpsest.stores.database.analysis import asks
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import NEVER, Floats
from palimpsest.stores.ranking import top
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.query import Explanation, Neighbour, RecallResult, Scores
from palimpsest.stores.recall.ranking_steps import Ranking, RankingContext

Ranks = Mapping[str, list[int | None]]
WORDS_BEFORE: Final = 40
"""Maximum number of words of the previous turn, its last ones: time grows with the length."""


def shown(
    rows: Ranking, context: RankingContext, allowed: VisibilityMask
) -> tuple[RecallResult, ...]:
    """The results in their order, without those that were deleted meanwhile."""
    ranks: Ranks = {}
    if allowed.query.explain:
        legs = {"keyword": rows.keyword, "vector": rows.vector}
        ranks = {leg: leg_ranks(scores, rows.ids) for leg, scores in legs.items()}
    with context.index.lock:
        made = [_result(rows, context, allowed, ranks, head) for head in rows.results]
    return tuple(result for result in made if result is not None)


def place_of(memory_id: str, results: Sequence[RecallResult]) -> tuple[int, RecallResult] | None:
    """The rank, from 1, and the explained result that is or represents a memory."""
    for rank, each in enumerate(results, 1):
        if memory_id == each.id or (each.explanation and memory_id in each.explanation.grouped):
            return rank, each
    return None


def text_of(index: ScopeIndex, memory_id: str) -> str | None:
    """The text of a memory; None if the index does not have it."""
    with index.lock:
        found = index.find(memory_id)
        return None if found is None else found[0].contents[found[1]]


def readings(rows: Ranking, index: ScopeIndex) -> list[tuple[str, ...]]:
    """Returns the passages that a cross-encoder reads for each result: the text alone, and after
    the turn before. An answer is read after its question only."""

    def passage(memory_id: str) -> str:
        found = index.find(memory_id)
        if found is None:
            return ""
        segment, place = found
        who = segment.name(place, "who")
        text = segment.contents[place]
        return f"{who}: {text}" if segment is index.turns and who else text

    def read(head: int) -> tuple[str, ...]:
        own = passage(rows.ids[head])
        before = passage(rows.nearby[-1][head]) if head < rows.turns else ""
        if not before:
            return (own,)
        both = f"{' '.join(before.split()[-WORDS_BEFORE:])} {own}"
        return (both,) if asks(before) and not rows.questions[head] else (own, both)

    with index.lock:
        return [read(head) for head in rows.results]


def leg_ranks(leg: Floats | None, ids: Sequence[str]) -> list[int | None]:
    """Place of each memory in a leg, from 1; None where it is no hit of it."""
    if leg is None:
        return [None] * len(ids)
    scores = np.nan_to_num(leg)
    ranks: list[int | None] = [None] * len(ids)
    for rank, place in enumerate(top(scores, ids, len(ids)).tolist(), start=1):
        if scores[place] > 0.0:
            ranks[place] = rank
    return ranks


def _result(
    rows: Ranking, context: RankingContext, allowed: VisibilityMask, ranks: Ranks, head: int
) -> RecallResult | None:
    index, query = context.index, allowed.query
    row, *others = rows.groups[head]
    repeats = [each for repeat in rows.repeats.get(head, ()) for each in rows.groups[repeat]]
    others += repeats
    found = index.find(rows.ids[row])
    if found is None:
        return None
    segment, place = found
    meta = segment.meta[place]
    derived_from = tuple(sorted(index.derived_from.get(rows.ids[row], ())))
    kind = segment.name(place, "kind")
    sources = _sources(index, [rows.ids[row], *(rows.ids[each] for each in repeats)])
    by_word = rows.keyword is not None and rows.keyword[row] > 0.0
    by_vector = rows.vector is not None and np.nan_to_num(rows.vector[row]) > 0.0
    if by_word == by_vector:
        # Found through the memories around it: by the legs that were on.
        by_word, by_vector = rows.keyword is not None, rows.vector is not None
    return RecallResult(
        id=rows.ids[row],
        content=segment.contents[place],
        type=kind,
        score=float(rows.scores[head]),
        scores=_scores(rows, row),
        source="hybrid" if by_word and by_vector else "vector" if by_vector else "keyword",
        scope=query.scope,
        who=segment.name(place, "who"),
        session_id=segment.name(place, "session"),
        source_id=segment.source_ids[place],
        source_ids=tuple(dict.fromkeys(sources)),
        derived_from=derived_from,
        tags=segment.tags[place],
        categories=segment.categories[place],
        pinned=bool(meta["pinned"]),
        importance=float(meta["importance"]),
        occurred_at=index.said_at(segment, place),
        created_at=segment.time(place, "created"),
        project=segment.name(place, "project") or None,
        valid_until=None if meta["ends"] == NEVER else segment.time(place, "ends"),
        expired=bool(meta["ends"] <= context.now),
        neighbours=tuple(_neighbours(rows.ids[row], allowed)),
        explanation=_explanation(rows, head, others, ranks) if ranks else None,
        role=segment.name(place, "role"),
        unlikely=bool(rows.scores[head] < context.by_model.unlikely),
        metadata=json.loads(segment.metadata[place]),
        repeats=tuple(rows.ids[each] for each in repeats),
        last_accessed=segment.time(place, "accessed") if meta["accesses"] else None,
    )


def _sources(index: ScopeIndex, ids: Sequence[str]) -> Iterator[str]:
    """The source ids of turns, and of the turns that other memories were derived from."""
    for memory_id in ids:
        found = index.find(memory_id)
        if found is None:
            continue
        is_turn = found[0].name(found[1], "kind") == "episodic"
        texts = [memory_id] if is_turn else sorted(index.derived_from.get(memory_id, ()))
        for each in filter(None, map(index.find, texts)):
            source_id = each[0].source_ids[each[1]]
            if source_id is not None:
                yield source_id


def _neighbours(memory_id: str, allowed: VisibilityMask) -> Iterator[Neighbour]:
    """The turns next to a turn in its session that the query may show, in order."""
    turns, reach = allowed.index.turns, allowed.query.neighbours
    place = turns.place_of.get(memory_id)
    if place is None or reach < 1:
        return
    slots = allowed.index.turns_by_session.get(int(turns.meta[place]["session"]), ())
    position = int(turns.meta[place]["position"])
    near = {
        turns.ids[slots[there]]: there - position
        for there in range(max(position - reach, 0), min(position + reach + 1, len(slots)))
        if there != position and slots[there] >= 0 and turns.alive[slots[there]]
    }
    may = allowed.among(near)
    for other, offset in near.items():
        if other in may:
            there = turns.place_of[other]
            yield Neighbour(
                id=other,
                offset=offset,
                content=turns.contents[there],
                who=turns.name(there, "who"),
                occurred_at=turns.said_at(there),
                role=turns.name(there, "role"),
            )


def _scores(rows: Ranking, row: int) -> Scores:
    def of(leg: Floats | None) -> float | None:
        return None if leg is None or np.isnan(leg[row]) else round(float(leg[row]), 6)

    return Scores(
        keyword=of(rows.keyword),
        vector=of(rows.vector),
        graph=round(float(rows.graph[row]), 6),
        recency=round(float(rows.recency[row]), 6),
        importance=round(float(rows.meta["importance"][row]), 6),
    )


def _explanation(rows: Ranking, head: int, others: Sequence[int], ranks: Ranks) -> Explanation:
    """The parts of the score of the memory that gave it: of a group that is its turn."""
    added = {name: float(part[head]) for name, part in rows.parts.items()}
    return Explanation(
        parts={name: round(value, 9) for name, value in added.items() if not math.isnan(value)},
        ranks={leg: places[head] for leg, places in ranks.items()},
        grouped=tuple(rows.ids[other] for other in others),
    )
