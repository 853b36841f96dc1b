"""Numbers that belong to a person (of cards, accounts, social security and telephones), and where
something is reached: addresses with a password in them, mail and IP addresses."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from stdnum import iban, luhn
from stdnum.us import ssn

from palimpsest.streams.sensitive.spans import SURE, TOLD, Span, expression

LIKELY: Final = 0.8
_CONTEXT: Final = 40
"""Characters before a number in which a word may stand that tells what it is."""

_PLACEHOLDER: Final = re.compile(r"[A-Z]{0,9}:?[a-z_]{1,20}(?:#[0-9a-f]{5,10})?\]")
"""Of what was taken out before, also where its beginning is cut off: its kind tells nothing."""
_SPACE: Final = "[ \u00a0\u2009.\\-\u2010\u2011]"
_FREE: Final = r"(?<![A-Za-z0-9_/#.+-])"
_ALONE: Final = r"(?![A-Za-z0-9_]|[-./]\d)"
_CARD: Final = re.compile(
    rf"{_FREE}(?:\d{{4}}({_SPACE}?)\d{{4}}\1\d{{4}}\1\d{{4}}(?:\1\d{{1,3}})?"
    rf"|3[47]\d{{2}}({_SPACE}?)\d{{6}}\2\d{{5}}|3[0689]\d{{2}}({_SPACE}?)\d{{6}}\3\d{{4}}){_ALONE}"
)
_IINS: Final = re.compile(
    r"4\d{15}(?:\d{3})?"  # Visa
    r"|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12,15}"  # Discover
    r"|62\d{14,17}"  # UnionPay
    r"|(?:352[89]|35[3-8]\d)\d{12,15}"  # JCB
    r"|3(?:0[0-5]|09|[689]\d)\d{11}"  # Diners
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{8,15}"  # Maestro
    r"|220[0-4]\d{12}",  # Mir
    re.ASCII,
)
_IBAN: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \u00a0-]?[A-Za-z0-9]{4}){2,7}"
    r"(?:[ \u00a0-]?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])"
)
_GROUP_END: Final = re.compile(r"[ \u00a0-][^ \u00a0-]*\Z")
_SSN: Final = re.compile(r"(?<![A-Za-z0-9_-])\d{3}([- ]?)\d{2}\1\d{4}(?![A-Za-z0-9_-])")
_INTERNATIONAL: Final = re.compile(
    r"(?<![A-Za-z0-9_+.,])(?:\+|00(?=[1-9]\d{0,2}[ .\-/(]))[1-9]\d{0,2}"
    r"(?:[ .\-/\u00a0]?\(?\d{1,4}\)?){2,6}(?!\d)"
)
_AMERICAN: Final = re.compile(
    r"(?<![A-Za-z0-9_.+$€£,-])(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}([.\- ]))"
    r"[2-9]\d{2}[.\- ]\d{4}"
    r"(?![A-Za-z0-9_-]|[.,]\d)"
)
_NATIONAL: Final = re.compile(
    r"(?<![A-Za-z0-9_.+$€£,/-])\(?0\d{1,4}\)?[ \-/]\d{2,4}(?:[ -]?\d{2,4}){1,4}"
    r"(?![A-Za-z0-9_-]|[.,:/]\d)"
)
_BARE: Final = re.compile(r"(?<![A-Za-z0-9_.+$€£,/-])[02-9]\d{8,10}(?![A-Za-z0-9_-]|[.,:/]\d)")
_DIGITS_BEFORE: Final = re.compile(r"\d[ -]\Z")
"""A number that goes on is no national one, which begins with its 0."""
_YEAR_FIRST: Final = re.compile(r"\d{1,2}[-/ ]\d{1,2}[-/ ](?:19|20)\d\d")


_UUID: Final = re.compile(
    r"(?<![A-Za-z0-9])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![A-Za-z0-9])"
)


def outside_uuids(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Of any thousand UUIDs, one has groups that look like a telephone number with its country."""
    known = [match.span() for match in _UUID.finditer(text)] if text.count("-") > 3 else []
    for span in spans:
        if not any(start <= span.start and span.end <= end for start, end in known):
            yield span


def _digits(found: str) -> str:
    """Digits of any script as ASCII, and nothing else."""
    return "".join(str(unicodedata.digit(each)) for each in found if each.isdecimal())


def _before(text: str, start: int) -> str:
    return _PLACEHOLDER.sub("", text[max(0, start - _CONTEXT) : start])


def find_cards(text: str) -> Iterator[Span]:
    """Card numbers: the digits of an issuer, the check digit right."""
    for match in _CARD.finditer(text):
        digits = _digits(match.group())
        if (
            _IINS.fullmatch(digits)
            and len(set(digits)) > 1
            and luhn.is_valid(digits)
            and not expression("no_card").search(_before(text, match.start()))
        ):
            yield Span(*match.span(), "credit_card", SURE)


def find_ibans(text: str) -> Iterator[Span]:
    """Account numbers whose check digits are right; what follows one in capitals is none of it."""
    for match in _IBAN.finditer(text):
        found = match.group()
        for _ in range(9):
            if iban.is_valid(found, check_country=False):
                yield Span(match.start(), match.start() + len(found), "iban", SURE)
                break
            shorter = _GROUP_END.sub("", found)
            if shorter == found:
                break
            found = shorter


def find_ssns(text: str) -> Iterator[Span]:
    """Numbers that were given out; without hyphens only where a word says what they are."""
    for match in _SSN.finditer(text):
        digits = _digits(match.group())
        told = expression("ssn_words").search(_before(text, match.start())) is not None
        if (match.group(1) == "-" or told) and ssn.is_valid(
            f"{digits[:3]}-{digits[3:5]}-{digits[5:]}"
        ):
            yield Span(*match.span(), "ssn", SURE if told else LIKELY)


def find_phones(text: str) -> Iterator[Span]:
    """Numbers with a country code, North American ones, and national ones that begin with 0."""
    for pattern in (_INTERNATIONAL, _AMERICAN, _NATIONAL, _BARE):
        for match in pattern.finditer(text):
            if _is_phone(pattern, text, match):
                yield Span(*match.span(), "phone", LIKELY)


def _is_phone(pattern: re.Pattern[str], text: str, match: re.Match[str]) -> bool:
    found, before = match.group(), _before(text, match.start())
    count = len(_digits(found))
    told = expression("phone_words").search(before) is not None
    if not told and expression("no_phone").search(before):
        return False
    if pattern is _BARE:
        return told
    if pattern is _NATIONAL and _DIGITS_BEFORE.search(before):
        return False
    if pattern is _INTERNATIONAL:
        return 8 <= count <= 15
    if pattern is _NATIONAL:
        parts = re.split(r"[^\d]+", found.strip("()"))
        return (
            (9 if told else 10) <= count <= 12
            and (told or len(parts) >= 3)
            and not _YEAR_FIRST.match(found)
            # By twos, as in France, there are five of them: six are drawn.
            and (told or len(parts) != 6)
        )
    return True


# --- addresses ------------------------------------------------------------------------------

_WITH_PASSWORD: Final = re.compile(
    r"[A-Za-z0-9+.-]://[^\s/@:\"'<>]{0,128}:([^\s\"'<>@]{1,256}"
    r"(?:@[^\s\"'<>@/]{1,256}(?=@)){0,3})@"
)
_WITH_TOKEN: Final = re.compile(r"https?://(?=[A-Za-z_-]{0,80}\d)([A-Za-z0-9_-]{20,256})@")
_EXAMPLES: Final = frozenset({"password", "pass", "pwd", "pw", "secret", "token", "port"})
"""What documentation writes for a password."""
_EMAIL: Final = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
    r"(?![A-Za-z0-9-])"
)
_IP4: Final = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)", re.ASCII)
_IP6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{2,39}(?:(?<=:)\d[\d.]{6,14})?(?![\w:])")
_VERSION: Final = re.compile(r"(?:version|release|v|build)[ :]{0,2}\Z", re.IGNORECASE)


def find_credentials(text: str) -> Iterator[Span]:
    """The password in an address; user, host and path stay."""
    for match in _WITH_PASSWORD.finditer(text):
        found = match.group(1)
        if found.lower() not in _EXAMPLES and not found.startswith(("${", "<", "{", "$", "*")):
            yield Span(*match.span(1), "connection_string", SURE)
    for match in _WITH_TOKEN.finditer(text):
        yield Span(*match.span(1), "connection_string", TOLD)


def find_emails(text: str) -> Iterator[Span]:
    for match in _EMAIL.finditer(text):
        if match.group().startswith("git@") and text.startswith(":", match.end()):
            continue  # of a repository
        yield Span(*match.span(), "email", SURE)


def find_ips(text: str) -> Iterator[Span]:
    """Addresses of both versions; four numbers after the word version are none."""
    for pattern in (_IP4, _IP6):
        for match in pattern.finditer(text):
            found = match.group()
            if pattern is _IP6 and found.count(":") < 2:
                continue
            if _VERSION.search(text[max(0, match.start() - 10) : match.start()]):
                continue
            if _is_address(found):
                yield Span(*match.span(), "ip_address", TOLD)


def _is_address(found: str) -> bool:
    try:
        ipaddress.ip_address(found)
    except ValueError:
        return False
    return found != "::"
