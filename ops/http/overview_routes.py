"""What there is to look after: scopes, and memories that a person should be asked about."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.routing import errors, router
from palimpsest.ops.http.service import Recaller, ServiceOf
from palimpsest.ops.queries.requests import JsonObject, ScopesRequest, WeakRequest

routes: APIRouter = router("overviews")


@routes.get("/scopes", response_model=answers.Scopes)
async def scopes(service: ServiceOf, caller: Recaller) -> Response:
    """The memory spaces of the caller, the one last active first."""
    found = cast("list[JsonObject]", (await service.ask(ScopesRequest()))["scopes"])
    return JSONResponse({"scopes": [each for each in found if caller.sees(str(each["scope"]))]})


@routes.get("/weak", response_model=answers.Weak, responses=errors("not_found"))
async def weak(
    service: ServiceOf, caller: Recaller, asked: Annotated[bodies.WeakParameters, Query()]
) -> Response:
    """Memories that nobody confirmed and that are little sure, the least sure first."""
    request = WeakRequest(caller.scope(asked.scope), asked.below, asked.limit)
    return JSONResponse(await service.ask(request))
