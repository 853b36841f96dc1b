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
from typing import Final

from palimpsest.streams.rules.quotes import masked

ENGLISH: Final = (
    "remember",
    "don't forget",
    "do not forget",
    "note",
    "commit to memory",
    "commit this to memory",
    "commit that to memory",
    "commit it to memory",
    "for future conversations",
    "for future reference",
)
JAPANESE: Final = (
    "覚えておいて",
    "覚えといて",
    "これを覚えて",
    "これ覚えて",
    "それを覚えて",
    "それ覚えて",
    "忘れないで",
    "今後のために覚えて",
    "後で使えるように覚えて",
)
PHRASES: Final = (*ENGLISH, *JAPANESE)

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

_SUBJECT: Final = (
    r"\b(?:i|we|they|he|she|it|who|people|everyone|everybody|nobody|someone|somebody|anyone"
    r"|anybody|folks|elephants|kids|others)"
)
_ADVERBS: Final = (
    r"(?:(?:'ll|'d|can|could|will|would|may|might|must|should|do|did|does|still|always|also|often"
    r"|clearly|vividly|fondly|well|just|only|even|barely|hardly|vaguely|dimly|now|all|both"
    r"|suddenly|probably|surely|certainly) ?){0,3}"
)
_NOT: Final = (
    r"\b(?:don't|doesn't|didn't|can't|cannot|can not|couldn't|won't|wouldn't|never|not|no longer"
    r"|hardly|barely|dont|cant) (?:\w+ ){0,2}$"
)
_HARD: Final = (
    r"\b(?:unable|failed|fail|fails|trying|try|tries|tried|struggle|struggled|struggling|hard|easy"
    r"|easier|harder|difficult|impossible|simple|nice|fun|good|great|day|night|moment|year|trip"
    r"|game|party|walk|nothing|seem|seems|seemed|used) to $"
)
_REPORTED: Final = (
    r"\b(?:told|asked|reminded|wanted|wants|taught|begged|asks|tells|reminds)"
    r" (?:me|him|her|us|them|everyone|people|\w+) (?:not )?to $"
)
_REMEMBER_BEFORE: Final = re.compile(
    rf"{_NOT}|{_HARD}|{_REPORTED}"
    rf"|{_SUBJECT} ?{_ADVERBS}$"
    r"|\b(?:do|did|does|don't|didn't) (?:you|we|they|i|he|she|it|any of you|anyone|\w+) (?:\w+ )?$"
    r"|(?<!can )(?<!could )(?<!would )(?<!will )(?<!should )(?<!must )(?<!so )(?<!sure )(?<!that )"
    r"\byou(?: (?:still|also|may|might|probably|surely|certainly|perhaps|always|both|all|do|did)"
    r"|'ll|'d){0,3} $"
    r"|\b(?:the|an?|this|your|our|my) $"
)
_REMEMBER_AFTER: Final = re.compile(
    r" ?\?"
    r"|,? (?:that )?(?:you(?:'re|'ve|'ll)?|your|we're all|it's (?:ok|okay|all about|never)"
    r"|there's (?:no|always)|to (?:be kind|breathe|have fun|enjoy|take care|take breaks|smile"
    r"|relax|rest))\b"
    r"|,? (?:when|how|back when|the (?:time|day|night|days|one|old|good)|those|that"
    r" (?:time|day|night|one|summer|winter|guy|trip|evening))\b"
)
_ASKED_ABOUT: Final = re.compile(r" (?:what|where|who|whose|whom|which|why|if|whether)\b")
_SENTENCE_START: Final = re.compile(
    r"(?:^|[.!?…\n]) *(?:(?:hey|hi|hello|oh|ah|so|and|but|also|well|ok|okay|now|\w+,)[ ,]*){0,2}$"
)
_SENTENCE_REST: Final = re.compile(r"[^.!?…\n]*(?P<end>.?)")

# "note" is mostly a noun: it counts where it is told to someone.
_NOTE_BEFORE: Final = re.compile(
    r"(?:^|[.,;:!?…()\n–—-]) *(?:(?:please|pls|kindly|also|and|but|just|so|ok|okay|then|now|do|well"
    r"|hey|hi|hello)[ ,]*){0,3}$"
    r"|\b(?:please|pls|kindly|let's|let us|must|also|then|and|so)(?: just| also)? $"
    r"|\b(?:can|could|would|will|should|must) you(?: please| kindly| also| just)? $"
    r"|\b(?:you|need|remember|sure|want|reminder) to (?:please |also |just )?$"
    r"|\b(?<!i )(?<!we )(?<!they )(?<!he )(?<!she )(?:make|take|keep)"
    r"(?: an?| some)?(?: mental| quick| short| little| careful)? $"
)
_NOTE_AFTER: Final = re.compile(
    r"-|(?: (?:taking|taker|book|pad|paper|app|apps|card|cards|from|by|pro|ultra|plus)|s)\b"
    r"| \d"
)
_FORGET_BEFORE: Final = re.compile(
    r"(?<!so )(?<!that )(?<!case )\b(?:i|we|they|you|who|people|elephants|mothers|women|men|kids"
    r"|dogs|cats|computers)(?: (?:really|usually|just|still|all))? $"
)
_ANY_BEFORE: Final = re.compile(rf"{_NOT}|{_HARD}|{_REPORTED}")

_JAPANESE_AFTER: Final = re.compile(
    r"(?:る|た|い[るたなま]|な[いか]|ま[すせ]|ん|損|済|済む"
    r"|(?:いて)?(?:くれて(?!る[?。!]?$)|くれた|もらって|もらった|よかった|良かった)"
    r"|と(?:言|い[うわっ]|頼|書)|って(?:言|い[うわっ]|頼|書))"
)


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
        return _JAPANESE_AFTER.match(after) is not None
    if phrase == "remember":
        return _only_recalls(before, after)
    if phrase == "note":
        return _NOTE_BEFORE.search(before) is None or _NOTE_AFTER.match(after) is not None
    if phrase.endswith("forget"):
        return _FORGET_BEFORE.search(before) is not None
    return phrase in ENGLISH and _ANY_BEFORE.search(before) is not None


def _only_recalls(before: str, after: str) -> bool:
    """Whether "remember" speaks of remembering, or asks about it."""
    if _REMEMBER_BEFORE.search(before) or _REMEMBER_AFTER.match(after):
        return True
    rest = _SENTENCE_REST.match(after)
    if rest is None or rest["end"] != "?":
        return False
    return _ASKED_ABOUT.match(after) is not None or _SENTENCE_START.search(before) is not None
