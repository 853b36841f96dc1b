"""Whether a text asks to have something remembered for good. Pure.

A phrase that is contained counts, in normal form: NFKC, straight apostrophes, lower case, white
space folded; a phrase of one word as a whole word. What is quoted or reported is not the speaker's
own wish, and does not count. Nor do the look-alikes of the phrases that come with the program, by
what stands around them: "I don't remember", "do you remember", "remember when we …", "a note",
それ覚えてる. In doubt a phrase counts, for an intent that is missed loses what somebody asked to
keep, and one too many only lets a fact pass that the model was unsure of.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Final, cast

from palimpsest.streams.text.quotes import masked
from palimpsest.streams.text.tables import Lexicon

_LEXICON: Final = Lexicon(__name__, "intents.toml")
expression = _LEXICON.expression
_PHRASES: Final = cast("dict[str, list[str]]", _LEXICON.tables["phrases"])
ENGLISH: Final = tuple(_PHRASES["english"])
PHRASES: Final = (*ENGLISH, *_PHRASES["japanese"])

REACH: Final = 80
"""Characters that are looked at on each side of a phrase."""
OCCURRENCES: Final = 200
"""Of one phrase that are looked at: a text that goes on like that asks for nothing."""

_APOSTROPHES: Final = str.maketrans(dict.fromkeys("‘’‛`´ʼ\u2032", "'"))
_CURLY_PAIRS: Final = str.maketrans({"‘": "'", "’": "'"})
_SPACE: Final = re.compile(r"\s+")
# Scripts whose words are not set apart: there a phrase is found inside what looks like one word.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)

_SENTENCE_REST: Final = re.compile(r"[^.!?…\n]*(?P<end>.?)")


def asks_to_remember(text: str, phrases: Sequence[str] = PHRASES) -> bool:
    """Whether the text, in storage form, has one of the phrases in earnest."""
    wanted = _normal_forms(tuple(phrases))
    whole = _normal(text)
    if not any(phrase in whole for phrase in wanted):
        return False
    # Quotation marks tell more before apostrophes become alike.
    own = _normal(masked(unicodedata.normalize("NFKC", text).translate(_CURLY_PAIRS)).text)
    # All of it in quotation marks is how some write, and no quotation.
    if not any(character.isalnum() for character in own):
        own = whole
    return any(_is_meant(own, phrase) for phrase in wanted)


def _normal(text: str) -> str:
    compatible = unicodedata.normalize("NFKC", text).translate(_APOSTROPHES).lower()
    return _SPACE.sub(" ", compatible).strip()


@cache
def _normal_forms(phrases: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(_normal, phrases))))


@cache
def _pattern(phrase: str) -> re.Pattern[str]:
    # Word by word where words are set apart: "notebook" is no "note".
    start = "" if _UNSPACED.match(phrase[0]) else r"(?<!\w)"
    end = r"(?!\w)" if " " not in phrase and not _UNSPACED.match(phrase[-1]) else ""
    return re.compile(start + re.escape(phrase) + end)


def _is_meant(text: str, phrase: str) -> bool:
    return any(
        not _is_look_alike(phrase, text, match.start(), match.end())
        for match in islice(_pattern(phrase).finditer(text), OCCURRENCES)
    )


def _is_look_alike(phrase: str, text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - REACH) : start], text[end : end + REACH]
    if _UNSPACED.match(phrase[-1]):
        return expression("japanese_after").match(after) is not None
    if phrase == "remember":
        return _only_recalls(before, after)
    if phrase == "note":
        return (
            expression("note_before").search(before) is None
            or expression("note_after").match(after) is not None
        )
    if phrase.endswith("forget"):
        return expression("forget_before").search(before) is not None
    return phrase in ENGLISH and expression("any_before").search(before) is not None


def _only_recalls(before: str, after: str) -> bool:
    """Whether "remember" speaks of remembering, or asks about it."""
    if expression("remember_before").search(before) or expression("remember_after").match(after):
        return True
    rest = _SENTENCE_REST.match(after)
    if rest is None or rest["end"] != "?":
        return False
    return (
        expression("asked_about").match(after) is not None
        or expression("sentence_start").search(before) is not None
    )
