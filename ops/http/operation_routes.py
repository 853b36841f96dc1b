"""Health and metrics of the service."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from palimpsest.ops.http import answers
from palimpsest.ops.http.problems import unavailable
from palimpsest.ops.http.routing import ALWAYS, errors
from palimpsest.ops.http.service import Administrator, ServiceOf

watched = APIRouter(tags=["operation"], responses=errors(*ALWAYS))
lives = APIRouter(tags=["operation"], responses=errors("misdirected", "forbidden", "failed"))


@lives.get("/health", response_model=answers.State)
async def health() -> Response:
    """Report that the process answers."""
    return JSONResponse({"status": "ok"})


@lives.get("/ready", response_model=answers.State, responses=errors("unavailable"))
async def ready(service: ServiceOf) -> Response:
    """Report whether requests can be answered: the stores are open and the stages run."""
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
    """Return metrics for Prometheus: requests, stages, models, the state of the pipeline."""
    shown, form = await service.metrics.shown(request.headers.get("accept", ""))
    return Response(shown, media_type=form)
