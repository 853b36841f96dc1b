"""A worker that is stopped again and again still gets on, and says what is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
from pathlib import Path

import duckdb
import pytest

from tests.flows.program import Program
from tests.servers import ScriptedProvider

TURNS = 1_500
MOMENTS = 5
PATIENCE_S = 120.0


def cursors(program: Program) -> int:
    """How far all stages together are."""
    total = 0
    with contextlib.closing(sqlite3.connect(program.data / "log" / "log.sqlite")) as log:
        total += log.execute("SELECT coalesce(sum(next_offset), 0) FROM positions").fetchone()[0]
    store = program.data / "shards" / "0" / "memory.duckdb"
    if store.exists():
        with duckdb.connect(str(store), read_only=True) as shard:
            found = shard.execute("SELECT sum(next_offset) FROM internal.cursors").fetchone()
            total += int(found[0] or 0) if found else 0
    return total


async def interrupted(program: Program, provider: ScriptedProvider, calls: int) -> str:
    """Run until the provider was asked so many times more, then Ctrl-C; what it says."""
    first = len(provider.calls)
    process = program.start("run", "--once", "--json", *slow(provider))
    async with asyncio.timeout(PATIENCE_S):
        await provider.called(first + calls)
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(process.communicate, PATIENCE_S)
    assert process.returncode == 1, (out, err)
    assert json.loads(out)["stopped"] is True
    return err.decode()


def slow(provider: ScriptedProvider) -> list[str]:
    chosen = {
        "embedding.provider": "openai",
        "embedding.base_url": f"{provider.url}/v1",
        "embedding.model": "scripted",
        "embedding.dimensions": "256",
        "worker.batch_seconds": "0.2",
    }
    return [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]


@pytest.mark.soak
async def test_ctrl_c_at_five_moments_and_each_time_it_is_further_on(tmp_path: Path) -> None:
    program = Program(tmp_path)
    said = (f"I like the town number {number} best." for number in range(TURNS))
    program.ok("ingest", program.turns(*said), "--scope", "home")
    # A batch of 512 would take 15 s: longer than it runs between any two interrupts here.
    async with ScriptedProvider(text_latency_s=0.03, models=["scripted"]) as provider:
        before = 0
        for moment in range(MOMENTS):
            # The first call is the look at start whether the provider answers.
            told = await interrupted(program, provider, 2 + moment)
            assert "stopping: finishing" in told
            assert "stopped; left: " in told
            assert "Traceback" not in told
            now = await asyncio.to_thread(cursors, program)
            assert now > before, told
            before = now
