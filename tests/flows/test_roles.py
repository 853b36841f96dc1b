"""Who said it, when it is asked, and what is found where nothing matches: by the library."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory

SETTINGS = {"embedding.provider": "hashing"}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "speaker": "Ana", "content": "I grow tomatoes on my balcony in Lisbon."},
    {"role": "assistant", "content": "For tomatoes on a balcony take deep pots of clay."},
    {"role": "user", "speaker": "Ana", "content": "Which pots for tomatoes on a balcony?"},
    {"role": "assistant", "content": "Pots for tomatoes on a balcony hold ten litres."},
]


def opened(folder: Path) -> Memory:
    return Memory(folder, scope="ana", settings=SETTINGS, wait_seconds=60.0)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with opened(tmp_path_factory.mktemp("roles")) as made:
        for number, turn in enumerate(TURNS):
            at = datetime(2026, 3, 1 + number, tzinfo=UTC).isoformat()
            made.add([turn | {"occurred_at": at}], session_id="s1")
        made.remember("The meeting moved to room 12.")
        made.wait_until_processed()
        yield made


def test_a_turn_has_its_role_wherever_it_is_shown(memory: Memory) -> None:
    turns = memory.list(types=["episodic"]).memories
    assert [turn.role for turn in reversed(turns)] == [turn["role"] for turn in TURNS]
    assert memory.get(turns[0].id).role == "assistant"
    found = memory.recall("deep pots of clay", types=["episodic"], neighbours=1).results[0]
    assert found.role == "assistant"
    assert [each.role for each in found.neighbours] == ["user", "user"]
    [text] = memory.list(types=["fact"], memory_ids=()).memories[:1]
    assert text.role == ""
    rows = memory.sql("SELECT role, count(*) AS n FROM turns GROUP BY role ORDER BY role")
    assert rows.to_pylist() == [{"role": "assistant", "n": 2}, {"role": "user", "n": 2}]


def test_roles_are_filtered_by(memory: Memory) -> None:
    for role in ("user", "assistant"):
        found = memory.recall("tomatoes", roles=[role], types=["episodic"]).results
        assert {each.role for each in found} == {role}
        assert len(found) == 2
        assert {each.role for each in memory.list(roles=[role], types=["episodic"]).memories} == {
            role
        }
        preview = memory.preview_forget(roles=[role], types=["episodic"])
        assert {each.role for each in preview.candidates} == {role}


def test_what_the_person_said_comes_first_unless_the_assistant_is_asked_for(
    memory: Memory,
) -> None:
    first = memory.recall("Where are the tomatoes on the balcony?", group=False).results[0]
    assert first.content == TURNS[0]["content"]
    first = memory.recall(
        "What did you say about pots for tomatoes on a balcony?", types=["episodic"]
    ).results[0]
    assert first.role == "assistant"


def test_time_words_count_from_when_it_is_asked(memory: Memory) -> None:
    question = "what about tomatoes yesterday"
    for day in (2, 4):
        asked_at = datetime(2026, 3, day, 12, tzinfo=UTC)
        found = memory.recall(question, asked_at=asked_at, explain=True, types=["episodic"])
        lowered = {
            each.occurred_at.day
            for each in found.results
            if each.explanation is not None and each.explanation.parts.get("times", 0.0) < 0.0
        }
        assert lowered == {1, 2, 3, 4} - {day - 1}


def test_a_question_that_nothing_answers_has_the_nearest_and_says_so(memory: Memory) -> None:
    found = memory.recall("where do we gather?", limit=3)
    assert len(found.results) == 3
    nothing = memory.recall("zyxwv", limit=3)
    assert [each.unlikely for each in nothing.results] == [True] * 3
    assert memory.recall("zyxwv", min_score=0.3).results == ()
    assert "room 12" in (memory.context("where do we gather?").text or "")
    assert memory.preview_forget(query="zyxwv").candidates == ()
    assert len(memory.preview_forget(query="zyxwv", min_score=0.0).candidates) > 0
