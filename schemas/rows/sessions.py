"""Sessions, and what is kept of them for some hours."""

# Annotations are read while the program runs, so they are not postponed here.

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Self

from palimpsest.schemas.rows.columns import Appended, MaybeAppended, Row, Scope, SessionId, Since


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(
    Row, table="session_rows", key=("scope", "session_id"), indexed=False, rewritten=True
):
    """A session of a scope with its oldest and newest turn, the far end of the next temporal edge.
    Turns without a session have a row under the empty id, which is never open and never ends."""

    scope: Scope
    session_id: SessionId
    last_turn: Annotated[str, "its newest turn"]
    turns: Annotated[int, "how many turns it has"]
    first_at: Annotated[datetime, "when its first turn was said"]
    last_at: Annotated[datetime, "when its newest turn was said"]
    extracted_turns: Annotated[
        tuple[str, ...],
        "its newest turns that a model may be shown with the next, oldest first",
        Since(2),
    ] = ()
    first_turn: Annotated[str, "its oldest turn", Since(10)] = ""
    last_recorded_at: Annotated[MaybeAppended, "when the log took its newest turn", Since(10)] = (
        None
    )
    ended_at: Annotated[MaybeAppended, "when it ended; NULL while it is open", Since(10)] = None
    ended_by: Annotated[
        str | None, "command, silence, new-session or crowded; NULL while it is open", Since(10)
    ] = None
    ends: Annotated[int, "how often it has ended: a turn opens it again", Since(10)] = 0
    role_play: Annotated[
        str | None, "the turn that set up the role play that goes on; NULL if none does", Since(37)
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSessionsRow(Row, table="open_sessions", key=("scope",), rewritten=True):
    """The sessions of a scope that have not ended."""

    scope: Scope
    session_ids: Annotated[
        tuple[str, ...], "the sessions that have not ended, in the order in which they began"
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTermRow(
    Row, table="short_term_rows", key=("scope", "session_id"), indexed=False, rewritten=True
):
    """What is kept of a session for some hours: its newest turns and a summary, each until a time
    of its own; the row goes at `expires_at`, the later of the two."""

    scope: Scope
    session_id: SessionId
    turns: Annotated[tuple[str, ...], "the memories of its newest turns, oldest first"] = ()
    turns_expire_at: Annotated[MaybeAppended, "until when its turns are kept here"] = None
    explicit_intent: Annotated[
        bool, "whether its last user turn asks to have something remembered for good"
    ] = False
    summary: Annotated[str | None, "what it is about"] = None
    summary_by: Annotated[str | None, "who wrote the summary"] = None
    summary_at: Annotated[MaybeAppended, "when the summary was written"] = None
    summary_expires_at: Annotated[MaybeAppended, "until when the summary is kept"] = None
    summarized_through: Annotated[str | None, "the newest turn when the summary was written"] = None
    expires_at: Annotated[Appended, "when the row goes"]

    def left_at(self, at: datetime) -> Self | None:
        """Returns what is left of it at a time; None if nothing is."""
        row = self
        if row.expires_at <= at:
            return None
        if row.turns_expire_at is None or row.turns_expire_at <= at:
            row = replace(row, turns=(), turns_expire_at=None, explicit_intent=False)
        if row.summary_expires_at is None or row.summary_expires_at <= at:
            row = replace(
                row,
                summary=None,
                summary_by=None,
                summary_at=None,
                summary_expires_at=None,
                summarized_through=None,
            )
        return row if row.turns or row.summary is not None else None
