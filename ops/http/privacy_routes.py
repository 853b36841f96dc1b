"""Privacy levels of a scope: which are set, and setting one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.command_routes import ACCEPTED, REFUSED, Modifier
from palimpsest.ops.http.commands import DeskOf
from palimpsest.ops.http.routing import WITH_BODY, errors, router
from palimpsest.ops.http.service import Recaller, ServiceOf
from palimpsest.ops.queries.requests import JsonObject, PrivacyRequest
from palimpsest.schemas.commands import SetPrivacyCommand
from palimpsest.schemas.privacy import Privacy

routes: APIRouter = router("privacy")


class LevelsParameters(bodies.Said):
    scope: bodies.OwnScope = None


class LevelBody(bodies.Said):
    """A level of a person, or without a person of the whole scope."""

    level: Privacy
    person: str | None = Field(default=None, max_length=256)
    reason: str = Field(default="", max_length=2_000)
    scope: bodies.OwnScope = None


class PrivacyLevel(BaseModel):
    """`person` is null for the level of the whole scope."""

    person: str | None
    level: Privacy
    since: datetime
    reason: str
    changed_by: str


class PrivacyLevels(BaseModel):
    """Who is not among them has the level none."""

    scope: str
    levels: list[PrivacyLevel]


class Carried(answers.Done):
    result: JsonObject


@routes.get("/privacy", response_model=PrivacyLevels, responses=errors("not_found"))
async def levels(
    service: ServiceOf, caller: Recaller, asked: Annotated[LevelsParameters, Query()]
) -> Response:
    """List the privacy levels of a scope: who has which, since when and why."""
    return JSONResponse(await service.ask(PrivacyRequest(caller.scope(asked.scope))))


@routes.put(
    "/privacy",
    response_model=Carried,
    responses={**ACCEPTED, **REFUSED, **errors(*WITH_BODY)},
)
async def set_privacy(desk: DeskOf, caller: Modifier, body: LevelBody) -> Response:
    """Set the privacy level of a person, or of the whole scope.

    Of a speaker at full nothing is kept from then on. Raising a level tells how many memories are
    there from before.
    """
    order = SetPrivacyCommand(person=body.person, level=body.level, reason=body.reason)
    return await desk.whole(caller, caller.scope(body.scope), order)
