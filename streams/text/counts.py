"""Numbers with what they count, as reports say them."""

from __future__ import annotations

from typing import Final

_VERBS: Final = {
    **{"are": "is", "were": "was"},
    **{"gain": "gains", "lack": "lacks", "match": "matches", "tell": "tells"},
}


def counted(count: int, plural: str) -> str:
    """The number before `plural`, whose first plural noun and first verb are singular with 1:
    "1 entry is left out", "1,200 dead letters"."""
    words = plural.split(" ")
    if count == 1:
        noun = next((n for n, word in enumerate(words) if word.endswith("s")), None)
        if noun is not None:
            word = words[noun]
            words[noun] = f"{word[:-3]}y" if word.endswith("ies") else word[:-1]
        verb = next((n for n, word in enumerate(words) if word in _VERBS), None)
        if verb is not None:
            words[verb] = _VERBS[words[verb]]
    return f"{count:,} {' '.join(words)}"
