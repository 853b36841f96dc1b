"""English words that the rules know: verbs and their third person, phrases, contractions. Pure."""

from __future__ import annotations

import re
from typing import Final

_SAME_IN_THIRD_PERSON: Final = (
    "was wasn't had hadn't did didn't can can't cannot could couldn't will won't would"
    " wouldn't should shouldn't must may might went got made took saw met found bought told"
    " said thought felt left ran began wrote read spent gave came became lost won built kept"
    " held taught caught brought drove flew grew knew paid sold sent slept spoke stood swam"
    " wore ate drank fell chose broke heard led put set cut hit hurt quit let understood"
    " forgot dreamt learnt rode sang sat threw woke drew hid fed sought bred"
)
AUXILIARY: Final = {
    "am": "is",
    "have": "has",
    "haven't": "hasn't",
    "do": "does",
    "don't": "doesn't",
} | {word: word for word in _SAME_IN_THIRD_PERSON.split()}
_BASES: Final = (
    "love like prefer hate enjoy dislike work live use want need think know play go study own"
    " drive run speak teach read write eat drink cook bake paint draw sing dance swim hike ride"
    " travel visit volunteer collect follow watch listen practice practise train build make"
    " create develop manage lead design code believe feel find plan try start keep take get see"
    " meet call help share spend save buy sell grow wear sleep wake walk exercise meditate hope"
    " wish miss remember mean look come give say tell ask learn understand care support own stay"
    " move deploy test attend suffer struggle consider identify belong commute dream"
    " cherish value admire treasure adore host bring hang rely depend tend trust recommend jog bike"
    " ski surf camp fish knit coach perform record compete prioritize mentor lose win"
)
BASE_VERBS: Final = frozenset(_BASES.split())
PAST: Final = re.compile(r"[a-z]{2,}(?<!e)ed$")


_MODALS: Final = frozenset("can could will would should must may might".split())
_PARTICIPLES: Final = frozenset(
    "been gone done seen taken given known written eaten spoken driven chosen forgotten begun come"
    " become grown flown broken worn ridden sung swum better".split()
)


def is_past(word: str) -> bool:
    """Whether `word` after "I'd" makes that "I had": "I'd seen", and not "I'd see"."""
    if word in BASE_VERBS or word in _MODALS:
        return word in _PARTICIPLES and word != "come"
    return word in _PARTICIPLES or word in AUXILIARY or PAST.match(word) is not None


def third_person(verb: str) -> str:
    """The third person of a base verb: "carry" gives "carries"."""
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


_BARE: Final = {
    "im": "I'm",
    "ive": "I've",
    "dont": "don't",
    "doesnt": "doesn't",
    "didnt": "didn't",
    "cant": "can't",
    "couldnt": "couldn't",
    "wouldnt": "wouldn't",
    "shouldnt": "shouldn't",
    "isnt": "isn't",
    "wasnt": "wasn't",
    "havent": "haven't",
    "hasnt": "hasn't",
    "hadnt": "hadn't",
    "thats": "that's",
    "theres": "there's",
    "theyre": "they're",
    "youre": "you're",
}
_BARE_WORD: Final = re.compile(
    rf"(?<![\w.'@/-])(?:{'|'.join(_BARE)})(?![\w.'@/-]\w)\b", re.IGNORECASE | re.ASCII
)


def with_apostrophes(text: str) -> str:
    """`text` with the apostrophes that chat leaves out of English contractions: "dont", "im"."""

    def written(match: re.Match[str]) -> str:
        word = match.group()
        full = _BARE[word.lower()]
        return full[0].upper() + full[1:] if word[0].isupper() else full

    if _BARE.keys().isdisjoint(text.lower().split()):
        return text
    return _BARE_WORD.sub(written, text)


class Phrases:
    """Words and phrases, parted by "|" and in lower case, one of which may stand in a text."""

    def __init__(self, listed: str) -> None:
        self._all = tuple(listed.split("|"))
        self._pattern = re.compile(rf"\b(?:{listed})\b")

    def within(self, lowered: str) -> bool:
        """Whether one of them stands in `lowered` as whole words."""
        # Looking for each as it is, is ten times as fast as the pattern, and mostly the answer.
        return (
            any(map(lowered.__contains__, self._all)) and self._pattern.search(lowered) is not None
        )
