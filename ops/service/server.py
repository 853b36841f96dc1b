"""An HTTP server that runs during a context, alongside the process's other work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from palimpsest.ops.service.connections import BACKLOG, USUAL, ConnectionLimits, protocol


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


@contextlib.asynccontextmanager
async def served(
    app: Any,
    listener: socket.socket,
    limits: ConnectionLimits = USUAL,
    **options: Any,
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
