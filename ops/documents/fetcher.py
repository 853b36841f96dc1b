"""Fetches a URL within the limits and from allowed addresses. It resolves the name itself, once per
hop, and connects to that very address, so a later change of the name (DNS rebinding) has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

import httpx

from palimpsest.ops.documents.adding import NotReadError, charset_of, media_type_of, read
from palimpsest.ops.documents.settings import DocumentSettings
from palimpsest.streams.normalize import why_no_address

logger = logging.getLogger(__name__)

_HEADERS: Final = {
    "User-Agent": "palimpsest",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.8, application/xml;q=0.8",
    "Accept-Encoding": "gzip",
}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Fetched:
    """The text of a page, and its title, or its URL if it has none."""

    text: str
    title: str
    content_type: str


async def fetch(url: str, settings: DocumentSettings) -> Fetched:
    """Fetches the text of a URL. Raises NotReadError with the reason if there is none."""
    try:
        async with asyncio.timeout(settings.fetch_seconds):
            body, content_type = await _body(url, settings)
    except TimeoutError:
        raise NotReadError(
            f"it took longer than {settings.fetch_seconds:g} s (documents.fetch_seconds)"
        ) from None
    except zlib.error:
        raise NotReadError("it came packed as gzip and cannot be unpacked") from None
    except httpx.HTTPError as error:
        raise NotReadError(f"it cannot be fetched: {str(error) or type(error).__name__}") from None
    media_type = media_type_of(content_type)
    found = await asyncio.to_thread(read, body, media_type, charset_of(content_type))
    return Fetched(found.text, found.title or url[:512], media_type)


async def _body(url: str, settings: DocumentSettings) -> tuple[bytes, str]:
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        trust_env=False, follow_redirects=False, timeout=settings.fetch_seconds, limits=limits
    ) as client:
        for _ in range(settings.max_redirects + 1):
            async with _answer(client, url, settings) as answer:
                target = _target(answer, url)
                if target is None:
                    return await _content(answer, settings.max_bytes)
            url = target
    raise NotReadError(
        f"it leads on more than {settings.max_redirects} times (documents.max_redirects)"
    )


@asynccontextmanager
async def _answer(
    client: httpx.AsyncClient, url: str, settings: DocumentSettings
) -> AsyncIterator[httpx.Response]:
    wrong = why_no_address(url)
    if wrong is not None:
        raise NotReadError(wrong.partition(": ")[2])
    try:
        asked = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise NotReadError(f"this is no address: {error}") from None
    host = asked.raw_host.decode("ascii")
    port = asked.port or _PORTS[asked.scheme]
    address = await address_of(host, port, settings.allow_private)
    request = client.build_request(
        "GET",
        asked.copy_with(host=address, fragment=None),
        headers={**_HEADERS, "Host": asked.netloc.decode("ascii")},
        # The certificate must match the host name.
        extensions={"sni_hostname": host},
    )
    answer = await client.send(request, stream=True)
    try:
        yield answer
    finally:
        await answer.aclose()


def _target(answer: httpx.Response, url: str) -> str | None:
    """Returns the target of a redirect, None for a response with a body to read. Raises
    NotReadError for any other response."""
    if answer.status_code in _REDIRECTS and "location" in answer.headers:
        try:
            return str(httpx.URL(url).join(answer.headers["location"]))
        except (httpx.InvalidURL, ValueError) as error:
            raise NotReadError(f"it leads on to what is no address: {error}") from None
    if answer.status_code != httpx.codes.OK:
        raise NotReadError(f"it was answered with the status {answer.status_code}")
    return None


async def _content(answer: httpx.Response, most: int) -> tuple[bytes, str]:
    """Returns the decompressed body and its content type. Raises NotReadError."""
    content_type = answer.headers.get("content-type", "")
    media_type_of(content_type)
    too_large = NotReadError(f"it is larger than {most} bytes (documents.max_bytes)")
    told = answer.headers.get("content-length", "")
    if told.isdecimal() and int(told[:19]) > most:
        raise too_large
    unpack = _unpacking(answer.headers.get("content-encoding", ""))
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part if unpack is None else unpack.decompress(part, most + 1 - len(body))
        if len(body) > most:
            raise too_large
    return bytes(body), content_type


def _unpacking(encoding: str) -> zlib._Decompress | None:
    """Returns an incremental decompressor, None for an uncompressed body, so that memory holds no
    more than the limit: httpx would decompress a piece whole, and a body compressed twice, twice.
    Raises NotReadError for an encoding that was not requested."""
    packed = encoding.strip().lower()
    if packed in ("", "identity"):
        return None
    if packed in ("gzip", "x-gzip"):
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    raise NotReadError(f"it came packed as {encoding[:100]!r}, and gzip was asked for")


# Resolves a URL's host to the one address to connect to, and checks that it is allowed.

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


async def address_of(host: str, port: int, allow_private: bool) -> str:
    """Resolves a host name to an address. Raises NotReadError if there is none, or if any of its
    addresses is outside the public internet and `allow_private` is off."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotReadError(f"the host {host} is not found") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not addresses:
        raise NotReadError(f"the host {host} is not found")
    for address in addresses:
        if not (allow_private or is_public(address)):
            raise NotReadError(
                f"{host} is an address of this machine or of a private network, which is fetched"
                " from only with documents.allow_private"
            )
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether the address, and any address embedded in it, is on the public internet."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(
        each.is_global
        and not (each.is_multicast or each.is_unspecified or each.is_reserved)
        and not (isinstance(each, ipaddress.IPv6Address) and each.is_site_local)
        for each in _meant(ip)
    )


def _meant(ip: Address) -> list[Address]:
    """Returns the address and the IPv4 addresses that a network may translate it to; for a mapped
    or NAT64 address, only the IPv4 address in it."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip in _NAT64:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)]
    wrapped: list[Address] = [ip]
    if ip.sixtofour is not None:
        wrapped.append(ip.sixtofour)
    if ip.teredo is not None:
        wrapped += ip.teredo
    if int(ip) >> 32 == 0:
        wrapped.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return wrapped
