"""Which city lies in which country, so that "lives in Japan" and "lives in Osaka" agree.

Not an atlas: what is not here is unknown, and of two places of which one is unknown nothing is
concluded. Names are folded; spaces in a name are written as underscores.
"""

from __future__ import annotations

import re
from typing import Final

from palimpsest.streams.claims.language import PLACES


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


def _lands_of(name: str) -> frozenset[str]:
    return frozenset(filter(None, [_COUNTRIES.get(name)])) | _CITIES.get(name, frozenset())
