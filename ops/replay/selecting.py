"""Which turns are extracted from again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from palimpsest.ops.replay.branches import Selection
from palimpsest.ops.replay.live_log import blocks, decoded
from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.topics import TURNS_NORMALIZED
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.stage import Message


def is_among(message: Message, selection: Selection) -> bool:
    """Whether a turn is of the scope and the time of the selection."""
    told = message.occurred_at
    return (
        selection.scope in (None, message.scope)
        and (selection.since is None or told >= selection.since)
        and (selection.until is None or told < selection.until)
    )


def chosen_turns(reader: LogReader, selection: Selection) -> Iterator[Message]:
    """All that the live memory gave to a model and that is of the selection's scope and time, a
    partition after the other. Blocks."""
    topic = TURNS_NORMALIZED
    for partition in range(reader.partitions(topic.name)):
        end = reader.end_offset(topic.name, partition)
        for records in blocks(reader, topic, partition, 0, end):
            for record in records:
                message = decoded(record)
                body = None if message is None else message.body
                if message is None or not isinstance(body, NormalizedTurn):
                    continue
                if is_among(message, selection) and not is_mark(body.content):
                    yield message


def hashed_order(message_id: str) -> bytes:
    """The place of a turn in an order that has nothing to do with when or where it was told."""
    return hashlib.sha256(message_id.encode()).digest()
