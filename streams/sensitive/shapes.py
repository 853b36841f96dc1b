"""Keys and tokens by their shape, also where a program has wrapped a line within one, or has
encoded what has one in base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from palimpsest.streams.sensitive.spans import LEXICON, SURE, TOLD, Kind, Span, expression


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that is looked for only where one of the `hints` stands in the text."""

    kind: Kind
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


SHAPES: Final = tuple(
    Shape(kind, tuple(hints.split()), re.compile(LEXICON.filled(pattern), re.ASCII))
    for kind, hints, pattern in cast("list[tuple[Kind, str, str]]", LEXICON.tables["shapes"])
)
"""The shapes of keys and tokens."""
_BY_HINT: Final = tuple((hint, shape) for shape in SHAPES for hint in shape.hints)
_BY_BEGINNING: Final = {
    hint[:2]: tuple(each for each in _BY_HINT if each[0][:2] == hint[:2]) for hint, _ in _BY_HINT
}
_PREFIXES: Final = LEXICON.word_set("prefixes")
"""What tokens of more than a line begin with."""
_WRAPPED: Final = expression("wrapped")
_WRAPPED_LINE: Final = expression("line")
_ENCODED: Final = expression("encoded")
_LEAST_ENCODED: Final = 14
"""Characters of the shortest text with a password, encoded."""
_BEGINNING: Final = 64
"""Characters of a blob by which most that is no text is told."""


def find_shapes(text: str) -> Iterator[Span]:
    """The keys and tokens of known issuers."""
    hints = [(hint, shape) for hint, shape in _BY_HINT if hint in text]
    yield from _of_shapes(text, hints)
    if "\n" in text and any(hint in _PREFIXES for hint, _ in hints):
        yield from _wrapped(text)


def _of_shapes(text: str, hints: Sequence[tuple[str, Shape]]) -> Iterator[Span]:
    for shape in dict.fromkeys(shape for _, shape in hints):
        for match in shape.pattern.finditer(text):
            yield Span(*match.span(match.lastgroup or 0), shape.kind, SURE)


def _wrapped(text: str) -> Iterator[Span]:
    """Tokens that go on in the next lines, each of which looks like a part of one."""
    for match in _WRAPPED.finditer(text):
        said = match["line"]
        near = _BY_BEGINNING.get(said[:2], ())
        hints = [(hint, shape) for hint, shape in near if said.startswith(hint)]
        found = next(_of_shapes(said, hints), None)
        kind, end = None, match.end("line")
        for line in _WRAPPED_LINE.finditer(text, end, match.end()):
            if found is not None and not _looks_random(line["said"]):
                break  # it was whole before, and this line says something else
            said += line["said"]
            longer = next(_of_shapes(said, hints), None)
            if longer is not None and longer.end == len(said):
                kind, end = longer.kind, line.end()
            found = found or longer
        if kind is not None:
            yield Span(match.start(), end, kind, SURE)


def _looks_random(line: str) -> bool:
    """Whether a line is what nobody would write, and so a part of a token that could be whole."""
    tests = (str.isdigit, str.islower, str.isupper)
    return len(line) >= 12 and all(any(map(test, line)) for test in tests)


def find_encoded(text: str, look: Callable[[str], Iterable[Span]]) -> Iterator[Span]:
    """Blobs of base64 that are a text in which `look` finds a secret."""
    # Only a long word can be a blob, and one with capitals in it.
    words = text.split() if len(text) >= _LEAST_ENCODED else []
    if max(map(len, words), default=0) < _LEAST_ENCODED:
        return
    if all(len(word) < _LEAST_ENCODED or word[1:].islower() for word in words):
        return
    for match in _ENCODED.finditer(text):
        end = match.end()
        found = _secret_in(match.group(), look)
        if found is None and match["last"]:
            end = match.end("lines")  # the next line begins with a word
            found = _secret_in(match["lines"], look)
        if found is not None:
            yield Span(match.start(), end, found.kind, found.confidence)


def _secret_in(blob: str, look: Callable[[str], Iterable[Span]]) -> Span | None:
    """The first secret in the text that a blob is. What is only guessed is none there."""
    blob = "".join(blob.rstrip("=").split()).translate(_URL_SAFE)
    if _decoded(blob[:_BEGINNING], is_part=True) is None:
        return None
    decoded = _decoded(blob, is_part=False)
    found = () if decoded is None else look(decoded)
    return next((span for span in found if span.confidence >= TOLD), None)


_URL_SAFE: Final = str.maketrans("-_", "+/")


def _decoded(blob: str, is_part: bool) -> str | None:
    """The text that a blob is, or its beginning; None where it is none."""
    try:
        found = base64.b64decode(blob + "=" * (-len(blob) % 4))
        text = found.decode("utf-8", "ignore" if is_part else "strict")
    except ValueError:
        return None
    # A character may be cut at the end of a part.
    if is_part and len(text.encode()) < len(found) - 3:
        return None
    return None if any(sign < " " and sign not in "\t\r\n" for sign in text) else text
