"""What the settings of the HTTP service change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from palimpsest.ops.server.serving import serving
from tests.made_once import share_routes, share_tools
from tests.setting_lab import PATIENCE_S, Case, Lab

share_routes()
share_tools()

NOBODY = "00000000-0000-5000-8000-000000000000"
FREE = ("http.port=0",)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def client_of(lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service; its stages do not run."""
    async with (
        serving(lab.settings) as up,
        httpx.AsyncClient(base_url=up.address, trust_env=False, timeout=60) as client,
    ):
        yield client


def status(method: str, path: str, **given: Any) -> Callable[[Lab], Awaitable[object]]:
    async def see(lab: Lab) -> object:
        async with client_of(lab) as client:
            return (await client.request(method, path, **given)).status_code

    return see


def second(method: str, path: str, **given: Any) -> Callable[[Lab], Awaitable[object]]:
    """The status of the same request sent twice."""

    async def see(lab: Lab) -> object:
        async with client_of(lab) as client:
            await client.request(method, path, **given)
            return (await client.request(method, path, **given)).status_code

    return see


async def host_that_answers(lab: Lab) -> object:
    async with client_of(lab) as client:
        assert (await client.get("/api/memories")).status_code == 200
        return client.base_url.host


async def listens_there(lab: Lab) -> object:
    async with client_of(lab) as client:
        return client.base_url.port == lab.port


async def is_answered_soon(lab: Lab) -> object:
    """A change that nobody carries out."""
    async with client_of(lab) as client:
        return await lab.happens(client.post("/api/memory/remember", json={"content": "tea"}), 4.0)


async def opened(client: httpx.AsyncClient, said: bytes = b"") -> Streams:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def idle_that_stay(lab: Lab) -> object:
    """Of twenty connections, those that are there after a while."""
    async with client_of(lab) as client:
        made = [await opened(client) for _ in range(20)]
        waiting = [asyncio.create_task(reader.read(1)) for reader, _ in made]

        async def rest_is_cut_off() -> None:
            for each in asyncio.as_completed(waiting):
                await each
                if sum(not each.done() for each in waiting) == lab.expected:
                    return

        if lab.expected != len(made):
            await asyncio.wait_for(rest_is_cut_off(), PATIENCE_S)
        await asyncio.wait(waiting, timeout=0.5)
        stay = sum(not each.done() for each in waiting)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for _, writer in made:
            writer.close()
        return stay


async def idle_is_cut_off(lab: Lab) -> object:
    async with client_of(lab) as client:
        reader, writer = await opened(client)
        found = await lab.happens(_end_of(reader), 4.0)
        writer.close()
        return found


async def kept_is_closed(lab: Lab) -> object:
    async with client_of(lab) as client:
        reader, writer = await opened(client, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"}")
        found = await lab.happens(_end_of(reader), 4.0)
        writer.close()
        return found


async def slow_body_is_refused(lab: Lab) -> object:
    async with client_of(lab) as client:
        reader, writer = await opened(client, SLOW_BODY)
        found = await lab.happens(reader.readline(), 4.0)
        writer.close()
        return found


async def beside_a_slow_body(lab: Lab) -> object:
    async with client_of(lab) as client:
        _, writer = await opened(client, SLOW_BODY)
        async with asyncio.timeout(PATIENCE_S):
            while True:  # until the service has seen the slow one
                await asyncio.sleep(0.2)
                answer = await client.get("/api/memories")
                if answer.status_code == lab.expected:
                    break
        writer.close()
        return answer.status_code


async def second_stream(lab: Lab) -> object:
    async with client_of(lab) as client, client.stream("GET", "/api/events") as first:
        lines = first.aiter_lines()  # without a reference it would end, and the stream with it
        await anext(lines)
        async with client.stream("GET", "/api/events") as second:
            return second.status_code


async def _end_of(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionResetError):
        await reader.read()


SLOW_BODY = (
    b"POST /api/turns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
SLOW = {"query": "SELECT sum(a.range * b.range) FROM range(100000) a, range(200) b"}
LONG = {"query": "tea " * 1_000}
TURN = {"turn_id": "t1", "content": "tea " * 500}
FORGET = {"types": ["rule"], "reason": "x", "mode": "execute"}

LINES = {"Content-Type": "application/x-ndjson"}
FILE = {"Content-Type": "application/octet-stream"}

CASES: dict[str, Case] = {
    "http.host": Case(
        host_that_answers, ("127.0.0.1", "127.0.0.2"), ("127.0.0.1", "127.0.0.2"), FREE
    ),
    "http.port": Case(listens_there, (0, "{port}"), (False, True)),
    "http.allowed_hosts": Case(
        status("GET", "/api/memories", headers={"Host": "memory.example"}),
        ("", "other.example,memory.example"), (421, 200), FREE,
    ),
    "http.max_connections": Case(idle_that_stay, (5, 30), (5, 20), FREE),
    "http.head_seconds": Case(idle_is_cut_off, (0.1, 60), (True, False), FREE),
    "http.keep_alive_seconds": Case(kept_is_closed, (0.1, 60), (True, False), FREE),
    "http.body_seconds": Case(slow_body_is_refused, (0.1, 60), (True, False), FREE),
    "http.requests_per_token": Case(beside_a_slow_body, (1, 2), (429, 200), FREE),
    "http.streams_per_token": Case(second_stream, (1, 2), (503, 200), FREE),
    "http.unprocessed_bytes_per_token": Case(
        second("POST", "/api/turns", json=TURN), (1_024, 4_096), (429, 202), FREE
    ),
    "http.wait_seconds": Case(is_answered_soon, (0, 60), (True, False), FREE),
    "http.sql_seconds": Case(
        status("POST", "/api/sql", json=SLOW), (0.001, 60), (422, 200), FREE
    ),
    "http.max_body_bytes": Case(
        status("POST", "/api/memory/recall", json=LONG), (2_000, 8_000), (413, 200), FREE
    ),
    "http.max_import_bytes": Case(
        status("POST", "/api/scopes/a/import", content=b"x" * 4_000, headers=LINES),
        (2_000, 8_000), (413, 422), FREE,
    ),
    "http.max_ingest_bytes": Case(
        status("POST", "/api/ingest?name=a.txt", content=b"x" * 4_000, headers=FILE),
        (2_000, 8_000), (413, 422), FREE,
    ),
    "http.modify_per_minute": Case(
        second("POST", f"/api/memory/{NOBODY}/pin"), (1, 2), (429, 404), FREE
    ),
    "http.delete_per_minute": Case(
        second("DELETE", f"/api/memory/{NOBODY}?reason=x"), (1, 2), (429, 404), FREE
    ),
    "http.batch_forget_per_minute": Case(
        second("POST", "/api/memory/forget", json=FORGET), (1, 2), (429, 404), FREE
    ),
}  # fmt: skip
