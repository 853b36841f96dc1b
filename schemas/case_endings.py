"""Russian names in their cases: what the nominative of an inflected name may be. Pure.

A written form may belong to several names ("Александра" is Alexandra, or the genitive of
Alexander): all of them are returned, and only known names are linked."""

from __future__ import annotations

import re
from itertools import islice, product

_CYRILLIC = re.compile("[а-яё][а-яё -]*")
_MIN_STEM = 2
_MOST = 8
# Written ending, and the endings of nominatives that it may belong to, the likeliest first.
_ENDINGS = {
    **{"ами": ("а",), "ями": ("я",), "ого": ("ий", "ый"), "ому": ("ий", "ый")},
    **{"ой": ("а", "ая"), "ою": ("а",), "ей": ("я", "а"), "ёй": ("я",), "ею": ("я", "а")},
    **{"ом": ("",), "ем": ("й", "ь", ""), "ым": ("", "ый"), "им": ("ий",), "ью": ("ь",)},
    **{"ую": ("ая",), "а": ("",), "у": ("а", ""), "е": ("а", "", "я", "й", "ь"), "ы": ("а",)},
    **{"и": ("а", "я", "ь"), "ю": ("я", "й", "ь"), "я": ("й", "ь")},
}


_OF_NOMINATIVES = sorted({each for known in _ENDINGS.values() for each in known}, key=len)


def nominatives(name: str) -> list[str]:
    """The names, lower-cased, of which this lower-cased one may be a case; at most 8, without
    itself. Empty for a name that is not all Cyrillic."""
    if not _CYRILLIC.fullmatch(name):
        return []
    forms = product(*map(_of_word, name.split()))
    return [form for each in islice(forms, _MOST + 1) if (form := " ".join(each)) != name]


def beginning_in_every_case(name: str) -> str:
    """What every text contains that has the lower-cased name in any case; a name that is not all
    Cyrillic has none but its own form."""
    if not _CYRILLIC.fullmatch(name):
        return name
    word = name.split(maxsplit=1)[0]
    lengths = [len(each) for each in _OF_NOMINATIVES if word.endswith(each)]
    ending = max(each for each in lengths if not each or len(word) - each >= _MIN_STEM)
    return word[: len(word) - ending]


def _of_word(word: str) -> list[str]:
    found = [word]
    for length in (3, 2, 1):
        stem, ending = word[:-length], word[-length:]
        if len(stem) >= _MIN_STEM:
            found += [stem + other for other in _ENDINGS.get(ending, ())]
    return found
