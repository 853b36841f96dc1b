"""The rows that audit writes: what came in, what happened, what failed. As `schemas.rows`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from palimpsest.schemas.rows import (
    APPEND_TIME,
    SCHEDULE,
    ItemId,
    RecordedAt,
    Row,
    Scope,
    SessionId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow(Row, table="accepted_turns", key=("item_id",)):
    """A turn that the log took, counted apart from what became of it."""

    item_id: ItemId
    scope: Scope
    log_offset: Annotated[int, "its offset in the partition", SCHEDULE]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow(Row, table="history_rows", key=("event_id",)):
    """One audit event."""

    event_id: Annotated[str, "id of the event"]
    scope: Scope
    memory_id: Annotated[str | None, "id of the memory"]
    event: Annotated[
        str,
        "created, updated, deleted, recovered, none, deduped, skipped, blocked, shadowed, dropped,"
        " reconsidered, archived, purged, graph, flags, privacy or session-ended",
    ]
    old_content: Annotated[str | None, "the text before"]
    new_content: Annotated[str | None, "the text after"]
    changed_by: Annotated[str, "who did it"]
    actor_type: Annotated[str, "what kind of actor that is"]
    reason: Annotated[str, "why"]
    metadata: Annotated[str, "anything else, as a JSON object"]
    session_id: SessionId
    correlation_id: Annotated[str, "the turn or command that it all began with"]
    created_at: Annotated[datetime, "when it came to be here", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow(Row, table="dead_letter_rows", key=("letter_id",)):
    """A dead letter as audit read it."""

    letter_id: Annotated[str, "id of the dead letter"]
    scope: Scope
    stage: Annotated[str, "the stage that could not process it"]
    topic: Annotated[str, "the topic it lay on"]
    partition: Annotated[int, "the partition of the topic", SCHEDULE]
    log_offset: Annotated[int, "its offset in the partition", SCHEDULE]
    record_key: Annotated[str | None, "its key"]
    value_base64: Annotated[str, "its value"]
    headers: Annotated[str, "its headers, as JSON"]
    failure: Annotated[str, "the kind of failure"]
    reason: Annotated[str, "what was wrong with it"]
    raw_output: Annotated[str | None, "what the model said, where it could not be read"]
    attempts: Annotated[int, "how often it was tried"]
    item_kind: Annotated[str | None, "turn or fact"]
    item_ids: Annotated[tuple[str, ...], "the turns or facts that were in it"]
    first_failed_at: Annotated[datetime, "when it first failed", APPEND_TIME]
    last_failed_at: Annotated[datetime, "when it last failed", APPEND_TIME]
    status: Annotated[str, "dead, redriven or dropped"] = "dead"
