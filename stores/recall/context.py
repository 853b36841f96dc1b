"""Context for an agent: what was found, as a Markdown block within a budget of tokens.

Four sections with a share of the budget each: facts 40 %, entity profiles 25 %, temporal context
25 %, evidence 10 %. What a section leaves unused flows on to the next ones, and what is left at
the end goes round once more. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Literal

Section = Literal["facts", "entities", "timeline", "evidence"]
TITLES: Final[Mapping[Section, str]] = {
    "facts": "## Facts",
    "entities": "## People and things",
    "timeline": "## What was said, in order",
    "evidence": "## Evidence",
}


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """`shares` of the budget by section, in the order of the block. A text is cut after
    `max_characters`; ids are shown by their first `id_characters`, which is enough to ask for
    them."""

    shares: Mapping[Section, float] = field(
        default_factory=lambda: MappingProxyType(
            {"facts": 0.40, "entities": 0.25, "timeline": 0.25, "evidence": 0.10}
        )
    )
    max_characters: int = 600
    id_characters: int = 8


DEFAULTS: Final = ContextSettings()


@dataclass(frozen=True, slots=True)
class Line:
    """A statement with the id and the time that it is shown with. Times have a zone."""

    id: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Context:
    """`text` is the Markdown block; `tokens` by `estimate_tokens`, at most the budget; `ids` those
    of the lines shown, by section."""

    text: str
    tokens: int
    budget: int
    ids: Mapping[Section, tuple[str, ...]]


def assemble(
    found: Mapping[Section, Sequence[Line]],
    budget: int,
    settings: ContextSettings = DEFAULTS,
) -> Context | None:
    """The block for what was found (each section best first), None when no line is there or fits.

    No two lines say the same: what an earlier section says, word for word, a later one leaves out.
    The timeline chooses by rank and shows by time; the others show by rank.
    """
    block = _Block(settings)
    unused = 0.0
    for section in TITLES:
        allowed = unused + budget * settings.shares.get(section, 0.0)
        unused = allowed - block.fill(section, found.get(section, ()), allowed)
    for section in TITLES:
        unused -= block.fill(section, found.get(section, ()), unused)
    return block.context(budget)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated without a tokenizer.

    A word in Latin letters counts one for every four letters begun, in other letters one for every
    two; a number one for every three digits; a character of a script without spaces, a mark and a
    line break one each; other signs (emoji) two. Rather more than the tokenizers of today's models
    count, so that a budget holds. Additive over lines: of two texts joined by a line break it is
    the sum and one.
    """
    total = 0
    for match in _PIECE.finditer(text):
        kind = match.lastgroup or "sign"
        per = _LETTERS_A_TOKEN.get(kind)
        total += _TOKENS_A_SIGN[kind] if per is None else -(-len(match.group()) // per)
    return total


_UNSPACED = (
    r"\u0e00-\u0eff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff9f"
)
_PIECE = re.compile(
    r"(?P<latin>[A-Za-z]+)|(?P<digits>[0-9]+)"
    rf"|(?P<single>[{_UNSPACED}\n!-/:-@\[-`{{-~])"
    rf"|(?P<letters>[^\W\d_{_UNSPACED}A-Za-z]+)"
    r"|(?P<sign>[^\s])"
)
_LETTERS_A_TOKEN = {"latin": 4, "digits": 3, "letters": 2}
_TOKENS_A_SIGN = {"single": 1, "sign": 2}
_SPACE = re.compile(r"\s+")
_EDGE = re.compile(r"^\W+|\W+$")


class _Block:
    """The lines taken so far."""

    def __init__(self, settings: ContextSettings) -> None:
        self._settings = settings
        self._lines: dict[Section, list[tuple[Line, str]]] = {}
        self._said: set[str] = set()

    def fill(self, section: Section, lines: Sequence[Line], allowed: float) -> int:
        """Take what fits; returns the tokens spent."""
        spent = 0
        taken = self._lines.get(section, [])
        for line in lines:
            shown, said = self._shown(line)
            if not said or said in self._said:
                continue
            # A line break before the line; with the first one the title, and a blank line above.
            cost = 1 + estimate_tokens(shown)
            if not taken:
                cost += 2 + estimate_tokens(TITLES[section])
            if spent + cost > allowed:
                continue
            self._said.add(said)
            taken = self._lines.setdefault(section, taken)
            taken.append((line, shown))
            spent += cost
        return spent

    def context(self, budget: int) -> Context | None:
        parts = []
        for section, title in TITLES.items():
            taken = self._lines.get(section, [])
            if taken:
                if section == "timeline":
                    taken = sorted(taken, key=lambda pair: (pair[0].at, pair[0].id))
                parts.append("\n".join((title, *(shown for _, shown in taken))))
        if not parts:
            return None
        text = "\n\n".join(parts)
        ids = {
            section: tuple(line.id for line, _ in self._lines.get(section, []))
            for section in TITLES
        }
        return Context(text, estimate_tokens(text), budget, MappingProxyType(ids))

    def _shown(self, line: Line) -> tuple[str, str]:
        """The line as it stands in the block, and what it says for telling repeats."""
        text = _SPACE.sub(" ", line.text).strip()
        if len(text) > self._settings.max_characters:
            text = text[: self._settings.max_characters].rstrip() + "…"
        said = _EDGE.sub("", text.casefold())
        date = line.at.astimezone(UTC).date().isoformat()
        return f"- {date} {text} [{line.id[: self._settings.id_characters]}]", said or text
