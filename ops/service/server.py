"""An HTTP server that runs during a context, alongside the process's other work."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# ---- connections ----
KEPT_BACK: Final = 256
"""File descriptors for stores, log, files and other processes."""
LEAST: Final = 16
BACKLOG: Final = 128
"""Maximum number of connections that wait to be accepted."""
GUARDED: Final = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
"""Headers of every response, against content sniffing and caching."""
STALL_SECONDS: Final = 30.0
"""Maximum time that a response waits for the client to read on."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """`most` concurrent connections; `head_seconds` until the head of a request has arrived, from
    the start of the connection or from the head's first byte; `keep_alive_seconds` from a response
    to the first byte of the next request.

    A client that sends its next request while the server closes the connection gets a reset, and
    cannot tell whether the request was carried out. So a connection is kept for longer than usual
    clients keep theirs: httpx for 5 seconds, as uvicorn does by default, proxies for 60, Go for 90.
    """

    most: int = 512
    head_seconds: float = 10.0
    keep_alive_seconds: float = 120.0


USUAL: Final = ConnectionLimits()


def with_file_descriptors(wanted: ConnectionLimits) -> ConnectionLimits:
    """Raises the process's limit of file descriptors to its maximum, and returns the wanted number
    of connections, reduced if necessary to keep `KEPT_BACK` descriptors for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted.most + KEPT_BACK
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    room = max(LEAST, soft - KEPT_BACK, soft // 4)
    return replace(wanted, most=min(wanted.most, room))


def protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Returns the protocol class of a server's connections."""

    class Limited(_Limited):
        granted = limits
        silent: ClassVar[dict[_Limited, None]] = {}

    return Limited


class _Limited(H11Protocol):
    granted = USUAL
    silent: ClassVar[dict[_Limited, None]]
    """This server's connections without a first request, oldest first, and some with one since."""
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

    def data_received(self, data: bytes) -> None:
        if self._head is None and not self._answers:
            self._await_head()
        super().data_received(data)

    def on_response_complete(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
        if self.conn.their_state is h11.SEND_BODY:  # the next head comes after the rest of the body
            self._await_head()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers invalid HTTP, which no application sees, with the headers of every response."""
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
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _replaced(self) -> _Limited:
        """The connection to close for a new one: the oldest without any request, else the oldest
        that is idle, else this one."""
        while self.silent:  # each connection leaves it once: it is not searched by each new one
            oldest = next(iter(self.silent))
            del self.silent[oldest]
            if oldest.cycle is None:
                return oldest
        others = [each for each in self.connections if isinstance(each, _Limited)]
        waiting = [each for each in others if not each._answers]
        return min(waiting, key=lambda each: each._began, default=self)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.granted.head_seconds, self._end_if_silent)

    def _end_if_silent(self) -> None:
        if not self._answers:
            self.transport.abort()


# ---- the server ----
class _Server(uvicorn.Server):
    """Leaves signals to the process: SIGTERM must finish a worker's batch first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket bound to the address; port 0 picks a free port. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # The protocol is explicit: asyncio turns Nagle's algorithm off only for a socket that says it
    # is TCP, or a response of head and body would wait 40 ms for the client's acknowledgement.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def why_not_listening(host: str, port: int, error: OSError) -> str:
    """Returns what a person can do about the error of `listening`."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen at {host}:{port}: another program uses this port; stop it, or choose"
            " another port with --port (0 picks a free one)"
        )
    return (
        f"cannot listen at {host}:{port}: {error.strerror}; choose another address with --host and"
        " --port"
    )


@contextlib.asynccontextmanager
async def served(
    app: Any, listener: socket.socket, limits: ConnectionLimits = USUAL, **options: Any
) -> AsyncIterator[None]:
    """Serves an ASGI application on the socket until the context exits, without logging; `options`
    are uvicorn's."""
    fixed: dict[str, Any] = {
        "http": protocol(limits),
        "backlog": BACKLOG,
        "ws": "none",
        "lifespan": "off",
        "log_level": "critical",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": limits.keep_alive_seconds,
    }
    config = uvicorn.Config(app, **fixed, **options)
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]), name="http server")
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.005)
        yield
    finally:
        server.should_exit = True
        await serving
