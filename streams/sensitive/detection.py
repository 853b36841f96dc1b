"""Finding all kinds in one text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from palimpsest.streams.sensitive.addresses import find_credentials, find_emails, find_ips
from palimpsest.streams.sensitive.codes import find_codes
from palimpsest.streams.sensitive.keys import find_keys
from palimpsest.streams.sensitive.numbers import (
    find_cards,
    find_ibans,
    find_phones,
    find_ssns,
    outside_uuids,
)
from palimpsest.streams.sensitive.passwords import find_passwords, mentions_one
from palimpsest.streams.sensitive.spans import KINDS, Kind, Span, merged, pseudonym, replaced

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
    seen, places = unmasked(text)
    spans = _find(seen, kinds)
    return spans if seen is text else placed(spans, places)


def _find(text: str, kinds: Collection[Kind]) -> list[Span]:
    found: list[Span] = []
    lowered = text.lower()
    found += find_passwords(text, lowered)
    found += find_keys(text, lowered)
    found += find_codes(text, lowered)
    if "://" in text:
        found += find_credentials(text)
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


def redacted(text: str, kinds: Collection[Kind] = KINDS, names: bool = False) -> str:
    """The text with a placeholder in the place of every finding, itself where there is none. One
    that `names` a person tells numbers of telephones apart.
    Redacting again changes nothing: what is told by words that came nearer is taken out, too."""
    if _NUMBER_AS_NAME.fullmatch(text) and names and "phone" in kinds:
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
    return mentions_one(text)
