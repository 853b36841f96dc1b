"""A text as it is read, under the notations in which programs write it: escapes of JSON and of
shells, percent-encoding, entities, quoted-printable, colours of a terminal, invisible characters
and other spaces.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from palimpsest.streams.sensitive.spans import Span, expression

MOST_LEVELS: Final = 4
"""Of notations in one another, such as JSON in a string of JSON in an address."""
_MASKING: Final = re.compile(
    "[\x0b\x85\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufe30\ufe55\ufeff\uff01-\uff5e\uffa0]"
)
_PLAIN: Final = (
    {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    | dict.fromkeys([0x0B, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029], 0x20)
    | dict.fromkeys([0x202F, 0x205F, 0x3000], 0x20)
    | dict.fromkeys([0xFE30, 0xFE55], 0x3A)
)
"""What stands for a character of ASCII: wide and small forms, and all spaces."""
_ESCAPE: Final = expression("escape")
_BEGINS_ESCAPE: Final = re.compile(r"[\\%\x1b]|&[#A-Za-z]|\^\[|\[\d|=(?:3D|\r?\n)")
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "b": " ", "0": " "}


@dataclass(frozen=True, slots=True)
class View:
    """A text as it is read, and where each of its characters begins and ends in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def placed(self, spans: Sequence[Span]) -> list[Span]:
        """Spans of the view, in the original."""
        return [
            replace(span, start=self.starts[span.start], end=self.ends[span.end - 1])
            for span in spans
        ]


def views(text: str) -> Iterator[View]:
    """The text without what masks it, then with its escapes read, once for each level of them. A
    text of one view has no escapes."""
    view: View | None = _unmasked(View(text, range(len(text)), range(1, len(text) + 1)))
    for _ in range(MOST_LEVELS):
        if view is None:
            return
        yield view
        view = _read(view)


def _unmasked(view: View) -> View:
    text = view.text
    if (text.isascii() and "\v" not in text) or _MASKING.search(text) is None:
        return view
    kept = [at for at, each in enumerate(text) if ord(each) in _PLAIN or not _MASKING.match(each)]
    seen = "".join(text[at] for at in kept).translate(_PLAIN)
    return View(seen, [view.starts[at] for at in kept], [view.ends[at] for at in kept])


def _read(view: View) -> View | None:
    """One level of escapes read; None where there are none."""
    text = view.text
    begin = _BEGINS_ESCAPE.search(text)
    if begin is None:
        return None
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in _ESCAPE.finditer(text, begin.start()):
        meant = _meant(match)
        if meant == match.group():
            continue
        start, end = match.span()
        parts += [text[done:start], meant]
        starts += [*view.starts[done:start], *[view.starts[start]] * len(meant)]
        ends += [*view.ends[done:start], *[view.ends[end - 1]] * len(meant)]
        done = end
    if not done:
        return None
    parts.append(text[done:])
    starts += view.starts[done:]
    ends += view.ends[done:]
    return _unmasked(View("".join(parts), starts, ends))


def _meant(match: re.Match[str]) -> str:
    """The characters that an escape stands for: none for a colour or a soft break."""
    found = match.group()
    match match.lastgroup:
        case "percent":
            return bytes.fromhex(found.replace("%", "")).decode("utf-8", "replace")
        case "entity":
            return html.unescape(found)
        case "code":
            code = int(match["code"].strip("xuU{}"), 16)
            return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else found
        case "sign":
            return _CONTROLS.get(match["sign"], match["sign"])
        case "equals":
            return "="
        case _:
            return ""
