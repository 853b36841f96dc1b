"""What took the place of what, as `explain` shows it from both ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest import Memory

SETTINGS = {"embedding.provider": "hashing", "llm.provider": "rules"}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=120.0) as made:
        yield made


def edges(memory: Memory, memory_id: str) -> list[tuple[str, str, str, str]]:
    found = memory.explain(memory_id).edges
    return [(each.direction, each.relation, each.id, each.content) for each in found]


def test_a_correction_leads_to_what_it_corrected(memory: Memory) -> None:
    kept = memory.remember("Ana lives in Porto")
    memory.correct(kept.id, "Ana lives in Lisbon")
    memory.correct(kept.id, "Ana lives in Braga")
    assert edges(memory, kept.id) == [
        ("out", "supersedes", f"{kept.id}@1", "Ana lives in Porto"),
        ("out", "supersedes", f"{kept.id}@2", "Ana lives in Lisbon"),
    ]
    assert [state["id"] for state in memory.explain(kept.id).before] == [
        f"{kept.id}@2",
        f"{kept.id}@1",
    ]


def test_another_importance_leads_nowhere(memory: Memory) -> None:
    kept = memory.remember("Ana lives in Porto")
    memory.modify(kept.id, importance=0.4, reason="less")
    assert edges(memory, kept.id) == []


def test_what_was_replaced_leads_to_what_replaced_it(memory: Memory) -> None:
    old = memory.remember("Ana lives in Porto")
    memory.wait_until_processed()
    memory.set_flags(allow_update_delete=True, wait=120.0)
    new = memory.remember("Ana lives in Lisbon now")
    memory.wait_until_processed()
    [there] = [each for each in edges(memory, new.id) if each[1] == "supersedes"]
    assert there == ("out", "supersedes", f"{old.id}@1", "Ana lives in Porto")
    [back] = [each for each in edges(memory, old.id) if each[1] == "supersedes"]
    assert back == ("in", "supersedes", new.id, "Ana lives in Lisbon now")


def test_what_is_forgotten_is_not_shown(memory: Memory) -> None:
    kept = memory.remember("Ana lives in Porto")
    memory.correct(kept.id, "Ana lives in Lisbon")
    memory.forget([kept.id], reason="asked to")
    assert edges(memory, kept.id) == []
