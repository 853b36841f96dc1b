"""The HTTP service as a process, and clients that remember, recall and modify over HTTP."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import httpx

from palimpsest.ops.bench.made_up import Vocabulary

Operation = Literal["remember", "recall", "modify"]
MIX: Final[Mapping[Operation, float]] = {"remember": 0.3, "recall": 0.5, "modify": 0.2}
RETRY_SECONDS = 0.05
"""Between two attempts to reach a service that is down."""
TIMEOUT_SECONDS = 60.0
SHOWN_ERRORS = 5
READY_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
_ADDRESS = re.compile(rb"serving at (http://\S+);")


def client_of(url: str, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(
        base_url=url, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    )


@dataclass
class Observed:
    """What clients observed. `acknowledged` is the expected text of each memory by id;
    `interrupted` counts requests that were sent again, with the same idempotency key, because the
    service was down; `later` counts writes that were answered with 202. `ms` are the start and the
    milliseconds of requests that were answered at the first attempt."""

    ms: dict[Operation, list[tuple[float, float]]] = field(
        default_factory=lambda: {name: [] for name in MIX}
    )
    acknowledged: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    interrupted: int = 0
    later: int = 0

    def add_error(self, what: str) -> None:
        if what in self.errors or len(self.errors) < SHOWN_ERRORS:
            self.errors[what] += 1
        else:
            self.errors["others"] += 1


class ServiceClient:
    """A client of one scope: one request after another; it changes only its own memories."""

    def __init__(self, url: str, token: str, scope: str, seed: int, observed: Observed) -> None:
        self._http = client_of(url, token)
        self._scope = scope
        self._chance = random.Random(seed)
        self._sentence = Vocabulary(seed).sentence
        self._observed = observed
        self._own: list[str] = []

    async def run(self, until: float) -> None:
        """Until the monotonic time `until`; finishes the request in progress."""
        async with self._http:
            while time.monotonic() < until:
                [operation] = self._chance.choices([*MIX], [*MIX.values()])
                if operation == "modify" and not self._own:
                    operation = "remember"
                await getattr(self, operation)()

    async def remember(self) -> None:
        text = self._sentence()
        body = {"content": text, "scope": self._scope}
        answer = await self._write("remember", "POST", "/api/memory/remember", body)
        if answer is not None:
            memory_id = answer["id"]
            self._own.append(memory_id)
            self._observed.acknowledged[memory_id] = text

    async def modify(self) -> None:
        memory_id = self._chance.choice(self._own)
        text = self._sentence()
        body = {"content": text, "reason": "corrected"}
        answer = await self._write("modify", "PATCH", f"/api/memory/{memory_id}", body)
        if answer is not None:
            self._observed.acknowledged[memory_id] = text

    async def recall(self) -> None:
        body = {"query": self._sentence(), "scope": self._scope, "limit": 10}
        await self._sent("recall", "POST", "/api/memory/recall", body, {})

    async def _write(
        self, operation: Operation, method: str, path: str, body: Mapping[str, Any]
    ) -> Any:
        """Returns the result of the applied write; None if it was refused."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = await self._sent(operation, method, path, body, key)
        if answer is None or answer["applied"]:
            return answer
        self._observed.later += 1
        return await self._applied(answer["command_id"])

    async def _applied(self, command_id: str) -> Any:
        began = time.monotonic()
        state = None
        while time.monotonic() - began < TIMEOUT_SECONDS:
            state = await self._attempt("GET", f"/api/commands/{command_id}", None, {})
            found = {} if state is None or not state.is_success else state.json()
            if found.get("error") is not None:
                self._observed.add_error(f"refused after it was accepted: {found['error']}")
                return None
            if found.get("applied"):
                return found["result"]
            await asyncio.sleep(RETRY_SECONDS)
        answer = "no answer" if state is None else f"{state.status_code} {state.text[:200]}"
        self._observed.add_error(f"a command that was accepted was not applied: {answer}")
        return None

    async def _sent(
        self,
        operation: Operation,
        method: str,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
    ) -> dict[str, Any] | None:
        first = True
        while True:
            began = time.monotonic()
            response = await self._attempt(method, path, body, headers)
            if response is not None:
                break
            first = False
            await asyncio.sleep(RETRY_SECONDS)
        if first:
            self._observed.ms[operation].append((began, 1000 * (time.monotonic() - began)))
        if not response.is_success:
            self._observed.add_error(f"{operation}: {response.status_code} {response.text[:200]}")
            return None
        answer: dict[str, Any] = response.json()
        return answer

    async def _attempt(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> httpx.Response | None:
        """Returns None if the service was down or stopped before it answered."""
        try:
            response = await self._http.request(method, path, json=body, headers=dict(headers))
        except httpx.TransportError:
            self._observed.interrupted += 1
            return None
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self._observed.interrupted += 1
            return None
        return response


class ServerProcess:
    """`palimpsest serve` in a process of its own, at the same port after every start. `overrides`
    are settings by their dotted names; its output goes to the file `output`."""

    def __init__(self, data_dir: Path, overrides: Sequence[str], output: Path) -> None:
        self._flags = [f"--set={each}" for each in overrides]
        self._data_dir = data_dir
        self._output = output
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.starts_seconds: list[float] = []
        """From each start until it is ready."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it is ready. Raises RuntimeError if it does not become ready."""
        began = time.monotonic()
        program = (sys.executable, "-m", "palimpsest.ops.cli.main", "serve")
        options = (f"--port={self.port}", f"--data-dir={self._data_dir}")
        with self._output.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *program, *options, *self._flags, stdout=output, stderr=output, env={**os.environ}
            )
        async with httpx.AsyncClient(trust_env=False) as client:
            while not await self._is_ready(client):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the service ended: {self._last_output()}")
                if time.monotonic() - began > READY_SECONDS:
                    raise RuntimeError(f"the service is not ready: {self._last_output()}")
                await asyncio.sleep(POLL_SECONDS)
        self.starts_seconds.append(time.monotonic() - began)

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        found = _ADDRESS.search(self._output.read_bytes())
        if found is None:
            return False
        self.port = httpx.URL(found[1].decode()).port or 0
        try:
            return (await client.get(f"{self.url}/ready")).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    async def kill(self) -> None:
        """Like a loss of power."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Like an operator."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    def _last_output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")[-2000:]
