"""Sessions: listing, short-term memory, and ending one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.answers import Applied, StoredMemory
from palimpsest.ops.operations.memories import List
from palimpsest.ops.operations.operation import Answer, Ask, Doc, Json, Read, Surface, Write
from palimpsest.ops.reading.rows import at_own_clock, cursor, no_cursor, rows
from palimpsest.ops.sql.values import plain, rfc3339
from palimpsest.stores.recall.query import Mark

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

_SESSION = partial(Surface, tag="sessions")
_CHANGE = partial(_SESSION, panel="Change", permission="remember")

SessionId = Annotated[
    str, Doc("the session's id", min_length=1, max_length=256, argument=True, metavar="SESSION")
]


class Session(Answer):
    """A session with its oldest and newest turn (ids of their memories). `ended_at` and `ended_by`
    are None while it is open; `ends` counts its ends, as a later turn reopens it."""

    session_id: str
    scope: str
    first_turn: str
    last_turn: str
    turns: int
    began_at: datetime
    last_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    ends: int


class SessionPage(Answer):
    """Sessions, the one with the newest turn first; `next_cursor` is None on the last page."""

    sessions: tuple[Session, ...]
    next_cursor: str | None


class Sessions(Read[SessionPage]):
    """List the sessions of a memory space, the one with the newest turn first, page by page.

    Example: palimpsest sessions --scope support
    """

    scope: shared.Scope = ""
    open: Annotated[bool, Doc("only open sessions", option="--open")] = False
    limit: shared.Limit = 20
    cursor: shared.Cursor = None

    surface: ClassVar = _SESSION(("GET", "/api/sessions"), command="sessions")

    def read(self, sources: Sources) -> Json:
        at, session_id = (None, "") if self.cursor is None else cursor(self.cursor)
        found = rows(
            sources.shard_of(self.scope),
            _SESSIONS,
            {
                "scope": self.scope,
                "at": at,
                "id": session_id,
                "open": self.open,
                "limit": self.limit,
            },
        )
        page = found[: self.limit]
        last = page[-1] if len(found) > self.limit else None
        return {"sessions": page, "next_cursor": last and f"{last['last_at']}/{last['session_id']}"}


_SESSIONS = """
SELECT session_id, scope, first_turn, last_turn, turns, first_at AS began_at, last_at,
    ended_at, ended_by, ends
FROM session_rows WHERE scope = $scope AND session_id <> ''
    AND ($at::TIMESTAMPTZ IS NULL OR (last_at, session_id) < ($at::TIMESTAMPTZ, $id))
    AND (NOT $open OR ended_at IS NULL)
ORDER BY last_at DESC, session_id DESC LIMIT $limit + 1
"""


class Summary(Answer):
    """The summary of a session so far, its author and its expiry."""

    text: str
    by: str
    at: datetime
    expires_at: datetime


class SessionTurn(Answer):
    """A turn, with the id of its memory."""

    id: str
    who: str
    content: str
    occurred_at: datetime
    marks: tuple[Mark, ...] = ()


class ShortTermMemory(Answer):
    """The short-term memory of a session, kept for some hours: a summary, and the newest turns,
    oldest first. `explicit_intent`: the last user turn asks to remember something permanently."""

    session_id: str
    scope: str
    summary: Summary | None
    turns: tuple[SessionTurn, ...]
    turns_expire_at: datetime | None
    explicit_intent: bool


class SessionMemories(Answer):
    """The short-term memory of a session, None if empty, and a page of its memories, newest
    first."""

    short_term: ShortTermMemory | None
    memories: tuple[StoredMemory, ...]
    next_cursor: str | None


class SessionMemory(Read[SessionMemories]):
    """Show the short-term memory of a session, and its memories, newest first.

    Example: palimpsest session-memory chat-17 --scope support
    """

    session_id: SessionId
    scope: shared.Scope = ""
    limit: shared.Limit = 20
    cursor: shared.Cursor = None

    surface: ClassVar = _SESSION(
        ("GET", "/api/sessions/{session_id:path}/memory"), command="session-memory"
    )

    def read(self, sources: Sources) -> Json:
        kept = self._short_term(sources)
        memories = List(
            scope=self.scope, session_id=self.session_id, limit=self.limit, cursor=self.cursor
        )
        found = memories.read(sources)
        if kept is None and not found["memories"] and self.cursor is None:
            raise NotFoundError(
                f"nothing is remembered of a session {self.session_id} in the scope {self.scope}"
            )
        return {"short_term": kept, **found}

    def _short_term(self, sources: Sources) -> Json:
        from palimpsest.ops.operations.recalling import short_term

        kept = short_term(sources, self.scope, self.session_id)
        if kept is None:
            return None
        summary = None
        if kept.summary is not None and kept.summary_at and kept.summary_expires_at:
            summary = {
                "text": kept.summary,
                "by": kept.summary_by,
                "at": rfc3339(kept.summary_at),
                "expires_at": rfc3339(kept.summary_expires_at),
            }
        return {
            "session_id": self.session_id,
            "scope": self.scope,
            "summary": summary,
            "turns": [plain(asdict(turn)) for turn in kept.turns],
            "turns_expire_at": plain(kept.turns_expire_at),
            "explicit_intent": kept.explicit_intent,
        }


class ExtractedFact(Answer):
    """A fact extracted from a turn, its outcome with the reason, and the memory that it became or
    was decided about; None while it is in flight."""

    content: str
    type: str
    outcome: str | None
    reason: str | None
    memory_id: str | None
    is_forgotten: bool


class TimelineTurn(SessionTurn):
    """A turn with the facts extracted from it."""

    facts: tuple[ExtractedFact, ...] = ()


class Timeline(Answer):
    """A page of the turns of a session, oldest first; `next_cursor` is None on the last page."""

    session_id: str
    scope: str
    turns: tuple[TimelineTurn, ...]
    next_cursor: str | None


class SessionTimeline(Read[Timeline]):
    """Show the turns of a session, oldest first, with the facts extracted from each.

    Example: palimpsest session-timeline chat-17 --scope support
    """

    session_id: SessionId
    scope: shared.Scope = ""
    limit: shared.Limit = 50
    cursor: shared.Cursor = None

    surface: ClassVar = _SESSION(
        ("GET", "/api/sessions/{session_id:path}/timeline"), command="session-timeline"
    )

    def read(self, sources: Sources) -> Json:
        shard = sources.shard_of(self.scope)
        values = {"scope": self.scope, "session": self.session_id, "after": self.cursor}
        if self.cursor is not None and not rows(shard, _PLACE, values):
            raise no_cursor(self.cursor)
        found = rows(shard, _TURNS, {**values, "limit": self.limit})
        turns = found[: self.limit]
        if not turns and self.cursor is None:
            raise NotFoundError(
                f"no turns of a session {self.session_id} are in the scope {self.scope}"
            )
        ids = [turn["id"] for turn in turns]
        facts: dict[str, list[Json]] = {each: [] for each in ids}
        for fact in rows(shard, _FACTS, {"scope": self.scope, "ids": ids}):
            facts[fact.pop("turn")].append(fact)
        return {
            "session_id": self.session_id,
            "scope": self.scope,
            "turns": [{**at_own_clock(turn), "facts": facts[turn["id"]]} for turn in turns],
            "next_cursor": ids[-1] if len(found) > self.limit else None,
        }


_PLACE = """
SELECT occurred_at, created_at, rowid AS place FROM memory_rows
WHERE memory_id = $after AND scope = $scope AND session_id = $session
"""
_TURNS = f"""
WITH before AS ({_PLACE})
SELECT m.memory_id AS id, m.who, m.content, m.occurred_at, m.utc_offset_minutes FROM memory_rows m
LEFT JOIN before b ON true
WHERE m.scope = $scope AND m.session_id = $session AND m.type = 'episodic' AND NOT m.is_deleted
    AND ($after IS NULL
        OR (m.occurred_at, m.created_at, m.rowid) > (b.occurred_at, b.created_at, b.place))
ORDER BY m.occurred_at, m.created_at, m.rowid LIMIT $limit + 1
"""
_FACTS = """
SELECT f.turn_memory_id AS turn, f.content, f.type, f.outcome, f.outcome_reason AS reason,
    f.memory_id, coalesce(m.is_deleted, false) AS is_forgotten
FROM main.facts f LEFT JOIN memory_rows m ON m.memory_id = f.memory_id AND m.scope = f.scope
WHERE f.scope = $scope AND f.turn_memory_id IN (SELECT unnest($ids))
ORDER BY f.turn_memory_id, f.item_id
"""


class SummaryKept(Applied, kw_only=True):
    """The expiry of a summary."""

    session_id: str
    status: str
    expires_at: datetime


class UpdateShortTermMemory(Write[SummaryKept]):
    """Store a summary of a session for some hours; it replaces the previous one. Refused while the
    user's last turn asks to remember something permanently: `remember` is for that.

    Example: palimpsest session-summary chat-17 "Ana plans a trip to Oslo" --scope support
    """

    session_id: SessionId
    summary: Annotated[str, shared.text_doc("what the session is about so far", argument=True)]
    scope: shared.Scope = ""

    surface: ClassVar = _CHANGE(
        ("PUT", "/api/sessions/{session_id:path}/memory"), command="session-summary"
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import UpdateShortTermCommand

        return UpdateShortTermCommand(
            session_id=self.session_id, summary=self.summary, yields_to_wish=True
        )


class EndedSession(Applied, kw_only=True):
    """`status` is `ended`, or `already` if the session had ended before."""

    session_id: str
    turns: int
    status: str
    ended_by: str


class EndSession(Write[EndedSession]):
    """End a session; an ended session stays unchanged.

    Example: palimpsest session-end chat-17 --scope support
    """

    session_id: SessionId
    scope: shared.Scope = ""
    reason: shared.Reason = ""

    body: ClassVar = "SessionEndCommand"
    surface: ClassVar = _CHANGE(
        ("POST", "/api/sessions/{session_id:path}/end"), command="session-end"
    )
