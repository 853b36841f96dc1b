"""Commands are appended to the log; a worker carries them out and stores their results."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import cast

from pydantic import ValidationError

from palimpsest.ops.bootstrap import publisher
from palimpsest.ops.embedded import log_lock
from palimpsest.ops.parts import utc_now
from palimpsest.ops.queries.access import queries, worker_runs
from palimpsest.ops.queries.requests import CommandRequest, RequestError
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import describe
from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.messages import Command, MemoryCommand
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.runtime.output import outgoing

POLL_SECONDS = 0.05
MOMENT_SECONDS = 0.5
"""Longer waits are announced."""


def publish(settings: Settings, scope: str, command: Command) -> str:
    """Append a command of this machine's user; returns its id. Raises RequestError for an invalid
    command, and LogError."""
    command_id = str(uuid.uuid4())
    try:
        message = Envelope[Frozen](
            id=command_id,
            schema=MEMORY_COMMANDS.schemas[0],
            scope=scope,
            occurred_at=utc_now(),
            correlation_id=command_id,
            body=MemoryCommand(command=command),
        )
    except ValidationError as error:
        raise RequestError(describe(error)) from None
    try:
        record = outgoing(MEMORY_COMMANDS, message)
    except (UnicodeEncodeError, ValueError) as error:
        raise RequestError(f"the command has characters that are no text: {error}") from None
    size = len(record.value or b"")
    if size > settings.log.max_record_bytes:
        raise RequestError(
            f"the command takes {size} bytes, more than the {settings.log.max_record_bytes}"
            " allowed (setting log.max_record_bytes)"
        )
    with publisher(settings) as append:
        append([record])
    return command_id


def worker_is_there(settings: Settings) -> bool:
    """Whether somebody carries commands out now; on Kafka that is taken for granted."""
    return settings.log.kind == "kafka" or worker_runs(log_lock(settings))


async def result_of(
    settings: Settings,
    command_id: str,
    seconds: float,
    on_waiting: Callable[[], None] | None = None,
) -> dict[str, object] | None:
    """The command's result once a running worker has carried it out; None when none runs, or
    after `seconds`. `on_waiting` is called when it takes longer than a moment."""
    if seconds <= 0 or not worker_is_there(settings):
        return None
    waiting = None
    if on_waiting is not None:
        waiting = asyncio.get_running_loop().call_later(MOMENT_SECONDS, on_waiting)
    try:
        async with asyncio.timeout(seconds):
            return await _awaited(settings, command_id)
    except TimeoutError:
        return None
    finally:
        if waiting is not None:
            waiting.cancel()


async def _awaited(settings: Settings, command_id: str) -> dict[str, object] | None:
    async with queries(settings) as asked:
        while True:
            try:
                result = await asked.answer(CommandRequest(command_id))
            except RequestError:
                if settings.log.kind != "kafka":
                    raise
                return None  # no worker has the partition now; the one that gets it will do it
            if result is not None:
                return cast("dict[str, object]", result)
            await asyncio.sleep(POLL_SECONDS)
