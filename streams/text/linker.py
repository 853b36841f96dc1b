"""The inline entity linker: which names of a text may be entities. No model, no I/O.

No entity is made of words that point at someone or something and name nobody: a closed list, of
pronouns, demonstratives and question words that begin sentences in languages that the pipeline
meets, and of the possessives before a common noun. Words that are names too (Will, May, Mark,
Hope) are not in it. In capitals a short word is an acronym: IT, US, WHO.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import cast

from palimpsest.schemas.case_endings import nominatives
from palimpsest.schemas.normal_forms import canonical_name, is_verb
from palimpsest.streams.text.tables import read_table

_TABLE = cast("dict[str, dict[str, str]]", read_table(__name__, "vague.toml"))
VAGUE = frozenset(word for words in _TABLE["vague"].values() for word in words.split())
_POSSESSIVES = frozenset(_TABLE["possessives"]["listed"].split())
_NOUNS_WITH_CAPITALS = frozenset(_TABLE["possessives"]["before_capitals"].split())
"""After these a capital says nothing."""
_ACRONYMS = frozenset("it us who eu ma la es mi das am su".split())
"""Words of the list that are somebody's name when they are written in capitals."""
_ATTACHED = ("私の", "僕の", "俺の", "彼の", "彼女の", "我的", "我们的", "他的", "她的", "你的")


def is_vague(shown: str, canonical: str) -> bool:
    """Whether what was given for a name points at someone instead: a word of the list, or a
    possessive before common nouns ("my friend", not "My Fair Lady" or "my friend Bob")."""
    if canonical in VAGUE:
        return not (shown.isupper() and canonical in _ACRONYMS)
    if canonical.startswith(_ATTACHED):
        return True
    first, *rest = shown.split()
    if not rest or first.lower() not in _POSSESSIVES:
        return False
    if first.lower() in _NOUNS_WITH_CAPITALS:
        return len(rest) == 1
    return not any(word[0].isupper() or word[0].isdigit() for word in rest)


MAX_NAMES = 64
MAX_WORDS = 5

# A word looks like a name when it has a capital or a digit. One expression for both would look
# through the rest of a word again from each of its characters.
_PICTURES = "\u2600-\u27bf\U0001f000-\U0001faff\ufe0f\u200d"
_WORD = re.compile(rf"[\w'’-]+|[{_PICTURES}]+")
_PICTURE = re.compile(f"[{_PICTURES}]")
_NAME_CHARACTER = re.compile(rf"[^\W_a-z]|[{_PICTURES}]")
_VERSION = re.compile(r"(?:\.\d+)+")
_QUOTED = re.compile(r"[\"“«「『]([^\"”»」』]{2,60})[\"”»」』]")
_POSSESSIVE = ("'s", "’s")
_NEXT_WORD = re.compile(r"\s+(\w+)")
_ENDED = re.compile(r"(?:^|[.!?:…])[\s\"'“‘(«—-]*$")
# Months that are names of people, too: where they stand as a date they name nobody.
_MONTHS = frozenset("january jan march april may june august".split())
_BEFORE_DATE = re.compile(
    r"(?:\b(?:in|since|until|till|last|next|this|early|mid|late|during|every)"
    r"|\d(?:st|nd|rd|th)?(?:\s+of)?)[\s-]+$",
    re.IGNORECASE,
)
_AFTER_MONTH = re.compile(r"\s+\d")
_LOOK_BACK = 16
_MIN_SHOUTED = 3
"""In a run of so many words in capitals, capitals say nothing ("LET US GO")."""

MIN_NAME_CHARACTERS = 2
MAX_NAME_CHARACTERS = 200

# Scripts without capitals, by whether their words stand apart. Bounds are inclusive.
_SPACED = (
    *((0x0590, 0x08FF), (0x0900, 0x0DFF)),  # Hebrew, Arabic, Syriac, Thaana; those of India
    *((0x10D0, 0x10FF), (0x1200, 0x139F)),  # Georgian, Ethiopic
)
_HANGUL = "\uac00-\ud7af"
_UNSPACED = (
    *((0x0E00, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Tibetan, Burmese, Khmer
    *((0x3005, 0x3007), (0x3041, 0x30FF), (0x31F0, 0x31FF)),  # kana
)
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U000323af"
_IN_WORDS = "\u05f3\u05f4"  # geresh and gershayim


def _letters(*ranges: tuple[int, int]) -> str:
    """The letters, marks and digits of these ranges, without their punctuation."""
    points = (chr(point) for low, high in ranges for point in range(low, high + 1))
    return "".join(c for c in points if unicodedata.category(c)[0] in "LMN")


_OF_WORDS = _letters(*_SPACED) + _HANGUL + _IN_WORDS
_NO_LETTER = re.compile(f"[^{_OF_WORDS}{_letters(*_UNSPACED)}{_HAN}]+")
_SPACED_LETTER = re.compile(f"[{_OF_WORDS}]")
MAX_PREFIX = 5
"""Letters that `_PREFIXED` matches at most."""
MAX_PARTICLES = 8
"""Letters that `_PARTICLES` matches at most."""
_SPACED_TAIL = re.compile(f"[{_OF_WORDS}]{{0,{MAX_PARTICLES + 1}}}")

# What is written together with the word after it: and, in, to, like, the; in Hebrew from, that.
_PREFIXED = re.compile("(?:[وف]?[بلك]?(?:ال)?|و?لل|[וש]?(?:כש|ש)?[בלמכ]?ה?)")
MIN_PREFIXED_CHARACTERS = 5
"""Shorter names stand inside other words and names too often: Liam in the Arabic William."""
_PARTICLES = re.compile(
    "(?:이|씨|님)?(?:들)?(?:은|는|이|가|을|를|의|에|에서|에게|에게서|한테|한테서|께|께서|와|과|랑|이랑|하고|"
    "도|만|까지|부터|로|으로|처럼|보다|마다|조차|밖에|야|아|이야|예요|이에요|입니다|이다|라고|이라고)?"
    "(?:은|는|도|만|의)?"
)


@lru_cache(maxsize=1024)
def candidate_names(text: str) -> Mapping[str, str]:
    """Canonical name to how it stands in the text, for every run of capitalised words (and every
    part of such a run), every word with a digit or inner capital, and every quoted name.

    At most MAX_NAMES, in text order.
    """
    found: dict[str, str] = {}
    for match in _QUOTED.finditer(text):
        _note(found, match.group(1))
    seen: set[str] = set()
    run: list[tuple[int, int]] = []
    for start, end in _name_like_words(text):
        if run and text[run[-1][1] : start].strip():
            _note_run(found, seen, text, run)
            run = []
        run.append((start, end))
    _note_run(found, seen, text, run)
    if not text.isascii():
        for name, shown in [*found.items()]:
            for nominative in nominatives(name):
                found.setdefault(nominative, shown)
    return MappingProxyType(dict(islice(found.items(), MAX_NAMES)))


def _name_like_words(text: str) -> Iterator[tuple[int, int]]:
    """Where the words begin and end that look like names, with the figures of a version."""
    place = 0
    while (word := _WORD.search(text, place)) is not None:
        start, end = word.span()
        place = end
        if end - start > MAX_NAME_CHARACTERS or not _NAME_CHARACTER.search(text, start, end):
            continue
        is_name = any(c.isdigit() or c.isupper() or _PICTURE.match(c) for c in word.group())
        if not is_name or _is_capital_only(text, start, end):
            continue
        version = _VERSION.match(text, end)
        place = end if version is None else version.end()
        yield start, place


def _is_capital_only(text: str, start: int, end: int) -> bool:
    """Whether a word that is a name elsewhere has its capital for another reason: as the verb that
    begins a sentence ("Will you …", "May I …"), or as a month."""
    word = text[start:end].lower()
    before = text[max(0, start - _LOOK_BACK) : start]
    if word in _MONTHS and (_BEFORE_DATE.search(before) or _AFTER_MONTH.match(text, end)):
        return True
    following = _NEXT_WORD.match(text, end)
    if following is None or not is_verb(word, following[1].lower()):
        return False
    return _ENDED.search(before) is not None


@lru_cache(maxsize=1024)
def unspaced_part(text: str) -> str:
    """The part of a text in scripts without capitals, in which known names are looked for as they
    are; empty for others."""
    if text.isascii():
        return ""
    return _NO_LETTER.sub(" ", unicodedata.normalize("NFKC", text)).strip().lower()


def names_in(text: str, name: str) -> str | None:
    """How `name` (canonical) stands in the text by the linker's rules; None where it does not."""
    shown = candidate_names(text).get(name)
    if shown is None and not name.isascii() and stands_in(name, unspaced_part(text)):
        return name
    return shown


def stands_in(name: str, unspaced: str) -> bool:
    """Whether a name stands in a text's `unspaced_part`: of scripts without word spaces anywhere,
    of the others as words, but for what these write together with a word."""
    start = unspaced.find(name)
    while start >= 0:
        if _begins(name, unspaced, start) and _ends(name, unspaced, start + len(name)):
            return True
        start = unspaced.find(name, start + 1)
    return False


def name_fault(shown: str) -> str | None:
    """Why a given name can be no entity's; None where it can."""
    name = canonical_name(shown)
    if len(name) < MIN_NAME_CHARACTERS:
        return "is too short"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"is longer than {MAX_NAME_CHARACTERS} characters"
    if not any(c.isalnum() for c in name):
        return "has no letter or digit"
    return "names nobody" if is_vague(shown.strip(), name) else None


def _begins(name: str, text: str, start: int) -> bool:
    if not _SPACED_LETTER.match(name):
        return True
    word = start
    while word and start - word <= MAX_PREFIX and _SPACED_LETTER.match(text, word - 1):
        word -= 1
    if word == start:
        return True
    prefixed = _PREFIXED.fullmatch(text, word, start) is not None
    return prefixed and len(name) >= MIN_PREFIXED_CHARACTERS


def _ends(name: str, text: str, end: int) -> bool:
    if not _SPACED_LETTER.match(name[-1]):
        return True
    tail = _SPACED_TAIL.match(text, end)
    return tail is None or _PARTICLES.fullmatch(tail.group()) is not None


def _note_run(
    found: dict[str, str], seen: set[str], text: str, run: Sequence[tuple[int, int]]
) -> None:
    shouted = len(run) >= _MIN_SHOUTED and text[run[0][0] : run[-1][1]].isupper()
    for place, (start, _) in enumerate(run):
        if len(found) >= MAX_NAMES:
            return
        for _, end in run[place : place + MAX_WORDS]:
            shown = " ".join(text[start:end].split())
            if len(shown) < MIN_NAME_CHARACTERS or shown in seen:
                continue
            if not (shouted and shown.lower() in VAGUE):
                seen.add(shown)
                _note(found, shown)


def _note(found: dict[str, str], shown: str) -> None:
    for form in (shown, shown[:-2]) if shown.endswith(_POSSESSIVE) else (shown,):
        name = canonical_name(form)
        if not is_vague(form, name):
            found.setdefault(name, form)
