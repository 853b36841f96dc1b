"""The HTTP service on a real port, in a thread of its own, for as long as a test needs it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from palimpsest.ops.http.tokens import PERMISSIONS, Permission, Tokens
from palimpsest.ops.server.serving import Serving, serving
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.envelope import ActorType
from tests.flows.program import PATIENCE_S, until
from tests.made_once import share_routes, share_tools

# A busy machine must not turn what is done into what is pending.
BASE = ("embedding.provider=hashing", "embedding.dimensions=64", "http.port=0")
BASE += ("http.wait_seconds=60",)
JSON = {"Content-Type": "application/json"}


share_routes()
share_tools()


@dataclass
class Served:
    """A running service and clients of it."""

    folder: Path
    address: str
    up: Serving
    loop: asyncio.AbstractEventLoop

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.address,
            headers=headers,
            timeout=PATIENCE_S,
            verify=False,  # plain HTTP: to read all certificates takes longer than most requests
            trust_env=False,
        )

    def connected(self) -> socket.socket:
        url = httpx.URL(self.address)
        return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)

    def token(
        self,
        name: str,
        *scopes: str,
        may: Sequence[Permission] = PERMISSIONS,
        actor: ActorType = "human",
    ) -> str:
        return made_token(self.folder, name, *scopes, may=may, actor=actor)

    def settle(self, client: httpx.Client) -> None:
        """Until everything that was accepted is processed."""
        until(lambda: settled(client))


def made_token(
    folder: Path,
    name: str,
    *scopes: str,
    may: Sequence[Permission] = PERMISSIONS,
    actor: ActorType = "human",
) -> str:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    return Tokens(folder).create(name, scopes, may, actor, at)[1]


def settled(client: httpx.Client) -> bool:
    answer = client.get("/api/pipeline/status")
    assert answer.status_code == 200, answer.text
    return all(stage["lag"] == 0 for stage in answer.json()["stages"])


@contextlib.contextmanager
def server(folder: Path, *flags: str) -> Iterator[Served]:
    """A service on the folder, with its stages, until the context is left."""
    settings = load_settings([*BASE, *flags], folder, None, {}).settings
    started: Future[Serving] = Future()

    async def run() -> None:
        try:
            async with serving(settings) as up:
                started.set_result(up)
                await up.run()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    up = started.result(PATIENCE_S)
    served = Served(folder, up.address, up, loop)
    try:
        with httpx.Client(
            base_url=_local(up.address), verify=False, trust_env=False, timeout=PATIENCE_S
        ) as client:
            until(lambda: client.get("/ready").status_code == 200)
        yield served
    finally:
        loop.call_soon_threadsafe(up.stop)
        thread.join(PATIENCE_S)
        loop.close()


def _local(address: str) -> str:
    """Where this machine reaches it."""
    return address.replace("0.0.0.0", "127.0.0.1")


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem details of an answer that must be one."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    assert (said["status"], said["code"]) == (status, code)
    assert said["detail"]
    assert "Traceback" not in answer.text
    return said
