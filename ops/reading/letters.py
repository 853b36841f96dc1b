"""Dead letters: what could not be processed, sent again or given up."""

from __future__ import annotations

import base64
import json

from pydantic import JsonValue

from ops.reading.sources import Sources, from_all
from ops.requests import (
    DropRequest,
    JsonObject,
    LetterRequest,
    LettersRequest,
    NotFoundError,
    RedriveRequest,
    RequestError,
)
from schemas.codec import InvalidRecord, decode, encode
from schemas.envelope import derived_id
from schemas.identity import items_of
from schemas.topics import TOPICS
from streams.logs.base import Outgoing
from streams.output import HEADERS, trace_parent

SHORT = (
    "letter_id AS id, status, stage, failure, reason, scope, topic, partition, log_offset AS"
    " 'offset', attempts, item_kind, item_ids, first_failed_at, last_failed_at"
)


def list_letters(sources: Sources, request: LettersRequest) -> JsonObject:
    """`dead_letters`, the newest first."""
    found = from_all(
        sources,
        f"SELECT {SHORT} FROM dead_letter_rows WHERE coalesce(status = ?, true)"
        " AND coalesce(stage = ?, true) ORDER BY last_failed_at DESC, letter_id"
        f" LIMIT {int(request.limit)}",
        [request.status, request.stage],
    )
    letters = sorted((row for _, row in found), key=lambda r: str(r["last_failed_at"]))
    newest: list[JsonValue] = [*reversed(letters)]
    return {"dead_letters": newest[: request.limit]}


def show(sources: Sources, request: LetterRequest) -> JsonObject:
    """One letter with the record as it was: `record` as text, also where that is no JSON."""
    _, letter = _one(sources, request.letter_id)
    value = base64.b64decode(str(letter.pop("value_base64")))
    letter["headers"] = json.loads(str(letter["headers"]))
    letter["record"] = value.decode(errors="replace")
    letter["record_bytes"] = len(value)
    letter["redrivable"] = _why_not(sources, letter, value) is None
    return letter


def _one(sources: Sources, letter_id: str) -> tuple[int, JsonObject]:
    found = from_all(
        sources,
        f"SELECT {SHORT}, record_key AS key, headers, raw_output, value_base64"
        " FROM dead_letter_rows WHERE letter_id = ?"
        " OR (len(?) >= 8 AND starts_with(letter_id, ?)) LIMIT 2",
        [letter_id, letter_id, letter_id],
    )
    if not found:
        raise NotFoundError(
            f"there is no dead letter {letter_id}; `palimpsest dead-letters list` shows them"
        )
    if len(found) > 1:
        raise RequestError(f"more than one dead letter begins with {letter_id}; write more of it")
    return found[0]


async def redrive(sources: Sources, request: RedriveRequest) -> JsonObject:
    """Append the records to their topics again, under new ids, then mark the letters.

    `redriven` and `refused` (with the reason) list the letters. A crash between the two is
    healed by repeating: the record's new id is the same, so it drops out.
    """
    ids = request.letter_ids or tuple(
        str(row["id"])
        for _, row in from_all(
            sources, "SELECT letter_id AS id FROM dead_letter_rows WHERE status = 'dead'"
        )
    )
    redriven: list[JsonValue] = []
    refused: list[JsonValue] = []
    for letter_id in ids:
        partition, letter = _one(sources, letter_id)
        value = base64.b64decode(str(letter["value_base64"]))
        why = _why_not(sources, letter, value)
        if why is not None:
            refused.append({"id": letter["id"], "reason": why})
            continue
        sources.append([_again(letter, value, partition)])
        await _mark(sources, partition, str(letter["id"]), "redriven")
        redriven.append(letter["id"])
    return {"redriven": redriven, "refused": refused}


async def drop(sources: Sources, request: DropRequest) -> JsonObject:
    """Mark letters as given up; their items stay counted as dead."""
    dropped: list[JsonValue] = []
    for letter_id in request.letter_ids:
        partition, letter = _one(sources, letter_id)
        if letter["status"] == "redriven":
            raise RequestError(f"dead letter {letter['id']} was redriven; it is not dead any more")
        await _mark(sources, partition, str(letter["id"]), "dropped")
        dropped.append(letter["id"])
    return {"dropped": dropped}


def _why_not(sources: Sources, letter: JsonObject, value: bytes) -> str | None:
    """Why the record cannot be sent again."""
    if letter["status"] == "redriven":
        return "it was redriven already"
    try:
        message = decode(
            value, TOPICS[str(letter["topic"])], None, sources.settings.log.max_record_bytes
        )
    except InvalidRecord as error:
        return f"the record is no message and would fail the same way: {error}"
    items = letter["item_ids"]
    if isinstance(items, list) and not set(map(str, items)) <= set(items_of(message).item_ids):
        # What was counted as dead is the record; what it would become now is counted anew.
        return (
            "the record could not be read when it came; publish it again with `palimpsest"
            f" dead-letters show {letter['id']} --record | palimpsest ingest -`"
        )
    return None


def _again(letter: JsonObject, value: bytes, partition: int) -> Outgoing:
    topic = TOPICS[str(letter["topic"])]
    message = decode(value, topic, None, max_bytes=len(value) + 1)
    number = (message.redrive or 0) + 1
    again = message.model_copy(
        update={"id": derived_id("redrive", message.id, number), "redrive": number}
    )
    key = letter["key"]
    return Outgoing(
        topic.name,
        message.scope,
        (message.scope if key is None else str(key)).encode(),
        encode(again),
        {**HEADERS, "traceparent": trace_parent(again.correlation_id, again.id)},
        partition=partition,
    )


async def _mark(sources: Sources, partition: int, letter_id: str, status: str) -> None:
    shard = sources.shard(partition)
    async with shard.lock:
        with shard.writing() as connection:
            connection.execute(
                "UPDATE dead_letter_rows SET status = ? WHERE letter_id = ?", [status, letter_id]
            )
