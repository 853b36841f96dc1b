"""Where a URL leads: the one address that is then connected to, and whether it may be."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final, TypeAlias

from palimpsest.ops.documents.reading import NotReadError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


async def address_of(host: str, port: int, allow_private: bool) -> str:
    """The address that the name stands for now. Raises NotReadError where there is none, or where
    any of them is not of the public internet and that is not allowed."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotReadError(f"the host {host} is not found: {error}") from None
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
    """Whether everybody on the internet reaches the address, also where one is wrapped in it."""
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
    """The address, and those of IPv4 that a network may take it for; of one that only wraps
    another, the other."""
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
