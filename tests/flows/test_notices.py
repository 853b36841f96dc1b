"""What a filter that nothing can pass is answered with, on every surface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory
from palimpsest.ops.mcp.server import memory_server
from tests.flows.http_server import server
from tests.flows.program import SAID, Program

SETTINGS = {"embedding.provider": "hashing"}
PREFERENCE = "there is no type preferance in scope ana; did you mean preference? There are "


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("notices")
    with Memory(folder, scope="ana", settings=SETTINGS, wait_seconds=60.0) as made:
        said = {
            "content": "I live in Lisbon.",
            "role": "user",
            "occurred_at": "2024-05-25T10:00:00Z",
        }
        made.add(said, speaker="Ana")
        made.remember("Ana prefers tea.", type="preference", tags=["drinks"])
        made.remember("Ana has a cat.", type="fact", tags=["pets, animals"])
        made.wait_until_processed()
        yield made


def test_a_misspelled_type_is_answered_with_the_nearest(memory: Memory) -> None:
    asked: list[Any] = [
        memory.recall("tea", types=["preferance"]),
        memory.search("tea", types=["preferance"]),
        memory.list(types="preferance", scope="ana"),
        memory.preview_forget(types=["preferance"]),
        memory.recall("tea", types=["fact", "preferance"]),
    ]
    for answer in asked:
        [notice] = answer.notices
        assert notice.startswith(PREFERENCE)
        assert notice.endswith("episodic, fact, preference")
    assert memory.recall("tea", types=["preference"]).notices == ()


@pytest.mark.parametrize(
    ("filters", "notice"),
    [
        ({"roles": ["asistant"]}, "there is no role asistant in scope ana"),
        ({"who": "Anna"}, "there is no speaker Anna in scope ana; did you mean Ana?"),
        ({"tags": ["drink"]}, "there is no tag drink in scope ana; did you mean drinks?"),
        ({"all_tags": ["drinks", "x"]}, "there is no tag x in scope ana."),
        ({"as_of": datetime(2024, 6, 1, tzinfo=UTC)}, "as_of is the time at which memories were"),
    ],
)
def test_other_filters_that_nothing_passes_are_named(
    memory: Memory, filters: dict[str, Any], notice: str
) -> None:
    [found] = memory.recall("tea", **filters).notices
    assert found.startswith(notice)


def test_a_known_value_in_another_case_is_no_mistake(memory: Memory) -> None:
    assert memory.recall("tea", who="ana", roles=["USER"]).notices == ()
    assert memory.recall("tea", types=["fact"], scope="nobody").notices == ()


def test_a_comma_separates_types(memory: Memory) -> None:
    types = {each.type for each in memory.recall("Ana", types="fact, preference").results}
    assert types == {"fact", "preference"}
    assert len(memory.list(types=["fact,preference"]).memories) == 3
    ids = ",".join(each.id for each in memory.list(types="fact,preference").memories)
    assert len(memory.list(memory_ids=[ids]).memories) == 3
    # A tag may have one.
    assert len(memory.recall("Ana", tags=["pets, animals"]).results) == 1
    [notice] = memory.recall("Ana", tags=["drinks,pets, animals"]).notices
    assert notice.startswith("there is no tag drinks,pets, animals in scope ana")


def test_the_command_line_warns(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(*SAID), "--scope", "ana")
    program.ok("run", "--once")
    program.ok("remember", "Ana likes tea", "--type", "preference", "--scope", "ana")
    program.ok("run", "--once")
    for command in (("recall", "tea"), ("search", "tea"), ("list",)):
        done = program.run(*command, "--scope", "ana", "--types", "preferance")
        assert PREFERENCE in " ".join(done.stderr.split())
        both = program.run(*command, "--scope", "ana", "--types", "preference,episodic")
        assert (both.returncode, both.stderr) == (0, "")
        assert "Ana likes tea" in both.stdout


def test_http_and_agents_are_told(tmp_path: Path) -> None:
    with server(tmp_path) as served, served.client() as client:
        client.post(
            "/api/memory/remember",
            json={"content": "Ana likes tea", "type": "fact", "scope": "ana"},
        )
        asked = {"query": "tea", "scope": "ana", "types": ["fcat"]}
        [notice] = client.post("/api/memory/recall", json=asked).json()["notices"]
        assert "there is no type fcat in scope ana" in notice
        page = client.get("/api/memories", params={"scope": "ana", "types": "fcat,fact"}).json()
        assert len(page["memories"]) == 1
        assert "fcat" in page["notices"][0]


def test_agents_are_told(memory: Memory) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    tools = memory_server(lambda: memory.aio)  # type: ignore[arg-type,return-value]
    called = tools.call_tool("search_memory", {"query": "tea", "types": ["preferance"]})
    assert PREFERENCE in str(asyncio.run(called))
