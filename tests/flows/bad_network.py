"""What lies between a client and a service when things go wrong: a relay on a real port that loses
answers, answers for others, or says nothing, one behaviour a request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx

from palimpsest.ops.operations.operation import Read
from palimpsest.ops.surfaces.catalogue import OPERATIONS


@dataclass(frozen=True)
class Answer:
    """This, whatever was asked; the service hears nothing of it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """The service answers; its answer is lost, and `then` is called."""

    then: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Unheard:
    """The request is passed on, and the connection is cut when `cut` returns: the service may or
    may not have done it by then."""

    cut: Callable[[], object]


@dataclass(frozen=True)
class Silence:
    """No answer, and the connection stays open."""


Behaviour = Answer | Lost | Unheard | Silence


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def reads(self) -> bool:
        """Whether it asks for an operation that changes nothing."""
        kind = OPERATIONS.get(self.path.removeprefix("/api/rpc/"))
        return kind is not None and issubclass(kind, Read)


class Relay:
    """Passes requests on to `target`, unless the script says otherwise; for `with`. With
    `spares_reads` the script is for what changes something."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.script: list[Behaviour] = []
        self.spares_reads = False
        self.seen: list[Seen] = []
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._over = asyncio.Event()  # never set: who waits for it is cancelled

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        self.connections += 1
        try:
            seen = await _request(reader)
            self.seen.append(seen)
            spared = self.spares_reads and seen.reads
            behaviour = self.script.pop(0) if self.script and not spared else None
            if isinstance(behaviour, Silence):
                await self._over.wait()
            answer = await self._answer(behaviour, seen)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        except (httpx.TransportError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the service is gone: so is the connection
        finally:
            writer.close()

    async def _answer(self, behaviour: Behaviour | None, seen: Seen) -> bytes | None:
        match behaviour:
            case Answer(status, said, headers):
                return _told(status, {**headers, "content-length": str(len(said))}, said)
            case Unheard(cut):
                passed = asyncio.create_task(self._passed(seen))
                await asyncio.to_thread(cut)
                passed.cancel()
                return None
        answer = await self._passed(seen)
        if isinstance(behaviour, Lost):
            await asyncio.to_thread(behaviour.then)
            return None
        kept = {name: value for name, value in answer.headers.items() if name in PASSED}
        return _told(answer.status_code, kept, answer.content)

    async def _passed(self, seen: Seen) -> httpx.Response:
        headers = {name: value for name, value in seen.headers.items() if name != "host"}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            url = self.target + seen.path
            return await http.request(seen.method, url, headers=headers, content=seen.body)


PASSED = {"content-type", "content-length", "retry-after", "location"}


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)


def _told(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body
