"""Where something is reached: addresses with a password in them, mail and IP addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from palimpsest.streams.sensitive.spans import Span

SURE: Final = 0.99
LIKELY: Final = 0.9

_WITH_PASSWORD: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/@:\"'<>]{0,128}:([^\s\"'<>@]{1,256}"
    r"(?:@[^\s\"'<>@/]{1,256}(?=@)){0,3})@"
)
_WITH_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])https?://(?=[A-Za-z_-]{0,80}\d)([A-Za-z0-9_-]{20,256})@"
)
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
        yield Span(*match.span(1), "connection_string", LIKELY)


def find_emails(text: str) -> Iterator[Span]:
    for match in _EMAIL.finditer(text):
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
                yield Span(*match.span(), "ip_address", LIKELY)


def _is_address(found: str) -> bool:
    try:
        ipaddress.ip_address(found)
    except ValueError:
        return False
    return found != "::"
