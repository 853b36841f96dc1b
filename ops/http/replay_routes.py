"""Replays: rebuilding, extracting anew, comparing, promoting and rolling back, each in a process of
its own; and the branches that they make."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from palimpsest.ops.http.routing import WITH_BODY, errors, router
from palimpsest.ops.http.service import Administrator, ServiceOf
from palimpsest.ops.library.replays import Branch, Replay, ReplayDifferences
from palimpsest.ops.queries.replay_requests import (
    BranchesRequest,
    DropBranchRequest,
    ReplayDifferencesRequest,
    ReplayRequest,
    ReplaysRequest,
    StartReplayRequest,
    StopReplayRequest,
)
from palimpsest.ops.replay.orders import Order

routes: APIRouter = router("replays")


class Replays(BaseModel):
    """The newest first."""

    replays: list[Replay]


class Branches(BaseModel):
    branches: list[Branch]


class Dropped(BaseModel):
    dropped: str


@routes.post("/replays", response_model=Replay, status_code=201, responses=errors(*WITH_BODY))
async def start(service: ServiceOf, _: Administrator, order: Order) -> Response:
    """Begin a replay; it goes on by itself, also when this service stops. The same order goes on
    with what one before has left."""
    given = order.model_dump(mode="json", exclude_none=True)
    return JSONResponse(await service.ask(StartReplayRequest(given)), 201)


@routes.get("/replays", response_model=Replays)
async def replays(service: ServiceOf, _: Administrator) -> Response:
    """The replays that were started here."""
    return JSONResponse(await service.ask(ReplaysRequest()))


@routes.get("/replays/{id}", response_model=Replay, responses=errors("not_found"))
async def replay(service: ServiceOf, _: Administrator, id: str) -> Response:  # noqa: A002
    """How far a replay is, or how it ended."""
    return JSONResponse(await service.ask(ReplayRequest(id)))


@routes.post("/replays/{id}/stop", response_model=Replay, responses=errors("not_found"))
async def stop(service: ServiceOf, _: Administrator, id: str) -> Response:  # noqa: A002
    """Stop a replay where it is."""
    return JSONResponse(await service.ask(StopReplayRequest(id)))


@routes.get(
    "/replays/{id}/differences",
    response_model=ReplayDifferences,
    responses=errors("not_found"),
)
async def differences(
    service: ServiceOf,
    _: Administrator,
    id: str,  # noqa: A002
    cursor: Annotated[int, Query(ge=0, description="the `next` of the page before")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="differences on a page")] = 200,
) -> Response:
    """What a comparison found, page by page: of each scope its counts, then what differs."""
    return JSONResponse(await service.ask(ReplayDifferencesRequest(id, cursor, limit)))


@routes.get("/branches", response_model=Branches)
async def branches(service: ServiceOf, _: Administrator) -> Response:
    """The stores that replays made beside the live one."""
    return JSONResponse(await service.ask(BranchesRequest()))


@routes.delete("/branches/{name}", response_model=Dropped, responses=errors("not_found"))
async def drop(service: ServiceOf, _: Administrator, name: str) -> Response:
    """Remove a branch with its files."""
    return JSONResponse(await service.ask(DropBranchRequest(name)))
