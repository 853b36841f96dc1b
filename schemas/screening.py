"""Preselects the texts that a redaction may change, with regular expressions and without parsing.

Each matches everything that `Redaction.node` would change, and little else: a text that is searched
for occurs in a row character by character, in any case, where a normal form leaves its characters
unchanged."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from palimpsest.schemas.quotations import LONG
from palimpsest.schemas.redaction import CHANGING, Redaction

MOST: Final = 200
"""For more texts than this no pattern is made: everything may be changed."""
_LONGEST: Final = 48
"""Characters of a phrase; more of them would exclude little more."""

_GAP: Final = "[^!-~]+"
# One character of these becomes two, and the others vanish in a normal form.
ODD: Final = (
    r"[\x{130}\x{340}\x{341}\x{343}\x{344}\x{374}\x{37E}\x{387}\x{958}-\x{95F}\x{9DC}-\x{9DF}"
    r"\x{A33}-\x{A5E}\x{B5C}\x{B5D}\x{F43}-\x{FB9}\x{1F71}-\x{1FFD}\x{2000}\x{2001}\x{2126}"
    r"\x{212A}\x{212B}\x{2329}\x{232A}\x{2ADC}\x{F900}-\x{FAFF}\x{FB1D}-\x{FB4E}"
    r"\x{1D15E}-\x{1D1C0}\x{2F800}-\x{2FA1F}]"
)
"""Characters that may stand for others: a text with one of them, or with NUL, may be any."""
_ANY: Final = ""
_NONE: Final = r"[^\x{0}-\x{10FFFF}]"

CHANGING_FIELDS: Final = '"(?:' + "|".join(sorted(CHANGING)) + ')"'
"""Matches all JSON that can be changed, if none of its characters is escaped."""
_DERIVING: Final = ("turn_id", "item_id", "command", "value_base64")
"""Fields of JSON from which it follows that something is an erased memory's without its id."""
_FEW: Final = 32
"""Maximum number of words for which a pattern is faster."""


@dataclass(frozen=True, slots=True)
class Screen:
    """RE2 patterns of what some redactions may change: of fields that hold a text as a whole
    (`own`), that quote (`quoting`), and of JSON without escapes (`json`). It may have one of the
    `words` as a string instead; `few_words` is their pattern, empty where they are too many."""

    own: str
    quoting: str
    json: str
    words: tuple[str, ...]
    few_words: str


def screen_of(redactions: Sequence[Redaction]) -> Screen:
    """Returns the screen of redactions of one scope."""
    texts = [text for each in redactions for text in each.texts]
    quoted = {given[:LONG] for each in redactions for given in each.quotations}
    long = [given for given in quoted if len(given) == LONG]
    words = {word for each in redactions for word in (*each.erased, *each.hashes)}
    words |= {*_DERIVING}
    return Screen(
        _either([*map(_beginning, texts), *map(_within, long)]),
        _either(map(_within, quoted)),
        _either(map(_within, [*texts, *quoted])),
        tuple(sorted(words)),
        '"(?:' + "|".join(map(re.escape, sorted(words))) + ')"' if len(words) <= _FEW else "",
    )


def _either(given: Iterable[str]) -> str:
    phrases = sorted({*given})
    if "" in phrases or len(phrases) > MOST:
        return _ANY
    return f"(?i){'|'.join(phrases)}" if phrases else _NONE


def _beginning(text: str) -> str:
    """The start of a text that is a whole field: only white space may precede it."""
    if not text or text[0].isspace() or not _stays(text[0]):
        return _within(text)
    return f"^[^!-~]*{next(_phrases(text))[1]}"


def _within(text: str) -> str:
    """The longest phrase of a text."""
    return max(_phrases(text))[1]


def _phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yields the parts of a text that occur unchanged in every text with this normal form, with
    their lengths."""
    plain = "".join(char if _stays(char) else "\0" for char in text)
    for part in plain.split("\0"):
        words = part[:_LONGEST].split()
        yield sum(map(len, words)), _GAP.join(map(re.escape, words))


def _stays(char: str) -> bool:
    """Whether no other character becomes this one in a normal form, except its capital."""
    if char.isascii():
        return True
    composed = unicodedata.normalize("NFD", char) != char or "\u1100" <= char <= "\u11ff"
    return not composed and not unicodedata.category(char).startswith("M")
