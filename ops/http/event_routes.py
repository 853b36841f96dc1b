"""Changes in a scope as server-sent events from the audit topic."""

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
"""The audit events that change the results of a recall or end a session, with their names here."""
LOOK_SECONDS: Final = 1.0
"""Maximum wait of a stream before it checks whether it may continue."""
SILENT_SECONDS: Final = 15.0
"""Interval without events after which a comment is sent, so that clients keep the connection."""
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
    # The start position, for a client that loses the connection before the first event.
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
        for offset, event in await asyncio.to_thread(_read, service.log, position, scope):
            if event is not None:
                yield event
                silent = 0.0
            position = Position("events", position.topic, position.partition, offset + 1)


def _read(log: LogReader, position: Position, scope: str) -> list[tuple[int, str | None]]:
    """The next records from a position: the offset of each, and its event."""
    place = position.topic, position.partition, position.next_offset
    return [
        (record.offset, _as_event(record.offset, record.value, record.timestamp, scope))
        for record in log.read(*place, READ_RECORDS)
    ]


@lru_cache(maxsize=KEPT_EVENTS)  # all followers of a scope get the same events at the same time
def _as_event(offset: int, value: bytes | None, timestamp: datetime, scope: str) -> str | None:
    """The record as an event; None if it is of another scope or changes nothing."""
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
