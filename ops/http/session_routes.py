"""Sessions: which there are, what is kept of one for some hours, and ending one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.command_routes import ACCEPTED, REFUSED, Rememberer
from palimpsest.ops.http.commands import DeskOf
from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.routing import WITH_BODY, errors, router
from palimpsest.ops.http.service import Recaller, ServiceOf
from palimpsest.ops.queries.requests import (
    JsonObject,
    ListRequest,
    SessionMemoryRequest,
    SessionsRequest,
)
from palimpsest.schemas.commands import SessionEndCommand, UpdateShortTermCommand

routes: APIRouter = router("sessions")
MAX_ID = 256


class SessionsParameters(bodies.Said):
    scope: bodies.OwnScope = None
    open: bool = Field(default=False, description="only those that have not ended")
    limit: bodies.Limit = 20
    cursor: bodies.Cursor = None


class EndBody(bodies.Said):
    scope: bodies.OwnScope = None
    reason: str = Field(default="", max_length=2_000)


class SummaryBody(bodies.Said):
    """What a session is about so far, in the place of what was said before."""

    summary: bodies.Text
    scope: bodies.OwnScope = None


class Session(BaseModel):
    """`ended_at` and `ended_by` are null while it is open; `ends` counts how often it has ended."""

    session_id: str
    scope: str
    first_turn: str
    last_turn: str
    turns: int
    began_at: datetime
    last_at: datetime
    ended_at: datetime | None
    ended_by: Literal["command", "silence", "new-session", "crowded"] | None
    ends: int


class Sessions(BaseModel):
    """A page, the one with the newest turn first."""

    sessions: list[Session]
    next: str | None


class Summary(BaseModel):
    text: str
    by: str
    at: datetime
    expires_at: datetime


class SaidTurn(BaseModel):
    id: str
    who: str
    content: str
    occurred_at: datetime


class ShortTerm(BaseModel):
    """What is kept for some hours. `explicit_intent`: the last user turn asks to have something
    remembered for good."""

    session_id: str
    scope: str
    summary: Summary | None
    turns: list[SaidTurn]
    turns_expire_at: datetime | None
    explicit_intent: bool


class SessionMemory(answers.Memories):
    """The memories of a session, and before them what is kept of it; null where nothing is."""

    short_term: ShortTerm | None


class Carried(answers.Done):
    result: JsonObject


NO_REASON = EndBody()


@routes.get("/sessions", response_model=Sessions, responses=errors("not_found"))
async def sessions(
    service: ServiceOf, caller: Recaller, asked: Annotated[SessionsParameters, Query()]
) -> Response:
    """List the sessions of a scope, the one with the newest turn first."""
    request = SessionsRequest(caller.scope(asked.scope), asked.limit, asked.cursor, asked.open)
    return JSONResponse(await service.ask(request))


@routes.get(
    "/sessions/{id:path}/memory", response_model=SessionMemory, responses=errors("not_found")
)
async def memory(
    service: ServiceOf,
    caller: Recaller,
    id: str,  # noqa: A002
    asked: Annotated[bodies.SessionParameters, Query()],
) -> Response:
    """What is kept of a session for some hours, and its memories, newest first."""
    scope = caller.scope(asked.scope)
    kept = await service.queries.answer(SessionMemoryRequest(scope, id))
    found = await service.ask(
        ListRequest(scope, session=id, limit=asked.limit, before=asked.cursor)
    )
    if not found["memories"] and asked.cursor is None and kept is None:
        raise Problem("not_found", f"nothing is remembered of a session {id} in this scope")
    return JSONResponse({**found, "short_term": cast("JsonObject | None", kept)})


@routes.put(
    "/sessions/{id:path}/memory",
    response_model=Carried,
    responses={**ACCEPTED, **REFUSED, **errors(*WITH_BODY)},
)
async def summarize(
    desk: DeskOf,
    caller: Rememberer,
    id: str,  # noqa: A002
    body: SummaryBody,
) -> Response:
    """Keep a summary of a session for some hours."""
    order = UpdateShortTermCommand(session_id=_named(id), summary=body.summary)
    return await desk.whole(caller, caller.scope(body.scope), order)


@routes.post(
    "/sessions/{id:path}/end",
    response_model=Carried,
    responses={**ACCEPTED, **REFUSED, **errors(*WITH_BODY)},
)
async def end(
    desk: DeskOf,
    caller: Rememberer,
    id: str,  # noqa: A002
    body: EndBody = NO_REASON,
) -> Response:
    """End a session. One that has ended stays as it is."""
    order = SessionEndCommand(session_id=_named(id), reason=body.reason)
    return await desk.whole(caller, caller.scope(body.scope), order)


def _named(session_id: str) -> str:
    if not 0 < len(session_id) <= MAX_ID:
        raise Problem("invalid", f"a session's id has 1 to {MAX_ID} characters")
    return session_id
