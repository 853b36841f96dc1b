"""What captions write that nobody says: descriptions of sounds, as "[music]" or "(laughter)", and
words of songs, as "♪ … ♪"."""

from __future__ import annotations

import re
from typing import Final

MOST_WORDS: Final = 4
"""Words in round brackets that may be a description: people say longer things aside, too."""
_NOTES: Final = "♩♪♫♬🎵🎶"
_SOUND: Final = re.compile(
    r"[\s–—>-]{0,8}(?:"
    r"[\[［【〔](?!\d)[^\[\]［］【】〔〕]{1,80}[\]］】〕]"
    r"|[(（](?P<aside>[^()（）]{1,60})[)）]"
    rf"|[{_NOTES}][^{_NOTES}]*+(?:[{_NOTES}]|$)"
    r"|# [^#]{1,200} #(?!\S))[\s.…]{0,8}"
)
_ENDS_WORDS: Final = re.compile(r"[.!?。！？:：]\s*$")
"""Of a sentence, or before what somebody says."""


def is_sound(text: str) -> bool:
    """Whether a text without tags has nothing that anybody says."""
    text = text.strip()
    if text.lstrip("->–— ")[:1] in tuple(_NOTES) and text[-1:] in tuple(_NOTES):
        return True
    place = 0
    while place < len(text):
        part = _SOUND.match(text, place)
        if part is None or not _is_description(part["aside"]):
            return False
        place = part.end()
    return bool(text)


def _is_description(aside: str | None) -> bool:
    """Whether words in round brackets describe a sound: just a few, and no sentence. Other marks
    say so by themselves."""
    if aside is None or any(note in aside for note in _NOTES):
        return True
    return len(aside.split()) <= MOST_WORDS and _ENDS_WORDS.search(aside) is None
