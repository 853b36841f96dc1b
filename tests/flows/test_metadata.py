"""The metadata of a memory is in results, and a filter before the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flows.http_server import Served, problem, server

GIVEN: list[dict[str, Any]] = [
    {"customer": "Åsa & Sons", "ticket": 7, "open": True},
    {"customer": "Åsa & Sons", "ticket": "7", "open": False},
    {"customer": "Åsa & Sons", "ticket": 77, "a.b": 'x="1"'},
    {"nested": {"customer": "Åsa & Sons"}, "open": None, "share": 0.25},
    {},
]
FILTERS: list[tuple[dict[str, str | float | bool], list[int]]] = [
    ({"customer": "Åsa & Sons"}, [0, 1, 2]),
    ({"customer": "åsa & sons"}, []),
    ({"customer": "Åsa & Sons", "ticket": 7}, [0, 1]),
    ({"ticket": "7", "open": True}, [0]),
    ({"a.b": 'x="1"'}, [2]),
    ({"open": "null"}, []),
    ({"share": 0.25}, [3]),
    ({"nested": '{"customer":"Åsa & Sons"}'}, [3]),
    ({"*": "7"}, []),
]


def text(number: int) -> str:
    return f"The printer on floor {number} prints blank pages."


def as_pairs(filters: dict[str, str | float | bool]) -> list[str]:
    return [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in filters.items()]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("metadata")
    with server(folder) as running, running.client() as client:
        for number, metadata in enumerate(GIVEN):
            body = {"content": text(number), "metadata": metadata, "scope": "ana"}
            assert client.post("/api/memory/remember?wait=60", json=body).status_code == 200
        yield running


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_over_http(
    served: Served, filters: dict[str, str | float | bool], expected: list[int]
) -> None:
    with served.client() as client:
        for given in (filters, as_pairs(filters)):
            asked = {"query": "printer pages", "scope": "ana", "metadata": given, "limit": 3}
            found = client.post("/api/memory/recall", json=asked).json()["results"]
            assert sorted(each["content"] for each in found) == [*map(text, expected)]
            assert all(each["metadata"] == GIVEN[_number(each)] for each in found)
        asked = {"scope": "ana", "metadata": as_pairs(filters)}
        listed = client.get("/api/memories", params=asked).json()["memories"]
        assert sorted(each["content"] for each in listed) == [*map(text, expected)]
        assert all(each["metadata"] == GIVEN[_number(each)] for each in listed)


def _number(result: dict[str, Any]) -> int:
    return [*map(text, range(len(GIVEN)))].index(result["content"])


BAD: list[tuple[Any, str]] = [
    (["ticket"], "metadata.0: 'ticket' must be key=value"),
    (["=7"], "metadata.0: '=7' must be key=value"),
    ({"a=b": "c"}, "metadata: 'a=b' has a =, so it cannot be asked for"),
    ({"": "c"}, "metadata.0: '=c' must be key=value"),
    ({"a": ["c"]}, "metadata: a: give a text, a number, true or false"),
    ({"a": None}, "metadata: a: give a text, a number, true or false"),
    (["a=" + "b" * 1_024], "metadata.0: Input should have at most 1,024 characters"),
    ([f"k{n}=v" for n in range(21)], "metadata: Input should have at most 20 items"),
    (7, "metadata: Input should be a valid array"),
]


@pytest.mark.parametrize(("given", "why"), BAD)
def test_what_is_no_filter_is_refused(served: Served, given: Any, why: str) -> None:
    with served.client() as client:
        asked = {"query": "printer", "metadata": given}
        told = problem(client.post("/api/memory/recall", json=asked), 422, "invalid")
        assert why in told["detail"]
        if isinstance(given, list):
            answer = client.get("/api/memories", params={"metadata": given})
            problem(answer, 422, "invalid")
