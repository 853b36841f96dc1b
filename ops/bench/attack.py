"""The HTTP service under a mixed load with somebody beside it who sends the worst there is: large
turns of every bad run, SQL that takes all it can get, connections that say nothing, streams, pages
that unpack to hundreds of megabytes. It works in a process of its own, with a token of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx

from palimpsest.ops.bench.found import quantiles
from palimpsest.ops.bench.resident import resident
from palimpsest.ops.bench.server_process import ServerProcess
from palimpsest.ops.bench.service_clients import MIX, Seen, ServiceClient, client_of
from palimpsest.ops.bench.service_load import LIMITS_OFF, checked, drained
from palimpsest.ops.http.callers import PERMISSIONS
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.requests import JsonObject

SIZE: Final = 300_000
SCOPE: Final = "attacked"
RECALL: Final = "/api/memory/recall"
RUNS: Final = (
    *("x" * SIZE, "-" * SIZE, "a" + " " * SIZE + "b", "7" * SIZE, "'\"" * (SIZE // 2)),
    *("[({<" * (SIZE // 4), "Ana " * (SIZE // 4), "I do not like " * (SIZE // 14)),
    base64.b64encode(bytes(range(256)) * (SIZE // 342)).decode(),
)
QUERIES: Final = (
    "SELECT len(range(100000000))",
    "SELECT len(repeat('x', 2000000000))",
    "SELECT len(string_agg(repeat('x', 1000), '')) FROM range(1000000)",
    "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "SELECT count(*) FROM range(300000000) WHERE regexp_matches(md5(range::VARCHAR), '(a|b)*c')",
    "SELECT * FROM range(900000)",
    "SELECT count(*) FROM (SELECT unnest(string_split(content, ' ')) FROM memories_all)",
)
IDLE: Final = 1_000
STREAMS: Final = 50
BOMB_BYTES: Final = 300 * 2**20
SAMPLE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Attack:
    """`clients` over `scopes` for so many seconds, with or without the attacker."""

    seconds: float
    clients: int
    scopes: int
    attacker: bool = True


@dataclass
class _Watched:
    memory: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)


async def measure(load: Attack, overrides: Sequence[str], folder: Path) -> JsonObject:
    """Run the load on the memory in `folder`, check what became of it, and tell."""
    data = folder / "data"
    own, others = (_token(data, name) for name in ("clients", "attacker"))
    private = "documents.allow_private=true"  # where the pages of the attacker are
    server = ServerProcess(data, [*LIMITS_OFF, private, *overrides], folder / "output")
    seen, watched = Seen(), _Watched()
    await server.start()
    try:
        until = time.monotonic() + load.seconds
        clients = [
            ServiceClient(server.url, f"bench-{n % load.scopes}", n, seen, _bearer(own)).run(until)
            for n in range(load.clients)
        ]
        beside = [_attacking(server.url, others, load.seconds)] if load.attacker else []
        watching = _watch(server, until, watched)
        _, answers = await asyncio.gather(
            asyncio.gather(watching, *clients), asyncio.gather(*beside)
        )
        drain_seconds = await drained(server.url, _bearer(own))
        kept = await checked(server.url, seen, _bearer(own))
        after = float(str(resident(server.pid)["resident_mib"]))
    finally:
        await server.stop()
    return {
        "seconds": load.seconds,
        "clients": load.clients,
        "operations": {name: _timed([ms for _, ms in seen.ms[name]]) for name in MIX},
        "health": _timed(watched.health),
        "errors": {**seen.errors},
        "interrupted": seen.interrupted,
        "answered_later": seen.later,
        "attacks": answers[0] if answers else {},
        "load_average": os.getloadavg()[0],
        "drain_seconds": round(drain_seconds, 1),
        "memory_mib": {"most": max(watched.memory, default=0.0), "after": after},
        **kept,
    }


def _token(data: Path, name: str) -> str:
    return Tokens(data).create(name, ["*"], PERMISSIONS, "human", datetime.now(UTC))[1]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _timed(took: Sequence[float]) -> JsonObject:
    return {"count": len(took), **quantiles(took), "most": round(max(took, default=0.0), 1)}


async def _watch(server: ServerProcess, until: float, watched: _Watched) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60.0) as client:
        while time.monotonic() < until:
            began = time.perf_counter()
            (await client.get("/health")).raise_for_status()
            watched.health.append(1000 * (time.perf_counter() - began))
            watched.memory.append(float(str(resident(server.pid)["resident_mib"])))
            await asyncio.sleep(SAMPLE_SECONDS)


async def _attacking(url: str, token: str, seconds: float) -> JsonObject:
    """What the attacker was answered, by kind of attack."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palimpsest.ops.bench.attack", url, str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate(token.encode())
    answers: JsonObject = json.loads(told)
    return answers


# --- in the process of the attacker -----------------------------------------------------------


class Attacker:
    """Sends until the monotonic time `until`; counts what it was answered."""

    def __init__(self, url: str, token: str, until: float) -> None:
        self._url = httpx.URL(url)
        self._http = client_of(url, _bearer(token))
        self._until = until
        self.answers: dict[str, Counter[str]] = {}

    async def run(self) -> None:
        async with self._http, _pages() as page:
            turns = itertools.count()
            await asyncio.gather(
                *(self._sends("turn", "/api/turns", map(_turn, turns)) for _ in range(2)),
                *(self._sends("sql", "/api/sql", map(_query, _over(QUERIES))) for _ in range(6)),
                *(self._sends("recall", RECALL, map(_question, _over(RUNS))) for _ in range(2)),
                self._sends("bomb", "/api/documents", map(_document, itertools.repeat(page))),
                *(self._stays_silent() for _ in range(IDLE)),
                *(self._follows() for _ in range(STREAMS)),
            )

    async def _sends(self, kind: str, path: str, bodies: Iterator[JsonObject]) -> None:
        while time.monotonic() < self._until:
            try:
                answer = await self._http.post(path, json=next(bodies))
                self._note(kind, str(answer.status_code))
            except httpx.HTTPError as error:
                self._note(kind, type(error).__name__)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _follows(self) -> None:
        place = f"/api/events?scope={SCOPE}"
        while time.monotonic() < self._until:
            with contextlib.suppress(httpx.HTTPError, TimeoutError):
                async with (
                    asyncio.timeout_at(self._loop_end()),
                    self._http.stream("GET", place) as answer,
                ):
                    self._note("stream", str(answer.status_code))
                    await answer.aread()
            await asyncio.sleep(1.0)

    async def _stays_silent(self) -> None:
        while time.monotonic() < self._until:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(self._url.host, self._url.port)
                self._note("idle", "connected")
                try:
                    async with asyncio.timeout_at(self._loop_end()):
                        await reader.read(1)
                finally:
                    writer.close()
            await asyncio.sleep(1.0)

    def _loop_end(self) -> float:
        return asyncio.get_running_loop().time() + max(0.0, self._until - time.monotonic())

    def _note(self, kind: str, what: str) -> None:
        self.answers.setdefault(kind, Counter())[what] += 1


def _turn(number: int) -> JsonObject:
    return {"turn_id": f"t{number}", "content": RUNS[number % len(RUNS)], "scope": SCOPE}


def _query(query: str) -> JsonObject:
    return {"query": query}


def _question(text: str) -> JsonObject:
    return {"query": text[:90_000], "scope": SCOPE}


def _document(url: str) -> JsonObject:
    return {"url": url, "scope": SCOPE}


def _over(values: Sequence[str]) -> Iterator[str]:
    return itertools.cycle(values)


@contextlib.asynccontextmanager
async def _pages() -> AsyncIterator[str]:
    """The address of a page that is small and unpacks to hundreds of megabytes."""
    bomb = gzip.compress(bytes(BOMB_BYTES))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head + bomb)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/page"


def main() -> None:
    url, seconds = sys.argv[1], float(sys.argv[2])
    attacker = Attacker(url, sys.stdin.read().strip(), time.monotonic() + seconds)
    asyncio.run(attacker.run())
    sys.stdout.write(json.dumps(attacker.answers))


if __name__ == "__main__":
    main()
