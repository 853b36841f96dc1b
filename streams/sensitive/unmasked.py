"""A text as a reader sees it: what cannot be seen is left out, full-width forms are plain ones.

Else a zero-width space within "password" would hide it from every pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from palimpsest.streams.sensitive.spans import Span

_MASKING: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uff01-\uff5e\uffa0]"
)
_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}


def unmasked(text: str) -> tuple[str, Sequence[int]]:
    """The text as it is seen, and where each of its characters stands in the original, with the
    original's length behind them."""
    if text.isascii() or _MASKING.search(text) is None:
        return text, range(len(text) + 1)
    places = [at for at, each in enumerate(text) if ord(each) in _WIDE or not _MASKING.match(each)]
    seen = "".join(text[at] for at in places).translate(_WIDE)
    return seen, [*places, len(text)]


def placed(spans: Sequence[Span], places: Sequence[int]) -> list[Span]:
    """Spans of what is seen, in the original."""
    return [replace(span, start=places[span.start], end=places[span.end - 1] + 1) for span in spans]
