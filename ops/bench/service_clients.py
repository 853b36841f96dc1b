"""The HTTP service as a process, and clients that remember, recall and modify over HTTP."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import httpx

from palimpsest.ops.bench.made_up import Vocabulary
from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.changing import Modify, Remember
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.transport.sending import RetryPolicy
from palimpsest.ops.transport.service import ServiceTransport

Operation = Literal["remember", "recall", "modify"]
MIX: Final[Mapping[Operation, float]] = {"remember": 0.3, "recall": 0.5, "modify": 0.2}
TIMEOUT_SECONDS = 60.0
RETRIES: Final = RetryPolicy(TIMEOUT_SECONDS, attempts=1_000, retry_seconds=TIMEOUT_SECONDS)
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
    """What clients observed. `acknowledged` is the expected text of each memory by id; `ms` are the
    start and the milliseconds of what was answered, in which a client sends a request again while
    the service is down."""

    ms: dict[Operation, list[tuple[float, float]]] = field(
        default_factory=lambda: {name: [] for name in MIX}
    )
    acknowledged: dict[str, str] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)

    def add_error(self, what: str) -> None:
        self.errors[
            what if what in self.errors or len(self.errors) < SHOWN_ERRORS else "others"
        ] += 1


class ServiceClient:
    """A client of one scope: one request after another, as the library sends them; it changes only
    its own memories."""

    def __init__(self, url: str, token: str, scope: str, seed: int, observed: Observed) -> None:
        self._service = ServiceTransport(httpx.URL(url), token, RETRIES, machine=False)
        self._scope = scope
        self._chance = random.Random(seed)
        self._sentence = Vocabulary(seed).sentence
        self._observed = observed
        self._own: list[str] = []

    async def run(self, until: float) -> None:
        """Until the monotonic time `until`; finishes the request in progress."""
        async with await self._service.open():
            while time.monotonic() < until:
                [operation] = self._chance.choices([*MIX], [*MIX.values()])
                if operation == "modify" and not self._own:
                    operation = "remember"
                began = time.monotonic()
                try:
                    await getattr(self, operation)()
                except RequestError as error:
                    self._observed.add_error(f"{operation}: {error}")
                else:
                    took = 1000 * (time.monotonic() - began)
                    self._observed.ms[operation].append((began, took))

    async def remember(self) -> None:
        text = self._sentence()
        answer = await self._service.execute(Remember(text, self._scope), TIMEOUT_SECONDS)
        self._own.append(answer["id"])
        self._observed.acknowledged[answer["id"]] = text

    async def modify(self) -> None:
        memory_id, text = self._chance.choice(self._own), self._sentence()
        await self._service.execute(Modify(memory_id, "corrected", text), TIMEOUT_SECONDS)
        self._observed.acknowledged[memory_id] = text

    async def recall(self) -> None:
        await self._service.execute(Recall(self._sentence(), self._scope), TIMEOUT_SECONDS)


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
