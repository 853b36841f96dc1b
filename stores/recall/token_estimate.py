"""Tokens of a text, estimated without a tokenizer. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff9f"
)
_PIECE: Final = re.compile(
    r"(?P<latin>[A-Za-z]+)|(?P<digits>[0-9]+)"
    r"|(?P<marks>[!-/:-@\[-`{-~]+)"
    rf"|(?P<single>[{_UNSPACED}\n\u2010-\u2027])"
    rf"|(?P<alphabetic>[^\W\d_{_UNSPACED}A-Za-z]+)"
    r"|(?P<sign>[^\s])"
)
_CHARACTERS_A_TOKEN: Final = {"digits": 3, "alphabetic": 2, "marks": 2}
_TOKENS_A_SIGN: Final = {"single": 1, "sign": 2}
_WORD: Final = 8
"""Characters of a Latin word that is one token."""
_REST: Final = 5
"""Characters a token of what a longer word has beyond that."""


def estimate_tokens(text: str) -> int:
    """The estimate: about four characters of English a token.

    A word in the Latin script of up to eight characters counts one, and one more for every five
    characters begun after them; a word of another alphabet one for every two characters begun; a
    number one for every three digits; a run of ASCII marks one for every two; a character of a
    script without spaces, a typographic mark and a line break one each; other signs (emoji) two.
    Additive over lines: of two texts joined by a line break it is the sum and one.
    """
    total = 0
    for match in _PIECE.finditer(text):
        kind, length = match.lastgroup or "sign", len(match.group())
        if kind == "latin":
            total += 1 + max(-(-(length - _WORD) // _REST), 0)
        elif (per := _CHARACTERS_A_TOKEN.get(kind)) is not None:
            total += -(-length // per)
        else:
            total += _TOKENS_A_SIGN[kind]
    return total
