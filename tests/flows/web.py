"""A web server on 127.0.0.1 that answers with the very bytes that a test gives it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

HELD = b"HELD"
"""In place of an answer: the connection stays open until the client leaves."""


def answer(
    body: bytes = b"", content_type: str | None = "text/html", status: str = "200 OK", **more: str
) -> bytes:
    headers = {"Content-Length": str(len(body)), "Connection": "close"}
    if content_type is not None:
        headers["Content-Type"] = content_type
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


@dataclass
class Web:
    """`pages` by path; `asked` counts requests, `hosts` are the Host headers that came. A page that
    is a function is written by it."""

    port: int = 0
    pages: dict[str, bytes | Callable[[asyncio.StreamWriter], object]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    hosts: list[str] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split()[1]
            self.hosts += [
                line.partition(":")[2].strip()
                for line in head.splitlines()
                if line.lower().startswith("host:")
            ]
            self.asked[path] += 1
            self.arrived.release()
            page = self.pages.get(path, answer(status="404 Not Found"))
            if page == HELD:
                await reader.read()
            elif isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(writer)  # type: ignore[misc]
        writer.close()


@contextlib.contextmanager
def web(**pages: bytes) -> Iterator[Web]:
    """Served in a thread of its own; `pages` without the slash before their path."""
    served = Web(pages={f"/{name}": page for name, page in pages.items()})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def there(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    server = there(asyncio.start_server(served.serve, "127.0.0.1", 0))
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        there(_ended(server))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


async def _ended(server: asyncio.Server) -> None:
    server.close()
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
