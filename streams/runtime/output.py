"""Turns what a stage returned into records: identities, causation, dead letters."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from palimpsest.schemas.codec import CONTENT_TYPE, encode
from palimpsest.schemas.commands import Command, MemoryCommand
from palimpsest.schemas.envelope import MAX_SCOPE_CHARACTERS, Actor, Envelope, Frozen, derived_id
from palimpsest.schemas.identity import (
    UNREADABLE_SCOPE,
    ItemsOf,
    items_of,
    items_of_unreadable,
    message_key,
)
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import DEAD_LETTERS, MEMORY_COMMANDS, MEMORY_HISTORY, TOPICS, Topic
from palimpsest.streams.logs.base import LogReader, Outgoing, Record, blocks
from palimpsest.streams.runtime import tracing

if TYPE_CHECKING:  # they import numpy, which who only publishes does without
    from palimpsest.streams.stage import Emit, Failure, Message
    from palimpsest.streams.store_port import Outbound

LOOKED_BACK_RECORDS: Final = 1_000
"""Other writers may have appended to the topic meanwhile; records further back are sent again."""

_Envelope: Final = Envelope[Frozen]
"""Named once: every naming of it looks for the class that it stands for."""
HEADERS: Final = {"content-type": CONTENT_TYPE.encode()}


def headers(traceparent: bytes | None) -> Mapping[str, bytes]:
    """Returns the headers of a record, with its place in a trace if it has one."""
    return HEADERS if traceparent is None else {**HEADERS, tracing.HEADER: traceparent}


def outgoing(
    topic: Topic, message: Message, key: str | None = None, traceparent: bytes | None = None
) -> Outgoing:
    """Returns a message as a record to append, keyed by its scope by default."""
    return Outgoing(
        topic.name,
        message.scope,
        (key or message.scope).encode(),
        encode(message),
        headers(traceparent),
    )


def published(
    topic: Topic, message_id: str, scope: str, occurred_at: datetime, body: Frozen
) -> Outgoing:
    """Returns a message without a cause as a record to append. Raises ValidationError and
    ValueError for content that no record can hold."""
    message = _Envelope(
        id=message_id,
        schema=topic.schemas[0],
        scope=scope,
        occurred_at=occurred_at,
        correlation_id=message_id,
        body=body,
    )
    tracer = tracing.installed()
    traceparent = tracer.published(topic, message) if tracer else tracing.untraced(message_id)
    return outgoing(topic, message, traceparent=traceparent)


def emitted(
    stage: str, cause: Message, emits: Sequence[Emit], traceparent: bytes | None = None
) -> list[Outgoing]:
    """Returns the messages that a stage emits because of `cause`, each with its deterministic
    id."""
    if not emits:
        return []
    key = message_key(cause)
    return [
        outgoing(
            emit.topic,
            _Envelope(
                id=derived_id(stage, key, emit.index),
                schema=emit.topic.schemas[0],
                scope=cause.scope,
                occurred_at=cause.occurred_at,
                correlation_id=cause.correlation_id,
                causation_id=cause.id,
                body=emit.body,
            ),
            emit.key,
            traceparent,
        )
        for emit in emits
    ]


def rerouted(record: Record, message: Message) -> Outgoing:
    """Returns the unchanged record, addressed to the partition where its scope belongs."""
    return Outgoing(
        record.topic, message.scope, message.scope.encode(), record.value, record.headers
    )


def dead_letter(
    stage: str,
    record: Record,
    message: Message | None,
    failure: Failure,
    failed_at: datetime,
    traceparent: bytes | None = None,
) -> Outgoing:
    """Returns the unchanged record with its reason, in the partition where it was read.

    Its id is derived from stage and message (from the position, if no message id can be read), so a
    repeat after a crash is the same dead letter, also if the record itself was repeated."""
    key = None if record.key is None else record.key.decode(errors="replace")
    items = _items(record, message)
    body = DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=key,
        value_base64=base64.b64encode(record.value or b"").decode(),
        headers={name: value.decode(errors="replace") for name, value in record.headers.items()},
        stage=stage,
        failure=failure.failure,
        reason=failure.reason,
        raw_output=failure.raw_output,
        attempts=failure.attempts,
        first_failed_at=record.timestamp,
        last_failed_at=failed_at,
        item_kind=items.kind,
        item_ids=items.item_ids if failure.item_ids is None else failure.item_ids,
    )
    if message is None:
        place = (record.topic, record.partition, record.offset)
        dead_letter_id = derived_id("dead-letter", stage, *place)
    else:
        dead_letter_id = derived_id("dead-letter", stage, record.topic, message_key(message))
    envelope = _Envelope(
        id=dead_letter_id,
        schema=DEAD_LETTERS.schemas[0],
        scope=message.scope if message else _scope_of(key),
        occurred_at=message.occurred_at if message else record.timestamp,
        correlation_id=message.correlation_id if message else dead_letter_id,
        causation_id=message.id if message else None,
        body=body,
    )
    return Outgoing(
        DEAD_LETTERS.name,
        envelope.scope,
        record.key or envelope.scope.encode(),
        encode(envelope),
        headers(traceparent),
        partition=record.partition,
    )


Identity = Callable[[str, bytes | None, bytes | None], object]
"""What tells a record from the others of its topic, by topic, key and value."""


def missing(
    committed: Sequence[Outbound],
    log: LogReader,
    partition: int,
    identity: Identity = lambda topic, key, value: value,
) -> list[Outbound]:
    """Returns the entries of an outbox that are not among the newest records of their topics.
    Downstream stages drop repeats, but a stage without a store would call its model again."""
    found: set[tuple[str, object]] = set()
    for topic in {out.topic for out in committed}:
        first = log.end_offset(topic, partition) - len(committed) - LOOKED_BACK_RECORDS
        for records in blocks(log, topic, partition, max(0, first)):
            found.update((topic, identity(topic, each.key, each.value)) for each in records)
    return [
        out
        for out in committed
        if (out.topic, identity(out.topic, out.key.encode(), out.value)) not in found
    ]


def _items(record: Record, message: Message | None) -> ItemsOf:
    if message is not None:
        return items_of(message)
    topic = TOPICS[record.topic]
    return items_of_unreadable(topic, record.partition, record.offset, record.value)


def _scope_of(key: str | None) -> str:
    if key and key.strip() and len(key) <= MAX_SCOPE_CHARACTERS:
        return key
    return UNREADABLE_SCOPE


def own_command(
    scope: str, command: Command, actor: Actor, at: datetime, number: int = 0
) -> tuple[str, Outgoing]:
    """Returns the id and record of a command that the worker submits to itself. The same command
    with the same `number` has the same id, so submitting it again changes nothing."""
    command_id = derived_id("own-command", scope, command.model_dump_json(), number)
    return command_id, published(
        MEMORY_COMMANDS, command_id, scope, at, MemoryCommand(command=command, actor=actor)
    )


def null_values(partition: int, scope: str, keys: Iterable[bytes]) -> list[Outgoing]:
    """Returns tombstones that remove keys from the compacted topic."""
    topic = MEMORY_HISTORY.name
    return [Outgoing(topic, scope, key, None, HEADERS, partition=partition) for key in keys]
