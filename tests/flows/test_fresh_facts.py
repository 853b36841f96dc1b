"""New statements: against a pinned memory, after one that is dated in the future; and what a
command says that did nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest import Memory, NotDoneError
from palimpsest.ops.errors import was_applied
from tests.flows.program import Program

SETTINGS = {"embedding.provider": "hashing", "pipeline.allow_update_delete": True}
FACTS = ["fact"]
RELATIONS = """SELECT s.name || ' ' || r.relation_type || ' ' || t.name AS said FROM relations r
    JOIN entities s ON s.entity_id = r.source_entity_id
    JOIN entities t ON t.entity_id = r.target_entity_id"""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as made:
        yield made


def say(memory: Memory, content: str, **more: str) -> None:
    memory.add([{"role": "user", "speaker": "Ana", "content": content, **more}])
    memory.wait_until_processed()


def facts(memory: Memory) -> list[str]:
    return [each.content for each in memory.list(types=FACTS).memories]


def test_a_memory_that_is_dated_in_the_future_is_updated(memory: Memory) -> None:
    say(memory, "I live in Berlin.", occurred_at="2099-01-01T10:00:00Z")
    say(memory, "I live in Oslo.")
    assert facts(memory) == ["Ana lives in Oslo."]
    say(memory, "I live in Rome.", occurred_at="2020-01-01T10:00:00Z")
    assert "Ana lives in Oslo." in facts(memory)


def test_what_was_said_later_is_shown_before_what_is_dated_in_the_future(memory: Memory) -> None:
    say(memory, "I work for Nokia.", occurred_at="2099-01-01T10:00:00Z")
    say(memory, "I work for Ericsson.")
    block = memory.context("Where does Ana work?", budget=400)
    assert block is not None
    profile = block.text.split("\n## ")[1]
    assert profile.startswith("Profile")
    assert "Ana works for Ericsson." in profile
    assert "Nokia" not in profile


@pytest.mark.parametrize("guard", ["pin", "confirm"])
def test_a_new_statement_against_a_guarded_memory_waits_for_a_person(
    memory: Memory, guard: str
) -> None:
    say(memory, "I live in Berlin.")
    [fact] = memory.list(types=FACTS).memories
    getattr(memory, guard)(fact.id)
    say(memory, "I live in Oslo.")
    [kept] = memory.list(types=FACTS).memories
    assert kept.content == "Ana lives in Berlin."
    assert [(mark.kind, mark.text) for mark in kept.marks] == [("pending", "Ana lives in Oslo.")]


def test_a_command_that_changed_nothing_was_not_applied(memory: Memory) -> None:
    say(memory, "I live in Berlin.")
    [fact] = memory.list(types=FACTS).memories
    with pytest.raises(NotDoneError, match="version"):
        memory.correct(fact.id, "Ana lives in Bonn.", if_version=7)
    left = [{"id": "a", "status": "version_conflict", "version": 3}]
    assert not was_applied(None, left)
    assert was_applied(None, [*left, {"id": "b", "status": "updated"}])
    assert was_applied(None, {"id": "b", "deduped": True})
    assert was_applied(None, [])
    assert not was_applied("frozen: nothing is changed", None)


@pytest.mark.parametrize(
    ("speaker", "said", "corrected", "relations"),
    [
        (
            "Ana",
            "My sister Rita lives in Porto.",
            "{who}'s sister Rita lives in Lisbon.",
            {"Rita lives_in Lisbon", "Rita sister_of {who}"},
        ),
        (
            "",
            "My sister Rita lives in Porto.",
            "My sister Rita lives in Lisbon.",
            {"Rita lives_in Lisbon", "Rita sister_of {who}"},
        ),
        (
            "Ana",
            "My sister Rita lives in Porto.",
            "Rita lives in Lisbon.",
            {"Rita lives_in Lisbon"},
        ),
        (
            "",
            "My friend is called Tom.",
            "{who}'s friend is called Tommy.",
            {"Tommy friend_of {who}"},
        ),
        (
            "Ana",
            "I work at Nokia.",
            "{who} works at Nokia as an engineer.",
            {"{who} works_at Nokia"},
        ),
        ("", "I work at Nokia.", "I work at Ericsson.", {"{who} works_at Ericsson"}),
    ],
)
def test_the_relations_of_a_corrected_memory_are_those_of_its_text(
    memory: Memory, speaker: str, said: str, corrected: str, relations: set[str]
) -> None:
    who = speaker or "The user"
    memory.add([{"role": "user", "content": said, **({"speaker": speaker} if speaker else {})}])
    memory.wait_until_processed()
    [fact] = memory.list(types=FACTS).memories
    memory.correct(fact.id, corrected.format(who=who))
    memory.wait_until_processed()
    expected = {each.format(who=who) for each in relations}
    assert {each["said"] for each in memory.sql(RELATIONS).to_pylist()} == expected
    shown = memory.get_entity(who).relations
    of_who = [each for each in expected if who in each]
    assert all(any(each["relation"] in said for said in of_who) for each in shown)
    assert len(shown) == len(of_who)


def test_run_tells_of_how_many_turns_no_fact_was_drawn(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon.", "Well, well.", "Hm, who knows?"))
    told = program.ok("run", "--once")
    assert "2 of 3 turns of people gave no fact; they are found as they were said" in told
    assert program.json("run", "--once")["balance"]["without_facts"] == [2, 3]


def test_run_tells_how_many_facts_of_one_turn_were_too_many(program: Program) -> None:
    many = " ".join(f"I visited Porto in {year}." for year in range(1990, 2020))
    program.ok("ingest", program.turns(many, "I live in Lisbon."))
    told = program.ok("run", "--once")
    assert "10 facts were left out: of one turn at most 20 are kept" in told
    assert program.json("run", "--once")["balance"]["facts_over_limit"] == 10
