"""Finding all kinds in one text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from palimpsest.streams.sensitive.addresses import find_credentials, find_emails, find_ips
from palimpsest.streams.sensitive.keys import find_keys
from palimpsest.streams.sensitive.numbers import (
    find_cards,
    find_ibans,
    find_phones,
    find_ssns,
    outside_uuids,
)
from palimpsest.streams.sensitive.passwords import find_passwords, mentions_one
from palimpsest.streams.sensitive.spans import KINDS, Kind, Span, merged, replaced

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


# Codes that open something for a moment or for good: one-time codes, those of doors, cards and
# SIMs, what restores an account, and cookies of a session.

TOLD: Final = 0.9

_OPENS: Final = (
    r"(?:verification|confirmation|one[ -]?time|security|log-?in|sign-?in|log-?on|access|unlock"
    r"|auth(?:entication|orization)?|2fa|two[ -]factor|mfa|sms|recovery|reset|backup|door|gate"
    r"|alarm|garage|entry|safe|lock(?:box|er)?|voicemail|sicherheits|bestätigungs|tür|zugangs)"
)
_NAMES: Final = (
    rf"{_OPENS}[ -]?(?:pass)?codes?|otp(?: code)?|m?tan|puk2?(?: code)?|cv[vcn]2?(?: code)?"
    r"|(?:card|bank|debit|credit|sim|atm|phone|voicemail) pin|PIN"
    r"|código de (?:verificación|seguridad|acceso)|code de (?:vérification|sécurité)"
    r"|認証コード|確認コード|ワンタイムパスワード|验证码|驗證碼|인증번호"
)
_VALUE: Final = (
    r"(?P<value>\d{6,10}(?:,? \d{6,10}){1,11}(?!\d)|\d{3,10}(?![\d.,:/]\d)"
    r"|\d{2,4}(?:[ -]\d{2,4}){1,4}"
    r"|(?=[A-Za-z-]{0,24}\d)[A-Za-z0-9]{3,8}(?:-[A-Za-z0-9]{3,8}){1,5})(?![A-Za-z0-9-])"
)
_CODE: Final = re.compile(
    rf"(?<![A-Za-z])(?P<name>{_NAMES})"
    r"(?: (?:for|to|of|from|on|für|para|de|pour)(?: [^\s:]{1,20}){1,3}?)?"
    r"(?: ?(?:is|was|are|lautet|ist|es|est|は|是|는|:|：|=) ?|[ \t])"
    rf"{_VALUE}(?! (?:lines|pages|dollars|euros?|times|people|digits?|percent|years?|days?)\b)",
    re.IGNORECASE,
)
_BEFORE: Final = re.compile(
    r"(?<![A-Za-z0-9-])(?:[A-Z]-)?(?P<value>\d{4,8}|\d{3}[ -]\d{3})"
    r" (?:is|was|as|ist) (?:your|the|my|our|ihr|dein|mein)(?: [^\s.,:]{1,20}){0,3}?"
    rf" (?:{_NAMES})(?![a-z])"
    r"|(?<![A-Za-z])(?:use|enter|type) (?P<used>\d{4,8}) to (?:log|sign|verify|confirm|unlock)",
    re.IGNORECASE,
)
_COMBINATION: Final = re.compile(
    r"(?<![A-Za-z])(?:safe|lock(?:er)?|padlock|vault)(?:'s)? combination(?: is|:)? "
    r"(?P<value>\d{1,2}(?:-\d{1,2}){2,4})"
    r"|(?<![A-Za-z])combination (?:to|of|for) (?:[a-z]{1,12} ){1,3}(?:is )"
    r"(?P<of>\d{1,2}(?:-\d{1,2}){2,4})",
    re.IGNORECASE,
)
_WORDS: Final = re.compile(
    r"(?:seed|recovery|backup|mnemonic|wallet)[ -](?:phrase|words)(?: (?:is|are)|:)?[:\s]\s?"
    r"(?P<value>[a-z]{3,10}(?: [a-z]{3,10}){11,23})(?![a-z])",
    re.IGNORECASE,
)
_COOKIE: Final = re.compile(
    r"(?<![A-Za-z0-9_.-])(?:[A-Za-z_.-]{0,20}sess(?:ion)?[_-]?id|(?:[A-Za-z_-]{1,20}[._])?sid"
    r"|connect\.sid|remember_(?:me|token)|auth)=(?P<value>[^\s;,\"']{8,512})",
    re.IGNORECASE,
)
_HINTED: Final = re.compile(
    r"code|otp|tan|puk|cv[vcn]|pin|código|コード|ワンタイム|验证码|驗證碼|인증번호|combination|phrase"
    r"|words|sid=|id=|remember_|auth=|to (?:log|sign|verify|confirm|unlock)"
)


def find_codes(text: str, lowered: str) -> Iterator[Span]:
    """`lowered` is the text in lower case."""
    if _HINTED.search(lowered) is None:
        return
    for pattern in (_CODE, _BEFORE, _COMBINATION, _WORDS):
        for match in pattern.finditer(text):
            name = next(n for n, held in match.groupdict().items() if held and n != "name")
            if pattern is not _CODE or _is_code(match["name"], match["value"]):
                yield Span(*match.span(name), "password", TOLD)
    for match in _COOKIE.finditer(text):
        found = match["value"]
        if any(map(str.isdigit, found)) and any(map(str.isalpha, found)):
            yield Span(*match.span("value"), "token", TOLD)


def _is_code(name: str, value: str) -> bool:
    """The number on a card has three digits, every other code has more; PIN is said of a number
    only in capitals, or of a card."""
    lowered = name.lower()
    if lowered == "pin" and name != "PIN":
        return False
    if lowered.startswith("cv"):
        return value.isdigit() and len(value) <= 4
    return len(value) >= 4 or lowered.startswith("security")
