"""Commands carried out by hand: their results, and why they are refused."""

from __future__ import annotations

import json
from typing import Any

from palimpsest.schemas.commands import Command
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import EDITION, CommandIntent, MemoryWrite
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import CommandRow
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.settings import Flags
from tests.harness import CAREFUL, pipeline_settings
from tests.unit.by_hand import Driven, Store, context, drive, memory, write_message

AGENT = Actor(id="bot", type="agent")
HUMAN = Actor(id="ana", type="human")
TEA = memory("tea", "Ana likes green tea", version=3)
CAKE = memory("cake", "Ana bakes cake")


def execute(
    command: Command | None,
    store: Store | None = None,
    actor: Actor = HUMAN,
    flags: Flags = CAREFUL,
    error: str | None = None,
    hides: bool | None = True,
    edition: int | None = EDITION,
    **fields: Any,
) -> Driven:
    stage = apply_writes_stage(pipeline_settings(flags))
    intent = CommandIntent(command=command, actor=actor, error=error, hides=hides)
    message = write_message(
        MemoryWrite(write=intent, edition=edition),
        causation_id="c1",
        correlation_id="trace",
        **fields,
    )
    return drive(stage.process(message, context()), store)


def result(driven: Driven) -> Any:
    [row] = driven.rows(CommandRow)
    assert row.error is None
    return json.loads(row.result)


def error(driven: Driven) -> str:
    [row] = driven.rows(CommandRow)
    assert row.error is not None
    assert driven.rows(MemoryRow) == []
    assert driven.step.emits == ()
    return str(row.error).partition(":")[0]
