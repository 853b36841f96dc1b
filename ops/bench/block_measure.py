"""How much of what answers a question stands in a text that a model reads. Pure.

The unit of evidence is the turn. Figures are shares from 0 to 1, and a share of nothing is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from palimpsest.stores.index.analysis import query_tokens

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
