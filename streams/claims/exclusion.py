"""Which two values of a slot cannot both hold. Pure.

Values that may both be true (a nickname and a name, "pasta" and "pasta carbonara", a nurse who is a
drummer too) do not exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from palimpsest.streams.claims.claim import Claim
from palimpsest.streams.claims.places import apart, is_known
from palimpsest.streams.text.dates import MONTHS

COUNTED: Final = re.compile(
    r"(two|three|four|five|six|seven|eight|nine|ten|\d{1,2}) (\w+s|children)"
)
_STATUSES: Final = {
    "single": "alone",
    "divorced": "alone",
    "widowed": "alone",
    "in a relationship": "together",
    "dating": "together",
    "engaged": "engaged",
    "married": "married",
}
_ENDS: Final = frozenset(
    {
        ("alone", "together"),
        ("alone", "engaged"),
        ("alone", "married"),
        ("together", "alone"),
        ("engaged", "alone"),
        ("married", "alone"),
        ("engaged", "married"),
    }
)
"""A status that was, and the one that ends it."""
_MEATLESS: Final = frozenset(("vegan", "vegetarian", "pescatarian"))
_SAME_KIND: Final = {"movie": "film", "color": "colour", "tv show": "show", "meal": "food"}
ADJECTIVE: Final = re.compile(
    r"\w+(?:ish|ese|ian|ean|can|man)|french|dutch|swiss|greek|czech|thai|catholic|muslim|hindu"
    r"|buddhist|protestant"
)
"""Folded words that are written like a name and are none."""
FAVOURITES: Final = tuple(
    frozenset(re.split(r", *\n? *", words.strip()))
    for words in (
        "red, orange, yellow, green, blue, purple, pink, brown, black, white, grey, gold, silver",
        "spring, summer, autumn, winter",
        "monday, tuesday, wednesday, thursday, friday, saturday, sunday",
        ", ".join(MONTHS),
        "one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen",
        """pizza, sushi, ramen, tacos, lasagna, curry, pho, burgers, risotto, paella, falafel,
        dumplings, pancakes, waffles, fish and chips, steak, chili, mac and cheese, pad thai,
        spaghetti, gnocchi, goulash, couscous, hummus, bibimbap, tempura, burritos, kebab""",
        "tea, coffee, water, wine, beer, lemonade, orange juice, whisky, gin and tonic, cola",
        """apples, bananas, mangoes, strawberries, cherries, grapes, peaches, pears, plums, kiwis,
        pineapple, watermelon, blueberries, apple, banana, grape, pear, plum, kiwi""",
        """cats, dogs, horses, elephants, giraffes, lions, tigers, wolves, foxes, owls, pandas,
        dolphins, whales, penguins, otters, koalas, sloths, cat, dog, horse, elephant, giraffe,
        lion, tiger, owl, panda, dolphin, whale, penguin, otter, koala, sloth""",
        """football, tennis, basketball, swimming, rugby, cricket, golf, hockey, volleyball,
        badminton, baseball, boxing, climbing, surfing, skiing, rowing, judo, handball""",
        "roses, tulips, lilies, daisies, orchids, sunflowers, peonies, dahlias, irises",
        "maths, physics, chemistry, biology, history, geography, art, music, latin, economics",
        "vanilla, chocolate, strawberry, pistachio, hazelnut, lemon, caramel, stracciatella",
    )
)
"""Things of which none is a kind of another. An adjective would only say something of the favourite
("is delicious"), and no pattern tells it from a noun."""
_MIN_SIMILAR: Final = 0.4
"""Of two names, above which they may be spellings of one (Kathrin, Catherine)."""


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


def _tells_more(one: str, other: str) -> bool:
    left, right = set(one.split()), set(other.split())
    return left <= right or right <= left


def are_two_names(one: str, other: str) -> bool:
    """Whether two names are no forms of one."""
    if _tells_more(one, other) or one in other or other in one:
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() < _MIN_SIMILAR


def _are_names(one: Stated, other: Stated) -> bool:
    words = f"{one.claim.value} {other.claim.value}".split()
    return all(word[0].isupper() for word in words)


def _elsewhere(new: Stated, known: Stated) -> bool:
    if not _are_names(new, known):
        return False
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
    if (other, one) in _ENDS:
        return True
    partners = new.claim.key == known.claim.key == "partner"
    return partners and one == other and _other_name(new, known)


def _status(stated: Stated) -> str:
    found = (kept for words, kept in _STATUSES.items() if f" {words} " in f"{stated.said} ")
    return next(found, "")


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
    kinds = [_SAME_KIND.get(each.claim.key, each.claim.key) for each in (new, known)]
    if kinds[0] != kinds[1] or kinds[0].endswith("s") or _tells_more(new.value, known.value):
        return False
    values = {new.value, known.value}
    if any(values <= listed for listed in FAVOURITES):
        return new.value.rstrip("s") != known.value.rstrip("s")
    said_of_it = any(ADJECTIVE.fullmatch(value) for value in values)
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
