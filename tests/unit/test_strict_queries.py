"""What a route refuses of an address and of a body before it reads them."""

from __future__ import annotations

import gzip
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Body, FastAPI, Query
from pydantic import BaseModel

from palimpsest.ops.http.problems import install
from palimpsest.ops.http.routing import StrictRoute

JSON = {"Content-Type": "application/json"}


class Asked(BaseModel):
    scope: str = ""
    types: list[str] | None = None


async def answered(method: str, path: str, **sent: object) -> httpx.Response:
    app, routes = FastAPI(), APIRouter(route_class=StrictRoute)

    @routes.get("/model")
    async def by_model(asked: Annotated[Asked, Query()]) -> Asked:
        return asked

    @routes.get("/fields")
    async def by_fields(wait: float = 0, tags: Annotated[list[str] | None, Query()] = None) -> int:
        return len(tags or ())

    @routes.post("/body")
    async def by_body(asked: Annotated[Asked, Body()]) -> Asked:
        return asked

    app.include_router(routes)
    install(app)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.request(method, path, **sent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "where"),
    [("/model?scope=a&scope=b", "query.scope"), ("/fields?wait=1&wait=2&wait=3", "query.wait")],
)
async def test_a_parameter_that_is_sent_again_is_refused(path: str, where: str) -> None:
    answer = await answered("GET", path)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["errors"][0]["where"] == where
    assert "send it once" in answer.json()["detail"]


async def test_a_list_may_be_sent_as_several_parameters() -> None:
    answer = await answered("GET", "/model?types=fact&types=rule&scope=a")
    assert answer.json() == {"scope": "a", "types": ["fact", "rule"]}
    assert (await answered("GET", "/fields?tags=a&tags=b")).json() == 2


async def test_an_address_that_is_not_utf_8_is_no_other_text() -> None:
    answer = await answered("GET", "/model?scope=%ff")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "UTF-8" in answer.json()["detail"]
    assert (await answered("GET", "/model?scope=%C3%A9")).json()["scope"] == "é"


async def test_a_compressed_body_is_told_as_that() -> None:
    packed = gzip.compress(b'{"scope": "a"}')
    answer = await answered(
        "POST", "/body", content=packed, headers={**JSON, "Content-Encoding": "gzip"}
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "Content-Encoding" in answer.json()["detail"]
    answer = await answered(
        "POST", "/body", content=b"{}", headers={**JSON, "Content-Encoding": "identity"}
    )
    assert answer.status_code == 200


async def test_two_bodies_in_one_are_told_in_plain_words() -> None:
    answer = await answered("POST", "/body", content=b'{"scope": "a"} {}', headers=JSON)
    assert answer.status_code == 400
    assert "there is more after its end" in answer.json()["detail"]
