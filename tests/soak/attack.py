"""`bench service` while an attacker sends the worst requests there are.

    python -m tests.soak.attack MINUTES

Large turns of unfavourable texts, SQL that uses all it can get, idle connections, streams, and
pages that unpack to hundreds of megabytes. The attacker works in a process of its own, with a token
of its own. Prints JSON; `beside` counts its answers by kind of attack and status.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Final

import httpx

from palimpsest.ops.bench.service_clients import client_of
from palimpsest.ops.bench.service_load import ServiceLoad, measure
from palimpsest.ops.requests import JsonObject

PRIVATE_PAGES: Final = "documents.allow_private=true"
"""Allows the attacker's pages, which this machine serves."""
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
PAUSE_SECONDS: Final = 0.05


async def attack(url: str, token: str, seconds: float) -> JsonObject:
    """Attacks a service from another process; returns the number of answers by kind of attack and
    status."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak.attack", url, str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(token.encode())
    answers: JsonObject = json.loads(output)
    return answers


# --- in the process of the attacker -----------------------------------------------------------


class Attacker:
    """Sends until the monotonic time `until`, and counts the answers."""

    def __init__(self, url: str, token: str, until: float) -> None:
        self._url = httpx.URL(url)
        self._http = client_of(url, token)
        self._until = until
        self.answers: dict[str, Counter[str]] = {}

    async def run(self) -> None:
        turns = map(_turn, itertools.count())
        sql: Iterator[JsonObject] = ({"query": each} for each in itertools.cycle(QUERIES))
        recalls = _bodies("query", [text[:90_000] for text in RUNS])
        async with self._http, _pages() as page:
            await asyncio.gather(
                *(self._sends("turn", "/api/turns", turns) for _ in range(2)),
                *(self._sends("sql", "/api/sql", sql) for _ in range(6)),
                *(self._sends("recall", RECALL, recalls) for _ in range(2)),
                self._sends("bomb", "/api/documents", _bodies("url", [page])),
                *(self._stays_silent() for _ in range(IDLE)),
                *(self._follows() for _ in range(STREAMS)),
            )

    async def _sends(self, kind: str, path: str, bodies: Iterator[JsonObject]) -> None:
        while time.monotonic() < self._until:
            try:
                answer = await self._http.post(path, json=next(bodies))
                self._count(kind, str(answer.status_code))
            except httpx.HTTPError as error:
                self._count(kind, type(error).__name__)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _follows(self) -> None:
        url = f"/api/events?scope={SCOPE}"
        while time.monotonic() < self._until:
            with contextlib.suppress(httpx.HTTPError, TimeoutError):
                async with (
                    asyncio.timeout_at(self._loop_end()),
                    self._http.stream("GET", url) as answer,
                ):
                    self._count("stream", str(answer.status_code))
                    await answer.aread()
            await asyncio.sleep(1.0)

    async def _stays_silent(self) -> None:
        while time.monotonic() < self._until:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(self._url.host, self._url.port)
                self._count("idle", "connected")
                try:
                    async with asyncio.timeout_at(self._loop_end()):
                        await reader.read(1)
                finally:
                    writer.close()
            await asyncio.sleep(1.0)

    def _loop_end(self) -> float:
        return asyncio.get_running_loop().time() + max(0.0, self._until - time.monotonic())

    def _count(self, kind: str, what: str) -> None:
        self.answers.setdefault(kind, Counter())[what] += 1


def _turn(number: int) -> JsonObject:
    return {"turn_id": f"t{number}", "content": RUNS[number % len(RUNS)], "scope": SCOPE}


def _bodies(name: str, values: Iterable[str]) -> Iterator[JsonObject]:
    return ({name: value, "scope": SCOPE} for value in itertools.cycle(values))


@contextlib.asynccontextmanager
async def _pages() -> AsyncIterator[str]:
    """The address of a small page that unpacks to hundreds of megabytes."""
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
    if len(sys.argv) < 3:
        load = ServiceLoad(60 * float(sys.argv[1]), clients=16, scopes=8, kills=2)
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measure(load, [PRIVATE_PAGES], Path(folder), attack))
        print(json.dumps(found, indent=2))
        return
    url, seconds = sys.argv[1], float(sys.argv[2])
    attacker = Attacker(url, sys.stdin.read().strip(), time.monotonic() + seconds)
    asyncio.run(attacker.run())
    sys.stdout.write(json.dumps(attacker.answers))


if __name__ == "__main__":
    main()
