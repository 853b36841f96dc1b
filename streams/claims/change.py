"""Whether a statement of anything tells that what a known one says has changed. Pure, in linear
time.

Claims are about people. Agents remember what is so of projects, systems and dates, too: "Tests run
with pytest", "The project switched from Postgres to MySQL". Two of these are compared word by word:
the new one denies the other, has another value and "now", or tells of a move from or to a value.
What is found here is for a person to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from palimpsest.streams.claims.conflict import CACHED_STATEMENTS, base_form
from palimpsest.streams.claims.english import expanded

MAX_CHARACTERS: Final = 240
MAX_VALUE_WORDS: Final = 4
_WORD: Final = re.compile(r"[\w@#$€£%+][\w@#$€£%+./:'-]*")
_LATELY: Final = frozenset("now currently nowadays".split())
_NEGATIONS: Final = frozenset(("no", "not", "never"))
_DENIALS: Final = frozenset("no not never longer anymore".split())
_ARTICLES: Final = frozenset(("a", "an", "the"))
_LIGHT: Final = frozenset("do does did any more".split())
_NO_VALUE: Final = _DENIALS | frozenset("from to in on at with by for of and or".split())
"""Where one of these differs, another thing is told, not another value."""
_UNKNOWN: Final = frozenset(
    "some many most few several he she it they this that these those i my we our".split()
)
"""Of some it holds, and of others not; whom a pronoun means is not known."""
_RULES: Final = frozenset("always use prefer write".split())
_PURPOSES: Final = frozenset("for in when to as on".split())
_BECAME: Final = re.compile(
    r"(?i)(?P<subject>[^,;:]{2,60}?)"
    r" (?:(?:has|have|had|was|were|is|are|got|been|just|recently) ){0,3}"
    r"(?:moved|switched|migrated|changed|relocated|upgraded|downgraded|rescheduled|postponed"
    r"|increased|decreased|raised|lowered|dropped|renamed|went up|went down)"
    r"(?: from (?P<old>[^,;]{1,60}?))? to [^,;]{1,60}"
)
_STANDS: Final = re.compile(
    r"(?:is|are|was|were|runs?|happens?|takes? place|meets?|starts?)(?: \w+)?"
    r" (?:at|in|on|under|by)\b"
    r"|(?:is|are) (?:called|named|set to|scheduled for|due|\W?\d)|(?:uses?|costs?|has|have|runs?) "
)
"""What stands somewhere, at some time or at some value."""


@lru_cache(CACHED_STATEMENTS)
def may_tell_change(statement: str) -> bool:
    """Whether `tells_change` may find it to be news of something."""
    if len(statement) > MAX_CHARACTERS or "?" in statement:
        return False
    words = _words(statement)
    if not words or words[0] in _UNKNOWN:
        return False
    is_told = not (_LATELY | _DENIALS).isdisjoint(words)
    is_rule = words[0] in _RULES and not _PURPOSES.isdisjoint(words)
    return is_told or is_rule or _BECAME.fullmatch(statement.rstrip(" .!")) is not None


def tells_change(new: str, known: str) -> bool:
    """Whether `new` says that what `known` says is no longer so, or is something else now."""
    if not may_tell_change(new) or len(known) > MAX_CHARACTERS or "?" in known:
        return False
    one, other = _words(new), _words(known)
    if not other or other[0] in _UNKNOWN:
        return False
    return _is_denied(one, other) or _is_replaced(one, other) or _is_moved(new, known)


@lru_cache(CACHED_STATEMENTS)
def _words(statement: str) -> tuple[str, ...]:
    plain = expanded(statement.replace("\u2019", "'")).casefold()
    words = (word.rstrip(".:'-/") for word in _WORD.findall(plain))
    return tuple(word for word in words if word not in _ARTICLES)


def _is_denied(one: Sequence[str], other: Sequence[str]) -> bool:
    # "Never not" is no denial.
    is_one = sum(word in _NEGATIONS for word in one) == 1
    if not is_one or not _DENIALS.isdisjoint(other):
        return False
    said, known = (
        [base_form(word) for word in words if word not in _DENIALS | _LIGHT | _LATELY]
        for words in (one, other)
    )
    return len(known) > 1 and said == known


def _is_replaced(one: Sequence[str], other: Sequence[str]) -> bool:
    """Another value between the same words, told with "now", or in a rule for the same purpose."""
    new = [word for word in one if word not in _LATELY]
    known = [word for word in other if word not in _LATELY]
    before = _common(new, known)
    after = _common(new[before:][::-1], known[before:][::-1])
    values = [set(words[before : len(words) - after]) for words in (new, known)]
    if not all(0 < len(value) <= MAX_VALUE_WORDS for value in values):
        return False
    if not values[0].isdisjoint(values[1]) or not _NO_VALUE.isdisjoint(values[0] | values[1]):
        return False
    is_told = len(new) < len(one) and before > 1
    has_purpose = after > 1 and new[len(new) - after] in _PURPOSES
    return is_told or (has_purpose and before > 0 and new[0] in _RULES)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (n for n, (a, b) in enumerate(pairs) if base_form(a) != base_form(b)),
        min(len(one), len(other)),
    )


def _is_moved(new: str, known: str) -> bool:
    found = _BECAME.fullmatch(new.rstrip(" .!"))
    if found is None:
        return False
    subject, said = _words(found["subject"]), _words(known)
    if said[: len(subject)] != subject or len(said) == len(subject):
        return False
    rest = said[len(subject) :]
    if not set(rest).isdisjoint(_DENIALS):
        return False
    if found["old"] is not None:
        return set(_words(found["old"])) - _LIGHT <= set(rest)
    return _STANDS.match(" ".join(rest)) is not None
