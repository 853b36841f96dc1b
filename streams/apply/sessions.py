"""Sessions: their start, their end, and their short-term memory. Pure.

A session is open from its first turn. It ends by a command, by silence, or by the first turn of a
session that is new to its scope; its own next turn opens it again. So of two concurrent sessions,
the first turn of the second ends the first, whose next turn opens it again; from then on neither id
is new, and both stay open. Time is that of the log: no producer's clock can end a session or expire
its short-term memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from pydantic import JsonValue

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.messages import MemoryChange, NormalizedTurn, Outcome
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.sessions import OpenSessionsRow, SessionRow, ShortTermRow
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.streams.claims.turn import plays_after, sets_up_play
from palimpsest.streams.settings import SessionSettings, ShortTermSettings, StageSettings
from palimpsest.streams.stage import Emit, Message
from palimpsest.streams.store_port import ExpireShortTerm, Loaded, Put, Write

MOST_OPEN = 64
"""Maximum number of open sessions of a scope; beyond it the oldest one is ended."""

EndedBy = Literal["command", "silence", "new-session", "crowded"]


# --- a turn ---------------------------------------------------------------------------------


def session_step(
    message: Message,
    turn: NormalizedTurn,
    row: MemoryRow,
    loaded: Loaded,
    shown: bool,
    settings: StageSettings,
) -> tuple[list[Write], tuple[Emit, ...]]:
    """Applies the turn, stored as `row`, to the sessions of its scope. `shown`: a model may be
    shown it with the turns that follow."""
    known = loaded.session
    begins = known is None and bool(row.session_id)
    ended, open_ids = [], []
    for session in loaded.open_sessions:
        silent = silent_at(session, settings.sessions)
        if silent <= message.recorded:
            ended.append(as_ended(session, "silence", silent))
        elif begins and session.session_id != row.session_id:
            ended.append(as_ended(session, "new-session", message.recorded))
        else:
            open_ids.append(session.session_id)
    own = next((each for each in ended if each.session_id == row.session_id), known)
    if row.session_id and row.session_id not in open_ids:
        while len(open_ids) >= MOST_OPEN:
            crowded = next(s for s in loaded.open_sessions if s.session_id == open_ids[0])
            ended.append(as_ended(crowded, "crowded", message.recorded))
            del open_ids[0]
        open_ids.append(row.session_id)
    writes: list[Write] = [Put(each) for each in ended if each.session_id != row.session_id]
    writes.append(Put(_with_turn(message, row, own, shown, settings.extraction.context_turns)))
    if open_ids != [each.session_id for each in loaded.open_sessions]:
        writes.append(Put(OpenSessionsRow(scope=message.scope, session_ids=tuple(open_ids))))
    kept = captured(message, turn, row, loaded.short_term, settings.short_term)
    writes.append(ExpireShortTerm(message.recorded))
    if kept is not None:
        writes.append(Put(kept))
    return writes, tuple(_told(each) for each in ended)


def _with_turn(
    message: Message, row: MemoryRow, known: SessionRow | None, shown: bool, limit: int
) -> SessionRow:
    before = () if known is None else known.extracted_turns
    newest = (*before, row.memory_id) if shown else before
    return SessionRow(
        scope=message.scope,
        session_id=row.session_id,
        first_turn=row.memory_id if known is None else known.first_turn,
        last_turn=row.memory_id,
        turns=1 if known is None else known.turns + 1,
        first_at=message.occurred_at if known is None else known.first_at,
        last_at=message.occurred_at,
        last_recorded_at=message.recorded,
        extracted_turns=newest[-limit:] if limit else (),
        ends=0 if known is None else known.ends,
        role_play=_role_play_after(row, None if known is None else known.role_play),
    )


def _role_play_after(row: MemoryRow, before: str | None) -> str | None:
    """Returns the turn that set up the role play that goes on after a turn; `before`: after the
    turn before it. Turns that name no session belong to no play."""
    if not row.session_id or row.role not in (None, "user"):
        return before
    said = spoken(row.content)
    if plays_after(said, False) and sets_up_play(said):
        return row.memory_id
    return before if before is not None and plays_after(said, True) else None


# --- an end ---------------------------------------------------------------------------------


def as_ended(session: SessionRow, by: EndedBy, at: datetime) -> SessionRow:
    return replace(session, ended_at=at, ended_by=by, ends=session.ends + 1, role_play=None)


def silent_at(session: SessionRow, settings: SessionSettings) -> datetime:
    """Returns when silence ends the session, unless another turn of it comes before."""
    last = session.last_recorded_at or session.last_at
    return last + timedelta(minutes=settings.silence_minutes)


def role_play_at(session: SessionRow, at: datetime, settings: SessionSettings) -> str | None:
    """Returns the turn that set up the role play that goes on at a time; None if none does."""
    is_over = session.ended_at is not None or silent_at(session, settings) <= at
    return None if is_over else session.role_play


def told_end(session: SessionRow) -> dict[str, JsonValue]:
    """The metadata of a session's end event: its turns, and how often it has ended so far."""
    assert session.ended_at is not None
    return {
        "session_id": session.session_id,
        "ended_by": session.ended_by,
        "ended_at": session.ended_at.isoformat(),
        "ends": session.ends,
        "first_turn": session.first_turn,
        "last_turn": session.last_turn,
        "turns": session.turns,
    }


def _told(session: SessionRow) -> Emit:
    outcome = Outcome(
        event="session-ended",
        item_kind="command",
        item_id=session.last_turn,
        reason=str(session.ended_by),
        metadata=told_end(session),
    )
    change = MemoryChange(outcomes=(outcome,), session_id=session.session_id)
    return Emit(MEMORY_CHANGES, change, f"session-ended {session.session_id}")


def without(session_id: str, sessions: Sequence[SessionRow], scope: str) -> OpenSessionsRow:
    """Returns the open sessions of a scope except one."""
    left = tuple(each.session_id for each in sessions if each.session_id != session_id)
    return OpenSessionsRow(scope=scope, session_ids=left)


# --- short-term memory ----------------------------------------------------------------------


def captured(
    message: Message,
    turn: NormalizedTurn,
    row: MemoryRow,
    known: ShortTermRow | None,
    settings: ShortTermSettings,
) -> ShortTermRow | None:
    """Returns the short-term memory with the turn; None if none is kept. Its texts are those of the
    turns' memories: changed or forgotten there, they are so here."""
    if settings.turns == 0:
        return None
    until = message.recorded + timedelta(hours=settings.conversation_hours)
    before = (known and known.left_at(message.recorded)) or ShortTermRow(
        scope=message.scope, session_id=row.session_id, expires_at=until
    )
    return replace(
        before,
        turns=(*before.turns, row.memory_id)[-settings.turns :],
        # Never earlier than before: the log's clock may have been set back.
        turns_expire_at=max(until, before.turns_expire_at or until),
        explicit_intent=turn.explicit_long_term_memory_intent
        if turn.role == "user"
        else before.explicit_intent,
        expires_at=max(until, before.expires_at),
    )


def summarized(
    message: Message,
    session_id: str,
    summary: str,
    by: str,
    known: ShortTermRow | None,
    settings: ShortTermSettings,
    through: str | None = None,
) -> ShortTermRow:
    """Returns the short-term memory with a summary of the turns so far, or up to the turn
    `through`."""
    until = message.recorded + timedelta(hours=settings.summary_hours)
    before = (known and known.left_at(message.recorded)) or ShortTermRow(
        scope=message.scope, session_id=session_id, expires_at=until
    )
    return replace(
        before,
        summary=summary,
        summary_by=by,
        summary_at=message.recorded,
        summary_expires_at=until,
        summarized_through=through or (before.turns[-1] if before.turns else None),
        expires_at=max(until, before.expires_at),
    )
