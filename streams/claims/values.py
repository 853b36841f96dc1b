"""What a claim's value may be: names, places, noun phrases, activities; and what the rest of a
predicate must be to fill a slot, by kind. Pure.

A value is taken by what it is made of: words that open a clause, point at another sentence or
judge make it none. The kinds are in `english.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

from palimpsest.streams.claims.english import PASTS, PRESENTS
from palimpsest.streams.claims.language import ENGLISH, PLACES, expression, fragment, word_set

# Which city lies in which country, so that "lives in Japan" and "lives in Osaka" agree. Not an
# atlas: what is not here is unknown, and of two places of which one is unknown nothing is
# concluded. Names are folded; spaces in a name are written as underscores.


def _lands() -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """A country's names to its first one, a city's to the countries that have one."""
    names: dict[str, str] = {}
    cities: dict[str, frozenset[str]] = {}
    for listed in (PLACES["lands"], PLACES["elsewhere_too"]):
        for line in re.split(r"\n(?! )", listed.strip()):
            land, _, towns = line.partition(":")
            first = _spaced(land.split()[0])
            names |= {_spaced(name): first for name in land.split()}
            for town in map(_spaced, towns.split()):
                cities[town] = cities.get(town, frozenset()) | {first}
    return names, cities


def _spaced(name: str) -> str:
    return name.replace("_", " ").casefold()


_COUNTRIES, _CITIES = _lands()
_SAME_CITY: Final = {
    _spaced(name): _spaced(group.split()[0])
    for line in PLACES["same_city"].strip().splitlines()
    for group in line.split("|")
    for name in group.split()
}


def apart(one: str, other: str) -> bool:
    """Whether a person who lives in `one` cannot live in `other` (folded names, with spaces): two
    cities, two countries, or a city and a country in which none of its name lies.

    False where either is unknown, and for a place that has the other's name in its own.
    """
    if f" {one} " in f" {other} " or f" {other} " in f" {one} ":
        return False
    lands, other_lands = _lands_of(one), _lands_of(other)
    if not lands or not other_lands:
        return False
    if one in _COUNTRIES or other in _COUNTRIES:
        return lands.isdisjoint(other_lands)
    return _SAME_CITY.get(one, one) != _SAME_CITY.get(other, other)


def is_known(name: str) -> bool:
    """Whether the place of that folded name is in the list."""
    return bool(_lands_of(name))


def is_city(name: str) -> bool:
    """Whether a city of that folded name is in the list."""
    return name in _CITIES


def _lands_of(name: str) -> frozenset[str]:
    return frozenset(filter(None, [_COUNTRIES.get(name)])) | _CITIES.get(name, frozenset())


MAX_VALUE_WORDS: Final = 8
MAX_LISTED: Final = 6

_CLAUSE_WORDS: Final = word_set("clause_words")
_VAGUE: Final = word_set("vague")
_POINTING: Final = frozenset("similar different various certain especially whole hard".split())
"""Adjectives that say nothing by themselves."""
_PREPOSITIONS: Final = ("of", "for", "in", "with", "at", "on", "from", "by", "about")
_EDGE: Final = word_set("edge")
_NAME: Final = expression("nouns_name")
_WORD: Final = re.compile(r"[\w'’&+/.%$€£-]+")


def is_name(text: str) -> bool:
    """Whether `text` is written as a name: "Dr. J. Okafor", "the University of Porto"."""
    return len(text) <= 80 and _NAME.fullmatch(text) is not None and text not in ("I", "A")


def is_place(text: str) -> bool:
    """Whether `text` is where somebody can live: a name, a known city, "a small town"."""
    plain = text.strip()
    if is_name(plain):
        lowered = plain.lower()
        return lowered not in MOODS and word_set("not_a_place").isdisjoint(lowered.split())
    small = expression("small_place").fullmatch(plain)
    if small is not None:
        return small["near"] is None or is_place(small["near"])
    if plain.lower().startswith("downtown "):
        return is_place(plain[9:])
    return len(plain) <= 40 and all(is_known(part) for part in re.split(r",\s+", plain.lower()))


MOODS: Final = word_set("languages") | word_set("moods")
"""How, when and what for somebody lives or works, as the whole of a name; New Hope is a place."""


def without_determiner(text: str) -> str:
    return expression("determiners").sub("", text)


def is_noun_phrase(text: str, *, definite: bool = False) -> bool:
    """Whether `text` names something: a few words, none of which opens a clause.

    `definite`: "the …" counts although it may point at another sentence.
    """
    if is_name(text) and text.partition(" ")[0].lower() not in _CLAUSE_WORDS:
        return text.lower() not in _VAGUE
    words = _WORD.findall(text)
    if not words or len(words) > MAX_VALUE_WORDS or " ".join(words) != text.replace(",", ""):
        return False
    lowered = [word.lower() for word in words]
    if (
        "to" in lowered
        or not _CLAUSE_WORDS.isdisjoint(lowered)
        or any("n't" in word for word in lowered)
    ):
        return False
    if lowered[-1] in _EDGE or (lowered[0] in _EDGE and lowered[0] not in ("the", "a", "an", "my")):
        return False
    if lowered[0] == "the" and not definite:
        return len(lowered) == 2 and lowered[1] in word_set("generic")
    if not _POINTING.isdisjoint(lowered) or lowered[0] in _NO_ACTIVITY | _LIGHT:
        return False
    head = _head(lowered)
    return head not in _VAGUE and not (len(lowered) == 1 and lowered[0] in _VAGUE)


def _words_of(text: str) -> list[str]:
    """The words of a phrase, folded; none where there is more than words and commas, a negation
    or an end that says nothing."""
    found = _WORD.findall(text)
    words = [word.lower() for word in found]
    if (
        not words
        or " ".join(found) != text.replace(",", "")
        or any("n't" in word for word in words)
    ):
        return []
    return [] if words[-1] in _EDGE or words[-1] in _VAGUE else words


def _head(words: list[str]) -> str:
    """The last word before a preposition: of "scary books about ghosts" it is "books"."""
    for number, word in enumerate(words):
        if number and word in _PREPOSITIONS:
            return words[number - 1]
    return words[-1]


def is_listed(text: str) -> bool:
    """Whether `text` is a noun phrase or a list of them: "dogs, cats and birds"."""
    parts = re.split(r", (?:and |or )?| (?:and|or) ", text)
    return len(parts) <= MAX_LISTED and all(is_noun_phrase(part) for part in parts)


def is_activity(text: str) -> bool:
    """Whether `text` is something done, told by its -ing form: "hiking in the mountains"."""
    first, _, rest = text.partition(" ")
    if not first.lower().endswith("ing") or len(first) < 5 or first.lower() in _NO_ACTIVITY:
        return False
    if first.lower() in _LIGHT and len(rest.split()) < 2:
        return False
    if not rest:
        return True
    words = _words_of(rest)
    return (
        0 < len(words) < MAX_VALUE_WORDS
        and _CLAUSE_WORDS.isdisjoint(words)
        and _POINTING.isdisjoint(words)
    )


_NO_ACTIVITY: Final = word_set("no_activity")
_LIGHT: Final = word_set("nouns_light")


_PRONOUNS: Final = word_set("pronouns")


def is_verb_phrase(text: str) -> bool:
    """Whether `text` is what follows "to": "learn the violin", and none that points elsewhere."""
    words = _words_of(text)
    return (
        2 <= len(words) <= 12
        and words[0].isalpha()
        and words[0]
        not in ("be", "get", "go", "say", "do", "see", "have", "make", "just", "really")
        and _PRONOUNS.isdisjoint(words)
    )


_NOWHERE: Final = frozenset("place places event events thing things somewhere someplace".split())


def _and_verb(words: list[str]) -> bool:
    """Whether a second verb follows: "a trip to Japan and need some help"."""
    return any(
        word in ("and", "but") and (after in PRESENTS or after in PASTS)
        for word, after in pairwise(words)
    )


def is_deed(text: str) -> bool:
    """Whether `text` is what somebody did, after the verb: "to a council meeting in Porto"."""
    words = _words_of(text)
    return (
        1 <= len(words) <= 14
        and _PRONOUNS.isdisjoint(words)
        and _CLAUSE_WORDS.isdisjoint(words)
        and words[0] not in _VAGUE
        and words[0] != "like"
        and words[-1] not in _NOWHERE
        and _head(words) not in _NOWHERE
        and text.replace(" ", "_") not in word_set("routine")
        and not _and_verb(words)
    )


# --- kinds ------------------------------------------------------------------------------------

_RELATIVE: Final = expression("relatives")
_SOME: Final = fragment("some")
_ILLNESS_MODIFIER: Final = expression("illness_modifier")
_JOB: Final = expression("job")
_FAN: Final = expression("fan")


def _one_word(text: str) -> str:
    """As lists of words have what is of several: "my_job"."""
    return text.lower().replace(" ", "_")


def _last(text: str, words: frozenset[str]) -> bool:
    """Whether a noun phrase's head is one of `words` (two words joined by "_")."""
    before = re.split(
        r" (?:of|for|in|with|from|at|on|named|called|to|about)\b", text.lower(), maxsplit=1
    )[0]
    parts = before.split()
    if not parts:
        return False
    return parts[-1] in words or "_".join(parts[-2:]) in words


def _all_last(text: str, words: frozenset[str]) -> bool:
    parts = re.split(r",? (?:and|or) |, ", text)
    return len(parts) < 7 and all(
        _last(part, words) and is_noun_phrase(re.sub(r"^the ", "", part)) for part in parts
    )


def _journey(text: str) -> bool:
    """A trip with a name in it: "a trip to the East Coast"."""
    where = re.search(r" (?:to|in|through|across|around|from) (?P<where>.+)$", text)
    return (
        where is not None
        and re.search(r"[A-Z]", where["where"]) is not None
        and is_deed(text)
        and _last(
            text.partition(" to ")[0].partition(" in ")[0],
            word_set("trips") | {"hike", "trek", "drive", "ride"},
        )
    )


def _illness(text: str) -> bool:
    plain = _ILLNESS_MODIFIER.sub("", text)
    parts = re.split(r",? and |, ", plain)
    return (
        len(parts) < 6
        and all(
            part.lower() in word_set("illnesses")
            or expression("illness_words").fullmatch(part.lower()) is not None
            for part in (_ILLNESS_MODIFIER.sub("", part) for part in parts)
        )
        and is_listed(text)
    )


def _job(text: str) -> bool:
    found = _JOB.fullmatch(text)
    if found is None:
        return False
    if not word_set("praise").isdisjoint(found["job"].lower().split()):
        return False
    # The last word, or the last two of them ("team lead"), one of them or several.
    jobs = word_set("jobs")
    known = _last(found["job"], jobs) or _last(found["head"].removesuffix("s"), jobs)
    where = found["where"]
    return (
        known
        and is_noun_phrase(found["job"], definite=True)
        and (where is None or is_noun_phrase(where.split(" ", 2)[2], definite=True))
    )


_LOOSE: Final = frozenset("team charm group unit result reminder treat couple".split())


def _trade(text: str) -> bool:
    """What "works as" may lead to: any noun, where "is" takes those alone that name a job."""
    found = _JOB.fullmatch(text)
    return _job(text) or (
        found is not None
        and text.startswith(("a ", "an "))
        and word_set("praise").isdisjoint(found["job"].lower().split())
        and found["head"].lower() not in _LOOSE
        and is_noun_phrase(text, definite=True)
    )


_DEGREES_OF: Final = frozenset("huge big massive total real true such".split())


def _language(text: str) -> bool:
    found = expression("language").fullmatch(text)
    if found is None:
        return False
    parts = re.split(rf"(?:,? and |, | or ){_SOME}", found["languages"])
    return all(
        part.lower() in word_set("languages") or part.endswith("Sign Language") for part in parts
    )


_EMPLOYERS: Final = word_set("employers") | word_set("fields") | word_set("jobs")
_NO_ORG: Final = word_set("no_org") | MOODS


def _employer(text: str) -> bool:
    """A name, where people are employed, or who employs: "Oceano", "two bakeries", "a lawyer";
    never how, when or what for somebody works: "a steady pace", "odd hours", "a living"."""
    if not is_noun_phrase(text, definite=True) or _one_word(text) in _NO_ORG:
        return False
    named = re.split(r",| (?:in|at|on|of|for|with|from|near|named|called)\b", text, maxsplit=1)[0]
    singular = re.sub(r"ies$", "y", named).removesuffix("s")
    if _last(named, _EMPLOYERS) or _last(singular, _EMPLOYERS):
        return True
    written_as_name = named != named.lower() and not _last(named, word_set("manners"))
    return written_as_name or _RELATIVE.fullmatch(text) is not None


_DRAWN_OUT: Final = re.compile(r"(\w)\1\1")


def _liked(text: str) -> bool:
    if "'s " in text or _DRAWN_OUT.search(text):
        return False
    if text.startswith("to "):
        return is_verb_phrase(text[3:])
    text = expression("work_called").sub("", text)
    parts = re.split(r", (?:and |or )?| (?:and|or|over|to) ", text)
    return len(parts) <= 6 and (
        is_activity(text) or all(is_activity(part) or (is_noun_phrase(part)) for part in parts)
    )


def liked_by(value: str) -> str:
    """What a "total movie fan" likes: "movie"; empty for an "early bird". Other values stay."""
    found = _FAN.fullmatch(f"a {value}")
    if found is None:
        return value
    return " ".join(word for word in (found["what"] or "").split() if word not in _DEGREES_OF)


_Check = Callable[[str], bool]
_CHECKS: Final[dict[str, _Check]] = {
    "place": is_place,
    "name": is_name,
    "noun": is_noun_phrase,
    "definite": lambda text: is_noun_phrase(text, definite=True),
    "list": is_listed,
    "activity": is_activity,
    "verb": is_verb_phrase,
    "deed": is_deed,
    "nothing": lambda text: not text,
    "employer": _employer,
    "job": _job,
    "trade": _trade,
    "language": _language,
    "illness": _illness,
    "journey": _journey,
    "liked": _liked,
    "title": lambda text: is_name(re.sub(r" by (?=[A-Z])", " of ", text)),
    "several": lambda text: re.split(r" (?:on|in|of|from|for) ", text)[0].endswith("s"),
    "two": lambda text: " " in re.sub(r"^(?:an?|my|our|the) ", "", text),
}
_EXPRESSIONS: Final = {
    name: re.compile(rf"\A(?:{fragment(name)})")
    for checks in ENGLISH["kinds"].values()
    for name in re.findall(r"[=^]([a-z_]+)", checks)
}


def _check(word: str) -> _Check:
    """One check of a kind, as `english.toml` explains them."""
    sign, rest = word[0], word[1:]
    name, _, others = word.partition(":")
    if sign == "!":
        check = _check(rest)
        return lambda text: not check(text)
    if sign in "<>":
        count = int(rest)
        return lambda text: len(text.split()) > count if sign == ">" else len(text.split()) < count
    if sign in "=^":
        shape = _EXPRESSIONS[name[1:]]
        match = shape.fullmatch if sign == "=" else shape.match
        inner = _check(others) if others else None
        return lambda text: (
            (found := match(text)) is not None
            and (inner is None or found["what"] is None or inner(found["what"]))
        )
    if others:
        listed: frozenset[str] = frozenset().union(*map(word_set, others.split("+")))
        return {
            "head": lambda text: _last(text, listed),
            "heads": lambda text: _all_last(text, listed),
            "ends": lambda text: text.rpartition(" ")[2].lower() in listed,
            "in": lambda text: _one_word(text) in listed,
        }[name]
    return _CHECKS.get(word) or (lambda text: fits(word, text))


_KINDS: Final = {
    kind: [[*map(_check, way.split())] for way in checks.split(" | ")]
    for kind, checks in ENGLISH["kinds"].items()
}


def fits(kind: str, text: str) -> bool:
    """Whether `text` is what a slot of that kind takes."""
    return any(all(check(text) for check in way) for way in _KINDS[kind])


def relation_in(text: str) -> str:
    """The relation of "two younger sisters", the animal of "a black cat named Tom"; folded."""
    for pattern, group in ((expression("animal"), "animal"), (_RELATIVE, "relation")):
        found = pattern.fullmatch(text)
        if found is not None:
            return found[group].lower()
    return ""


_INNER: Final = {
    **{"age": "age", "meal": "meal", "job": "job", "trade": "job"},
    **{"fan of": "fan_of", "language": "language"},
}
"""Of these the value is the first group of an expression."""


def value_of(kind: str, text: str) -> str:
    """The value in `text`, which fits `kind`."""
    found = expression(_INNER[kind]).fullmatch(text) if kind in _INNER else None
    if found is not None:
        return found[1].lower() if kind == "meal" else without_determiner(found[1])
    return without_determiner(text) if kind not in ("verb", "liked") else text.removeprefix("to ")


_MIN_SIMILAR: Final = 0.4
"""Of two names, from which they may be spellings of one (Kathrin, Catherine)."""


def tells_more(one: str, other: str) -> bool:
    left, right = set(one.split()), set(other.split())
    return left <= right or right <= left


def are_two_names(one: str, other: str, *, least: float = _MIN_SIMILAR) -> bool:
    """Whether two folded names are no forms of one: their similarity is less than `least`."""
    if tells_more(one, other) or one in other or other in one:
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() < least
