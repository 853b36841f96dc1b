"""Words that are not the speaker's own: quotations and code, put out of sight of the rules. Pure.

A quotation becomes one character that no rule matches, and comes back unchanged at the end. So
nothing inside it is rewritten, split, dated or taken for a relation.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_QUOTATION_CHARACTERS: Final = 1_000
MAX_QUOTATIONS: Final = 4_096

# Planes of private use: no character of a text means anything there. The second half stands for
# quotations that end a sentence.
_OPEN: Final = 0xF0000
_ENDED: Final = 0xF8000
_PRIVATE: Final = re.compile("[\U000f0000-\U000fffff]")

_LENGTH: Final = f"{{1,{MAX_QUOTATION_CHARACTERS}}}"
QUOTED: Final = re.compile(
    rf"`[^`\n]{_LENGTH}`"
    rf"|“[^“”]{_LENGTH}”|«[^«»]{_LENGTH}»|„[^„“”]{_LENGTH}[“”]|「[^「」]{_LENGTH}」"
    rf"|『[^『』]{_LENGTH}』"
    rf'|(?<![\w"])"(?=\S)[^"]{_LENGTH}"(?!\w)'
    r"|(?<![\w'])'(?=\S)(?:[^'\n]|(?<=\w)'(?=\w)){2,300}'(?!\w)"
)
# What stands after the colon was said or written by someone, or is handed in to be worked on.
_INTRODUCED: Final = re.compile(
    r"\b(?:said|says|saying|say|wrote|writes|told|tells|asked|asks|replied|replies|answered|shouted"
    r"|texted|whispered|announced|quoted|goes|reads|read|begins with|starts with|ends with"
    r"|translate|rewrite|rephrase|proofread|paraphrase|correct|summari[sz]e|the following"
    r"|lyrics|motto|quote|letter|mail|email|message|poem|song|sign|sentence|subject line)\b"
    r"[^:.!?\n]{0,60}:\s+(?P<rest>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_ENDS: Final = (".", "!", "?", "…", "。", "\uff01", "\uff1f")


class Masked(NamedTuple):
    """A text with its quotations hidden."""

    text: str
    spans: tuple[str, ...]

    def restored(self, part: str) -> str:
        """`part` of the text with its quotations back."""
        if not self.spans:
            return part
        return _PRIVATE.sub(lambda match: self.spans[_index(match.group())], part)


def without_marks(text: str) -> str:
    """`text` without the characters that stand for quotations."""
    return text if text.isascii() else _PRIVATE.sub("", text)


def masked(text: str) -> Masked:
    """`text` (one paragraph) with quotations, inline code and reported speech hidden."""
    text = without_marks(text)
    spans: list[str] = []

    def hide(span: str) -> str:
        if len(spans) == MAX_QUOTATIONS:
            return span
        spans.append(span)
        ended = span.rstrip("\"'”»“」』`").endswith(_ENDS)
        return chr((_ENDED if ended else _OPEN) + len(spans) - 1)

    hidden = QUOTED.sub(lambda match: hide(match.group()), text) if _may_quote(text) else text
    introduced = _INTRODUCED.search(hidden) if ": " in hidden else None
    if introduced is not None and _PRIVATE.fullmatch(introduced["rest"].rstrip(". ")) is None:
        rest = Masked("", tuple(spans)).restored(introduced["rest"])
        hidden = hidden[: introduced.start("rest")] + hide(rest)
    return Masked(hidden, tuple(spans))


def _may_quote(text: str) -> bool:
    # An apostrophe inside a word is no quotation mark, and most texts have no other.
    return (
        '"' in text
        or "`" in text
        or " '" in text
        or "('" in text
        or text.startswith("'")
        or not text.isascii()
    )


def _index(mark: str) -> int:
    return ord(mark) - (_ENDED if ord(mark) >= _ENDED else _OPEN)
