"""Ends and summaries of sessions on a real broker: timers of several workers publish commands, and
each session has one end and one summary."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from palimpsest.schemas.codec import decode
from palimpsest.schemas.commands import MemoryCommand, SessionEndCommand, UpdateShortTermCommand
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing, Record
from tests.branches_by_hand import outgoing_turn
from tests.flows.program import until
from tests.servers import Behaviour, Call, Late, ScriptedProvider, Text
from tests.soak.lab import Lab, MakeLab

PARTITIONS = 2
SCOPES = ("ana", "ben")
SAID = ("We go to Oslo.", "We go in May.", "We go by train.")
FLAGS = (
    "llm.provider=openai",
    "llm.model=scripted",
    "decision.decider=rules",
    "sessions.silence_minutes=0.1",
    "short_term.idle_minutes=0.05",
    "llm.timeout_seconds=600",  # a request that times out while a worker joins is asked again
)


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS, overrides=FLAGS)


class Writer:
    """A model that has begun to write summaries and does not end before it is told to; each is
    another. All else it answers at once."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.asked: Counter[str] = Counter()

    def __call__(self, call: Call) -> Behaviour | None:
        said = json.dumps(call.body)
        if "keep the notes of a conversation" not in said:
            return None
        scope = next(scope for scope in SCOPES if f"to the friends of {scope}" in said)
        self.asked[scope] += 1
        summary = {"summary": f"Of {scope}, {self.asked[scope]}."}
        return Late(self.told, Text(json.dumps(summary)))


def given(lab: Lab, kind: type[Frozen]) -> list[tuple[Record, str, Any]]:
    """Record, scope and command of all commands of a kind, in the order of each partition."""
    found = []
    for partition in range(PARTITIONS):
        for record in lab.log.read(MEMORY_COMMANDS.name, partition, 0, 10_000):
            message = decode(record.value, MEMORY_COMMANDS, record.timestamp)
            assert isinstance(message.body, MemoryCommand)
            if isinstance(message.body.command, kind):
                found.append((record, message.scope, message.body.command))
    return found


def again(record: Record, scope: str) -> Outgoing:
    return Outgoing(record.topic, scope, record.key or b"", record.value, record.headers)


@pytest.mark.soak
async def test_each_session_has_one_end_and_one_summary(lab: Lab) -> None:
    writer = Writer()
    async with ScriptedProvider(refusing=writer) as server:
        lab.choose(f"llm.base_url={server.url}/v1")
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(
            summed_up, lab, writer, partial(loop.call_soon_threadsafe, writer.told.set)
        )


def summed_up(lab: Lab, writer: Writer, tell: Callable[[], object]) -> None:
    lab.start("one")
    lab.until_owned(1)
    for scope in SCOPES:
        said = (*SAID, f"And say hello to the friends of {scope}.")
        lab.publish(outgoing_turn(n, text, scope) for n, text in enumerate(said))
    until(lambda: writer.asked == Counter(SCOPES))
    # A partition moves while its worker waits for the model: the next one asks as well.
    lab.start("two")
    until(lambda: writer.asked.total() > len(SCOPES))
    tell()
    ended = "SELECT scope, ended_by FROM sessions WHERE ended_at IS NOT NULL ORDER BY scope"
    until(lambda: len(given(lab, UpdateShortTermCommand)) == writer.asked.total())
    until(lambda: len(lab.rows(ended)) == len(SCOPES))
    # Another worker may have ended them at the same moment.
    lab.publish(again(record, scope) for record, scope, _ in given(lab, SessionEndCommand))
    lab.until_drained()
    assert lab.rows(ended) == [{"scope": s, "ended_by": "silence"} for s in SCOPES]
    told = "SELECT scope FROM memory_history WHERE event = 'session-ended' ORDER BY scope"
    assert lab.rows(told) == [{"scope": scope} for scope in SCOPES]
    # The first one counts; the other was paid for, and is void.
    written: dict[str, list[str]] = {scope: [] for scope in SCOPES}
    for _, scope, command in given(lab, UpdateShortTermCommand):
        written[scope].append(command.summary)
    assert {scope: len(texts) for scope, texts in written.items()} == writer.asked
    kept = lab.rows("SELECT scope, summary FROM short_term_memory")
    assert {row["scope"]: row["summary"] for row in kept} == {
        scope: texts[0] for scope, texts in written.items()
    }
    for name in ("one", "two"):
        lab.stop(name)
