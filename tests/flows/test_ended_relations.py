"""A relation ends when what stated it is denied, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest import Memory
from palimpsest.ops.errors import NotFoundError

SETTINGS = {"embedding.provider": "hashing", "llm.provider": "rules"}
BEGIN = datetime(2024, 3, 1, 10, tzinfo=UTC)
WORKS = ("works_at", "Oceano")
ENDED = {
    "no longer": ("I work at Oceano.", "I no longer work at Oceano."),
    "not any more": ("I work at Oceano.", "I don't work at Oceano any more."),
    "quit": ("I work at Oceano.", "I quit my job at Oceano."),
    "left": ("I work at Oceano.", "I left Oceano."),
    "resigned": ("I work at Oceano.", "I resigned from Oceano."),
    "not married": ("I am married to Tom.", "We are not married anymore."),
    "divorced": ("I am married to Tom.", "I divorced Tom."),
    "got divorced": ("I am married to Tom.", "We got divorced."),
    "broke up": ("I am dating Tom.", "I broke up with Tom."),
    "sold": ("I have a car.", "I sold my car."),
    "moved out": ("I live in Porto.", "I moved out of Porto."),
}
"""Two turns, of which the second ends what the first stated."""
STANDS = {
    "never left": "I never left Oceano.",
    "did not quit": "I still work at Oceano, I did not quit.",
    "another person": "Ben no longer works at Oceano.",
    "a question": "Do I no longer work at Oceano?",
    "a quotation": 'She said "I no longer work at Oceano".',
    "a wish": "I want to quit my job at Oceano.",
    "another language": "Ich arbeite nicht mehr bei Oceano.",
}
"""What Ana says after "I work at Oceano." and does not end it."""


def turns(*texts: str) -> list[dict[str, str]]:
    return [
        {
            "content": text,
            "speaker": "Ana",
            "role": "user",
            "session_id": f"s{number}",
            "occurred_at": (BEGIN + timedelta(days=number)).isoformat(),
        }
        for number, text in enumerate(texts)
    ]


def relations(memory: Memory, scope: str) -> set[tuple[str, str]]:
    """What Ana is, as her entity shows it."""
    try:
        shown = memory.get_entity("Ana", scope=scope).relations
    except NotFoundError:
        return set()
    return {(each["relation"], each["name"]) for each in shown if each["direction"] == "out"}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """One in which all of it was said, a scope a conversation."""
    folder = tmp_path_factory.mktemp("ended")
    with Memory(folder, settings=SETTINGS, wait_seconds=120.0) as made:
        said = ENDED | {key: ("I work at Oceano.", text) for key, text in STANDS.items()}
        for number in range(2):
            for key, texts in said.items():
                made.set_flags(key, allow_update_delete=True, wait=120.0)
                made.add([turns(*texts)[number]], scope=key, wait=False)
            made.wait_until_processed()
        yield made


@pytest.mark.parametrize("key", ENDED)
def test_what_is_denied_ends(memory: Memory, key: str) -> None:
    assert relations(memory, key) == set()


@pytest.mark.parametrize("key", STANDS)
def test_what_is_not_denied_stands(memory: Memory, key: str) -> None:
    assert WORKS in relations(memory, key)


def test_the_graph_of_analysts_has_the_same(memory: Memory) -> None:
    table = memory.sql(
        "SELECT r.scope, r.relation_type, t.name FROM relations r"
        " JOIN entities s ON s.entity_id = r.source_entity_id"
        " JOIN entities t ON t.entity_id = r.target_entity_id WHERE s.name = 'Ana'"
    )
    found = {tuple(row.values()) for row in table.to_pylist()}
    shown = {(key, *each) for key in (*ENDED, *STANDS) for each in relations(memory, key)}
    assert found == shown


def test_a_relation_stands_until_a_person_applies_the_change(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=120.0) as memory:
        for turn in turns("I work at Oceano.", "I no longer work at Oceano."):
            memory.add([turn], wait=False)
            memory.wait_until_processed()
        assert relations(memory, "ana") == {WORKS}
        [pending] = memory.proposals().proposals
        memory.apply_proposals([pending.id], reason="right", wait=120.0)
        memory.wait_until_processed()
        assert relations(memory, "ana") == set()


def test_a_correction_ends_what_it_denies_and_another_one_brings_it_back(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=120.0) as memory:
        memory.add(turns("I work at Oceano."), wait=False)
        memory.wait_until_processed()
        [fact] = [each for each in memory.list().memories if each.type != "episodic"]
        for text, expected in (
            ("Ana does not work at Oceano", set()),
            ("Ana never left Oceano", {WORKS}),
            ("Ana no longer works at Oceano, but Ben does", set()),
            ("Ana works at Oceano", {WORKS}),
        ):
            memory.correct(fact.id, text)
            memory.wait_until_processed()
            assert relations(memory, "ana") == expected, text
