"""Turns what a stage returned into records: identities, causation, dead letters."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from palimpsest.schemas.codec import CONTENT_TYPE, encode
from palimpsest.schemas.envelope import MAX_SCOPE_CHARACTERS, Envelope, Frozen, derived_id
from palimpsest.schemas.identity import (
    UNREADABLE_SCOPE,
    ItemsOf,
    items_of,
    items_of_unreadable,
    message_key,
)
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import DEAD_LETTERS, TOPICS, Topic
from palimpsest.streams.logs.base import LogReader, Outgoing, Record
from palimpsest.streams.stage import Emit, Failure, Message
from palimpsest.streams.store_port import Outbound

LOOKED_BACK_RECORDS: Final = 1_000
"""Other writers may have appended to the topic meanwhile; records further back are sent again."""

HEADERS: Final = {"content-type": CONTENT_TYPE.encode()}


def trace_parent(correlation_id: str, message_id: str) -> bytes:
    """Returns a W3C traceparent: the trace is everything caused by one turn or command, the span
    one message."""
    trace = hashlib.sha256(correlation_id.encode()).hexdigest()[:32]
    span = hashlib.sha256(message_id.encode()).hexdigest()[:16]
    return f"00-{trace}-{span}-01".encode()


def outgoing(topic: Topic, message: Message, key: str | None = None) -> Outgoing:
    """Returns a message as a record to append, keyed by its scope by default."""
    return Outgoing(
        topic.name,
        message.scope,
        (key or message.scope).encode(),
        encode(message),
        {**HEADERS, "traceparent": trace_parent(message.correlation_id, message.id)},
    )


def published(
    topic: Topic, message_id: str, scope: str, occurred_at: datetime, body: Frozen
) -> Outgoing:
    """Returns a message without a cause as a record to append. Raises ValidationError and
    ValueError for content that no record can hold."""
    message = Envelope[Frozen](
        id=message_id,
        schema=topic.schemas[0],
        scope=scope,
        occurred_at=occurred_at,
        correlation_id=message_id,
        body=body,
    )
    return outgoing(topic, message)


def emitted(stage: str, cause: Message, emits: Sequence[Emit]) -> list[Outgoing]:
    """Returns the messages that a stage emits because of `cause`, each with its deterministic
    id."""
    if not emits:
        return []
    key = message_key(cause)
    return [
        outgoing(
            emit.topic,
            Envelope[Frozen](
                id=derived_id(stage, key, emit.index),
                schema=emit.topic.schemas[0],
                scope=cause.scope,
                occurred_at=cause.occurred_at,
                correlation_id=cause.correlation_id,
                causation_id=cause.id,
                body=emit.body,
            ),
            emit.key,
        )
        for emit in emits
    ]


def rerouted(record: Record, message: Message) -> Outgoing:
    """Returns the unchanged record, addressed to the partition where its scope belongs."""
    return Outgoing(
        record.topic, message.scope, message.scope.encode(), record.value, record.headers
    )


def dead_letter(
    stage: str, record: Record, message: Message | None, failure: Failure, failed_at: datetime
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
    envelope = Envelope[Frozen](
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
        HEADERS,
        partition=record.partition,
    )


def missing(committed: Sequence[Outbound], log: LogReader, partition: int) -> list[Outbound]:
    """Returns the entries of an outbox that are not among the newest records of their topics.
    Downstream stages drop repeats, but a stage without a store would call its model again."""
    found: set[tuple[str, bytes | None]] = set()
    for topic in {out.topic for out in committed}:
        end = log.end_offset(topic, partition)
        offset = max(0, end - len(committed) - LOOKED_BACK_RECORDS)
        while offset < end:
            records = log.read(topic, partition, offset, LOOKED_BACK_RECORDS)
            if not records:
                break
            found.update((topic, record.value) for record in records)
            offset = records[-1].offset + 1
    return [out for out in committed if (out.topic, out.value) not in found]


def _items(record: Record, message: Message | None) -> ItemsOf:
    if message is not None:
        return items_of(message)
    topic = TOPICS[record.topic]
    return items_of_unreadable(topic, record.partition, record.offset, record.value)


def _scope_of(key: str | None) -> str:
    if key and key.strip() and len(key) <= MAX_SCOPE_CHARACTERS:
        return key
    return UNREADABLE_SCOPE
