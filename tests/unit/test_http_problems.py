"""What a failure of the service tells: whoever asked, nothing; its own output, where it was."""

from __future__ import annotations

import logging

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from palimpsest.ops.errors import NotOpenError, RequestError, UnavailableError
from palimpsest.ops.http.problems import install
from palimpsest.ops.server.application import Heads
from palimpsest.ops.service.client import NotThereError
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.streams.logs.base import LogUnavailable

SECRET = "Ana hid the key"


async def answered(error: Exception) -> httpx.Response:
    app = FastAPI()
    install(app)

    @app.get("/of/{name}")
    async def fails(name: str) -> None:
        raise error

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get(f"/of/{SECRET}")


async def test_a_failure_tells_nothing_of_what_was_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = await answered(ZeroDivisionError(SECRET))
    assert (answer.status_code, answer.json()["code"]) == (500, "failed")
    own = [record for record in caplog.records if record.name.startswith("palimpsest")]
    assert SECRET not in answer.text + "".join(record.getMessage() for record in own)
    assert "ZeroDivisionError" not in answer.text
    assert "GET /of/{name}: ZeroDivisionError" in own[0].getMessage()
    assert "in fails" in own[0].getMessage()


@pytest.mark.parametrize(
    "error",
    [
        NotOpenError("x"),
        UnavailableError("x"),
        NotThereError("x"),
        StoreClosed(),
        LogUnavailable("x"),
    ],
)
async def test_who_is_away_is_to_be_asked_again(error: Exception) -> None:
    answer = await answered(error)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"


async def test_what_cannot_be_asked_keeps_its_kind() -> None:
    answer = await answered(RequestError("the scope is empty"))
    assert (answer.status_code, answer.json()["kind"]) == (422, "refused")


async def asked(method: str, path: str) -> httpx.Response:
    app, inner = FastAPI(), APIRouter()
    install(app)
    for verb, address in (
        ("GET", "/api/memory/{id}"),
        ("DELETE", "/api/memory/{id}"),
        ("POST", "/api/memory/recall"),
        ("POST", "/api/turns"),
    ):
        inner.add_api_route(address, lambda: {"said": "x"}, methods=[verb])
    app.include_router(inner)  # as all routes of the service
    app.add_middleware(Heads)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.request(method, path)


@pytest.mark.parametrize(
    ("method", "path", "status", "allow", "why"),
    [
        ("GET", "/api/turn", 404, None, "did you mean POST /api/turns?"),
        ("POST", "/API/Turns", 404, None, "did you mean POST /api/turns?"),
        ("GET", "/zzz", 404, None, "/docs lists all routes"),
        ("GET", "/api/turns", 405, "OPTIONS, POST", "there is no GET at /api/turns, but"),
        ("POST", "/api/memory/recal", 405, "DELETE, GET, HEAD, OPTIONS",
         "did you mean POST /api/memory/recall?"),
        ("FOO", "/api/memory/x", 405, "DELETE, GET, HEAD, OPTIONS", "there is no FOO at"),
    ],
)  # fmt: skip
async def test_an_address_or_method_that_there_is_not(
    method: str, path: str, status: int, allow: str | None, why: str
) -> None:
    answer = await asked(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("allow") == allow
    assert why in answer.json()["detail"]


async def test_options_and_head() -> None:
    answer = await asked("OPTIONS", "/api/memory/x")
    assert (answer.status_code, answer.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS")
    assert (await asked("OPTIONS", "/zzz")).status_code == 404
    told, whole = await asked("HEAD", "/api/memory/x"), await asked("GET", "/api/memory/x")
    assert (told.status_code, told.content) == (200, b"")
    assert told.headers["content-length"] == whole.headers["content-length"]
    assert (await asked("HEAD", "/api/turns")).status_code == 405
