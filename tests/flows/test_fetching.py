"""Fetching a URL from a real server, with everything that a server may do wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from palimpsest.ops.documents.adding import NotReadError
from palimpsest.ops.documents.fetcher import fetch, is_public
from palimpsest.ops.documents.settings import DocumentSettings
from tests.flows.web import HELD, Web, answer, web

ARTICLE = "".join(f"<p>Ship number {n} came into the harbour of Bodø.</p>" for n in range(40))
PAGE = (
    "<html><head><title>The harbour &amp; its\n ships</title><style>p {}</style>"
    "<script>var secret = 1;</script></head><body><nav><a href='/'>Home</a> | About us</nav>"
    f"<article><h1>Harbour</h1>{ARTICLE}</article>"
    "<footer>Copyright, imprint</footer></body></html>"
)


@pytest.fixture
def served() -> Iterator[Web]:
    with web() as running:
        yield running


async def got(served: Web, page: Any, path: str = "/page", **settings: Any) -> tuple[str, str]:
    served.pages[path] = page
    allowed = DocumentSettings(allow_private=True, **settings)
    found = await fetch(served.url(path), allowed)
    return found.text, found.title


async def refused(served: Web, page: Any, **settings: Any) -> str:
    with pytest.raises(NotReadError) as error:
        await got(served, page, **settings)
    return str(error.value)


async def test_a_page_loses_its_boilerplate_and_keeps_its_title(served: Web) -> None:
    text, title = await got(served, answer(PAGE.encode(), "text/html; charset=utf-8"))
    assert title == "The harbour & its ships"
    assert "Ship number 0 came" in text
    assert "Ship number 39 came into the harbour of Bodø." in text
    for gone in ("secret", "About us", "Copyright", "{}", "<p>"):
        assert gone not in text
    assert served.hosts == [f"127.0.0.1:{served.port}"]


@pytest.mark.parametrize(
    ("said", "encoded"),
    [
        ("text/html; charset=ISO-8859-1", "iso-8859-1"),
        ('text/html; charset="utf-8"', "utf-8"),
        ("text/html", "utf-8"),
        ("text/html", "windows-1252"),
        ("text/html", "utf-16"),
        ("text/html; charset=utf-8", "windows-1252"),  # a lie
        ("text/html; charset=no-such-thing", "utf-8"),
        ("text/html; charset=rot13", "utf-8"),
    ],
)
async def test_characters_are_read_as_they_are(served: Web, said: str, encoded: str) -> None:
    text, _ = await got(served, answer(PAGE.encode(encoded), said))
    assert "the harbour of Bodø" in text


async def test_a_page_may_tell_its_charset_itself(served: Web) -> None:
    page = PAGE.replace("<head>", "<head><meta charset='shift_jis'>").replace("Bodø", "京都")
    assert "京都" in (await got(served, answer(page.encode("shift_jis"))))[0]


async def test_what_is_no_html_is_taken_as_it_is(served: Web) -> None:
    plain = answer(b"a < b\n\n<p>no tag</p>", "text/plain")
    assert await got(served, plain) == ("a < b\n\n<p>no tag</p>", served.url("/page"))
    for kind in ("application/json", "application/xml", "text/csv", "TEXT/MARKDOWN; a=b"):
        assert (await got(served, answer(b'{"a": 1}', kind)))[0] == '{"a": 1}'


async def test_a_page_without_a_title_has_its_address(served: Web) -> None:
    page = PAGE.replace("<title>The harbour &amp; its\n ships</title>", "")
    assert (await got(served, answer(page.encode())))[1] == served.url("/page")


async def test_a_page_need_not_have_the_tags_of_its_parts(served: Web) -> None:
    for page in (f"<title>T</title><p>{ARTICLE}", f"<?xml version='1.0' encoding='utf-8'?>{PAGE}"):
        text, title = await got(served, answer(page.encode()))
        assert title
        assert "Ship number 39 came" in text
    assert (await got(served, answer(b"just words")))[0] == "just words"


@pytest.mark.parametrize("page", [b"", b"   \n ", b"<html><body></body></html>"])
async def test_a_page_without_text_is_none(served: Web, page: bytes) -> None:
    assert await refused(served, answer(page)) == "there is no text in it"


@pytest.mark.parametrize(
    ("content_type", "body", "why"),
    [
        ("application/pdf", b"%PDF-1.7", "it is a PDF; convert it to text first"),
        ("text/plain", b"%PDF-1.7", "it is a PDF; convert it to text first"),
        ("image/png", b"\x89PNG", "it is image/png, and taken are text/html"),
        ("application/octet-stream", b"x", "it is application/octet-stream, and taken are"),
        ("application/xhtml", b"x", "it is application/xhtml, and taken are"),
        ("", b"x", "it is of no type that is told"),
        (None, b"x", "it is of no type that is told"),
        ("text/plain", b"a\0b", "there are zero bytes in it"),
    ],
)
async def test_other_types_are_refused(
    served: Web, content_type: str | None, body: bytes, why: str
) -> None:
    assert why in await refused(served, answer(body, content_type))


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oops", "204 No Content", "302 Found"])
async def test_other_statuses_are_refused(served: Web, status: str) -> None:
    said = await refused(served, answer(b"hello", "text/plain", status))
    assert said == f"it was answered with the status {status[:3]}"


async def test_a_large_page_is_refused_by_its_header_and_by_its_bytes(served: Web) -> None:
    told = answer(b"x", "text/plain", Content_Length="2000")
    assert "larger than 1024 bytes" in await refused(served, told, max_bytes=1024)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    assert "larger than 1024 bytes" in await refused(served, head + b"x" * 1_025, max_bytes=1024)
    assert (await got(served, head + b"x" * 1_024, max_bytes=1024))[0] == "x" * 1_024


async def test_a_bomb_is_counted_as_it_unfolds(served: Web) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    page = answer(bomb, "text/plain", Content_Encoding="gzip")
    assert len(bomb) < 50_000
    assert "larger than 1000000 bytes" in await refused(served, page, max_bytes=1_000_000)
    small = answer(gzip.compress(b"hello"), "text/plain", Content_Encoding="gzip")
    assert (await got(served, small))[0] == "hello"


async def test_a_body_that_is_shorter_than_told_is_no_document(served: Web) -> None:
    short = answer(b"hello", "text/plain", Content_Length="50")
    assert "cannot be fetched" in await refused(served, short)
    broken = answer(b"no gzip", "text/plain", Content_Encoding="gzip")
    assert "cannot be unpacked" in await refused(served, broken)
    assert "cannot be fetched" in await refused(served, b"nonsense\r\n\r\n")


async def test_a_server_that_drips_is_left(served: Web) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    assert "longer than 0.3 s" in await refused(served, drip, fetch_seconds=0.3)
    assert "longer than 0.3 s" in await refused(served, HELD, fetch_seconds=0.3)


async def test_redirects_are_followed_so_many_times(served: Web) -> None:
    served.pages["/end"] = answer(b"hello", "text/plain")
    for number in range(6):
        to = "/end" if number == 0 else f"/{number - 1}"
        served.pages[f"/{number}"] = answer(status="302 Found", Location=to)
    allowed = DocumentSettings(allow_private=True)
    assert (await fetch(served.url("/4"), allowed)).text == "hello"
    with pytest.raises(NotReadError, match="leads on more than 5 times"):
        await fetch(served.url("/5"), allowed)
    served.pages["/loop"] = answer(status="301 Moved", Location="/loop")
    with pytest.raises(NotReadError, match="leads on"):
        await fetch(served.url("/loop"), allowed)


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://x/", "http://a:b@127.0.0.1/", "gopher://x"]
)
async def test_a_redirect_leads_to_the_web_alone(served: Web, target: str) -> None:
    said = await refused(served, answer(status="302 Found", Location=target))
    assert "address" in said


# --- where to --------------------------------------------------------------------------------

PRIVATE = (
    *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("0.0.0.0", "100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("192.0.0.1", "198.18.0.1", "192.0.2.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1", "::7f00:1", "nonsense"),
    *("2001:0:7f00:1::1", "fec0::1", "64:ff9b:1::a00:1"),
)


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_not_everybody_reaches(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_addresses_that_everybody_reaches(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f000001", "127.1", "0", "[::]"]
)
async def test_this_machine_is_not_fetched_from_however_it_is_written(
    served: Web, host: str
) -> None:
    served.pages["/"] = answer(b"secret", "text/plain")
    with pytest.raises(NotReadError, match=r"documents.allow_private|not found|no address"):
        await fetch(served.url("/", host), DocumentSettings())
    assert not served.asked


@contextlib.contextmanager
def names(monkeypatch: pytest.MonkeyPatch, *told: list[str]) -> Iterator[list[str]]:
    """What the resolver tells, one list a question, the last again and again."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **kinds: Any) -> Any:
        asked.append(str(host))
        if str(host).replace(".", "").isdigit():
            return real(host, port, *more, **kinds)
        found = told[min(len(asked), len(told)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield asked


async def test_a_name_is_resolved_once_and_connected_to_there(
    served: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that stands for another address the next moment is not asked again."""
    served.pages["/"] = answer(b"hello", "text/plain")
    with names(monkeypatch, ["127.0.0.1"], ["192.0.2.1"]) as asked:
        allowed = DocumentSettings(allow_private=True)
        found = await fetch(served.url("/", "rebinding.example"), allowed)
    assert found.text == "hello"
    assert asked.count("rebinding.example") == 1
    assert served.hosts == [f"rebinding.example:{served.port}"]


async def test_a_name_with_one_private_address_is_refused(
    served: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        names(monkeypatch, ["93.184.216.34", "127.0.0.1"]),
        pytest.raises(NotReadError, match=r"documents.allow_private"),
    ):
        await fetch(served.url("/", "both.example"), DocumentSettings())
    assert not served.asked


async def test_a_redirect_to_this_machine_is_refused(
    served: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first hop is a public name (here: let through); the second is not looked up, but read."""
    from palimpsest.ops.documents import fetcher as fetching

    served.pages["/"] = answer(status="302 Found", Location=served.url("/secret", "inner.example"))
    served.pages["/secret"] = answer(b"secret", "text/plain")
    public = iter([True, False])
    with names(monkeypatch, ["127.0.0.1"]):
        monkeypatch.setattr(fetching, "is_public", lambda address: next(public))
        with pytest.raises(NotReadError, match=r"documents.allow_private"):
            await fetch(served.url("/", "outer.example"), DocumentSettings())
    assert served.asked == {"/": 1}


async def test_no_proxy_of_the_environment_is_used(
    served: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await got(served, answer(b"hello", "text/plain")))[0] == "hello"
