"""What of an answer stands in the block that a model reads, beside a plain list of what was found.

The conversations go through the real pipeline, or are there already. For each question of
categories 1 to 4 with evidence and each budget: `palimpsest context`, and the turns of a recall in
their order until the budget is full.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.conversations import CATEGORIES, Question, questions, records
from palimpsest.ops.bench.found import quantiles
from palimpsest.ops.bench.retrieval import DataSet, remembering
from palimpsest.ops.embedded import application
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.recalling import context, retrieved
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.running import sources_of
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sources import Sources
from palimpsest.stores.index.analysis import query_tokens
from palimpsest.stores.recall.query import Query

# How much of what answers a question stands in a text that a model reads. Pure. The unit of
# evidence is the turn. Figures are shares from 0 to 1, and a share of nothing is None.

LEAD: Final = 60
"""The first characters of a turn by which a text that quotes it is recognized."""
WORDS_SHARE: Final = 0.75
"""The share of a turn's longer words that one line must hold where the lead is not quoted."""
LONGER: Final = 5
"""Characters of a longer word of a turn."""
ANSWERING: Final = 4
"""Characters of an answer's word that counts; a number counts whatever its length."""
CHARACTERS_A_TOKEN: Final = 4
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Shares:
    """What a text holds for one question. `evidence` is the share of the evidence turns that stand
    in it, `answer` the share of the answer's words (None: it has none that count), `filler` the
    share of the lines that are neither evidence nor hold a word of the answer."""

    evidence: float
    answer: float | None
    filler: float | None
    characters: int


def shares(text: str, evidence: Sequence[str], answer: str, language: str = "english") -> Shares:
    """What the text holds of the evidence turns and of the answer."""
    lines = [folded for line in text.split("\n") if (folded := fold(line))]
    stands = [_stands(fold(turn), lines) for turn in evidence]
    wanted = answer_words(answer, language)
    held = [answer_words(line, language) for line in lines]
    items = [number for number, line in enumerate(lines) if not line.startswith("#")]
    useful = set().union(*stands) | {number for number in items if wanted & held[number]}
    return Shares(
        evidence=sum(map(bool, stands)) / len(evidence),
        answer=len(wanted & set().union(*held)) / len(wanted) if wanted else None,
        filler=sum(number not in useful for number in items) / len(items) if items else None,
        characters=len(text),
    )


def fold(text: str) -> str:
    """The text on one line, in lower case."""
    return " ".join(text.split()).casefold()


def answer_words(text: str, language: str = "english") -> set[str]:
    """The stems of the text's words of four or more characters, and its numbers; function words
    are left out."""
    words = [
        word
        for word in _WORD.findall(text.casefold())
        if len(word) >= ANSWERING or any(map(str.isdigit, word))
    ]
    return set(query_tokens(" ".join(words), language)) if words else set()


def plain_list(turns: Iterable[tuple[str, str]], budget: int) -> str:
    """Speakers and texts as lines "who: text" in the order given, as many as fit the budget at four
    characters a token. One that does not fit is passed over."""
    left = budget * CHARACTERS_A_TOKEN
    taken = []
    for who, text in turns:
        line = " ".join(f"{who}: {text}".split())
        if len(line) + 1 <= left:
            taken.append(line)
            left -= len(line) + 1
    return "\n".join(taken)


def _stands(turn: str, lines: Sequence[str]) -> set[int]:
    """The lines that quote the lead of a turn or hold most of its longer words."""
    lead = turn[:LEAD].rstrip()
    words = {word for word in _WORD.findall(turn) if len(word) >= LONGER}
    enough = max(WORDS_SHARE * len(words), 1)
    return {
        number
        for number, line in enumerate(lines)
        if lead in line or len(words.intersection(_WORD.findall(line))) >= enough
    }


BUDGETS: Final = (500, 1_000, 2_000, 4_000)
LISTED: Final = 100
"""Turns that the plain list is made of."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer and the texts of its evidence."""

    question: Question
    answer: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """A text for one question and budget: what it holds, its tokens by the program's own estimate
    (None: it has none) and the milliseconds that it took."""

    category: int
    shares: Shares
    tokens: int | None
    ms: float


def asked_of(file: Path) -> list[Asked]:
    """The questions of a conversation. Raises ValueError for a file in another layout."""
    raw = json.loads(file.read_text(encoding="utf-8"))
    turns = {
        turn["dia_id"]: turn["text"]
        for name, session in raw.items()
        if re.fullmatch(r"session_\d+", name)
        for turn in session
    }
    items = {item["question"]: item for item in raw.get("qa", [])}
    found = []
    for question in questions(file):
        item = items[question.text]
        evidence = tuple(turns[turn] for turn in question.evidence if turn in turns)
        if evidence:
            found.append(Asked(question, str(item.get("answer", "")), evidence))
    return found


async def measure_context(
    settings: Settings, chosen: DataSet, budgets: Sequence[int] = BUDGETS
) -> JsonObject:
    """Ingest the conversations into the settings' folder (what is there already is nothing new),
    and measure block and list at each budget. Raises ValueError for a folder without
    conversations."""
    asked = [each for file in chosen.files() for each in asked_of(file)]
    with publisher(settings) as append:
        for batch in in_batches(records(chosen.files(), settings, chosen.captions)):
            append(batch)
    blocks: dict[int, list[Measured]] = {budget: [] for budget in budgets}
    lists: dict[int, list[Measured]] = {budget: [] for budget in budgets}
    async with application(settings) as app:
        await app.run(until_drained=True)
        # Embedded once, not for each budget; every time that is told includes it.
        embedding_ms: dict[str, float] = {}
        sources = replace(sources_of(app), embedding=remembering(app.embedding, embedding_ms))
        for each in asked:
            turns, ms = await _listed(sources, each)
            known_ms = embedding_ms.get(each.question.text, 0.0)
            for budget in budgets:
                blocks[budget].append(await _block(sources, each, budget, known_ms))
                text = plain_list(turns, budget)
                lists[budget].append(_measured(each, text, None, ms, settings))
    return {
        "data": chosen.data.name,
        "questions": len(asked),
        "budgets": {
            str(budget): {"block": _summary(blocks[budget]), "list": _summary(lists[budget])}
            for budget in budgets
        },
    }


async def _block(sources: Sources, each: Asked, budget: int, known_ms: float) -> Measured:
    question = each.question
    query = Query(question.scope, question.text, asked_at=question.asked_at)
    began = time.perf_counter()
    found = await context(sources, query, budget)
    ms = 1000 * (time.perf_counter() - began) + known_ms
    assert isinstance(found, dict)
    tokens = found["tokens"]
    assert isinstance(tokens, int)
    return _measured(each, str(found["text"] or ""), tokens, ms, sources.settings)


async def _listed(sources: Sources, each: Asked) -> tuple[list[tuple[str, str]], float]:
    question = each.question
    query = Query(
        question.scope, question.text, LISTED, types=("episodic",), asked_at=question.asked_at
    )
    began = time.perf_counter()
    found = await retrieved(sources, query)
    ms = 1000 * (time.perf_counter() - began)
    return [(result.who, result.content) for result in found.results], ms


def _measured(
    each: Asked, text: str, tokens: int | None, ms: float, settings: Settings
) -> Measured:
    held = shares(text, each.evidence, each.answer, settings.search.language)
    return Measured(each.question.category, held, tokens, ms)


def _summary(measured: Sequence[Measured]) -> JsonObject:
    means = _means(measured)
    return {
        **means,
        "by_category": {
            name: _means([each for each in measured if each.category == number])
            for number, name in CATEGORIES.items()
        },
        "ms": quantiles([each.ms for each in measured]),
    }


def _means(measured: Sequence[Measured]) -> JsonObject:
    return {
        "questions": len(measured),
        "evidence": _mean([each.shares.evidence for each in measured]),
        "answer": _mean([each.shares.answer for each in measured]),
        "filler": _mean([each.shares.filler for each in measured]),
        "tokens": _mean([each.shares.characters / CHARACTERS_A_TOKEN for each in measured]),
        "own_tokens": _mean([each.tokens for each in measured]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those that there are."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None
