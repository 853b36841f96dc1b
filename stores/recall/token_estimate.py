"""Tokens of a text, estimated without a tokenizer. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff9f"
)
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z])[A-Za-z]{1,8}|[A-Za-z]{1,5}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,2}"
    rf"|[{_UNSPACED}\n\u2010-\u2027]"
    rf"|[^\W\d_{_UNSPACED}A-Za-z]{{1,2}}"
    r"|([^\s])"
)
"""One match a token; the group holds a sign, which counts two."""


def estimate_tokens(text: str) -> int:
    """The estimate: about four characters of English a token.

    A word in the Latin script of up to eight characters counts one, and one more for every five
    characters begun after them; a word of another alphabet one for every two characters begun; a
    number one for every three digits; a run of ASCII marks one for every two; a character of a
    script without spaces, a typographic mark and a line break one each; other signs (emoji) two.
    Additive over lines: of two texts joined by a line break it is the sum and one.
    """
    found = _TOKEN.findall(text)
    return 2 * len(found) - found.count("")
