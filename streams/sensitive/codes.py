"""Codes that open something for a moment or for good: one-time codes, those of doors, cards and
SIMs, what restores an account, and cookies of a session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from palimpsest.streams.sensitive.spans import Span

TOLD: Final = 0.9

_OPENS: Final = (
    r"(?:verification|confirmation|one[ -]?time|security|log-?in|sign-?in|log-?on|access|unlock"
    r"|auth(?:entication|orization)?|2fa|two[ -]factor|mfa|sms|recovery|reset|backup|door|gate"
    r"|alarm|garage|entry|wi-?fi|safe|lock(?:box|er)?|voicemail|sicherheits|bestätigungs|tür|zugangs)"
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
    r"|(?<![A-Za-z])(?:use|enter|type) (?P<used>\d{4,8}) (?:to (?:log|sign|verify|confirm|unlock)"
    r"|as (?:your|the|my) (?:[a-z-]{1,16} ){0,2}(?:code|pin)(?![a-z]))",
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
