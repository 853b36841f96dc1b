"""Measures what an erase costs, and what others wait for it, in a scope of many turns:

    python -m tests.soak.erase_cost [--stored 20000] [--turns 5] [--readers 2] [--erased 5]

Turns come in and readers recall, before and while turns are erased one after the other. All goes
through the running program; `--folder` keeps what it stored for another run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.made_up import SEED, Vocabulary
from palimpsest.ops.bench.measures import times
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.commands import ForgetCommand, MemoryCommand
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published
from tests.soak.sweep import Load

SCOPE: Final = "erased"
BEFORE_SECONDS: Final = 10.0


async def measure(folder: Path, stored: int, turns: float, readers: int, erased: int) -> JsonObject:
    """Returns the waits without an erase and during erases, and how long each took until the
    tables and until all files were without the text."""
    flags = ["embedding.provider=hashing", "llm.provider=rules"]
    settings = load_settings(flags, folder, None, {}).settings
    run = f"{time.time():.0f}"
    async with application(settings) as app:
        if not app.shards[0].fetch("SELECT 1 FROM memory_rows LIMIT 1"):
            app.log.append(_turns(stored))
            await app.drain()
    async with application(settings) as app:
        load = Load(app, SCOPE, run)
        async with load.running(turns, readers, BEFORE_SECONDS) as calm:
            took = [await _erase(app, run, number) for number in range(erased)]
            during = load.told()
    return {
        "stored": stored,
        "in_tables_ms": times([each[0] * 1_000 for each in took]),
        "in_files_ms": times([each[1] * 1_000 for each in took]),
        "without": calm,
        "during": during,
    }


def _turns(count: int) -> list[Outgoing]:
    words = Vocabulary(SEED)
    now = datetime.now(UTC)
    bodies = [
        ConversationTurn(turn_id=f"stored-{n}", speaker="Ana", content=words.sentence(14))
        for n in range(count)
    ]
    return [
        published(CONVERSATION_TURNS, derived_id("soak", each.turn_id), SCOPE, now, each)
        for each in bodies
    ]


async def _erase(app: Application, run: str, number: int) -> tuple[float, float]:
    """Erases a stored turn. Returns the seconds until the tables, and until the files have
    nothing of it."""
    shard = app.shards[0]
    [(turn_id,)] = shard.fetch(
        "SELECT source_id FROM memory_rows WHERE type = 'episodic' AND NOT is_deleted"
        " AND source_id LIKE 'stored-%' ORDER BY source_id LIMIT 1"
    )
    gone = turn_memory_id(SCOPE, turn_id)
    command = ForgetCommand(memory_ids=(gone,), cascade=True, hard=True, reason="asked for")
    body = MemoryCommand(command=command, actor=Actor(id="ana", type="human"))
    command_id = derived_id("soak", run, number)
    began = time.monotonic()
    app.log.append([published(MEMORY_COMMANDS, command_id, SCOPE, datetime.now(UTC), body)])
    changed = asyncio.Event()
    applied: float | None = None
    with shard.commits.setting(changed):
        while True:
            changed.clear()
            if applied is None and shard.fetch(
                "SELECT 1 FROM memory_rows WHERE memory_id = ? AND is_deleted", [gone]
            ):
                applied = time.monotonic() - began
            if applied is not None and not shard.has_erasures:
                return applied, time.monotonic() - began
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures erases under load.")
    parser.add_argument("--stored", type=int, default=2_000)
    parser.add_argument("--turns", type=float, default=5.0, help="a second")
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--erased", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        measuring = measure(folder, given.stored, given.turns, given.readers, given.erased)
        print(json.dumps(asyncio.run(measuring), indent=2))


if __name__ == "__main__":
    main()
