"""What the settings of documents change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palimpsest.ops.documents.adding import NotReadError, text_document, text_fields
from palimpsest.ops.documents.fetcher import fetch
from palimpsest.streams.normalize import chunks
from tests.flows.web import HELD, answer, web
from tests.setting_lab import Case, Lab

TEXT = "Many ships come to Oslo in winter. " * 100


def fetched(page: Any, *reasons: str) -> Callable[[Lab], Awaitable[object]]:
    """The text behind a URL, or what is named as the reason for none."""

    async def see(lab: Lab) -> object:
        with web(page=page) as served:
            served.pages["/end"] = answer(b"hello", "text/plain")
            try:
                return (await fetch(served.url("/page"), lab.settings.documents)).text
            except NotReadError as error:
                return next(each for each in reasons if each in str(error))

    return see


async def chunk_lengths(lab: Lab) -> object:
    fields = text_fields(TEXT.encode(), lab.settings.documents)
    order = text_document(lab.settings.documents, **fields)
    assert order.text is not None
    found = chunks(order.text, order.chunk_characters, order.chunk_overlap)
    return max(map(len, found)), len(found)


ALLOWED = ("documents.allow_private=true",)

CASES: dict[str, Case] = {
    "documents.max_bytes": Case(
        fetched(answer(b"x" * 2_000, "text/plain"), "documents.max_bytes"),
        (1_999, 2_000), ("documents.max_bytes", "x" * 2_000), ALLOWED,
    ),
    "documents.chunk_characters": Case(chunk_lengths, (500, 2_000), ((489, 11), (1994, 2))),
    "documents.chunk_overlap": Case(chunk_lengths, (0, 900), ((1994, 2), (1994, 3))),
    "documents.fetch_seconds": Case(
        fetched(HELD, "0.1 s", "0.2 s"), (0.1, 0.2), ("0.1 s", "0.2 s"), ALLOWED
    ),
    "documents.max_redirects": Case(
        fetched(answer(status="302 Found", Location="/end"), "documents.max_redirects"),
        (0, 1), ("documents.max_redirects", "hello"), ALLOWED,
    ),
    "documents.allow_private": Case(
        fetched(answer(b"hello", "text/plain"), "documents.allow_private"),
        ("false", "true"), ("documents.allow_private", "hello"),
    ),
}  # fmt: skip
