"""Sessions: listing, short-term memory, and ending one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.answers import Applied, StoredMemory
from palimpsest.ops.operations.memories import List
from palimpsest.ops.operations.operation import (
    Ask,
    Cursor,
    Doc,
    Json,
    Limit,
    Read,
    Reason,
    Scope,
    Surface,
    Write,
)
from palimpsest.ops.operations.rows import cursor, plain, rfc3339, rows
from palimpsest.stores.recall.query import Mark

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command

SessionId = Annotated[
    str, Doc("the session's id", min_length=1, max_length=256, argument=True, metavar="SESSION")
]


@dataclass(frozen=True, slots=True)
class Session:
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


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the one with the newest turn first; `next_cursor` is None on the last page."""

    sessions: tuple[Session, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Sessions(Read[SessionPage]):
    """List the sessions of a memory space, the one with the newest turn first, page by page.

    Example: palimpsest sessions --scope support
    """

    scope: Scope = ""
    open: Annotated[bool, Doc("only open sessions", option="--open")] = False
    limit: Limit = 20
    cursor: Cursor = None

    surface: ClassVar = Surface(("GET", "/api/sessions"), tag="sessions", command="sessions")

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
        return {
            "sessions": page,
            "next_cursor": last and f"{last['last_at']}/{last['session_id']}",
        }


_SESSIONS = """
SELECT session_id, scope, first_turn, last_turn, turns, first_at AS began_at, last_at,
    ended_at, ended_by, ends
FROM session_rows WHERE scope = $scope AND session_id <> ''
    AND ($at::TIMESTAMPTZ IS NULL OR (last_at, session_id) < ($at::TIMESTAMPTZ, $id))
    AND (NOT $open OR ended_at IS NULL)
ORDER BY last_at DESC, session_id DESC LIMIT $limit + 1
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a session so far, its author and its expiry."""

    text: str
    by: str
    at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """A turn, with the id of its memory."""

    id: str
    who: str
    content: str
    occurred_at: datetime
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class ShortTermMemory:
    """The short-term memory of a session, kept for some hours: a summary, and the newest turns,
    oldest first. `explicit_intent`: the last user turn asks to remember something permanently."""

    session_id: str
    scope: str
    summary: Summary | None
    turns: tuple[SessionTurn, ...]
    turns_expire_at: datetime | None
    explicit_intent: bool


@dataclass(frozen=True, slots=True)
class SessionMemories:
    """The short-term memory of a session, None if empty, and a page of its memories, newest
    first."""

    short_term: ShortTermMemory | None
    memories: tuple[StoredMemory, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SessionMemory(Read[SessionMemories]):
    """Show the short-term memory of a session, and its memories, newest first.

    Example: palimpsest session-memory chat-17 --scope support
    """

    session_id: SessionId
    scope: Scope = ""
    limit: Limit = 20
    cursor: Cursor = None

    surface: ClassVar = Surface(
        ("GET", "/api/sessions/{session_id:path}/memory"), tag="sessions", command="session-memory"
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
        from palimpsest.ops.operations.short_term import short_term

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryKept(Applied):
    """The expiry of a summary."""

    session_id: str
    status: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class UpdateShortTermMemory(Write[SummaryKept]):
    """Store a summary of a session for some hours; it replaces the previous one.

    Example: palimpsest session-summary chat-17 "Ana plans a trip to Oslo" --scope support
    """

    session_id: SessionId
    summary: Annotated[
        str,
        Doc(
            "what the session is about so far",
            min_length=1,
            max_length=100_000,
            not_blank=True,
            argument=True,
        ),
    ]
    scope: Scope = ""

    surface: ClassVar = Surface(
        ("PUT", "/api/sessions/{session_id:path}/memory"),
        tag="sessions",
        command="session-summary",
        panel="Change",
        permission="remember",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import UpdateShortTermCommand

        return UpdateShortTermCommand(session_id=self.session_id, summary=self.summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession(Applied):
    """`status` is `ended`, or `already` if the session had ended before."""

    session_id: str
    turns: int
    status: str
    ended_by: str


@dataclass(frozen=True, slots=True)
class EndSession(Write[EndedSession]):
    """End a session; an ended session stays unchanged.

    Example: palimpsest session-end chat-17 --scope support
    """

    session_id: SessionId
    scope: Scope = ""
    reason: Reason = ""

    surface: ClassVar = Surface(
        ("POST", "/api/sessions/{session_id:path}/end"),
        tag="sessions",
        command="session-end",
        panel="Change",
        permission="remember",
    )

    async def command(self, ask: Ask, settings: Settings) -> Command:
        from palimpsest.schemas.commands import SessionEndCommand

        return SessionEndCommand(session_id=self.session_id, reason=self.reason)
