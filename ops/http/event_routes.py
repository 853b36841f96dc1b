"""What happens in a scope, as server-sent events from the audit topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from palimpsest.ops.http.callers import Caller
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import errors, router
from palimpsest.ops.http.service import Recaller, Service, ServiceOf
from palimpsest.schemas.codec import decode
from palimpsest.schemas.envelope import Scope
from palimpsest.schemas.messages import HistoryEvent
from palimpsest.schemas.topics import MEMORY_HISTORY
from palimpsest.stores.database.outcome_words import TOLD
from palimpsest.streams.logs.base import LogReader, Position, partition_for

routes: APIRouter = router("events")

NAMES: Final = {
    "created": "created",
    "modified": "changed",
    "recovered": "changed",
    "deleted": "forgotten",
    "purged": "forgotten",
    "session-ended": "session_ended",
}
"""Of the audit's events, those that change what a recall finds or end a session, and what they are
called."""
LOOK_SECONDS: Final = 1.0
"""How long a stream waits at most before it looks whether it may go on."""
SILENT_SECONDS: Final = 15.0
"""After so long without an event a comment is sent, so that nobody takes it for dead."""
READ_RECORDS: Final = 500
KEPT_EVENTS: Final = 32
STREAM_TYPE: Final = "text/event-stream"


@routes.get(
    "/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {STREAM_TYPE: {"schema": {"type": "string"}}},
            "description": "`created`, `changed`, `forgotten` and `session_ended`, as they happen",
        },
        **errors("not_found"),
    },
)
async def events(
    service: ServiceOf,
    caller: Recaller,
    scope: Annotated[Scope | None, Query(description="the memory space; else the caller's")] = None,
    last_event_id: Annotated[
        str | None, Header(pattern=r"^[0-9]{1,18}$", description="go on after this event")
    ] = None,
) -> Response:
    """Follow what happens in a scope: from now on, or after `Last-Event-ID` without a gap."""
    scope = caller.scope(scope)
    partition = partition_for(scope, service.log.partitions(MEMORY_HISTORY.name))
    end = await asyncio.to_thread(service.log.end_offset, MEMORY_HISTORY.name, partition)
    start = end if last_event_id is None else int(last_event_id) + 1
    if start > end:
        raise Problem("invalid", f"there was no event {last_event_id} in this scope")
    position = Position("events", MEMORY_HISTORY.name, partition, start)
    return StreamingResponse(
        service.streams.counted(caller.id, _stream(service, caller, scope, position)),
        media_type=STREAM_TYPE,
        headers={"Cache-Control": "no-store"},
    )


async def _stream(
    service: Service, caller: Caller, scope: str, position: Position
) -> AsyncIterator[str]:
    # Where it begins, for whoever loses the connection before the first event.
    begin = f"id: {position.next_offset - 1}\n" if position.next_offset else ""
    yield f": follows\n{begin}\n"
    silent = 0.0
    while not service.stopping.is_set() and service.tokens.still(caller):
        if not await service.wait(position, LOOK_SECONDS):
            silent += LOOK_SECONDS
            if silent >= SILENT_SECONDS:
                yield ": nothing happened\n\n"
                silent = 0.0
            continue
        for offset, told in await asyncio.to_thread(_read, service.log, position, scope):
            if told is not None:
                yield told
                silent = 0.0
            position = Position("events", position.topic, position.partition, offset + 1)


def _read(log: LogReader, position: Position, scope: str) -> list[tuple[int, str | None]]:
    """The next records from a position: their offsets, and what each is as an event."""
    place = position.topic, position.partition, position.next_offset
    return [
        (record.offset, _told(record.offset, record.value, record.timestamp, scope))
        for record in log.read(*place, READ_RECORDS)
    ]


@lru_cache(maxsize=KEPT_EVENTS)  # all who follow a scope are told the same at the same time
def _told(offset: int, value: bytes | None, timestamp: datetime, scope: str) -> str | None:
    """A record as an event; None for what is of another scope or changes nothing."""
    if value is None:
        return None
    message = decode(value, MEMORY_HISTORY, timestamp)
    body = message.body
    if message.scope != scope or not isinstance(body, HistoryEvent) or body.event not in NAMES:
        return None
    data: dict[str, object] = {
        "event": TOLD.get(body.event, body.event),
        "memory_id": body.memory_id,
        "content": body.new_content,
        "changed_by": body.changed_by,
        "actor_type": body.actor_type,
        "reason": body.reason,
        "session_id": body.session_id,
        "at": body.created_at.isoformat(),
    }
    if body.event == "session-ended":
        data["session"] = body.metadata
    return f"id: {offset}\nevent: {NAMES[body.event]}\ndata: {json.dumps(data)}\n\n"
