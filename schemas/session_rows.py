"""Rows of sessions, and of the short-term memory that each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from palimpsest.schemas.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Row):
    """A session of a scope with its oldest and newest turn, the far end of the next temporal edge.
    `extracted_turns` are the newest that a model may be shown with the next turn, oldest first.
    `ended_at` and `ended_by` are None while it is open; `ends` counts how often it has ended, for
    a turn opens it again. `last_recorded_at` is when the log took its newest turn. Turns without a
    session have a row under the empty id, which is never open and never ends."""

    TABLE: ClassVar[str] = "session_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "session_id")

    scope: str
    session_id: str
    last_turn: str
    turns: int
    first_at: datetime
    last_at: datetime
    extracted_turns: tuple[str, ...] = ()
    first_turn: str = ""
    last_recorded_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    ends: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSessionsRow(Row):
    """The sessions of a scope that have not ended, the one that was opened first first."""

    TABLE: ClassVar[str] = "open_sessions"
    KEY: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    session_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTermRow(Row):
    """What is kept of a session for some hours: its newest turns (their memories, oldest first)
    and a summary, each until a time of its own; the row goes at `expires_at`, the later of the
    two. `summarized_through` is the newest turn when the summary was written. `explicit_intent`:
    its last user turn asks to have something remembered for good."""

    TABLE: ClassVar[str] = "short_term_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "session_id")

    scope: str
    session_id: str
    turns: tuple[str, ...] = ()
    turns_expire_at: datetime | None = None
    explicit_intent: bool = False
    summary: str | None = None
    summary_by: str | None = None
    summary_at: datetime | None = None
    summary_expires_at: datetime | None = None
    summarized_through: str | None = None
    expires_at: datetime
