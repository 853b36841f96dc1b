"""Carrying out the commands about a session: to end it, to sum it up."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from palimpsest.schemas.commands import SessionEndCommand, UpdateShortTermCommand
from palimpsest.streams.apply.command_work import Refused, Work
from palimpsest.streams.apply.sessions import (
    alive,
    as_ended,
    silent_at,
    summarized,
    told_end,
    without,
)
from palimpsest.streams.store_port import ExpireShortTerm, Put


def session_result(work: Work, command: SessionEndCommand | UpdateShortTermCommand) -> JsonValue:
    if isinstance(command, SessionEndCommand):
        return _end(work, command)
    return _update_short_term(work, command)


def _end(work: Work, command: SessionEndCommand) -> JsonValue:
    """End an open session. One that has ended stays as it is."""
    known = work.loaded.session
    if known is None:
        raise Refused(f"not_found: no session {command.session_id!r} in this scope")
    answer: dict[str, JsonValue] = {"session_id": known.session_id, "turns": known.turns}
    if known.ended_at is not None:
        return {**answer, "status": "already", "ended_by": known.ended_by}
    if command.after_turn is not None and command.after_turn != known.last_turn:
        return {**answer, "status": "went_on"}
    ended = as_ended(known, "command", work.at)
    if command.after_turn is not None:
        ended = as_ended(known, "silence", min(silent_at(known, work.settings.sessions), work.at))
    work.writes.append(Put(ended))
    left = without(known.session_id, work.loaded.open_sessions, work.message.scope)
    work.writes.append(Put(left))
    work.tell("session-ended", None, command.reason or "command", metadata=told_end(ended))
    return {**answer, "status": "ended", "ended_by": ended.ended_by}


def _update_short_term(work: Work, command: UpdateShortTermCommand) -> JsonValue:
    """Keep a summary of a session, in the place of the one before. The session need not have been
    met yet: its turns may be on their way."""
    settings = work.settings.short_term
    if len(command.summary) > settings.characters:
        raise Refused(
            f"invalid_request: the summary has {len(command.summary)} characters, more than the"
            f" {settings.characters} allowed (setting short_term.characters); shorten it"
        )
    why_void = None if command.turns is None else _why_void(work, command.turns)
    if why_void is not None:
        return {"status": why_void, "session_id": command.session_id}
    row = summarized(
        work.message,
        command.session_id,
        command.summary,
        work.intent.actor.id,
        work.loaded.short_term,
        settings,
        None if command.turns is None else command.turns[-1],
    )
    work.writes += [ExpireShortTerm(work.at), Put(row)]
    assert row.summary_expires_at is not None
    return {
        "status": "updated",
        "session_id": row.session_id,
        "expires_at": row.summary_expires_at.isoformat(),
    }


def _why_void(work: Work, turns: Sequence[str]) -> str | None:
    """Why a summary that was made from these turns is not kept."""
    known = alive(work.loaded.short_term, work.at)
    rows = [work.memories.get(turn) for turn in turns]
    if known is None or turns[-1] not in known.turns:
        return "expired"
    if any(row is None or row.is_deleted for row in rows):
        return "forgotten"
    if known.explicit_intent:
        return "suppressed"
    if known.summary is None:
        return None
    # Two workers may sum up the same turns, as where a partition moves: the first one counts.
    is_own = known.summary_by == work.intent.actor.id
    return None if is_own and known.summarized_through != turns[-1] else "already"
