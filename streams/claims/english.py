"""Whether a sentence is English, its contractions written out, and a clause's predicate taken
apart into tense, negation and verb. Pure.

A sentence counts as English if its function words say so; in doubt it does not, and no claim is
read in it. Contractions are written out only where it is: German has "im", too.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from palimpsest.streams.claims.language import ENGLISH, expression, rewritings, word_set, words

Tense = Literal["present", "past", "progressive", "perfect", "perfect progressive", "future"]


def third_person(verb: str) -> str:
    """The third person of a base verb: "carry" gives "carries"."""
    known = _THIRD.get(verb)
    if known is not None:
        return known
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


_DOUBLING: Final = frozenset("stop drop plan jog submit knit enrol".split())


def _regular(verb: str) -> tuple[str, str]:
    """The past and the -ing form."""
    if verb.endswith("e"):
        return verb + "d", verb[:-1] + "ing"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied", verb + "ing"
    if verb in _DOUBLING:
        return verb + verb[-1] + "ed", verb + verb[-1] + "ing"
    return verb + "ed", verb + "ing"


_THIRD: Final[dict[str, str]] = {}
_PRESENT: Final[dict[str, str]] = {"am": "be", "are": "be"}
_PAST: Final[dict[str, str]] = {"were": "be"}
_PARTICIPLE: Final[dict[str, str]] = {"got": "get", "travelled": "travel"}
_ING: Final[dict[str, str]] = {"travelling": "travel"}
for _base, _third, _past, _participle, _ing in zip(*[iter(words("irregular"))] * 5, strict=True):
    _THIRD[_base] = _third
    _PAST[_past] = _PARTICIPLE[_participle] = _base
    _ING[_ing] = _base
for _base in words("regular"):
    _past, _ing = _regular(_base)
    _PAST[_past] = _PARTICIPLE[_past] = _base
    _ING[_ing] = _base
    _THIRD[_base] = third_person(_base)
_PAST_IN_FORM: Final = ("be", "quit", "hurt", "cut", "put")
"""Base forms that are read as no present: "I quit" is mostly told of the past."""
_PRESENT.update({third: base for base, third in _THIRD.items()})
_PRESENT.update({base: base for base in _THIRD if base not in _PAST_IN_FORM})
_PAST["travelled"] = "travel"
VERBS: Final = frozenset(_THIRD)
PRESENTS: Final = frozenset("need want am is are have hope would will".split())
"""Verbs of what somebody asks for, after "and"."""
PASTS: Final = frozenset(_PAST) - VERBS - {"saw", "felt"} | {"am", "is", "are"}
_PAST_OF: Final = {base: past for past, base in _PAST.items() if past not in VERBS}


def past_of(verb: str) -> str | None:
    """The past of a known verb in its base form."""
    return verb if verb in SAME_PAST else _PAST_OF.get(verb)


_FILLERS: Final = word_set("fillers")
_KEPT: Final = word_set("kept_adverbs")
_REPEATED: Final = frozenset("always usually typically often mostly mainly".split())
_AUXILIARY: Final = frozenset("is are was were has have had does do did will am".split())
_ADVERBS: Final = _FILLERS | _KEPT | {"no", "never", "not"}
SINGULAR: Final = (
    frozenset(_THIRD.values()) | frozenset(_PAST) | (_AUXILIARY - {"am", "are"}) | _ADVERBS
)
"""Words with which the predicate of one person can begin."""
FINITE: Final = SINGULAR | frozenset(_PRESENT) | _AUXILIARY


class Predicate(NamedTuple):
    """A predicate, its verb in the base form. `rest` is what follows the verb, as written; `word`
    the verb as written; `adverbs` those that say something ("still", "usually"). `recent`: it has
    "just" or "recently" with it."""

    tense: Tense
    negated: bool
    ended: bool
    recent: bool
    adverbs: tuple[str, ...]
    verb: str
    word: str
    rest: str

    @property
    def is_news(self) -> bool:
        return "now" in self.adverbs

    @property
    def is_qualified(self) -> bool:
        return not _REPEATED.isdisjoint(self.adverbs)

    def third_person(self, *, plural: bool = False) -> str:
        """The verb of the predicate after a subject of the third person, with its adverbs."""
        text = self._singular()
        if not plural:
            return text
        first, _, rest = text.partition(" ")
        if self.tense == "present" and first not in _PLURAL:
            return text.replace(third_person(self.verb), self.verb, 1)
        return " ".join(filter(None, (_PLURAL.get(first, first), rest)))

    def _singular(self) -> str:
        adverbs = "".join(f"{adverb} " for adverb in self.adverbs)
        denied = "no longer " if self.ended else "not " if self.negated else ""
        match self.tense:
            case "present" if self.verb == "be":
                return f"is {denied}{adverbs}".rstrip()
            case "present" if self.negated and not self.ended:
                return f"does not {adverbs}{self.verb}"
            case "present":
                return f"{denied}{adverbs}{third_person(self.verb)}"
            case "past" if self.verb == "be":
                return f"was {denied}{adverbs}".rstrip()
            case "past" if self.negated:
                return f"did not {adverbs}{self.verb}"
            case "past":
                return f"{adverbs}{_PAST_OF.get(self.word, self.word)}"
            case "progressive":
                return f"is {denied}{adverbs}{self.word}"
            case "perfect":
                return f"has {denied}{adverbs}{self.word}"
            case "perfect progressive":
                return f"has {denied}{adverbs}been {self.word}"
            case "future":
                return f"will {denied}{adverbs}{self.verb}"


_PLURAL: Final = {"is": "are", "was": "were", "has": "have", "does": "do"}
MAX_HELPERS: Final = 8


class _Opening:
    """What stands before the verb of a predicate: helpers, negation, adverbs."""

    def __init__(self, text: str) -> None:
        self.words = text.split(maxsplit=MAX_HELPERS)
        self.at = 0
        self.negated = self.ended = self.recent = False
        self.adverbs: list[str] = []
        self.helpers: list[str] = []
        self._skip()
        while len(self.helpers) < 3 and self._word() in _HELPERS and not self._is_verb():
            self.helpers.append(self._word())
            self.at += 1
            self._skip()

    def _word(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.words[at].lower() if at < len(self.words) else ""

    def _is_verb(self) -> bool:
        """Whether "do" is the verb itself: "do yoga", and not "do like"."""
        after = self._word(1)
        is_do = self._word() in ("do", "does", "did")
        return is_do and after not in ("not", *_FILLERS) and after not in _PRESENT

    def _skip(self) -> None:
        while self.at < len(self.words):
            word = self._word()
            if word in ("not", "never"):
                self.negated = True
            elif word == "no" and self._word(1) == "longer":
                self.negated = self.ended = True
                self.at += 1
            elif word in ("just", "recently"):
                self.recent = True
            elif word in _KEPT:
                self.adverbs.append(word)
            elif word not in _FILLERS:
                return
            self.at += 1

    def rest(self, ahead: int) -> str:
        return " ".join(self.words[self.at + ahead :])


SAME_PAST: Final = frozenset(("put", "set", "read", "quit", "hurt", "cut"))
"""Their past is written like their present."""
_ONLY: Final = ("not only ", "not just ", "not merely ", "never just ")


def predicate(text: str) -> Predicate | None:
    """The predicate that `text` is, contractions expanded; None where it begins with no verb that
    is known or with a modal that makes it a wish, a doubt or a duty."""
    opening = _Opening(text)
    if opening.at >= len(opening.words) or any(only in text[:40] for only in _ONLY):
        return None
    word = opening.words[opening.at].lower()
    found, ahead = _form(opening.helpers, word), 1
    if found is None:
        # "am a nurse", "have two cats": the helper is the verb.
        found, ahead = _MAIN.get(" ".join(opening.helpers)), 0
        word = opening.helpers[-1] if opening.helpers else ""
    if found is None:
        return None
    rest = opening.rest(ahead)
    if rest == "anymore" or rest.endswith(" anymore"):
        rest = rest.removesuffix("anymore").rstrip()
        opening.ended = opening.negated
    tense, verb = found
    return Predicate(
        tense,
        opening.negated,
        opening.ended,
        opening.recent,
        tuple(opening.adverbs),
        verb,
        word,
        rest,
    )


ANY_VERB: Final = "*"
"""Stands for a verb that is not known, which its form gives away."""
_REGULAR_ING: Final = expression("regular_ing")
_HELPERS: Final = frozenset("am is are was were been have has had do does did will".split())


_MAIN: Final[dict[str, tuple[Tense, str]]] = {
    **dict.fromkeys(("am", "is", "are"), ("present", "be")),
    **dict.fromkeys(("was", "were"), ("past", "be")),
    **dict.fromkeys(("have", "has", "do have", "does have"), ("present", "have")),
    **dict.fromkeys(("had", "did have"), ("past", "have")),
    **dict.fromkeys(("have been", "has been"), ("perfect", "be")),
    **dict.fromkeys(("have had", "has had"), ("perfect", "have")),
    **dict.fromkeys(("do", "does"), ("present", "do")),
    "did": ("past", "do"),
    "will have": ("future", "have"),
}
"""Tense and verb where the last helper is the verb itself."""


def _form(helpers: list[str], word: str) -> tuple[Tense, str] | None:
    match helpers:
        case []:
            if word in _PRESENT:
                return "present", _PRESENT[word]
            if word in _PAST:
                return "past", _PAST[word]
            return ("past", ANY_VERB) if expression("regular_past").fullmatch(word) else None
        case ["am" | "is" | "are"]:
            return ("progressive", _ING[word]) if word in _ING else None
        case ["have" | "has"]:
            return ("perfect", _PARTICIPLE[word]) if word in _PARTICIPLE else None
        case ["have" | "has", "been"]:
            if word in _ING:
                return "perfect progressive", _ING[word]
            return ("perfect progressive", ANY_VERB) if _REGULAR_ING.fullmatch(word) else None
        case ["do" | "does"]:
            return ("present", word) if word in VERBS else None
        case ["did"]:
            return ("past", word) if word in VERBS else None  # "did visit"
        case ["will"]:
            return ("future", word) if word in VERBS else None
    return None


_STRONG: Final = word_set("english_words")
_WEAK: Final = word_set("weak_words")
_BORROWED: Final = word_set("borrowed_words")
_FOREIGN: Final = (word_set("foreign_words") | _BORROWED) - _STRONG - _WEAK
_PROOF: Final = _STRONG | (FINITE - _WEAK - _FOREIGN)
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ELISION: Final = re.compile(r"\b(?:[jlcdnmst]|qu)'[^\W\d_]{2,}")
_SURE: Final = frozenset("I He he She she of to is".split())
"""Weak words that prove enough where nothing but a word like "soy" speaks against."""
_LATIN_ENDS: Final = "\u024f"
"""The last character of the Latin blocks: what comes after it is another script."""


def is_english(text: str) -> bool:
    """Whether the function words of `text` (one sentence, apostrophes straight) are English.

    A capital inside the sentence is a name's ("La Paz"), and proves nothing.
    """
    if _another_script(text):
        return False
    words = _WORD.findall(text.lower())
    if _FOREIGN.isdisjoint(words) and not (
        "'" in text and _ELISION.search(text.lower()) is not None
    ):
        # Most sentences: nothing speaks against.
        if not _PROOF.isdisjoint(words):
            return True
        weak: int = sum(word in _WEAK or word.endswith("'s") for word in words)
        return weak > 0
    return _outweighs(text)


def _outweighs(text: str) -> bool:
    """Whether more words of `text` speak for English than for another language. Words that English
    has, too ("soy"), speak for another only beside one that it has not."""
    strong = weak = foreign = borrowed = sure = 0
    for number, word in enumerate(_WORD.findall(text)):
        known = word.lower()
        sure += word in _SURE
        if known in _PROOF:
            strong += 1
        elif known in _WEAK or known.endswith("'s"):
            weak += 1
        elif number and word[0].isupper():
            continue
        elif known in _BORROWED:
            borrowed += 1
        elif known in _FOREIGN or (_ELISION.fullmatch(known) and known not in ("c'mon", "s'more")):
            foreign += 1
    if foreign:
        return strong > foreign + borrowed
    return strong > 0 or (sure > 0 if borrowed else weak > 0)


def _another_script(text: str) -> bool:
    if text.isascii():
        return False
    alphabetic = [character for character in text if character.isalpha()]
    return sum(character > _LATIN_ENDS for character in alphabetic) * 3 > len(alphabetic)


_BARE: Final[dict[str, str]] = ENGLISH["bare"]
_BARE_WORD: Final = re.compile(
    rf"(?<![\w.'@/-])(?:{'|'.join(_BARE)})(?![\w.'@/-])", re.IGNORECASE | re.ASCII
)
_WRITTEN: Final = rewritings(ENGLISH["written"])
_HINTS: Final = ("'", "gonna", " be ", " here ", "any", "cannot")
"""Without one of them nothing of `_WRITTEN` is there."""
_SMALL_I: Final = re.compile(r"(?<![\w.'-])i(?=(?:'(?:m|ve|d|ll))?(?:[ ,.!]|$))")


def expanded(text: str) -> str:
    """`text` (English, apostrophes straight) without contractions, and with "I" in capitals."""
    if not _BARE.keys().isdisjoint(text.lower().split()):
        text = _BARE_WORD.sub(lambda match: _BARE[match.group().lower()], text)
    text = _SMALL_I.sub("I", text)
    if any(map(text.__contains__, _HINTS)):
        for pattern, written in _WRITTEN:
            text = pattern.sub(written, text)
    return text
