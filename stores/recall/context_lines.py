"""What a context may include of a retrieval: turns, facts and parts of documents, most relevant
first.

A fact and its turn are one piece of information: the turn has the original wording, so the fact is
included only if its turn was not found or if it contains more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final, TypeVar

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.memory_texts import refers_to_speaker
from palimpsest.schemas.rows.memories import DOCUMENT_CHUNK
from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.recall.answers import Retrieval
from palimpsest.stores.recall.context import Found, Piece, Stems
from palimpsest.stores.recall.query import Neighbour, RecallResult, in_words
from palimpsest.stores.recall.question import question_of

ShownT = TypeVar("ShownT", RecallResult, Neighbour)
COVERED: Final = 0.8
"""The share of a turn's words that a fact must contain to replace the turn."""
NEAREST: Final = 3
"""Number of results that come before neighbours if all are unlikely."""
LEAST_RESULTS: Final = 20
"""Minimum number of results that a block with room shows. If one is likely they come before
neighbours: a vague question leaves few likely ones, and their whole texts say less than excerpts of
the others. If none is, all scores are next to zero and the order means little."""
_ORDINAL: Final = re.compile(r"\b(\d{1,4})(?:st|nd|rd|th)\b")
"""The 27th of a list is numbered 27 there."""


def found_pieces(found: Retrieval, language: str, left_out: frozenset[str]) -> Found:
    """Returns the results as pieces and the turns next to them, without the memories that are
    `left_out` and those derived only from them. `found` is not grouped."""
    said: dict[str, frozenset[str]] = {}

    def stems(text: str) -> frozenset[str]:
        if text not in said:
            said[text] = frozenset(query_tokens(text, language))
        return said[text]

    results = [
        _without_echoes(result)
        for result in found.results
        if result.id not in left_out
        and not (result.derived_from and left_out.issuperset(result.derived_from))
    ]
    likely = [result for result in results if not result.unlikely]
    count = max(len(likely), LEAST_RESULTS) if likely else NEAREST
    results, rest = results[:count], results[count : None if likely else LEAST_RESULTS]
    turns = {result.id: result for result in results if result.type == "episodic"}
    facts = [result for result in results if result.id not in turns]
    covered = {
        source
        for fact in facts
        for source in fact.derived_from
        if source in turns and _stands_for(fact, turns[source], stems)
    }
    pieces = [
        _piece(result)
        for result in results
        if result.id not in covered and not _is_said(result, turns, covered, stems)
    ]
    neighbors = {
        turn.id: turn
        for result in results
        for turn in result.neighbours
        if turn.id not in turns and turn.id not in left_out
    }
    question = question_of(found.answer.query)
    wanted = stems(question) | {*_ORDINAL.findall(question)}
    near = map(_without_echoes, neighbors.values())
    last = [*map(_turn, near), *map(_piece, rest)]
    return Found(found.answer.query, pieces, last, wanted, stems)


def _without_echoes(each: ShownT) -> ShownT:
    """Without earlier blocks in a turn: what they say has memories of its own. A turn that is
    nothing else has no text then, and no line."""
    said = spoken(each.content)
    is_turn = isinstance(each, Neighbour) or each.type == "episodic"
    return replace(each, content=said) if is_turn and said is not each.content else each


def _stands_for(fact: RecallResult, turn: RecallResult, stems: Stems) -> bool:
    """Returns whether a fact contains nearly all of a turn and something more, such as the date of
    "yesterday"."""
    words, said = stems(turn.content), stems(fact.content)
    adds = not said <= stems(f"{turn.who} {turn.content}")
    return adds and len(words & said) >= COVERED * len(words)


def _is_said(
    result: RecallResult, turns: Mapping[str, RecallResult], covered: Set[str], stems: Stems
) -> bool:
    """Returns whether the turns shown contain all of a fact, except what their day implies."""
    sources = [turns[source] for source in result.derived_from if source in turns]
    if not sources or any(source.id in covered for source in sources):
        return False
    new = set(stems(result.content))
    for turn in sources:
        new -= stems(f"{turn.who} {turn.content}")
    return all(stem[0].isdigit() for stem in new)


def _piece(result: RecallResult) -> Piece:
    if result.type == "episodic":
        return _turn(result)
    speaker = ", ".join(result.tags) if result.type == DOCUMENT_CHUNK else ""
    if not speaker:
        speaker = owner_of(result.who, result.content)
    return Piece(result.id, result.content, result.occurred_at, speaker, in_words(result.marks))


_NO_NAMES: Final = ("", "pipeline", "local")
"""Who a memory is of where nobody was named."""


def owner_of(who: str, content: str) -> str:
    """Returns the person whose words a memory's text is, if it does not make sense without the
    name; else nothing."""
    return who if who not in _NO_NAMES and refers_to_speaker(content) else ""


def _turn(turn: RecallResult | Neighbour) -> Piece:
    speaker = turn.who
    if turn.role == "assistant" and turn.who.casefold() != "assistant":
        speaker = f"{turn.who} (assistant)".strip()
    return Piece(turn.id, turn.content, turn.occurred_at, speaker, in_words(turn.marks))
