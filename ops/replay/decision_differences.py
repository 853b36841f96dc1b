"""Facts about which two memories decided in different ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from palimpsest.ops.replay.differences import Decision, DecisionDifference
from palimpsest.ops.replay.pairing import (
    NEAR_WORDS,
    Pairs,
    Statement,
    may_be_pairs,
    pair_nearest,
    shared_words,
)
from palimpsest.ops.replay.reading import Record
from palimpsest.schemas.normal_forms import content_hash

NOTHING: Final = "-"
"""In place of an action: nothing was decided."""


def decision_differences(
    scope: str,
    live: Sequence[Record],
    branch: Sequence[Record],
    memories: Pairs,
    anew: frozenset[str],
) -> tuple[DecisionDifference, ...]:
    """Facts of the same turn that are one (by their words: facts have no vectors of their own), for
    which the action is another or the memory that it is about has another counterpart."""
    mine = {str(row["item_id"]): row for row in live if row["turn_memory_id"] in anew}
    theirs = {str(row["item_id"]): row for row in branch if row["turn_memory_id"] in anew}
    pairs = _paired([*mine.values()], [*theirs.values()])
    counterpart = {pair.live: pair.branch for pair in memories.paired.values()}
    said = [{str(row["memory_id"]): str(row["content"]) for row in rows} for rows in (live, branch)]
    found = []
    for item_id, other_id in sorted(pairs.items()):
        one, other = mine[item_id], theirs[other_id]
        target, other_target = one["target_id"], other["target_id"]
        is_same_target = (target is None) == (other_target is None) and (
            target is None or counterpart.get(target, target) == other_target
        )
        if one["action"] != other["action"] or not is_same_target:
            turn = str(one["turn_memory_id"])
            decided = (_decision(one, said[0]), _decision(other, said[1]))
            found.append(DecisionDifference(scope, turn, *decided))
    return tuple(found)


def _paired(live: Sequence[Record], branch: Sequence[Record]) -> dict[str, str]:
    mine, theirs = ([*map(_statement, rows)] for rows in (live, branch))
    pairs = Pairs()
    scores = {}
    by_turn: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in theirs:
        by_turn[statement.digest, statement.sources[0]].append(statement)
    for statement in mine:
        for equal in by_turn[statement.digest, statement.sources[0]]:
            scores[statement.memory_id, equal.memory_id] = 1.0
    for one, other in may_be_pairs(mine, theirs):
        score = shared_words(one.content, other.content)
        if score >= NEAR_WORDS:
            scores.setdefault((one.memory_id, other.memory_id), score)
    pair_nearest(pairs, scores, frozenset())
    return {pair.live: pair.branch for pair in pairs.paired.values()}


def _statement(row: Record) -> Statement:
    content, turn = str(row["content"]), str(row["turn_memory_id"])
    return Statement(str(row["item_id"]), content, content_hash(content), (turn,))


def _decision(row: Record, said: dict[str, str]) -> Decision:
    target = row["target_id"]
    return Decision(
        item_id=str(row["item_id"]),
        fact=str(row["content"]),
        action=str(row["action"] or NOTHING),
        target=None if target is None else said.get(str(target), str(target)),
        reason=str(row["reason"] or ""),
    )
