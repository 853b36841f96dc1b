"""Keys and tokens by the shapes that their issuers gave them."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from palimpsest.streams.sensitive.spans import Kind, Span

SURE: Final = 0.99
LIKELY: Final = 0.9

_BEFORE: Final = r"(?<![A-Za-z0-9_-])"
_GITLAB: Final = r"gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|soat|ffct|wt)"
_END: Final = r"(?![A-Za-z0-9])"


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that is looked for only where one of the `hints` stands in the text."""

    kind: Kind
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(kind: Kind, hints: str, pattern: str) -> Shape:
    return Shape(kind, tuple(hints.split()), re.compile(_BEFORE + pattern, re.ASCII))


SHAPES: Final = (
    _shape("api_key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}" + _END),
    _shape("token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{36,}+"),
    _shape("token", "github_pat_", r"github_pat_\w{36,}+"),
    _shape(
        "token",
        "glpat- gloas- gldt- glrt glcbt- glptt- glft- glimt- glagent- glsoat- glffct- glwt-",
        _GITLAB + r"-[\w-]{20,}+(?:\.[\w-]+)*+",
    ),
    _shape("token", "xox", r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+"),
    _shape("token", "xapp-", r"xapp-[A-Za-z0-9-]{20,}+"),
    _shape("token", "slack.com/", r"https://hooks\.slack\.com/[a-z]{5,12}/[\w/+-]{20,}+"),
    _shape("token", "discord", r"https://discord(?:app)?\.com/api/webhooks/\d{10,20}/[\w-]{20,}+"),
    _shape("api_key", "sk_live_ sk_test_ rk_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _shape("api_key", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,}+"),
    _shape("api_key", "AIza", r"AIza[\w-]{35}(?![\w-])"),
    _shape("token", "ya29.", r"ya29\.[\w-]{20,}+(?:\.[\w-]+)*+"),
    _shape("token", "1//0", r"1//0[\w-]{30,}+"),
    _shape("api_key", "GOCSPX-", r"GOCSPX-[\w-]{20,}+"),
    _shape("api_key", "sk-", r"sk-ant-[\w-]{20,}+"),
    _shape("api_key", "sk-", r"sk-or-v1-[0-9a-f]{32,}+"),
    _shape("api_key", "sk-", r"sk-(?:proj|svcacct|admin|None)-(?=[A-Za-z_-]{0,80}\d)[\w-]{20,}+"),
    _shape("api_key", "sk-", r"sk-(?=[A-Za-z]{0,47}\d)[A-Za-z0-9]{32,}+"),
    _shape("token", "hf_", r"hf_[A-Za-z0-9]{30,}+"),
    _shape("token", "npm_", r"npm_[A-Za-z0-9]{36,}+"),
    _shape("token", "pypi-", r"pypi-[\w-]{50,}+"),
    _shape("api_key", "SK", r"SK[0-9a-f]{32}" + _END),
    _shape("api_key", "SG.", r"SG\.[\w-]{16,40}\.[\w-]{16,}+"),
    _shape("api_key", "key-", r"key-[0-9a-f]{32}" + _END),
    _shape("api_key", "-us", r"[0-9a-f]{32}-us\d{1,2}" + _END),
    _shape("token", ":AA", r"\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    _shape("token", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}" + _END),
    _shape("token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?" + _END),
    _shape("token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}" + _END),
    _shape("token", "sq0", r"sq0(?:atp|csp|idp)-[\w-]{22,}+"),
    _shape("api_key", "lin_ ntn_ gsk_ r8_", r"(?:lin_api|ntn|gsk|r8)_[\w-]{32,}+"),
    _shape("api_key", "xai- pplx- nvapi-", r"(?:xai|pplx|nvapi)-[\w-]{32,}+"),
    _shape("token", "dckr_", r"dckr_[a-z]{3}_[\w-]{20,}+"),
    _shape("token", "ATATT3", r"ATATT3[\w=-]{40,}+"),
    _shape("token", "hvs. hvb.", r"hv[sb]\.[\w-]{20,}+"),
    _shape("api_key", "NRAK- PMAK-", r"(?:NRAK|PMAK)-[A-Za-z0-9-]{20,}+"),
    _shape("private_key", "AGE-SECRET-KEY", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+"),
    _shape("token", "eyJ", r"eyJ[\w-]{8,}+\.eyJ[\w-]{4,}+\.[\w-]*+(?:\.[\w-]+)*+"),
    # Encrypted: the second of its five parts is a key, or empty.
    _shape("token", "eyJ", r"eyJ[\w-]{8,}+\.[\w-]*+\.[\w-]{10,}+\.[\w-]{10,}+\.[\w-]{10,}+"),
)

_BY_HINT: Final = tuple((hint, shape) for shape in SHAPES for hint in shape.hints)
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
    for shape in dict.fromkeys(shape for hint, shape in _BY_HINT if hint in text):
        for match in shape.pattern.finditer(text):
            yield Span(*match.span(), shape.kind, SURE)
    if "-----BEGIN" in text:
        yield from _private_keys(text)
    if "accesskey=" in lowered or "accountkey=" in lowered:
        for match in _AZURE.finditer(text):
            yield Span(*match.span(1), "connection_string", SURE)
    if any(word in lowered for word in _AWS_WORDS):
        yield from _in_context(text, _AWS_SECRET, _AWS_WORDS)
    if "twilio" in lowered:
        yield from _in_context(text, _TWILIO, ("twilio", "auth"))
    if "bearer" in lowered or "authorization" in lowered or "basic" in lowered:
        yield from _headers(text)


def _private_keys(text: str) -> Iterator[Span]:
    """A block to its end; one without an end, as far as it goes."""
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


def _in_context(text: str, pattern: re.Pattern[str], words: tuple[str, ...]) -> Iterator[Span]:
    for match in pattern.finditer(text):
        found = match.group()
        before = text[max(0, match.start() - _CONTEXT) : match.start()].lower()
        is_hash = pattern is _AWS_SECRET and _HEX.fullmatch(found) is not None
        if not is_hash and _is_mixed(found) and any(word in before for word in words):
            yield Span(*match.span(), "api_key", LIKELY)


def _is_mixed(found: str) -> bool:
    """A key mixes digits and characters of the alphabet; a path has none of the former, a number
    none of the latter."""
    return any(map(str.isdigit, found)) and any(map(str.isalpha, found))


def _headers(text: str) -> Iterator[Span]:
    for match in _HEADER.finditer(text):
        if match.group(1).lower() not in ("bearer", "basic", "required", "optional", "negotiate"):
            yield Span(*match.span(1), "token", LIKELY)
    for match in _BEARER.finditer(text):
        found = match.group(1)
        if any(map(str.isdigit, found)):
            yield Span(*match.span(1), "token", LIKELY)
    for match in _BASIC.finditer(text):
        if _is_name_and_password(match.group(1)):
            yield Span(*match.span(1), "token", LIKELY)


def _is_name_and_password(encoded: str) -> bool:
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_")
    except ValueError:
        return False
    return b":" in decoded and all(32 <= byte < 127 for byte in decoded)
