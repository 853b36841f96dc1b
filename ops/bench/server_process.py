"""`palimpsest serve` in a process of its own, which can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
_ADDRESS = re.compile(rb"serving at (http://\S+);")


class ServerProcess:
    """The service over `data_dir`, at the same port after every start. `overrides` are settings by
    their dotted names. What it prints is in the file `output`."""

    def __init__(self, data_dir: Path, overrides: Sequence[str], output: Path) -> None:
        self._flags = [f"--set={each}" for each in overrides]
        self._data_dir = data_dir
        self._output = output
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.starts_seconds: list[float] = []
        """From each start to the first answer that it is ready."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Until it is ready. Raises RuntimeError when it does not get there."""
        began = time.monotonic()
        program = (sys.executable, "-m", "palimpsest.ops.cli.main", "serve")
        place = (f"--port={self.port}", f"--data-dir={self._data_dir}")
        with self._output.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *program, *place, *self._flags, stdout=output, stderr=output, env={**os.environ}
            )
        async with httpx.AsyncClient(trust_env=False) as client:
            while not await self._is_ready(client):
                if self._process.returncode is not None:
                    raise RuntimeError(f"the service ended: {self._said()}")
                if time.monotonic() - began > READY_SECONDS:
                    raise RuntimeError(f"the service is not ready: {self._said()}")
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
        """As a loss of power does to it: nothing is finished."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """As an operator stops it."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    def _said(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")[-2000:]
