"""Sessions as methods of `AsyncMemory`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from palimpsest.ops.library.arguments import checked
from palimpsest.ops.library.opened import Opened
from palimpsest.ops.library.results import typed
from palimpsest.ops.queries.requests import SessionMemoryRequest, SessionsRequest
from palimpsest.schemas.commands import SessionEndCommand, UpdateShortTermCommand
from palimpsest.stores.recall.query import Mark


@dataclass(frozen=True, slots=True)
class Session:
    """A session with its oldest and newest turn (their memories). `ended_at` and `ended_by` are
    None while it is open; `ends` counts how often it has ended, as a turn opens it again."""

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
    """Sessions, the one with the newest turn first; `next` is the `before` of the page after, None
    at the end."""

    sessions: tuple[Session, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Summary:
    text: str
    by: str
    at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A turn by the id of its memory."""

    id: str
    who: str
    content: str
    occurred_at: datetime
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class ShortTermMemory:
    """What is kept of a session for some hours: a summary, and its newest turns, oldest first.
    `explicit_intent`: the last user turn asks to have something remembered for good."""

    session_id: str
    scope: str
    summary: Summary | None
    turns: tuple[SaidTurn, ...]
    turns_expire_at: datetime | None
    explicit_intent: bool


@dataclass(frozen=True, slots=True)
class EndedSession:
    """`status` is `ended`, or `already` for one that had ended before."""

    session_id: str
    turns: int
    status: str
    ended_by: str


@dataclass(frozen=True, slots=True)
class KeptSummary:
    session_id: str
    status: str
    expires_at: datetime


class WithSessions(Opened):
    """The methods about sessions."""

    async def sessions(
        self,
        *,
        open: bool = False,  # noqa: A002
        limit: int = 20,
        before: str | None = None,
        scope: str | None = None,
    ) -> SessionPage:
        """Sessions, the one with the newest turn first, page by page; with `open` only those that
        have not ended.

        >>> _ = await memory.add("We go to Oslo in May.", speaker="Ana", session="trip")
        >>> [(each.session_id, each.turns) for each in (await memory.sessions(open=True)).sessions]
        [('trip', 1)]
        """
        where = {"scope": self._in(scope), "limit": limit, "before": before, "open": open}
        return typed(SessionPage, await self._ask(checked(SessionsRequest, **where)))

    async def session_memory(
        self, session_id: str, *, scope: str | None = None
    ) -> ShortTermMemory | None:
        """What is kept of a session for some hours; None where nothing is, or no more.

        >>> [turn.content for turn in (await memory.session_memory("trip")).turns]
        ['We go to Oslo in May.']
        """
        asked = checked(SessionMemoryRequest, scope=self._in(scope), session_id=session_id)
        found = await self._ask(asked)
        return None if found is None else typed(ShortTermMemory, found)

    async def update_short_term_memory(
        self, session_id: str, summary: str, *, scope: str | None = None
    ) -> KeptSummary:
        """Keep a summary of a session for some hours, in the place of the one before.

        >>> _ = await memory.update_short_term_memory("trip", "Ana plans a trip to Oslo in May.")
        >>> (await memory.session_memory("trip")).summary.text
        'Ana plans a trip to Oslo in May.'
        """
        order = checked(UpdateShortTermCommand, session_id=session_id, summary=summary)
        return typed(KeptSummary, await self._carry_out(order, scope, None))

    async def end_session(
        self, session_id: str, *, reason: str = "", scope: str | None = None
    ) -> EndedSession:
        """End a session; one that has ended stays as it is. Raises NotDoneError for one that is
        not known.

        >>> (await memory.end_session("trip")).status
        'ended'
        """
        order = checked(SessionEndCommand, session_id=session_id, reason=reason)
        return typed(EndedSession, await self._carry_out(order, scope, None))
