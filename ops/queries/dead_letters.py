"""Queries of dead letters, and their redrive and discard."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Literal, TypeAlias

from pydantic import JsonValue

from palimpsest.ops.queries.errors import NotFoundError, RequestError
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all
from palimpsest.schemas.codec import InvalidRecord, decode, encode
from palimpsest.schemas.dead_letters import DeadLetterMark
from palimpsest.schemas.envelope import Envelope, Frozen, derived_id
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.topics import DEAD_LETTERS, TOPICS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import HEADERS, trace_parent
from palimpsest.streams.sensitive.policy import Policy

Mark: TypeAlias = Literal["redriven", "dropped"]
COLUMNS = (
    "letter_id AS id, status, stage, failure, reason, scope, topic, partition, log_offset AS"
    " 'offset', attempts, item_kind, item_ids, first_failed_at, last_failed_at"
)


def list_dead_letters(sources: Sources, status: str, stage: str | None, limit: int) -> JsonObject:
    """`dead_letters`, the newest first."""
    found = from_all(
        sources,
        f"SELECT {COLUMNS} FROM dead_letter_rows WHERE coalesce(status = ?, true)"
        " AND coalesce(stage = ?, true) ORDER BY last_failed_at DESC, letter_id"
        f" LIMIT {int(limit)}",
        [status, stage],
    )
    rows = sorted((row for _, row in found), key=lambda r: str(r["last_failed_at"]))
    newest: list[JsonValue] = [*reversed(rows)]
    return {"dead_letters": newest[:limit]}


def show(sources: Sources, dead_letter_id: str) -> JsonObject:
    """One dead letter with its record as it was: `record` as text, also where that is no JSON."""
    _, row = _one(sources, dead_letter_id)
    value = base64.b64decode(str(row.pop("value_base64")))
    row["headers"] = json.loads(str(row["headers"]))
    row["record"] = value.decode(errors="replace")
    row["record_bytes"] = len(value)
    row["redrivable"] = _why_not(sources, row, value) is None
    return row


def _one(sources: Sources, dead_letter_id: str) -> tuple[int, JsonObject]:
    found = from_all(
        sources,
        f"SELECT {COLUMNS}, record_key AS key, headers, raw_output, value_base64"
        " FROM dead_letter_rows WHERE letter_id = ?"
        " OR (len(?) >= 8 AND starts_with(letter_id, ?)) LIMIT 2",
        [dead_letter_id, dead_letter_id, dead_letter_id],
    )
    if not found:
        raise NotFoundError(
            f"there is no dead letter {dead_letter_id}; `palimpsest dead-letters list` shows them"
        )
    if len(found) > 1:
        raise RequestError(
            f"more than one dead letter begins with {dead_letter_id}; write more of it"
        )
    return found[0]


async def redrive(sources: Sources, ids: Sequence[str] = ()) -> JsonObject:
    """Append the records to their topics again, under new ids, then mark the dead letters.

    `redriven` and `refused` (with the reason) list the dead letters. Repeating it heals a crash
    between the two: the record's new id is the same, so the pipeline deduplicates it.
    """
    ids = ids or tuple(
        str(row["id"])
        for _, row in from_all(
            sources, "SELECT letter_id AS id FROM dead_letter_rows WHERE status = 'dead'"
        )
    )
    redriven: list[JsonValue] = []
    refused: list[JsonValue] = []
    for dead_letter_id in ids:
        partition, row = _one(sources, dead_letter_id)
        value = _value(sources, row)
        why = _why_not(sources, row, value)
        if why is not None:
            refused.append({"id": row["id"], "reason": why})
            continue
        sources.append([_again(row, value, partition), _told(sources, row, partition, "redriven")])
        await _mark(sources, partition, str(row["id"]), "redriven")
        redriven.append(row["id"])
    return {"redriven": redriven, "refused": refused}


async def discard(sources: Sources, ids: Sequence[str]) -> JsonObject:
    """Mark dead letters as discarded (stored as `dropped`); their items stay counted as dead."""
    discarded: list[JsonValue] = []
    for dead_letter_id in ids:
        partition, row = _one(sources, dead_letter_id)
        if row["status"] == "redriven":
            raise RequestError(f"dead letter {row['id']} was redriven; it is not dead any more")
        sources.append([_told(sources, row, partition, "dropped")])
        await _mark(sources, partition, str(row["id"]), "dropped")
        discarded.append(row["id"])
    return {"discarded": discarded}


def _value(sources: Sources, row: JsonObject) -> bytes:
    """What would be sent again: dead letters of before may hold what is taken out now."""
    value = base64.b64decode(str(row["value_base64"]))
    topic = TOPICS[str(row["topic"])]
    return (
        Policy.of(sources.settings.pii).value(topic.name, value)
        if topic.open_to_producers
        else value
    )


def _why_not(sources: Sources, row: JsonObject, value: bytes) -> str | None:
    """Why the record cannot be sent again."""
    if row["status"] == "redriven":
        return "it was redriven already"
    try:
        message = decode(
            value, TOPICS[str(row["topic"])], None, sources.settings.log.max_record_bytes
        )
    except InvalidRecord as error:
        return f"the record is no message and would fail the same way: {error}"
    items = row["item_ids"]
    if isinstance(items, list) and not set(map(str, items)) <= set(items_of(message).item_ids):
        # The record was counted as dead; the turn that it becomes now is counted anew.
        return (
            "the record could not be read when it came; publish it again with `palimpsest"
            f" dead-letters record {row['id']} | palimpsest ingest -`"
        )
    return None


def _again(row: JsonObject, value: bytes, partition: int) -> Outgoing:
    topic = TOPICS[str(row["topic"])]
    message = decode(value, topic, None, max_bytes=len(value) + 1)
    number = (message.redrive or 0) + 1
    again = message.model_copy(
        update={"id": derived_id("redrive", message.id, number), "redrive": number}
    )
    key = row["key"]
    return Outgoing(
        topic.name,
        message.scope,
        (message.scope if key is None else str(key)).encode(),
        encode(again),
        {**HEADERS, "traceparent": trace_parent(again.correlation_id, again.id)},
        partition=partition,
    )


def _told(sources: Sources, row: JsonObject, partition: int, status: Mark) -> Outgoing:
    """For the log, from which the mark is made again where the stores are."""
    identity, scope, key = str(row["id"]), str(row["scope"]), row["key"]
    mark_id = derived_id("dead-letter-mark", identity, status)
    message = Envelope[Frozen](
        id=mark_id,
        schema="dead-letter-mark/1",
        scope=scope,
        occurred_at=sources.now(),
        correlation_id=mark_id,
        causation_id=identity,
        body=DeadLetterMark(letter_id=identity, status=status),
    )
    return Outgoing(
        DEAD_LETTERS.name,
        scope,
        (scope if key is None else str(key)).encode(),
        encode(message),
        HEADERS,
        partition=partition,
    )


async def _mark(sources: Sources, partition: int, identity: str, status: Mark) -> None:
    """At once: audit, which does the same later, may not be running."""
    shard = sources.shard(partition)
    async with shard.lock:
        with shard.writing() as connection:
            connection.execute(
                "UPDATE dead_letter_rows SET status = ? WHERE letter_id = ?",
                [status, identity],
            )
