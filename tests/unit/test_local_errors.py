"""What a reading fails over is told to who asked, by its kind."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from palimpsest.ops.errors import NotOpenError, RequestError
from palimpsest.ops.service.direct_queries import _as_request_errors
from palimpsest.ops.worker.local import interface
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.streams.logs.base import LogError, LogUnavailable


class Failing:
    async def answer(self, request: object) -> Any:
        raise ZeroDivisionError("a text of somebody's")

    async def table(self, request: object) -> Any:
        raise ZeroDivisionError


async def test_an_error_that_nobody_foresaw_is_named(caplog: pytest.LogCaptureFixture) -> None:
    app = interface(Failing(), "secret")  # type: ignore[arg-type]
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
        headers = {"authorization": "Bearer secret"}
        answer = await client.post("/ask/status", json={}, headers=headers)
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"]
    assert "/ask/status: ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("error", [StoreClosed(), LogUnavailable("the broker is away")])
def test_what_passes_is_asked_again(error: Exception) -> None:
    with pytest.raises(NotOpenError, match=str(error)), _as_request_errors():
        raise error


def test_a_log_that_cannot_be_used_is_told() -> None:
    with pytest.raises(RequestError, match="made anew"), _as_request_errors():
        raise LogError("the topic was made anew")
