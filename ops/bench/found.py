"""What a way to search found: the share of the evidence among the first k turns, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from palimpsest.ops.bench.conversations import CATEGORIES, Question
from palimpsest.ops.bench.halves import Half
from palimpsest.ops.requests import JsonObject

KS: Final = (1, 5, 10, 50)


@dataclass(frozen=True, slots=True)
class Found:
    """One question: the share of its evidence among the first k turns, by k; the rank of the first
    evidence (None: not among those returned), and the milliseconds it took."""

    question: Question
    recall: tuple[float, ...]
    first: int | None
    ms: float


def judged(question: Question, turns: Sequence[str], ms: float) -> Found:
    """How much of the evidence is among `turns`, the best first, which may hold one twice."""
    turns = list(dict.fromkeys(turns))
    shares = tuple(
        sum(turn in turns[:k] for turn in question.evidence) / len(question.evidence) for k in KS
    )
    ranks = [turns.index(turn) + 1 for turn in question.evidence if turn in turns]
    return Found(question, shares, min(ranks, default=None), ms)


def summary(found: Sequence[Found]) -> JsonObject:
    """Means over the questions, in all, by category, by half, and where the data tells them by role
    of the evidence and by type; milliseconds by quantile."""
    by_role = [" and ".join(each.question.roles) for each in found]
    by_type = [each.question.type for each in found]
    return {
        **_means(found),
        "by_category": {
            name: _means([each for each in found if each.question.category == number])
            for number, name in CATEGORIES.items()
        },
        "by_half": {
            half.value: _means([each for each in found if each.question.half == half])
            for half in Half
        },
        "by_role": _by_name(found, by_role),
        "by_type": _by_name(found, by_type),
        "ms": quantiles([each.ms for each in found]),
    }


def _by_name(found: Sequence[Found], names: Sequence[str]) -> JsonObject:
    """Nothing where all have the same name."""
    known = sorted({*names})
    if len(known) < 2:
        return {}
    pairs = list(zip(found, names, strict=True))
    return {name: _means([each for each, own in pairs if own == name]) for name in known}


def quantiles(values: Sequence[float]) -> JsonObject:
    found = np.array(values or [0.0])
    return {f"p{q}": round(float(np.percentile(found, q)), 2) for q in (50, 95)}


def _means(found: Sequence[Found]) -> JsonObject:
    count = len(found)
    if not count:
        return {"questions": 0}
    means: JsonObject = {"questions": count}
    for number, k in enumerate(KS):
        means[f"recall@{k}"] = round(sum(each.recall[number] for each in found) / count, 4)
    for number, k in enumerate(KS):
        means[f"hit@{k}"] = round(sum(each.recall[number] > 0 for each in found) / count, 4)
    means["mrr"] = round(sum(1 / each.first for each in found if each.first) / count, 4)
    return means
