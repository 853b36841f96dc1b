"""Dead letters, records that could not be processed: listing, redriving and discarding them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.operations.operation import (
    Doc,
    Json,
    LongLimit,
    Operation,
    Read,
    Surface,
    Texts,
)
from palimpsest.ops.operations.rows import all_rows, by_id

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.sources import Sources
    from palimpsest.streams.logs.base import Outgoing

_SURFACE = partial(
    Surface, tag="dead letters", panel="Run and operate", permission="admin", sees_all=True
)

Mark = Literal["redriven", "dropped"]
Status = Literal["dead", "redriven", "dropped", "all"]


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A record that could not be processed: its position, and at which stage it failed and why."""

    id: str
    status: str
    stage: str
    failure: str
    reason: str
    scope: str
    topic: str
    partition: int
    offset: int
    attempts: int
    item_kind: str
    item_ids: tuple[str, ...]
    first_failed_at: datetime
    last_failed_at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetterRow, ...]


@dataclass(frozen=True, slots=True)
class DeadLetters(Read[DeadLetterList]):
    """List dead letters with their reasons, newest first.

    Example: palimpsest dead-letters list
    """

    status: Annotated[Status, Doc("only of this status")] = "dead"
    stage: Annotated[str | None, Doc("only of this stage", max_length=64)] = None
    limit: LongLimit = 50

    surface: ClassVar = _SURFACE(
        ("GET", "/api/dead-letters"), command="dead-letters list", routing="all"
    )

    def read(self, sources: Sources) -> Json:
        found = all_rows(
            sources,
            f"SELECT {_COLUMNS} FROM dead_letter_rows WHERE coalesce(status = ?, true)"
            " AND coalesce(stage = ?, true) ORDER BY last_failed_at DESC, letter_id"
            f" LIMIT {int(self.limit)}",
            [None if self.status == "all" else self.status, self.stage],
        )
        return self.merge([{"dead_letters": found}])

    def merge(self, answers: Sequence[Json]) -> Json:
        found = [row for answer in answers for row in answer["dead_letters"]]
        found.sort(key=lambda row: row["last_failed_at"], reverse=True)
        return {"dead_letters": found[: self.limit]}


_COLUMNS = (
    "letter_id AS id, status, stage, failure, reason, scope, topic, partition, log_offset AS"
    " 'offset', attempts, item_kind, item_ids, first_failed_at, last_failed_at"
)


Id = Annotated[
    str,
    Doc(
        "id of a dead letter, or its first 8 characters",
        min_length=1,
        max_length=64,
        argument=True,
        metavar="ID",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(DeadLetterRow):
    """A dead letter with its original record: `record` as text, even if it is not JSON.
    `redrivable`: whether it can be sent again."""

    key: str | None
    headers: dict[str, str]
    raw_output: str | None
    record: str
    record_bytes: int
    redrivable: bool


@dataclass(frozen=True, slots=True)
class GetDeadLetter(Read[DeadLetter]):
    """Show a dead letter: its reason, its position and its record.

    Example: palimpsest dead-letters show 5b1f22aa
    """

    dead_letter_id: Id

    surface: ClassVar = _SURFACE(
        ("GET", "/api/dead-letters/{dead_letter_id}"), command="dead-letters show", routing="id"
    )

    def read(self, sources: Sources) -> Json:
        _, row = _one(sources, self.dead_letter_id)
        value = base64.b64decode(row.pop("value_base64"))
        row["headers"] = json.loads(row["headers"])
        row["record"] = value.decode(errors="replace")
        row["record_bytes"] = len(value)
        row["redrivable"] = _why_not(sources, row, value) is None
        return row


def _one(sources: Sources, dead_letter_id: str) -> tuple[int, Row]:
    select = (
        f"SELECT {_COLUMNS}, record_key AS key, headers, raw_output, value_base64"
        " FROM dead_letter_rows"
    )
    unknown = NotFoundError(
        f"there is no dead letter {dead_letter_id}; `palimpsest dead-letters list` shows them"
    )
    return by_id(sources, select, "letter_id", dead_letter_id, unknown)


def _joined(answers: Sequence[Json]) -> Json:
    """Concatenates the lists of the same name."""
    lists: dict[str, list[Any]] = {}
    for answer in answers:
        for name, values in answer.items():
            lists.setdefault(name, []).extend(values)
    return lists


@dataclass(frozen=True, slots=True)
class RefusedRedrive:
    """A dead letter that cannot be sent again, with the reason."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Redriven:
    """The dead letters whose records were sent again, and those that cannot be sent."""

    redriven: tuple[str, ...] = ()
    refused: tuple[RefusedRedrive, ...] = ()


Ids = Annotated[
    Texts,
    Doc("which ones", max_length=1_000, item_length=64, argument=True, metavar="ID…"),
]


@dataclass(frozen=True, slots=True)
class Redrive(Read[Redriven]):
    """Send the records of dead letters to their topics again, where `palimpsest run` processes
    them.

    Example: palimpsest dead-letters redrive --all
    """

    ids: Ids = ()
    all: Annotated[bool, Doc("all dead letters", option="--all")] = False

    surface: ClassVar = _SURFACE(
        ("POST", "/api/dead-letters/redrive"), command="dead-letters redrive", routing="all"
    )

    def validate(self) -> None:
        if bool(self.ids) == self.all:
            raise RequestError("name the dead letters by their ids, or say all")

    async def read(self, sources: Sources) -> Json:
        """Appends the records to their topics under new ids, then marks the dead letters. A crash
        between the two is repaired by a repetition: the new id of a record is the same, so the
        pipeline deduplicates it."""
        dead = "SELECT letter_id AS id FROM dead_letter_rows WHERE status = 'dead'"
        redriven, refused = [], []
        for each in self.ids or [row["id"] for row in all_rows(sources, dead)]:
            partition, row = _one(sources, each)
            value = _value(sources, row)
            why = _why_not(sources, row, value)
            if why is not None:
                refused.append({"id": row["id"], "reason": why})
                continue
            sources.append(
                [_again(row, value, partition), _mark(sources, row, partition, "redriven")]
            )
            await _set_status(sources, partition, row["id"], "redriven")
            redriven.append(row["id"])
        return {"redriven": redriven, "refused": refused}

    def parts(self) -> Sequence[Operation[Any]]:
        return (self,) if self.all else [replace(self, ids=(each,)) for each in self.ids]

    def merge(self, answers: Sequence[Json]) -> Json:
        return _joined(answers)


@dataclass(frozen=True, slots=True)
class Discarded:
    """The dead letters that were discarded."""

    discarded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Discard(Read[Discarded]):
    """Discard dead letters permanently; the balance still counts their items as dead.

    Example: palimpsest dead-letters discard 5b1f22aa
    """

    ids: Annotated[
        Texts,
        Doc(
            "which ones",
            min_length=1,
            max_length=1_000,
            item_length=64,
            argument=True,
            metavar="ID…",
        ),
    ]

    surface: ClassVar = _SURFACE(
        ("POST", "/api/dead-letters/discard"), command="dead-letters discard", routing="id"
    )

    async def read(self, sources: Sources) -> Json:
        """Stored as `dropped`."""
        discarded = []
        for each in self.ids:
            partition, row = _one(sources, each)
            if row["status"] == "redriven":
                raise RequestError(f"dead letter {row['id']} was redriven; it is not dead any more")
            sources.append([_mark(sources, row, partition, "dropped")])
            await _set_status(sources, partition, row["id"], "dropped")
            discarded.append(row["id"])
        return {"discarded": discarded}

    def parts(self) -> Sequence[Operation[Any]]:
        return [replace(self, ids=(each,)) for each in self.ids]

    def merge(self, answers: Sequence[Json]) -> Json:
        return _joined(answers)


def _value(sources: Sources, row: Row) -> bytes:
    """The record to send again, redacted: an old dead letter may predate today's redaction."""
    from palimpsest.schemas.topics import TOPICS
    from palimpsest.streams.sensitive.policy import Policy

    value, topic = base64.b64decode(row["value_base64"]), TOPICS[row["topic"]]
    if not topic.open_to_producers:
        return value
    return Policy.of(sources.settings.pii).value(topic.name, value)


def _why_not(sources: Sources, row: Row, value: bytes) -> str | None:
    """Why the record cannot be sent again, or None."""
    from palimpsest.schemas.codec import InvalidRecord, decode
    from palimpsest.schemas.identity import items_of
    from palimpsest.schemas.topics import TOPICS

    if row["status"] == "redriven":
        return "it was redriven already"
    try:
        max_bytes = sources.settings.log.max_record_bytes
        message = decode(value, TOPICS[row["topic"]], None, max_bytes)
    except InvalidRecord as error:
        return f"the record is no message and would fail the same way: {error}"
    if not {*row["item_ids"]} <= {*items_of(message).item_ids}:
        # The record is already counted as dead; its turn would be counted a second time.
        return (
            "the record could not be read when it came; publish it again with `palimpsest"
            f" dead-letters record {row['id']} | palimpsest ingest -`"
        )
    return None


def _again(row: Row, value: bytes, partition: int) -> Outgoing:
    from palimpsest.schemas.codec import decode, encode
    from palimpsest.schemas.envelope import derived_id
    from palimpsest.schemas.topics import TOPICS
    from palimpsest.streams.logs.base import Outgoing
    from palimpsest.streams.runtime.output import HEADERS, trace_parent

    topic = TOPICS[row["topic"]]
    message = decode(value, topic, None, max_bytes=len(value) + 1)
    number = (message.redrive or 0) + 1
    again = message.model_copy(
        update={"id": derived_id("redrive", message.id, number), "redrive": number}
    )
    return Outgoing(
        topic.name,
        message.scope,
        (message.scope if row["key"] is None else row["key"]).encode(),
        encode(again),
        {**HEADERS, "traceparent": trace_parent(again.correlation_id, again.id)},
        partition=partition,
    )


def _mark(sources: Sources, row: Row, partition: int, status: Mark) -> Outgoing:
    """The status as a log record, from which a rebuild restores it."""
    from palimpsest.schemas.codec import encode
    from palimpsest.schemas.envelope import Envelope, Frozen, derived_id
    from palimpsest.schemas.messages import DeadLetterMark
    from palimpsest.schemas.topics import DEAD_LETTERS
    from palimpsest.streams.logs.base import Outgoing
    from palimpsest.streams.runtime.output import HEADERS

    mark_id = derived_id("dead-letter-mark", row["id"], status)
    message = Envelope[Frozen](
        id=mark_id,
        schema="dead-letter-mark/1",
        scope=row["scope"],
        occurred_at=sources.now(),
        correlation_id=mark_id,
        causation_id=row["id"],
        body=DeadLetterMark(letter_id=row["id"], status=status),
    )
    return Outgoing(
        DEAD_LETTERS.name,
        row["scope"],
        (row["scope"] if row["key"] is None else row["key"]).encode(),
        encode(message),
        HEADERS,
        partition=partition,
    )


async def _set_status(sources: Sources, partition: int, identity: str, status: Mark) -> None:
    """Sets the status at once: the audit stage, which does the same later, may not be running."""
    shard = sources.shard(partition)
    async with shard.lock:
        with shard.writing() as connection:
            connection.execute(
                "UPDATE dead_letter_rows SET status = ? WHERE letter_id = ?",
                [status, identity],
            )
