"""How much of an answer is in the block that a model reads, compared with a plain list of results.

    python -m tests.soak.context_block FOLDER… [--half check] [--budget 500] [--set KEY=VALUE]

The conversations go through the real pipeline. For each question of categories 1 to 4 with evidence
and each budget: `palimpsest context`, and the turns of a recall in their order until the budget is
used up. The unit of evidence is the turn. Figures are shares from 0 to 1; a share of nothing is
None.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from palimpsest.ops.bench.data_sets import CATEGORIES, DataSet, Question
from palimpsest.ops.bench.measures import ms_since, times
from palimpsest.ops.bench.retrieval import remembering
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.operations.recalling import context, retrieved
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.echoes import CONTINUED
from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.recall.query import Query
from tests.soak.by_folder import run_by_folder

LEAD: Final = 60
"""The first characters of a turn by which a text that quotes it is recognized."""
WORDS_SHARE: Final = 0.75
"""The share of a turn's longer words that one line must hold where the lead is not quoted."""
LONGER: Final = 5
"""Characters of a longer word of a turn."""
ANSWERING: Final = 4
"""Characters of an answer's word that counts; a number counts whatever its length."""
CHARACTERS_A_TOKEN: Final = 4
BUDGETS: Final = (500, 1_000, 2_000, 4_000)
"""Tokens of the blocks, where none are named."""
_WORD: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Shares:
    """What a text contains for one question: the share of the evidence turns, of the answer's words
    (None: no word counts), and of the lines that are neither evidence nor contain a word of the
    answer."""

    evidence: float
    answer: float | None
    filler: float | None
    characters: int


def shares(text: str, evidence: Sequence[str], answer: str, language: str = "english") -> Shares:
    """What the text contains of the evidence turns and of the answer."""
    entries = text.replace(f"\n{CONTINUED}", " ").split("\n")
    lines = [folded for line in entries if (folded := fold(line))]
    quoting = [_quoting(fold(turn), lines) for turn in evidence]
    expected = answer_words(answer, language)
    contained = [answer_words(line, language) for line in lines]
    items = [number for number, line in enumerate(lines) if not line.startswith("#")]
    useful = set().union(*quoting) | {number for number in items if expected & contained[number]}
    return Shares(
        evidence=sum(map(bool, quoting)) / len(evidence),
        answer=len(expected & set().union(*contained)) / len(expected) if expected else None,
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


def _quoting(turn: str, lines: Sequence[str]) -> set[int]:
    """The lines that quote the lead of a turn or hold most of its longer words."""
    lead = turn[:LEAD].rstrip()
    words = {word for word in _WORD.findall(turn) if len(word) >= LONGER}
    enough = max(WORDS_SHARE * len(words), 1)
    return {
        number
        for number, line in enumerate(lines)
        if lead in line or len(words.intersection(_WORD.findall(line))) >= enough
    }


LISTED: Final = 100
"""Turns in the plain list."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A text for one question and budget: its shares, its tokens by the program's own estimate
    (None: it has none) and milliseconds."""

    category: int
    shares: Shares
    tokens: int | None
    ms: float


async def measure_context(
    settings: Settings, chosen: DataSet, budgets: Sequence[int]
) -> JsonObject:
    """Ingests the conversations into the settings' folder and measures block and list at each
    budget. Raises ValueError for a folder without conversations."""
    questions = [each for each in chosen.questions() if each.evidence_texts]
    chosen.publish(settings)
    blocks: dict[int, list[Measured]] = {budget: [] for budget in budgets}
    lists: dict[int, list[Measured]] = {budget: [] for budget in budgets}
    async with application(settings) as app:
        await app.run(until_drained=True)
        # Embedded once, not for each budget; every reported time includes it.
        embedding_ms: dict[str, float] = {}
        sources = replace(sources_of(app), embedding=remembering(app.embedding, embedding_ms))
        for each in questions:
            turns, ms = await _listed(sources, each)
            known_ms = embedding_ms.get(each.text, 0.0)
            for budget in budgets:
                blocks[budget].append(await _block(sources, each, budget, known_ms))
                text = plain_list(turns, budget)
                lists[budget].append(_measured(each, text, None, ms, settings))
    return {
        "data": chosen.data.name,
        "questions": len(questions),
        "budgets": {
            str(budget): {"block": _summary(blocks[budget]), "list": _summary(lists[budget])}
            for budget in budgets
        },
    }


async def _block(sources: Sources, question: Question, budget: int, known_ms: float) -> Measured:
    query = Query(question.scope, question.text, asked_at=question.asked_at)
    began = time.perf_counter()
    found = await context(sources, query, budget)
    ms = ms_since(began) + known_ms
    assert isinstance(found, dict)
    tokens = found["tokens"]
    assert isinstance(tokens, int)
    return _measured(question, str(found["text"] or ""), tokens, ms, sources.settings)


async def _listed(sources: Sources, question: Question) -> tuple[list[tuple[str, str]], float]:
    query = Query(
        question.scope, question.text, LISTED, types=("episodic",), asked_at=question.asked_at
    )
    began = time.perf_counter()
    found = await retrieved(sources, query)
    return [(result.who, result.content) for result in found.results], ms_since(began)


def _measured(
    question: Question, text: str, tokens: int | None, ms: float, settings: Settings
) -> Measured:
    found = shares(text, question.evidence_texts, question.answer, settings.search.language)
    return Measured(question.category, found, tokens, ms)


def _summary(measured: Sequence[Measured]) -> JsonObject:
    return {
        **_means(measured),
        "by_category": {
            name: _means([each for each in measured if each.category == number])
            for number, name in CATEGORIES.items()
        },
        "ms": times([each.ms for each in measured]),
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
    """Of the known values."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


if __name__ == "__main__":
    run_by_folder(
        __doc__,
        lambda settings, chosen, given: measure_context(settings, chosen, given.budget or BUDGETS),
        lambda parser: parser.add_argument("--budget", type=int, action="append"),
    )
