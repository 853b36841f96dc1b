"""What a finding is, and how findings become placeholders."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

from palimpsest.streams.text.tables import Lexicon

Kind = Literal[
    "password",
    "api_key",
    "token",
    "private_key",
    "connection_string",
    "credit_card",
    "iban",
    "ssn",
    "phone",
    "email",
    "ip_address",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SECRETS: Final[frozenset[Kind]] = frozenset(
    {"password", "api_key", "token", "private_key", "connection_string"}
)
"""What opens something. The other kinds belong to a person, and things may be named by them."""

SURE: Final = 0.99
TOLD: Final = 0.9
"""Confidence in what a checksum or a shape tells, and in what words beside it tell."""
LEXICON: Final = Lexicon(__name__, "secrets.toml")
expression = LEXICON.expression
NATIONAL_DIGITS: Final = 9
"""Last digits by which a number is known; what stands before is a code that not all write."""
MAX_PSEUDONYMS: Final = 4
"""Of a text; a name of a person has one."""
_PLACEHOLDER: Final = re.compile(r"\[REDACTED:([a-z_]{1,32})(?:#(?:[0-9a-f]{5}){1,2})?\]")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of a text. `confidence` is from 0 to 1: 0.99 for a checksum or
    the shape of a known issuer, less where only words around it tell."""

    start: int
    end: int
    kind: Kind
    confidence: float


def placeholder(kind: str) -> str:
    return f"[REDACTED:{kind}]"


@lru_cache(4_096)
def pseudonym(kind: str, text: str) -> str:
    """A placeholder that is another for another number, and the same however it is written: with
    the code of its country or without. It costs some 20 ms to make, so that trying all numbers
    takes months (decision 98)."""
    digits = re.sub(r"\D", "", text).lstrip("0")[-NATIONAL_DIGITS:]
    made = hashlib.scrypt(digits.encode(), salt=kind.encode(), n=1 << 13, r=8, p=1, dklen=5)
    return f"[REDACTED:{kind}#{made.hex()}]"


def placeholders_in(text: str) -> list[str]:
    """The kinds of the placeholders that a text has, in order."""
    return _PLACEHOLDER.findall(text) if "[REDACTED:" in text else []


def merged(text: str, spans: Iterable[Span]) -> list[Span]:
    """In order of the text; what overlaps is one span, of the kind that is surest. What lies in a
    placeholder is nothing new: a text that was redacted stays as it is."""
    taken = [match.span() for match in _PLACEHOLDER.finditer(text)] if "[RED" in text else []
    ends = [end for _, end in taken]
    result: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, each.end)):
        # Placeholders do not overlap, so the first that ends behind the span's start decides.
        near = bisect_right(ends, span.start)
        if near < len(taken) and taken[near][0] < span.end:
            continue
        if result and span.start < result[-1].end:
            before = result[-1]
            surest = max(before, span, key=lambda each: each.confidence)
            result[-1] = Span(
                before.start, max(before.end, span.end), surest.kind, surest.confidence
            )
        else:
            result.append(span)
    return result


def replaced(text: str, spans: Sequence[Span], names: bool = False) -> str:
    """The text with a placeholder for every one of the merged spans; one that `names` a person has
    pseudonyms for numbers of telephones."""
    parts: list[str] = []
    end = 0
    for span in spans:
        found = text[span.start : span.end]
        is_name = names and span.kind == "phone" and len(parts) < 2 * MAX_PSEUDONYMS
        said = pseudonym(span.kind, found) if is_name else placeholder(span.kind)
        parts += [text[end : span.start], said]
        end = span.end
    return "".join([*parts, text[end:]])
