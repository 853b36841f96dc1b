"""The state of the pipeline, and whether the service lives."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from palimpsest.ops.http import answers, bodies
from palimpsest.ops.http.memory_routes import named_scope
from palimpsest.ops.http.problems import unavailable
from palimpsest.ops.http.routing import ALWAYS, errors, router
from palimpsest.ops.http.service import Administrator, Recaller, ServiceOf
from palimpsest.ops.queries.requests import (
    AgreementRequest,
    DiagnosticsRequest,
    StatsRequest,
    StatusRequest,
)

routes: APIRouter = router("operation")
watched = APIRouter(tags=["operation"], responses=errors(*ALWAYS))
lives = APIRouter(tags=["operation"], responses=errors("misdirected", "forbidden", "failed"))


@lives.get("/health", response_model=answers.State)
async def health() -> Response:
    """That the process answers."""
    return JSONResponse({"status": "ok"})


@lives.get("/ready", response_model=answers.State, responses=errors("unavailable"))
async def ready(service: ServiceOf) -> Response:
    """That requests will be answered: the stores are open and the stages run."""
    why = await service.unready()
    if why is not None:
        raise unavailable(why)
    return JSONResponse({"status": "ok"})


@watched.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Metrics in the text format of Prometheus, or OpenMetrics"}},
)
async def metrics(service: ServiceOf, _: Administrator, request: Request) -> Response:
    """What Prometheus reads: requests, stages, models, the state of the pipeline."""
    shown, form = await service.metrics.shown(request.headers.get("accept", ""))
    return Response(shown, media_type=form)


@routes.get("/pipeline/status", response_model=answers.PipelineStatus)
async def status(service: ServiceOf, _: Administrator) -> Response:
    """Stages and lag, the balance, dead letters, providers."""
    return JSONResponse(await service.ask(StatusRequest()))


@routes.get("/diagnostics", response_model=answers.Health)
async def diagnostics(service: ServiceOf, _: Administrator) -> Response:
    """How healthy the memory is, domain by domain."""
    return JSONResponse(await service.ask(DiagnosticsRequest()))


@routes.get("/diagnostics/{domain}", response_model=answers.Health, responses=errors("not_found"))
async def domain(service: ServiceOf, _: Administrator, domain: str) -> Response:
    """How healthy one domain is."""
    return JSONResponse(await service.ask(DiagnosticsRequest(domain)))


@routes.get("/stats", response_model=answers.Stats, responses=errors("not_found"))
async def stats(
    service: ServiceOf,
    caller: Recaller,
    asked: Annotated[bodies.StatsParameters, Query()],
) -> Response:
    """How much is remembered: of a scope, or of all for those who see all."""
    return JSONResponse(await service.ask(StatsRequest(named_scope(caller, asked.scope))))


@routes.get("/replay/agreement", response_model=answers.Agreement, responses=errors("not_found"))
async def agreement(
    service: ServiceOf,
    caller: Recaller,
    asked: Annotated[bodies.StatsParameters, Query()],
) -> Response:
    """How often deciders agree: with the live one, and with what people did afterwards."""
    return JSONResponse(await service.ask(AgreementRequest(named_scope(caller, asked.scope))))
