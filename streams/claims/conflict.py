"""Whether a new statement ends what is known: by slot, by another value of what somebody has one
of (an address, a partner, a day), or by denying it word for word. Pure.

A hit may overwrite a true memory and a miss keeps two statements of which the dates tell the
newer, so silence is preferred. Two statements compete only when each is one claim, taken whole, of
the same holder in the same slot of one value, and no other word stands in either: no condition,
time, place, frequency or reporter. Values that may both be true (a nickname and a name, "pasta"
and "pasta carbonara", a nurse who is a drummer too) do not exclude each other. Of a denial all of
both statements must be the same but for the negation.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from palimpsest.streams.claims.attributes import is_other_attribute
from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.grammar import claim_of, is_somebody_no_more
from palimpsest.streams.claims.language import (
    ENGLISH,
    FAVOURITES,
    expression,
    rewritings,
    word_set,
)
from palimpsest.streams.claims.values import apart, are_two_names, is_known, tells_more
from palimpsest.streams.text.dates import MONTHS

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
_PAST: Final = frozenset("did was were had".split())
_AUXILIARIES: Final = frozenset("is are am can will has have does do should must may".split())

_WORDINGS: Final = rewritings(ENGLISH["wordings"])
_ADJECTIVE: Final = expression("adjective")
_LIGHT: Final = frozenset("a an any now again does do ein eine einen einem jetzt wieder".split())
_IRREGULAR: Final = {"has": "have", "goes": "go", "does": "do"}
_LIKES: Final = ("like", "love", "enjoy", "adore")
_DISLIKES: Final = ("hate", "dislike", "detest", "loathe")
_GIVEN_UP: Final = ("play", "eat", "drink", "do")
"""What one may have done with a thing that one gave up."""
_LEFT: Final = (
    (expression("sold"), ("drive", "own", "have", "ride")),
    (expression("left"), ("work at", "work for")),
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
        unnamed = not has_speaker and expression("unnamed").search(plain) is not None
        return () if unnamed else (_japanese(plain),)
    text = plain.casefold()
    for pattern, words in _WORDINGS:
        text = pattern.sub(words, text)
    first = text.partition(" ")[0]
    if first in word_set("others") or (first in _FIRST_PERSON and not has_speaker):
        return ()
    ended = expression("ended").search(text)
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
    if len(word) < 4:
        return word
    stem = _DOUBLED.sub(r"\1", _VERB.sub("", word))
    return f"{stem[:-1]}i" if stem.endswith("y") else stem  # "study" as in "studies"


_LIKED, _ENJOYED = base_form("like"), base_form("enjoy")
_STEMS_LIKED: Final = frozenset(map(base_form, _LIKES))
_STEMS_DISLIKED: Final = frozenset(map(base_form, _DISLIKES))


def _japanese(text: str) -> Form:
    holds = True
    for pattern, ending in _JAPANESE_ENDINGS:
        text, count = pattern.subn(ending, text)
        holds = holds and not count
    return (_JAPANESE_LIGHT.sub("", text),), holds


COUNTED: Final = expression("counted")
_STATUSES: Final = {
    **dict.fromkeys(("single", "divorced", "widowed"), "alone"),
    **dict.fromkeys(("in a relationship", "dating"), "together"),
    **{"engaged": "engaged", "married": "married"},
}
_ENDS: Final = {
    "alone": ("together", "engaged", "married"),
    "together": ("alone",),
    "engaged": ("alone", "married"),
    "married": ("alone",),
}
"""What ends a status that was."""
_MEATLESS: Final = frozenset(("vegan", "vegetarian", "pescatarian"))
_SAME_KIND: Final = {"movie": "film", "color": "colour", "tv show": "show", "meal": "food"}


class Stated(NamedTuple):
    """A claim that is all of a statement. `slot` is that in which it competes, `said` the
    statement, folded, without its date, `when` the date, as far as it is told."""

    slot: str
    claim: Claim
    holder: str
    value: str
    said: str
    when: tuple[int, ...]


def excludes(new: Stated, known: Stated) -> bool:
    """Whether `known` cannot hold once `new` does; both are of one holder and slot."""
    return _EXCLUDES[new.slot](new, known)


def _are_names(one: Stated, other: Stated) -> bool:
    words = f"{one.claim.value} {other.claim.value}".split()
    return all(word[0].isupper() for word in words)


def _elsewhere(new: Stated, known: Stated) -> bool:
    places = [re.split(r", ?", each.value) for each in (new, known)]
    return all(apart(one, other) for one in places[0] for other in places[1])


def _other_workplace(new: Stated, known: Stated) -> bool:
    names = _are_names(new, known) and not (is_known(new.value) or is_known(known.value))
    # Who works for a name may work for a person, beside the firm that they work at.
    for_whom = " for " in new.said and " at " in known.said
    return new.claim.is_news and names and not for_whom and are_two_names(new.value, known.value)


def _other_occupation(new: Stated, known: Stated) -> bool:
    working = " as " in new.said and " as " in known.said
    return working and new.claim.is_news and not set(new.value.split()) & set(known.value.split())


def _other_status(new: Stated, known: Stated) -> bool:
    if new.claim.key == "breakup":
        return known.claim.key == "partner" and new.value == known.value
    one, other = _status(new), _status(known)
    if one in _ENDS.get(other, ()):
        return True
    partners = new.claim.key == known.claim.key == "partner"
    return partners and one == other and _other_name(new, known)


def _denies_status(new: Stated, known: Stated) -> bool:
    """Whether a denied status ("no longer married") is that of the known partner."""
    is_status = new.slot == "relationship" and new.claim.key == "status"
    return is_status and known.claim.key == "partner" and "" != _status(new) == _status(known)


def _status(stated: Stated) -> str:
    found = (kept for words, kept in _STATUSES.items() if f" {words} " in f"{stated.said} ")
    return next(found, "")


def is_unlike_favourite(one: str, other: str) -> bool:
    """Whether two statements name favourites of one kind that share no word, and neither only says
    something of the favourite. They may both be true where one is a kind of the other."""
    stated = [_stated(each) for each in (one, other)]
    new, known = stated
    if new is None or known is None or not (new.slot == known.slot == "favourite"):
        return False
    kinds = [_kind_of(each) for each in (new, known)]
    # "Green tea" and "black tea", of a favourite tea, share its kind alone.
    values = [set(each.value.split()) - set(kinds[0].split()) for each in (new, known)]
    if new.holder != known.holder or kinds[0] != kinds[1] or kinds[0].endswith("s"):
        return False
    if not (new.claim.holds and known.claim.holds and values[0].isdisjoint(values[1])):
        return False
    if not all(values):
        return False
    return not any(
        expression("said_of_it").search(_own(each)) or _ADJECTIVE.fullmatch(each.value)
        for each in (new, known)
    )


def _kind_of(stated: Stated) -> str:
    return _SAME_KIND.get(stated.claim.key, stated.claim.key)


def _own(stated: Stated) -> str:
    """What is said after "is"."""
    return stated.said.partition(" is ")[2]


def _older(new: Stated, known: Stated) -> bool:
    years = (new.value, known.value)
    return all(map(str.isdecimal, years)) and int(years[0]) > int(years[1])


def _other_day(new: Stated, known: Stated) -> bool:
    one, other = (_day_of(each.value) for each in (new, known))
    return None not in (one, other) and one != other


def _day_of(value: str) -> tuple[str, int] | None:
    month = next((name for name in MONTHS if name in value), None)
    day = re.search(r"\b(\d{1,2})(?:st|nd|rd|th)?\b", value)
    return None if month is None or day is None else (month, int(day[1]))


def _other_name(new: Stated, known: Stated) -> bool:
    return _are_names(new, known) and are_two_names(new.value, known.value)


def _other_diet(new: Stated, known: Stated) -> bool:
    if "meat" in (new.value, known.value):
        return not _MEATLESS.isdisjoint((new.value, known.value))
    return new.claim.is_news and new.value == "pescatarian" and known.value in _MEATLESS


def _other_favourite(new: Stated, known: Stated) -> bool:
    kinds = [_kind_of(each) for each in (new, known)]
    if kinds[0] != kinds[1] or kinds[0].endswith("s") or tells_more(new.value, known.value):
        return False
    values = {new.value, known.value}
    if any(values <= listed for listed in FAVOURITES):
        return new.value.rstrip("s") != known.value.rstrip("s")
    said_of_it = any(_ADJECTIVE.fullmatch(value) for value in values)
    return not said_of_it and _are_names(new, known) and are_two_names(new.value, known.value)


def _other_count(new: Stated, known: Stated) -> bool:
    counts = [COUNTED.fullmatch(each.claim.value) for each in (new, known)]
    one, other = (("", "") if found is None else found.groups() for found in counts)
    return one[1] == other[1] and one[0] != other[0]


_EXCLUDES: Final[Mapping[str, Callable[[Stated, Stated], bool]]] = {
    "home": _elsewhere,
    "work": _other_workplace,
    "occupation": _other_occupation,
    "relationship": _other_status,
    "age": _older,
    "birthday": _other_day,
    "name": _other_name,
    "diet": _other_diet,
    "favourite": _other_favourite,
    "possession": lambda new, known: False,
    "count": _other_count,
}
"""By slot. A possession that is sold ends the one that was had; one more is one more."""

_ANYWHERE: Final = frozenset("is are was now just recently again has have been become 's".split())
_FRAMES: Final = {slot: frozenset(words.split()) for slot, words in ENGLISH["frames"].items()}
_EVENTS: Final = {"marriage": "relationship", "breakup": "relationship", "turned": "age"}
_DATED_SLOTS: Final = ("home", "work", "relationship", "possession")
_AS_OF: Final = re.compile(r" \(as of [A-Z][a-z]+ \d{4}\)")
_LATELY: Final = re.compile(r" (?:now|again)[.!]?$")
_NOT_INSIDE: Final = re.compile(r" (?:near|outside|at|with|on) ")
_COMPANY: Final = re.compile(r" with (?:their|her|his|my) [\w' -]{1,40}$")
"""Who lives with their cat in one city lives there with it."""
AS_JOB: Final = re.compile(
    r"( (?:works|is working|has worked|has been working) (?:at|for) [^,;]{2,40}?)"
    r" as an? [\w' /-]{2,40}$"
)
"""Who works somewhere as a cook works there."""


def contradicts(new: str, known: str, known_on: date | None = None) -> bool:
    """Whether `known`, stated on `known_on`, cannot stand once `new` is true."""
    return (
        denies(new, known)
        or is_other_attribute(new, known)
        or _competes(new, known, known_on)
        or is_somebody_no_more(new, known)
    )


_OWN_NAME: Final = re.compile(
    r"[^'’]{1,60}['’]s (?:(?:first|given|full|real|own|last) )?(?:nick)?name is "
)
"""With two possessives it is the name of somebody else: "Ana's sister's name is Petra"."""


_TITLE: Final = r"(?:(?:Dr|Prof|Mr|Mrs|Ms|Miss|Sir|Herr|Frau)\.? )?"
_FIRST_NAME: Final = re.compile(
    rf"{_TITLE}(?P<name>[^\W\d_]{{1,40}})(?: (?P<last>[^\W\d_a-z][\w-]{{1,40}}))?(?=['’ ])"
)


def is_ambiguous(statement: str, others: Iterable[str]) -> bool:
    """Whether the first name with which the statement begins may be that of two people: one of
    `others` tells of a relative or a colleague of that name. Who says their own name is nobody
    else."""
    first = _FIRST_NAME.match(statement)
    if first is None or first["name"].casefold() in ("the", "i", "my"):
        return False
    last = first["last"]
    # Another last name is another person's, of whom nothing is said here.
    name = re.escape(first["name"]) + (r"(?!\w)" if last is None else _or_without(last))
    another = re.compile(
        rf"['’]s (?:[\w-]{{1,30}} ){{1,3}}{name}"
        rf"|^{_TITLE}{name}(?: from |,? (?:who|the|his|her|my)\b| \()"
    )
    texts = [text for text in others if _OWN_NAME.match(text) is None]
    if any(another.search(text) is not None for text in texts):
        return True
    if last is not None:
        return False
    namesakes = (_FIRST_NAME.match(text) for text in texts)
    lasts = {
        each["last"]
        for each in namesakes
        if each is not None and each["name"] == first["name"] and each["last"] is not None
    }
    return len(lasts) > 1


def _or_without(last: str) -> str:
    return rf"(?: {re.escape(last)}\b|(?! [^\W\d_a-z])(?!\w))"


def are_of_one_slot(one: str, other: str) -> bool:
    """Whether both are statements about one holder in one slot that has one value at a time."""
    left = _stated(one)
    right = None if left is None else _stated(other)
    if left is None or right is None:
        return False
    return (left.slot, left.holder) == (right.slot, right.holder)


def words_of_its_slot(statement: str) -> str:
    """Words by which to find all that is known in the slot of the statement, of its holder; empty
    where it has no slot of one value."""
    stated = _stated(statement)
    if stated is None:
        return ""
    claim = stated.claim
    return " ".join((claim.holder, claim.key, claim.value, ENGLISH["sought"][stated.slot]))


def _competes(new: str, known: str, known_on: date | None) -> bool:
    one = _stated(new)
    other = None if one is None else _stated(known)
    if one is None or other is None or not other.claim.holds:
        return False
    if (one.slot, one.holder) != (other.slot, other.holder) or not _is_later(one.when, known_on):
        return False
    if one.slot in ("birthday", "favourite") and "'s " in one.claim.holder:
        return False  # "My son's birthday": of which of two sons?
    if one.claim.holds:
        return excludes(one, other)
    return one.value == other.value or _denies_status(one, other)


@lru_cache(CACHED_STATEMENTS)
def _stated(statement: str) -> Stated | None:
    """The claim that is all of the statement, where its slot has one value at a time."""
    claim = claim_of(statement)
    lately = _LATELY.search(statement) if claim is None else None
    if lately is not None:
        without = claim_of(statement[: lately.start()])
        claim = None if without is None else without._replace(is_news=True)
    slot = None if claim is None or claim.qualified else _slot_of(claim)
    if claim is None or slot is None:
        return None
    said = " ".join(
        _AS_OF.sub("", claim.text).replace("\u2019", "'").casefold().rstrip(".!").split()
    )
    recent = expression("recent").search(said)
    dated = recent or expression("dated").search(said)
    if dated is not None:
        if slot not in _DATED_SLOTS and claim.slot != "event":
            return None
        said = said[: dated.start()]
    said = _COMPANY.sub("", said) if slot == "home" else AS_JOB.sub(r"\1", said)
    holder, value = claim.holder.casefold(), claim.value.casefold()
    if not _is_all(said, slot, (holder, value, claim.key)):
        return None
    when = () if dated is None or recent else _date_of(dated)
    return Stated(slot, claim, holder, value, said, when)


def _slot_of(claim: Claim) -> str | None:
    """The slot of one value in which a claim competes."""
    if claim.slot == "event":
        return _EVENTS.get(claim.key)
    if claim.slot in ("pet", "family"):
        return "count" if COUNTED.fullmatch(claim.value) else None
    if claim.slot == "name" and claim.key != "last":
        return None
    if claim.slot == "home" and _NOT_INSIDE.search(claim.text.partition(claim.value)[0]):
        return None
    return claim.slot if claim.slot in _FRAMES else None


def _is_all(said: str, slot: str, parts: tuple[str, ...]) -> bool:
    """Whether nothing stands in the statement but the parts and the words of the slot's frame."""
    rest = _spaced(said)
    for part in parts:
        rest = rest.replace(_spaced(part), " ", 1)
    return all(word in _ANYWHERE or word in _FRAMES[slot] for word in rest.split())


def _spaced(text: str) -> str:
    return f" {text} ".replace("'s ", " 's ")


def _date_of(found: re.Match[str]) -> tuple[int, ...]:
    if found["day"]:
        return int(found["year"]), int(found["number"]), int(found["day"])
    if found["month"]:
        return int(found["year"]), MONTHS.index(found["month"]) + 1
    return (int(found["year"]),)


def split_date(statement: str) -> tuple[str, tuple[int, ...]]:
    """A statement, without full stop, without the date at its end, and the date."""
    plain = _AS_OF.sub("", statement)
    dated = expression("dated").search(plain.casefold())
    if dated is None:
        return plain, ()
    return plain[: dated.start()], _date_of(dated)


def _is_later(when: tuple[int, ...], known_on: date | None) -> bool:
    """Whether what happened `when` came after what was stated on a day; a year alone must be a
    later one, since it may mean its first day."""
    if not when:
        return True
    if known_on is None:
        return False
    day = (known_on.year, known_on.month, known_on.day)
    return when > day[:1] if len(when) == 1 else when >= day[: len(when)]
