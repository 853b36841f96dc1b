"""Commands that the worker submits to itself, as records of the log."""

from __future__ import annotations

from datetime import datetime

from palimpsest.schemas.commands import Actor, Command, MemoryCommand
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published


def own_command(
    scope: str, command: Command, actor: Actor, at: datetime, number: int = 0
) -> tuple[str, Outgoing]:
    """Returns the command's id and record. The same command with the same `number` has the same id,
    so submitting it again changes nothing."""
    command_id = derived_id("own-command", scope, command.model_dump_json(), number)
    return command_id, published(
        MEMORY_COMMANDS, command_id, scope, at, MemoryCommand(command=command, actor=actor)
    )
