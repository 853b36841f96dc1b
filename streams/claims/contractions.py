"""English contractions written out. Pure. Only for text that is English: German has "im", too."""

from __future__ import annotations

import re
from typing import Final

_BARE: Final = {
    **{"im": "I am", "ive": "I have", "cant": "can not", "wont": "will not", "thats": "that is"},
    **{"youre": "you are", "theyre": "they are"},
    **{
        f"{verb}nt": f"{verb} not"
        for verb in "do does did is are was have has had could would should".split()
    },
}
_BARE_WORD: Final = re.compile(
    rf"(?<![\w.'@/-])(?:{'|'.join(_BARE)})(?![\w.'@/-])", re.IGNORECASE | re.ASCII
)
_WRITTEN: Final = (
    (re.compile(r"\b([Cc]a)n't\b|\b([Cc]a)nnot\b"), lambda m: f"{m[1] or m[2]}n not"),
    (re.compile(r"\b([Ww])on't\b"), lambda m: f"{m[1]}ill not"),
    (re.compile(r"n't\b"), lambda m: " not"),
    (re.compile(r"'m\b"), lambda m: " am"),
    (re.compile(r"'re\b"), lambda m: " are"),
    (re.compile(r"'ve\b"), lambda m: " have"),
    (re.compile(r"'ll\b"), lambda m: " will"),
    (re.compile(r"'d\b"), lambda m: " would"),
    (
        re.compile(r"\b([Hh]e|[Ss]he|[Ii]t|[Tt]hat|[Ww]ho|[Tt]here|[Hh]ere|[Ww]hat)'s\b"),
        lambda m: f"{m[1]} is",
    ),
    (
        re.compile(
            r"(?<!aster)(?<!achelor)'s (?=(?:not|an?|\w+ing|allergic|called|named|married|from|in"
            r"|also|now|a)\b)"
        ),
        lambda m: " is ",
    ),
    (
        re.compile(
            r"\b([Ff]avou?rite [\w' ]{1,40}?) (?:would |got |ha(?:s|ve) )(?:have )?(?:to )?be "
        ),
        lambda m: f"{m[1]} is ",
    ),
    (re.compile(r"\bgonna\b"), lambda m: "going to"),
    (re.compile(r"\bI (?:really )?can not stand (?!up\b|in\b|on\b)"), lambda m: "I hate "),
    (re.compile(r"\bI can not (?=(?:eat|drink)\b)"), lambda m: "I do not "),
    (re.compile(r"\bmoved here from\b"), lambda m: "moved from"),
    (re.compile(r"\b([Mm]y|[Oo]ur) (\w+)'s name is "), lambda m: f"{m[1]} {m[2]} is called "),
    (re.compile(r"\b(?:any ?more|any longer)\b"), lambda m: "anymore"),
)
_SMALL_I: Final = re.compile(r"(?<![\w.'-])i(?=(?:'(?:m|ve|d|ll))?(?:[ ,.!]|$))")


def expanded(text: str) -> str:
    """`text` (English, apostrophes straight) without contractions, and with "I" in capitals."""
    if not _BARE.keys().isdisjoint(text.lower().split()):
        text = _BARE_WORD.sub(lambda match: _BARE[match.group().lower()], text)
    text = _SMALL_I.sub("I", text)
    if (
        "'" in text
        or "gonna" in text
        or " be " in text
        or " here " in text
        or "any" in text
        or "cannot" in text
    ):
        for pattern, written in _WRITTEN:
            text = pattern.sub(written, text)
    return text
