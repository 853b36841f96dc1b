"""One statement that denies another word for word: "Ana smokes", "Ana never smokes". Pure.

All of both statements must be the same but for the negation, so whatever else a statement says
(a time, a place, a condition, somebody who says so) makes it another one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

MAX_CHARACTERS: Final = 200
"""Length of a statement that is read; a longer one is no plain statement."""
CACHED_STATEMENTS: Final = 8_192
"""A memory is a candidate again and again."""

Form = tuple[tuple[str, ...], bool]
"""The words of a statement without its negation, and whether it holds."""

_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2019\u02bc\u2018`\u00b4", "'"))
_UNPLAIN: Final = re.compile(r"[,;:?？!()\"“”„»«「」『』…\u2013\u2014\n]|\. |、|。.")
_JAPANESE: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_SPEAKER: Final = re.compile(r"(?P<name>[^\W\d_][\w .'-]{0,40}): (?=\S)")
_FIRST_PERSON: Final = frozenset("i we my our ich wir mein meine".split())
_OTHERS: Final = frozenset(
    "me us mine ours you your he she it they his her their this that these those some most many few"
    " all every everyone someone somebody people others du er es sie das dies manche viele".split()
)
"""Whom a statement that begins with one of these is about, another sentence tells."""
_UNNAMED: Final = re.compile(
    r"^(?:私|僕|俺|弟|兄|姉|妹|母|父|夫|妻|息子|娘|友達|両親|家族|上司|同僚|彼)"
)
_PAST: Final = frozenset("did was were had".split())
_AUXILIARIES: Final = frozenset("is are am can will has have does do should must may".split())

_WORDINGS: Final = (
    (re.compile(r"\bcan(?:'t|not)\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\b(?:no|not any) longer\b|\bnever\b"), "does not"),
    (re.compile(r"\b(?:has|have) no\b"), "does not have"),
    (re.compile(r" (?:any ?(?:more|longer)|after all|at all|mehr)$"), ""),
    (re.compile(r"\b(?:nicht|kein(?:e[nmrs]?)?|nie)(?: mehr)?\b"), "does not"),
)
_LIGHT: Final = frozenset("a an any now again does do ein eine einen einem jetzt wieder".split())
_IRREGULAR: Final = {"has": "have", "goes": "go", "does": "do"}
_LIKES: Final = ("like", "love", "enjoy", "adore")
_DISLIKES: Final = ("hate", "dislike", "detest", "loathe")
_ENDED: Final = re.compile(
    r" (?:has |have |just )?(?P<verb>quit|stopped|given up|gave up)"
    r" (?P<what>[\w-]+(?: [\w-]+){0,2})$"
)
_GIVEN_UP: Final = ("play", "eat", "drink", "do")
"""What one may have done with a thing that one gave up."""
_LEFT: Final = (
    (
        re.compile(
            r" (?:has |have |just )?(?:sold|gave away|got rid of|traded in|traded)"
            r" (?:the|my|our|his|her|their) (?P<what>[A-Z][\w-]*(?: [\w-]+)?)(?: for .+)?$"
        ),
        ("drive", "own", "have", "ride"),
    ),
    (
        re.compile(
            r" (?:has |have |just )?(?:left|quit|resigned from)"
            r" (?P<what>[A-Z][\w-]*(?: [\w-]+){0,2}?)(?: and (?:has |have )?joined .+| for .+)?$"
        ),
        ("work at", "work for"),
    ),
)
"""What one did with a thing that has a name, or where, until one sold or left it. Of a motorcycle
that is sold one may have another."""
_VERB: Final = re.compile(r"(?:ing|es|s|e)$")
_DOUBLED: Final = re.compile(r"([bdgmnprt])\1$")

_JAPANESE_ENDINGS: Final = (
    (re.compile(r"(?:では|じゃ)(?:ありません|ない(?:です)?)$"), "です"),
    (re.compile(r"ません$"), "ます"),
)
_JAPANESE_LIGHT: Final = re.compile(r"もう|今は|[はがを]")


def denies(new: str, known: str) -> bool:
    """Whether one of the two says what the other denies. Symmetric."""
    return any(
        words == others and holds != stands
        for words, holds in forms(new)
        for others, stands in forms(known)
    )


@lru_cache(CACHED_STATEMENTS)
def forms(statement: str) -> tuple[Form, ...]:
    """The forms in which a statement can be compared; none where it is not a plain one."""
    plain = unicodedata.normalize("NFKC", statement).translate(_APOSTROPHES).strip().rstrip(".!。")
    # "Ana: Ich rauche" is about Ana, and so is her sister in "Ana: Meine Schwester raucht".
    speaker = _SPEAKER.match(plain)
    plain = plain if speaker is None else plain[speaker.end() :]
    if not plain or len(plain) > MAX_CHARACTERS or _UNPLAIN.search(plain):
        return ()
    about = () if speaker is None else (speaker["name"].casefold(),)
    return tuple(((*about, *words), holds) for words, holds in _forms(plain, bool(about)))


def _forms(plain: str, has_speaker: bool) -> tuple[Form, ...]:
    if _JAPANESE.search(plain):
        unnamed = not has_speaker and _UNNAMED.search(plain) is not None
        return () if unnamed else (_japanese(plain),)
    text = plain.casefold()
    for pattern, words in _WORDINGS:
        text = pattern.sub(words, text)
    first = text.partition(" ")[0]
    if first in _OTHERS or (first in _FIRST_PERSON and not has_speaker):
        return ()
    ended = _ENDED.search(text)
    if ended is not None:
        return _ended(text[: ended.start()], ended["verb"], ended["what"]) + _left(plain)
    if left := _left(plain):
        return left
    return _plain(text.split())


def _plain(words: list[str]) -> tuple[Form, ...]:
    denied = [place for place, word in enumerate(words) if word == "not"]
    if len(denied) > 1 or not _PAST.isdisjoint(words):
        return ()
    if denied and words[denied[0] - 1] not in _AUXILIARIES:
        return ()
    kept = tuple(base_form(word) for word in words if word != "not" and word not in _LIGHT)
    return tuple(_readings(kept, not denied))


def _ended(subject: str, verb: str, what: str) -> tuple[Form, ...]:
    """ "quit smoking", "gave up tennis": it is denied that they do so."""
    words = tuple(map(base_form, what.split()))
    if what.partition(" ")[0].endswith("ing"):
        return ((tuple(map(base_form, subject.split())) + words, False),)
    if verb == "stopped":
        return ()
    start = tuple(map(base_form, subject.split()))
    return tuple(((*start, doing, *words), False) for doing in _GIVEN_UP)


def _left(text: str) -> tuple[Form, ...]:
    """ "sold the Fiat", "left KLM": it is denied that they drive the one, or work at the other."""
    denied = (
        f"{text[: match.start()]} {doing} {match['what']}".casefold().split()
        for pattern, doings in _LEFT
        if (match := pattern.search(text)) is not None
        for doing in doings
    )
    return tuple((tuple(map(base_form, words)), False) for words in denied)


def _readings(words: tuple[str, ...], holds: bool) -> list[Form]:
    """Who loves something likes it, and who hates it does not."""
    found = [(words, holds)]
    for place, word in enumerate(words[:4]):
        liked = (*words[:place], _LIKED, *words[place + 1 :])
        if word in _STEMS_LIKED and (holds or word == _ENJOYED):
            found.append((liked, holds))
        if word in _STEMS_DISLIKED and holds:
            found.append((liked, False))
    return found


def base_form(word: str) -> str:
    """A word in the form in which "smokes", "smoke" and "smoking" meet."""
    word = _IRREGULAR.get(word, word)
    return word if len(word) < 4 else _DOUBLED.sub(r"\1", _VERB.sub("", word))


_LIKED, _ENJOYED = base_form("like"), base_form("enjoy")
_STEMS_LIKED: Final = frozenset(map(base_form, _LIKES))
_STEMS_DISLIKED: Final = frozenset(map(base_form, _DISLIKES))


def _japanese(text: str) -> Form:
    holds = True
    for pattern, ending in _JAPANESE_ENDINGS:
        text, count = pattern.subn(ending, text)
        holds = holds and not count
    return (_JAPANESE_LIGHT.sub("", text),), holds
