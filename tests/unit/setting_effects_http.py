"""What the settings of the HTTP service change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from palimpsest.ops.http.serving import serving
from tests.setting_lab import Case, Lab, happens

NOBODY = "00000000-0000-5000-8000-000000000000"
FREE = ("http.port=0",)


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
        return await happens(client.post("/api/memory/remember", json={"content": "tea"}), 4.0)


SLOW = {"query": "SELECT sum(a.range * b.range) FROM range(100000) a, range(500) b"}
LONG = {"query": "tea " * 1_000}
FORGET = {"mode": "execute", "ids": [NOBODY], "reason": "x"}

LINES = {"Content-Type": "application/x-ndjson"}

CASES: dict[str, Case] = {
    "http.host": Case(
        host_that_answers, ("127.0.0.1", "127.0.0.2"), ("127.0.0.1", "127.0.0.2"), FREE
    ),
    "http.port": Case(listens_there, (0, "{port}"), (False, True)),
    "http.allowed_hosts": Case(
        status("GET", "/api/memories", headers={"Host": "memory.example"}),
        ("", "other.example,memory.example"), (421, 200), FREE,
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
