"""kill -9 while a branch is fed: the same command goes on, and ends in the same branch."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.replay import feeding, reextraction
from palimpsest.ops.replay.branches import branch_folder, read_branch
from palimpsest.ops.replay.live_log import Ledger
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import ForgetCommand, RememberCommand
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.runner import StageRunner
from tests.fault.driver import run_and_kill, tell
from tests.flows.test_reextraction import NEW, OLD, TURNS, modify
from tests.harness import differing
from tests.replayed import Live, live_settings, provider, said_of, state

KILLS = 4
MOST_STEPS = 60
WHERE: tuple[tuple[Any, str], ...] = (
    (EmbeddedLog, "append_at"),
    (EmbeddedLog, "_write"),
    (Ledger, "keep_curated"),
    (Ledger, "note_spent"),
    (StageRunner, "_done"),
)
"""What is told of before and after it is done: a kill falls between any two."""


def feed(settings: Settings, told: Connection) -> None:
    """Make the branch, telling of every step, and at last of nothing."""

    def telling(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def run(*given: Any, **named: Any) -> Any:
            tell(told, call.__name__)
            result = call(*given, **named)
            tell(told, call.__name__)
            return result

        return run

    for owner, name in WHERE:
        setattr(owner, name, telling(getattr(owner, name)))
    for owner in (reextraction, feeding):
        owner.keep_branch = telling(owner.keep_branch)
    done = asyncio.run(Live(settings).branch())
    assert done.ended == "done", done
    tell(told, "")


async def lived(folder: Path, url: str) -> Live:
    """Turns of two scopes on two partitions, and what people did in between."""
    live = Live(live_settings(folder, url, log={"partitions": 2}))
    live.say(*TURNS[:5])
    live.say(*TURNS[5:8], scope="ben")
    await live.run()
    own = live.facts()
    live.command(modify(own["Ana is fond of walnuts"], content="Ana loathes walnuts"))
    live.command(ForgetCommand(memory_ids=(own["Ana is fond of coffee"],), reason="no more"))
    live.command(RememberCommand(content="Ana plays the lute"))
    await live.run()
    live.say(*TURNS[8:10], first=20)
    live.command(modify(live.facts("ben")["Ana is fond of tulips"], pinned=True), scope="ben")
    await live.run()
    return live


@pytest.mark.parametrize("seed", range(1))
async def test_kills_at_random_moments_end_in_the_same_branch(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    said = {**NEW, "Ana plays the lute": ["Ana is a lutenist"]}
    async with provider({"old": {**OLD, "Ana plays the lute": []}, "new": said}) as server:
        live = await lived(tmp_path, server.url)
        await live.branch("whole")
        places: list[str | None] = []
        while None not in places:
            asked = len(server.posts)
            after = chance.randint(1, MOST_STEPS) if len(places) < KILLS else 100_000
            places.append(await asyncio.to_thread(run_and_kill, feed, live.settings, after=after))
            paid = Counter(filter(None, map(said_of, server.posts[asked:])))
            assert max(paid.values(), default=0) <= 1, paid
    assert differing(state(live.of_branch()), state(live.of_branch("whole"))) == [], places
    assert read_branch(live.settings, "new").whole
    rows = []
    for name in ("new", "whole"):
        with Ledger.opened(branch_folder(live.settings, name)) as ledger:
            rows.append(ledger.curated())
    assert rows[0] == rows[1]
    assert [row.status for row in rows[0]] == ["re-applied"] * 3
