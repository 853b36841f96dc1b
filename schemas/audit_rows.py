"""The rows that audit writes: what came in, what happened, what failed. As `schemas.rows`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from palimpsest.schemas.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow(Row):
    """A turn that the log took, counted apart from what became of it."""

    TABLE: ClassVar[str] = "accepted_turns"
    KEY: ClassVar[tuple[str, ...]] = ("item_id",)

    item_id: str
    scope: str
    log_offset: int
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow(Row):
    """One audit event."""

    TABLE: ClassVar[str] = "history_rows"
    KEY: ClassVar[tuple[str, ...]] = ("event_id",)

    event_id: str
    scope: str
    memory_id: str | None
    event: str
    old_content: str | None
    new_content: str | None
    changed_by: str
    actor_type: str
    reason: str
    metadata: str
    session_id: str
    correlation_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow(Row):
    """A dead letter as audit read it. `status` is dead, redriven or dropped
    (discarded)."""

    TABLE: ClassVar[str] = "dead_letter_rows"
    KEY: ClassVar[tuple[str, ...]] = ("letter_id",)

    letter_id: str
    scope: str
    stage: str
    topic: str
    partition: int
    log_offset: int
    record_key: str | None
    value_base64: str
    headers: str
    failure: str
    reason: str
    raw_output: str | None
    attempts: int
    item_kind: str | None
    item_ids: tuple[str, ...]
    first_failed_at: datetime
    last_failed_at: datetime
    status: str = "dead"
