"""Halves of surrogate pairs in texts: what is left of an emoji that a program cut in the middle.
Such a text cannot be encoded in UTF-8."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, TypeVar

from pydantic import JsonValue

V = TypeVar("V")
_HALF: Final = re.compile("[\ud800-\udfff]")


def texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yields all texts of a value of JSON, names of members among them, each with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(name, where)
            yield from texts(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from texts(inner, f"{where}[{number}]")


def halves(value: object) -> Iterator[str]:
    """Yields the places of the texts of a value of JSON that have half a surrogate pair."""
    for where, text in texts(value):
        if _HALF.search(text):
            yield without_halves(where)


def without_halves(value: V) -> V:
    """The text, or the value of JSON, with U+FFFD for each half of a surrogate pair; two halves
    that belong together are their character."""
    if isinstance(value, str):
        if _HALF.search(value) is None:
            return value
        joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return joined  # type: ignore[return-value]
    whole: object = value
    if isinstance(value, dict):
        whole = {without_halves(k): without_halves(v) for k, v in value.items()}
    elif isinstance(value, list):
        whole = [without_halves(each) for each in value]
    return whole  # type: ignore[return-value]


def dumped(node: JsonValue) -> bytes:
    """JSON in the format of records."""
    try:
        return json.dumps(node, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair can only be escaped
        return json.dumps(node, separators=(",", ":")).encode()
