"""What a server grants its connections: how many there are, and how long each may take to say what
it wants and to take the answer. Who is silent, or too many, is cut off, so that there are always
file descriptors for the stores."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

KEPT_BACK: Final = 256
"""File descriptors for stores, log, files and other processes."""
LEAST: Final = 16
BACKLOG: Final = 128
"""Connections that are accepted at once, before any is looked at."""
GUARDED: Final = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
"""Headers of every answer: it is what it is called, and is kept nowhere on its way."""
STALL_SECONDS: Final = 30.0
"""How long an answer may wait for the other side to take more of it."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`most` connections at once; `head_seconds` until the head of a request is there, from the
    connection's beginning or from the answer before."""

    most: int = 512
    head_seconds: float = 10.0


USUAL: Final = ConnectionLimits()


def with_file_descriptors(wanted: ConnectionLimits) -> ConnectionLimits:
    """As many connections as wanted and as the process may have file descriptors for, with those
    kept back that all else needs; the process is first given what it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted.most + KEPT_BACK
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = max(LEAST, soft - KEPT_BACK, soft // 4)
    return ConnectionLimits(min(wanted.most, room), wanted.head_seconds)


def protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """The protocol of a server's connections."""

    class Limited(_Limited):
        granted = limits
        silent: ClassVar[dict[_Limited, None]] = {}

    return Limited


class _Limited(H11Protocol):
    granted = USUAL
    silent: ClassVar[dict[_Limited, None]]
    """Of this server, oldest first: all that never asked anything, and some that did since."""
    _began = 0.0
    _head: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        self.silent[self] = None
        self._await_head()
        if len(self.connections) > self.granted.most:
            self._replaced().transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.silent.pop(self, None)
        for timer in (self._head, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP, which no application sees: with the headers of every answer."""
        headers = {"content-type": "text/plain; charset=utf-8", "connection": "close", **GUARDED}
        for event in (
            h11.Response(status_code=400, reason=b"Bad Request", headers=[*headers.items()]),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        super().resume_writing()

    @property
    def _answers(self) -> bool:
        """Whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    def _replaced(self) -> _Limited:
        """Which connection gives its place: the oldest that never asked anything, else the oldest
        that asks nothing now, else this one."""
        while self.silent:  # each connection leaves it once: it is not searched by each new one
            oldest = next(iter(self.silent))
            del self.silent[oldest]
            if oldest.cycle is None:
                return oldest
        others = [each for each in self.connections if isinstance(each, _Limited)]
        waiting = [each for each in others if not each._answers]
        return min(waiting, key=lambda each: each._began, default=self)

    def _await_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = self.loop.call_later(self.granted.head_seconds, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if not self._answers:
            self.transport.abort()
