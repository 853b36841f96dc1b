"""Turns as records for the log: invalid turns are refused here, with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from palimpsest.ops.ingest.base import Bad, Utterance, with_offset
from palimpsest.schemas.codec import describe, refuse_depth
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.scrubbing import withheld_turn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import published
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import PiiSettings

UTC_ZONE: Final = ZoneInfo("UTC")
BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4 * 1024 * 1024
DEFAULT_SCOPE: Final = "default"
DEFAULT_POLICY: Final = Policy.of(PiiSettings())


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How to read: `scope` None takes the line's own, else the default of the format. `max_bytes`
    limits a record; `now` dates turns without a time; `zone` applies to times that name none or are
    in UTC; `captions` appends an image's caption to the text; `policy` removes secrets before
    anything is published."""

    scope: str | None
    max_bytes: int
    now: datetime
    captions: bool = False
    policy: Policy = DEFAULT_POLICY
    zone: ZoneInfo = UTC_ZONE


def turn_id_of_message(scope: str, turn: ConversationTurn) -> str:
    """Returns the message id of a turn: the same turn published again has the same id."""
    return derived_id("ingest", scope, turn.turn_id, turn.content)


def record_of(
    said: Utterance, at: datetime, source_type: str, options: RecordOptions
) -> Outgoing | Bad:
    """Returns an utterance of time `at` as a turn's record, or Bad."""
    try:
        turn = ConversationTurn(
            turn_id=said.key,
            session_id=said.session,
            speaker=said.speaker,
            role=said.role,
            content=said.text,
            source_type=source_type,
            source_id=said.source_id,
            metadata=said.metadata,
        )
        return checked(turn, options.scope or said.scope or DEFAULT_SCOPE, at, None, options)
    except ValidationError as error:
        return Bad(said.place, describe(error))
    except ValueError as error:
        return Bad(said.place, str(error))


def checked(
    turn: ConversationTurn,
    scope: str,
    at: datetime,
    message_id: str | None,
    options: RecordOptions,
) -> Outgoing:
    """Returns the turn as a record. Raises ValueError for a turn that the log must not hold."""
    with contextlib.suppress(PydanticSerializationError):  # half a surrogate pair is reported below
        refuse_depth(turn.model_dump_json().encode())
    for where, text in _texts({"scope": scope, **turn.model_dump()}, ""):
        if "\0" in text:
            raise ValueError(f"{where}: has a NUL character (U+0000); remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where}: has half a surrogate pair, which is no text") from None
    at = with_offset(at, options.zone) or at
    offset = (at.utcoffset() or timedelta()) // timedelta(minutes=1)
    if offset and turn.utc_offset_minutes is None:
        turn = turn.model_copy(update={"utc_offset_minutes": offset})
    turn = options.policy.turn(turn)
    message_id = message_id or turn_id_of_message(scope, turn)
    if turn.privacy == "full":
        turn = withheld_turn(scope, turn)
    record = published(CONVERSATION_TURNS, message_id, scope, at, turn)
    refuse_depth(record.value or b"")
    size = len(record.value or b"")
    if size > options.max_bytes:
        raise ValueError(
            f"the turn takes {size} bytes, more than the {options.max_bytes} allowed (setting"
            " log.max_record_bytes); split it or raise the limit"
        )
    return record


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name, where)
            yield from _texts(inner, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{where}[{number}]")


def in_batches(records: Iterable[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yields records in batches; one fsync makes a batch durable."""
    batch: list[Outgoing] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"")
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
