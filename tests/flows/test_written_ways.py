"""Ways to write a value that mean the same: dates, ids in capitals, texts on standard input, and
the memory's own scope."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory
from palimpsest.ops.errors import RequestError
from palimpsest.ops.mcp.server import memory_server
from tests.flows.http_server import server
from tests.flows.program import Program

SETTINGS = {"embedding.provider": "hashing"}
SAID = {"content": "I drink tea.", "occurred_at": "2024-05-25T10:00:00Z"}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("ways")
    with Memory(folder, scope="ana", settings=SETTINGS, wait_seconds=60.0) as made:
        made.add(SAID, speaker="Ana")
        made.wait_until_processed()
        yield made


@pytest.mark.parametrize(
    "day", ["2024-05-25", date(2024, 5, 25), datetime(2024, 5, 25, tzinfo=UTC)]
)
@pytest.mark.parametrize("name", ["since", "valid_at", "asked_at"])
def test_a_date_is_a_time_for_the_library(memory: Memory, name: str, day: Any) -> None:
    assert memory.recall("tea", **{name: day}).results


def test_a_date_bounds_what_is_found(memory: Memory) -> None:
    assert not memory.recall("tea", until="2024-05-25").results  # type: ignore[arg-type]
    assert memory.recall("tea", until="2024-05-26").results  # type: ignore[arg-type]
    for wrong in ("2024-13-25", "25.05.2024", "2024-05-25T10:00:00"):
        with pytest.raises(RequestError, match="since"):
            memory.recall("tea", since=wrong)  # type: ignore[arg-type]


def test_agents_may_give_a_date(memory: Memory) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    tools = memory_server(lambda: memory.aio)  # type: ignore[arg-type,return-value]
    after = {"query": "tea", "after": "2024-05-25", "asked_at": "2024-05-25"}
    assert "drinks tea" in str(asyncio.run(tools.call_tool("search_memory", after)))
    before = {"query": "tea", "before": "2024-05-25"}
    assert "drinks tea" not in str(asyncio.run(tools.call_tool("search_memory", before)))


def test_http_takes_dates_and_ids_in_capitals(tmp_path: Path) -> None:
    with server(tmp_path) as served, served.client() as client:
        told = {"content": "Ana drinks tea", "scope": "ana"}
        known = client.post("/api/memory/remember", json=told).json()["id"]
        asked = {"query": "tea", "scope": "ana", "since": "2024-05-25"}
        for path in ("/api/memory/recall", "/api/rpc/recall"):
            assert client.post(path, json=asked).json()["results"]
        listed = {"scope": "ana", "valid_at": "2024-05-25", "memory_ids": known.upper()}
        assert len(client.get("/api/memories", params=listed).json()["memories"]) == 1
        assert client.get(f"/api/memory/{known.upper()}").json()["id"] == known
        changed = client.patch(
            f"/api/memory/{known.upper()}", json={"pinned": True, "reason": "so"}
        )
        assert changed.status_code == 200
        chosen = {"scope": "ana", "memory_ids": [known.upper()], "reason": "so", "force": True}
        assert client.post("/api/memory/forget", json=chosen).json()["applied"]


def test_an_id_may_be_in_capitals(memory: Memory) -> None:
    known = memory.remember("Ana has a cat named Tom.")
    assert memory.get(known.id.upper()).id == known.id
    assert memory.get(known.id[:8].upper()).id == known.id
    assert memory.explain(known.id.upper()).memory.id == known.id
    assert memory.recall("cat", why_not=[known.id.upper()]).why_not[0].id == known.id
    assert memory.forget(known.id.upper(), reason="so").changes[0].id == known.id
    assert memory.recover(known.id.upper()).id == known.id


def test_the_memorys_own_scope_is_the_default_of_its_settings(memory: Memory) -> None:
    assert memory.set_flags(autonomous_frozen=False).applied  # type: ignore[union-attr]
    assert {each["flag"]: each["from"] for each in memory.flags().flags}["autonomous_frozen"] == (
        "this scope"
    )
    memory.set_retention(history_days=30)
    assert memory.retention().scope == "ana"


def test_a_text_may_come_from_standard_input(tmp_path: Path) -> None:
    program = Program(tmp_path)
    spoken = "Ana drinks tea.\nEvery day."
    program.ok("remember", "-", "--scope", "ana", stdin=f"\ufeff{spoken}\n".encode())
    program.ok("run", "--once")
    [kept] = program.json("list", "--scope", "ana")["memories"]
    assert kept["content"].split() == spoken.split()
    assert "tea" in program.ok("recall", "-", "--scope", "ana", stdin=b"what does Ana drink?")
    program.ok("modify", kept["id"].upper(), "--content", "-", "--reason", "-", stdin=b"Ana left.")
    program.ok("run", "--once")
    [kept] = program.json("list", "--scope", "ana")["memories"]
    assert kept["content"] == "Ana left."
    for wrong, why in ((b" \n", "standard input is empty"), (b"a\xff", "not UTF-8 at byte 1")):
        done = program.run("remember", "-", "--scope", "ana", stdin=wrong)
        assert done.returncode == 2
        assert why in " ".join(done.stderr.split())
