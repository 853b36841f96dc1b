"""The metadata of a memory is in results, and a filter before the limit, on every surface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory, RequestError
from tests.flows.http_server import Served, problem, server
from tests.flows.program import Program

SETTINGS = {"embedding.provider": "hashing"}
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


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("library")
    with Memory(folder, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        for number, metadata in enumerate(GIVEN):
            memory.remember(text(number), metadata=metadata)
        yield memory


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


@pytest.mark.parametrize(("filters", "expected"), FILTERS)
def test_in_the_library(
    memory: Memory, filters: dict[str, str | float | bool], expected: list[int]
) -> None:
    for given in (filters, as_pairs(filters)):
        found = memory.recall("printer pages", metadata=given, limit=3).results
        assert sorted(each.content for each in found) == [*map(text, expected)]
        listed = memory.list(metadata=given).memories
        assert sorted(each.content for each in listed) == [*map(text, expected)]
    [last] = memory.recall("printer pages", metadata={"ticket": 77}, limit=1).results
    assert last.metadata == GIVEN[2]


BAD: list[tuple[Any, str]] = [
    (["ticket"], "metadata.0: 'ticket' must be key=value"),
    (["=7"], "metadata.0: '=7' must be key=value"),
    ({"a=b": "c"}, "metadata: 'a=b' has a =, so it cannot be asked for"),
    ({"": "c"}, "metadata.0: '=c' must be key=value"),
    ({"a": ["c"]}, "metadata: a: give a text, a number, true or false"),
    ({"a": None}, "metadata: a: give a text, a number, true or false"),
    (["a=" + "b" * 1_024], "metadata.0: String should have at most 1024 characters"),
    ([f"k{n}=v" for n in range(21)], "metadata: Value should have at most 20 items"),
    (7, "metadata: Input should be a valid array"),
]


@pytest.mark.parametrize(("given", "why"), BAD)
def test_what_is_no_filter_is_refused(served: Served, memory: Memory, given: Any, why: str) -> None:
    with pytest.raises(RequestError) as refused:
        memory.recall("printer", metadata=given)
    assert why in str(refused.value)
    with served.client() as client:
        asked = {"query": "printer", "metadata": given}
        problem(client.post("/api/memory/recall", json=asked), 422, "invalid")
        if isinstance(given, list):
            answer = client.get("/api/memories", params={"metadata": given})
            problem(answer, 422, "invalid")


def test_on_the_command_line(tmp_path: Path) -> None:
    program = Program(tmp_path)
    turns = [
        {"turn_id": f"t{number}", "content": text(number), "metadata": metadata, "speaker": "Ana"}
        for number, metadata in enumerate(GIVEN)
    ]
    lines = "".join(json.dumps(each) + "\n" for each in turns)
    program.ok("ingest", "-", "--scope", "ana", stdin=lines.encode())
    program.ok("run", "--once")
    given = ("--metadata", "customer=Åsa & Sons", "--metadata", "ticket=7", "--json")
    for command in (("recall", "printer pages", "--limit", "2"), ("list",)):
        answer = json.loads(program.ok(*command, "--scope", "ana", *given))
        [found] = (each for each in answer.values() if isinstance(each, list) and each)
        assert sorted(each["content"] for each in found) == [text(0), text(1)]
        assert all(each["metadata"] == GIVEN[_number(each)] for each in found)
    refused = program.run("list", "--metadata", "ticket")
    assert refused.returncode == 2
    assert "'ticket' must be key=value" in refused.stderr
