"""Finding all kinds in one text."""

from __future__ import annotations

import base64
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Final

from palimpsest.streams.sensitive.notations import views
from palimpsest.streams.sensitive.numbers import (
    find_cards,
    find_credentials,
    find_emails,
    find_ibans,
    find_ips,
    find_phones,
    find_ssns,
    outside_uuids,
)
from palimpsest.streams.sensitive.passwords import find_codes, find_passwords, mentions_one
from palimpsest.streams.sensitive.shapes import find_encoded, find_shapes
from palimpsest.streams.sensitive.spans import (
    KINDS,
    SURE,
    TOLD,
    Kind,
    Span,
    merged,
    pseudonym,
    replaced,
)

_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_AWS_WORDS: Final = ("secret", "aws", "akia", "asia")
_AZURE: Final = re.compile(r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,88}={0,2})")
_TWILIO: Final = re.compile(r"(?<![A-Za-z0-9])[0-9a-f]{32}(?![A-Za-z0-9])")
_CONTEXT: Final = 100
"""Characters before a find in which a word must stand that tells what it is."""
_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_CLOSE: Final = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=\s:,]|\\[nr])*+")
_BEARER: Final = re.compile(
    r"(?<![A-Za-z])bearer[ \t:=]{1,3}[\"']?([A-Za-z0-9._~+/=-]{12,}+)", re.IGNORECASE
)
_HEADER: Final = re.compile(
    r"authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
    r"(?:(?:bearer|token|apikey|digest|negotiate)\s{1,3})?"
    r"([A-Za-z0-9._~+/=-]{8,}+)",
    re.IGNORECASE,
)
_BASIC: Final = re.compile(r"(?<![A-Za-z])basic\s{1,3}([A-Za-z0-9+/_-]{6,}+={0,2})", re.IGNORECASE)


def find_keys(text: str, lowered: str) -> Iterator[Span]:
    """Keys and tokens; `lowered` is the text in lower case, of any length."""
    yield from find_shapes(text)
    if "-----BEGIN" in text:
        # A block to its end; one without an end, as far as it goes.
        ends = [match.end() for match in _CLOSE.finditer(text)]
        reached = 0
        for begin in _BEGIN.finditer(text):
            if begin.start() < reached:
                continue
            body = _BODY.match(text, begin.end())
            reached = body.end() if body else begin.end()
            number = bisect_left(ends, reached)
            close = ends[number] if number < len(ends) else None
            if close is not None and close - begin.end() <= 20_000:
                reached = close
            yield Span(begin.start(), reached, "private_key", SURE)
    if "accesskey=" in lowered or "accountkey=" in lowered:
        for match in _AZURE.finditer(text):
            yield Span(*match.span(1), "connection_string", SURE)
    if any(word in lowered for word in _AWS_WORDS):
        yield from _in_context(text, _AWS_SECRET, _AWS_WORDS)
    if "twilio" in lowered:
        yield from _in_context(text, _TWILIO, ("twilio", "auth"))
    if "bearer" in lowered or "authorization" in lowered or "basic" in lowered:
        yield from _headers(text)


def _in_context(text: str, pattern: re.Pattern[str], words: tuple[str, ...]) -> Iterator[Span]:
    for match in pattern.finditer(text):
        found = match.group()
        before = text[max(0, match.start() - _CONTEXT) : match.start()].lower()
        is_hash = pattern is _AWS_SECRET and _HEX.fullmatch(found) is not None
        if not is_hash and _is_mixed(found) and any(word in before for word in words):
            yield Span(*match.span(), "api_key", TOLD)


def _is_mixed(found: str) -> bool:
    """A key mixes digits and characters of the alphabet; a path has none of the former, a number
    none of the latter."""
    return any(map(str.isdigit, found)) and any(map(str.isalpha, found))


def _headers(text: str) -> Iterator[Span]:
    for match in _HEADER.finditer(text):
        if match.group(1).lower() not in ("bearer", "basic", "required", "optional", "negotiate"):
            yield Span(*match.span(1), "token", TOLD)
    for match in _BEARER.finditer(text):
        found = match.group(1)
        if any(map(str.isdigit, found)):
            yield Span(*match.span(1), "token", TOLD)
    for match in _BASIC.finditer(text):
        if _is_name_and_password(match.group(1)):
            yield Span(*match.span(1), "token", TOLD)


def _is_name_and_password(encoded: str) -> bool:
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_")
    except ValueError:
        return False
    return b":" in decoded and all(32 <= byte < 127 for byte in decoded)


_OF_NUMBERS: Final[tuple[tuple[Kind, Callable[[str], Iterator[Span]]], ...]] = (
    ("credit_card", find_cards),
    ("iban", find_ibans),
    ("ssn", find_ssns),
    ("phone", find_phones),
)


MOST_ROUNDS: Final = 8
_PLAIN: Final = re.compile(r"[a-z_-]{0,20}|[A-Za-z0-9_.-]{0,8}")
"""One short word, as most fields beside the content are: nothing that is looked for is as short."""


_NUMBER_AS_NAME: Final = re.compile(r"\(?(?:\+|0(?=[1-9]))[\d ()/.\u00a0-]{7,24}")
"""Nothing but a telephone number: in a name it needs no words and no groups to be told."""


def plain(text: str) -> str:
    """The text as it is looked through: composed (NFC), without NUL, as it would be stored."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def find(text: str, kinds: Collection[Kind] = KINDS) -> list[Span]:
    """What of these kinds lies in a `plain` text: in order, without overlaps."""
    found = [view.placed(_find(view.text, kinds)) for view in views(text)]
    return found[0] if len(found) == 1 else merged(text, chain.from_iterable(found))


def _find(text: str, kinds: Collection[Kind]) -> list[Span]:
    found = [*_secrets(text), *find_encoded(text, _secrets)]
    if any(map(str.isdecimal, text)):
        for kind, look in _OF_NUMBERS:
            if kind in kinds:
                found += outside_uuids(text, look(text))
        if "ip_address" in kinds:
            found += find_ips(text)
    if "email" in kinds and "@" in text:
        found += find_emails(text)
    wanted = [span for span in found if span.kind in kinds]
    return merged(text, wanted) if wanted else []


def _secrets(text: str) -> Iterator[Span]:
    """What opens something."""
    lowered = text.lower()
    yield from find_passwords(text, lowered)
    yield from find_keys(text, lowered)
    yield from find_codes(text, lowered)
    if "://" in text:
        yield from find_credentials(text)


def redacted(text: str, kinds: Collection[Kind] = KINDS, names: bool = False) -> str:
    """The text with a placeholder in the place of every finding, itself where there is none. One
    that `names` a person tells numbers of telephones apart.
    Redacting again changes nothing: what is told by words that came nearer is taken out, too."""
    if names and "phone" in kinds and _NUMBER_AS_NAME.fullmatch(text):
        return pseudonym("phone", text)
    if _PLAIN.fullmatch(text):
        return text
    looked_through = plain(text)
    result = text
    for _ in range(MOST_ROUNDS):
        spans = find(looked_through, kinds)
        if not spans:
            break
        result = looked_through = replaced(looked_through, spans, names)
    return result


def is_unclear(text: str) -> bool:
    """Whether a `plain` text speaks of a secret that no span holds, so that nothing but refusing
    the text keeps it out."""
    return any(mentions_one(view.text) for view in views(text))
