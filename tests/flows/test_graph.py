"""The graph through the whole pipeline: names that are told to be one, and texts that change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.graph import Entities, GetEntity
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import command_memory_id, turn_memory_id
from palimpsest.stores.recall.graph import graph_boost
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.settings import RecallSettings
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.settings import Flags, GraphSettings
from palimpsest.streams.topology import STAGE_NAMES
from tests.examples import examples
from tests.harness import Crash, Pipeline, differing, pipeline_settings
from tests.messages import commanded
from tests.sessions_by_hand import ask

SEEDS = range(examples(1))
NOT_EXTRACTED = pipeline_settings(Flags(enabled=False))
"""The graph takes what is told to it, and nothing that remembered texts say beside."""


def told(text: str, *triples: tuple[str, str, str], confidence: float = 0.8) -> RememberCommand:
    relations = tuple(
        Triple(source=source, relationship=relation, target=target, confidence=confidence)
        for source, relation, target in triples
    )
    return RememberCommand(content=text, structured=Structure(relations=relations))


def memory_id(number: int) -> str:
    """Of the memory that the remember command with this number made."""
    return command_memory_id("ana", commanded(RememberCommand(content="x"), number).id)


def modified(memory: str, **patch: Any) -> ModifyCommand:
    return ModifyCommand(patches=(MemoryPatch(memory_id=memory, **patch),), reason="test")


def named(pipeline: Pipeline, memory: str) -> set[tuple[str, str]]:
    """(entity, how it is written) of what a memory mentions, as analysts see it."""
    rows = pipeline.rows("SELECT * FROM mentions WHERE memory_id = ?", memory)
    return {(row["entity_name"], row["mention_text"]) for row in rows}


def seen(pipeline: Pipeline) -> dict[str, list[tuple[Any, ...]]]:
    """The graph as analysts see it."""
    columns = {
        "entities": "entity_id, name, entity_type, aliases, mentions, times_told",
        "relations": "source_entity_id, target_entity_id, relation_type, mentions,"
        " round(confidence, 9)",
        "memory_entity_mentions": "memory_id, entity_id, mention_text",
        "entity_aspects": "entity_id, name",
        "entity_attributes": "aspect_id, memory_id, status",
    }
    return {
        view: sorted(tuple(row.values()) for row in pipeline.rows(f"SELECT {names} FROM {view}"))
        for view, names in columns.items()
    }


# --- names that are told to be one ------------------------------------------------------------


def test_two_entities_told_to_be_one_are_one(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            told("We run Postgres", ("Ana", "uses", "Postgres"), confidence=0.4),
            told("We like PostgreSQL", ("Ana", "uses", "PostgreSQL"), confidence=1.0),
            told("We tuned PostgreSQL", ("Ana", "uses", "PostgreSQL"), confidence=1.0),
            AliasCommand(name="PostgreSQL", alias="Postgres"),
        )
        pipeline.run()
        error, result = pipeline.result(4)
        assert error is None
        assert (result["status"], result["name"], result["aliases"]) == (
            "merged",
            "PostgreSQL",
            ["Postgres"],
        )
        [entity] = pipeline.rows("SELECT * FROM entities WHERE name <> 'Ana'")
        assert (entity["entity_id"], entity["aliases"]) == (result["entity_id"], ["postgres"])
        assert (entity["mentions"], entity["times_told"]) == (3, 3)
        [relation] = pipeline.rows("SELECT * FROM relations")
        assert relation["mentions"] == 3
        assert relation["confidence"] == pytest.approx(0.8)
        assert named(pipeline, memory_id(1)) == {("PostgreSQL", "Postgres"), ("Ana", "Ana")}


def test_what_an_alias_command_answers(tmp_path: Path) -> None:
    answers = {
        ("Oslo", "Kristiania"): "added",
        ("oslo", "KRISTIANIA"): "already",
        ("Kristiania", "Oslo"): "already",
        ("Oslo", "Bergen"): "merged",
        ("Kristiania", "Bergen"): "already",  # a chain holds both ways
        ("Trondheim", "Nidaros"): "added",  # neither was known
        ("Bergen", "Nidaros"): "merged",  # an alias of one, an alias of another
        ("Oslo", "Oslo"): "invalid_request",
        ("Oslo", "it"): "invalid_request",
    }
    with Pipeline(tmp_path, batch=2) as pipeline:
        pipeline.command(told("From Oslo to Bergen", ("Oslo", "near", "Bergen")), first=100)
        pipeline.command(*(AliasCommand(name=name, alias=alias) for name, alias in answers))
        pipeline.run()
        for number, expected in enumerate(answers.values(), start=1):
            error, result = pipeline.result(number)
            assert (error or result["status"]).startswith(expected), number
        assert pipeline.values("SELECT count(*) FROM entities") == [1]


def test_an_alias_is_answered_while_memory_is_frozen(tmp_path: Path) -> None:
    settings = pipeline_settings(Flags(mutations_frozen=True))
    with Pipeline(tmp_path, settings) as pipeline:
        pipeline.command(AliasCommand(name="Oslo", alias="Kristiania"))
        pipeline.run()
        assert str(pipeline.result(1)[0]).startswith("frozen")


def test_memories_are_linked_by_an_alias_at_once_and_after_a_restart(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("We were in Kristiania")
        pipeline.run()
        pipeline.command(told("Oslo is fine", ("Ana", "in", "Oslo")))
        pipeline.command(AliasCommand(name="Oslo", alias="Kristiania"), first=2)
        pipeline.run()
        pipeline.say("Back to Kristiania", first=2)
        pipeline.run()
        pipeline.reopen()
        pipeline.say("Again in Kristiania", first=3)
        pipeline.run()
        for number in (1, 2, 3):
            turn = turn_memory_id("ana", f"t{number}")
            assert ("Oslo", "Kristiania") in named(pipeline, turn), number


TOLD: Sequence[Command] = (
    told("Ana met Annie in Oslo", ("Ana", "lives in", "Oslo")),
    told("Annie moved to Kristiania", ("Annie", "lives in", "Kristiania"), confidence=0.3),
    told("Anna likes Bergen", ("Anna", "likes", "Bergen"), ("Anna", "knows", "Ana")),
    modified(memory_id(2), content="Annie moved to Bergen"),
    ForgetCommand(memory_ids=(memory_id(1),), reason="test"),
    RememberCommand(
        content="Annie is careful with nuts",
        structured=Structure(attributes=(StructuredAttribute(entity="Annie", aspect="Diet"),)),
    ),
    RememberCommand(
        content="Ana eats no meat",
        structured=Structure(attributes=(StructuredAttribute(entity="Ana", aspect="diet"),)),
    ),
    RecoverCommand(memory_id=memory_id(1)),
    modified(memory_id(3), content="Anna likes OSLO", who="Ana"),
    told("Anna sails", ("Anna", "lives in", "Oslo")),
    modified(memory_id(2), content="Annie moved to Kristiania"),
)
ALIASES: Sequence[tuple[int, Command]] = (
    (20, AliasCommand(name="Ana", alias="Annie")),
    (21, AliasCommand(name="Annie", alias="Anna")),
    (22, AliasCommand(name="Oslo", alias="Kristiania")),
    (23, AliasCommand(name="Ana", alias="Anna")),
)


def constrained(entity: str, text: str) -> RememberCommand:
    attribute = StructuredAttribute(entity=entity, aspect="rules", kind="constraint")
    return RememberCommand(content=text, structured=Structure(attributes=(attribute,)))


def test_constraints_of_what_a_question_names_are_in_every_context(tmp_path: Path) -> None:
    rule = "Nothing goes live on a Friday without two approvals, said the whole team at once"
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.say(*(f"Apollo grew by {n} modules in the spring" for n in range(60)))
        pipeline.command(constrained("Apollo", rule), constrained("Hermes", "Hermes is read-only"))
        pipeline.command(constrained("Apollo", "Apollo runs in Oslo"), scope="ben")
        pipeline.command(AliasCommand(name="Apollo", alias="Moonshot"), first=10)
        pipeline.run()
        retriever = Retriever(pipeline.shard)

        def shown(question: str, budget: int = 120, **query: Any) -> list[str]:
            asked = Query("ana", question, **query)
            found = asyncio.run(retriever.context(asked, budget=budget))
            return [line for line in found.text.splitlines() if "##" not in line] if found else []

        for question in ("how many modules has Apollo?", "when is Moonshot deployed?"):
            assert shown(question)[0] == f"- {rule}"
        assert not any(rule in line for line in shown("how many modules has Hermes?"))
        assert "- Hermes is read-only" in shown("how many modules has Hermes?")
        assert not any("Oslo" in line for line in shown("where does Apollo run?"))
        assert not any(rule in line for line in shown("what is Apollo?", types=("preference",)))
        pipeline.command(modified(memory_id(1), content="Apollo goes live on any day"), first=20)
        pipeline.run()
        assert shown("when is Apollo deployed?")[0] == "- Apollo goes live on any day"
        pipeline.command(ForgetCommand(memory_ids=(memory_id(1),), reason="over"), first=21)
        pipeline.run()
        assert not any("any day" in line for line in shown("when is Apollo deployed?"))
        # Many of them leave half of the block to what was found.
        many = [
            constrained("Apollo", f"Rule {n} of Apollo has many words in it") for n in range(40)
        ]
        pipeline.command(*many, first=30)
        pipeline.run()
        asked = Query("ana", "how many modules has Apollo?")
        block = asyncio.run(retriever.context(asked, budget=400))
        assert block is not None
        assert 5 < len(block.ids["profile"]) < 20
        assert len(block.ids["lines"]) > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_when_names_were_told_to_be_one_does_not_show(seed: int, tmp_path: Path) -> None:
    """Before, between or after what was said, and in any order among themselves."""
    chance = random.Random(seed)
    pictures = []
    for number in range(2):
        order = list(enumerate(TOLD, start=1))
        for alias in ALIASES if number == 0 else chance.sample(ALIASES, len(ALIASES)):
            place = len(order) if number == 0 else chance.randint(0, len(order))
            order.insert(place, alias)
        with Pipeline(tmp_path / str(number), batch=chance.choice((1, 3, 256))) as pipeline:
            for position, command in order:
                pipeline.command(command, first=position)
            pipeline.run()
            pictures.append(seen(pipeline))
    assert pictures[0] == pictures[1]
    assert [row[1] for row in pictures[0]["entities"]].count("Ana") == 1
    assert len(pictures[0]["entity_aspects"]) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_the_schedule_of_graph_commands_does_not_show(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    order = [*enumerate(TOLD, start=1)]
    for alias in ALIASES:
        order.insert(chance.randint(0, len(order)), alias)
    turns = ["Kristiania in spring", "Annie and OSLO", "Anna: Annie", "in Bergen with Anna"]

    def prepared(folder: Path, batch: int | dict[str, int]) -> Pipeline:
        pipeline = Pipeline(folder, NOT_EXTRACTED, batch=batch)
        for position, command in order:
            pipeline.command(command, first=position)
            if position % 3 == 0:
                pipeline.say(turns[position % 4], first=position)
        turn = turn_memory_id("ana", "t3")
        pipeline.command(modified(turn, who="Annie"), first=50)
        return pipeline

    with prepared(tmp_path / "whole", 256) as pipeline:
        whole = pipeline.run().state_by_table()
        picture = seen(pipeline)
    batch = {name: chance.choice((1, 2, 5)) for name in STAGE_NAMES}
    with prepared(tmp_path / "crashed", batch) as pipeline:
        for stage in ("apply-writes", "graph-persist", chance.choice(STAGE_NAMES)):
            pipeline.crash_at(stage, chance.choice(STEPS), chance.randint(1, 4))
            try:
                pipeline.run()
            except Crash:
                pipeline.reopen()
        pipeline.disarm()
        pipeline.run()
        assert differing(pipeline.state_by_table(), whole) == []
        assert seen(pipeline) == picture


# --- mentions follow the text -----------------------------------------------------------------


def known_places(pipeline: Pipeline, first: int) -> None:
    pipeline.command(told("Places", ("Oslo", "near", "Bergen")), first=first)
    pipeline.run()


@pytest.mark.parametrize("known_first", [True, False])
def test_a_replaced_text_mentions_nothing_any_more(tmp_path: Path, known_first: bool) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        if known_first:
            known_places(pipeline, 9)
        pipeline.command(RememberCommand(content="Ana lives in Oslo"))
        pipeline.run()
        pipeline.command(modified(memory_id(1), content="Ana lives in Bergen"), first=2)
        pipeline.run()
        if not known_first:
            known_places(pipeline, 9)
        assert named(pipeline, memory_id(1)) == {("Ana", "Ana"), ("Bergen", "Bergen")}
        pipeline.command(modified(memory_id(1), content="Ana lives in Oslo"), first=3)
        pipeline.run()
        assert named(pipeline, memory_id(1)) == {("Ana", "Ana"), ("Oslo", "Oslo")}


def test_what_triples_said_of_a_text_goes_with_it(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(told("she lives there", ("Ana", "in", "Oslo")))
        pipeline.run()
        assert named(pipeline, memory_id(1)) == {("Ana", "Ana"), ("Oslo", "Oslo")}
        pipeline.command(modified(memory_id(1), content="nobody lives there"), first=2)
        pipeline.run()
        assert named(pipeline, memory_id(1)) == set()


@pytest.mark.parametrize("meanwhile", [True, False])
def test_a_forgotten_memory_mentions_nothing_until_it_is_recovered(
    tmp_path: Path, meanwhile: bool
) -> None:
    with Pipeline(tmp_path) as pipeline:
        if not meanwhile:
            known_places(pipeline, 9)
        pipeline.command(RememberCommand(content="Ana lives in Oslo"))
        pipeline.command(ForgetCommand(memory_ids=(memory_id(1),), reason="test"), first=2)
        pipeline.run()
        if meanwhile:
            known_places(pipeline, 9)
        assert named(pipeline, memory_id(1)) == set()
        pipeline.command(RecoverCommand(memory_id=memory_id(1)), first=3)
        pipeline.run()
        assert named(pipeline, memory_id(1)) == {("Oslo", "Oslo")}


def test_what_is_forgotten_is_no_entity_of_what_else_the_turn_said(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("My sister Lea lives in Nice. I work at Bosch.")
        pipeline.run()
        assert known_names(pipeline) == {"Ana", "Lea", "Nice", "Bosch"}
        assert facts_of(pipeline, "Nice") == ["Ana's sister Lea lives in Nice."]
        [forgotten] = pipeline.values(
            "SELECT memory_id FROM memory_rows WHERE content ~ 'Ana.*Lea'"
        )
        pipeline.command(ForgetCommand(memory_ids=(forgotten,), reason="test"))
        pipeline.run()
        assert known_names(pipeline) == {"Ana", "Bosch"}


def known_names(pipeline: Pipeline) -> set[str]:
    return {each["name"] for each in ask(pipeline, Entities(scope="ana"))["entities"]}


def facts_of(pipeline: Pipeline, name: str) -> list[str]:
    memories = ask(pipeline, GetEntity(name, "ana"))["memories"]
    return [each["content"] for each in memories if each["type"] != "episodic"]


def test_a_turn_given_another_speaker_names_that_one(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(told("People", ("Rita", "knows", "Ben")), first=9)
        pipeline.say("hello there", speaker="Rita")
        pipeline.run()
        turn = turn_memory_id("ana", "t1")
        assert named(pipeline, turn) == {("Rita", "Rita")}
        pipeline.command(modified(turn, who="Ben"), first=1)
        pipeline.run()
        assert named(pipeline, turn) == {("Ben", "Ben")}


def test_the_boost_follows_the_present_text(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        known_places(pipeline, 9)
        others = [RememberCommand(content=f"thing {n}") for n in range(10, 20)]
        pipeline.command(RememberCommand(content="Ana lives in Oslo"))
        pipeline.command(*others, first=10)
        pipeline.command(modified(memory_id(1), content="Ana lives in a tent"), first=2)
        pipeline.run()
        graph = pipeline.shard.indexes.scope("ana").graph
        found = graph_boost(graph, "who is in Oslo", lambda: 0.0, RecallSettings())
        assert found.error is None
        assert memory_id(1) not in found.strengths
        assert [entity.name for entity in found.named] == ["Oslo"]


# --- numbers that agree -----------------------------------------------------------------------


def test_the_mentions_of_an_entity_are_the_rows_of_the_mentions_view(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("Oslo again", "Oslo and Bergen", "OSLO")
        known_places(pipeline, 9)
        pipeline.command(told("Oslo it is", ("Oslo", "near", "Bergen")), first=10)
        pipeline.command(ForgetCommand(memory_ids=(memory_id(10),), reason="test"), first=11)
        pipeline.run()
        counted = pipeline.rows(
            "SELECT e.name, e.mentions, e.times_told, count(m.memory_id) AS rows"
            " FROM entities e LEFT JOIN mentions m USING (entity_id) GROUP BY ALL ORDER BY 1"
        )
        assert [row["name"] for row in counted] == ["Bergen", "Oslo"]
        for row in counted:
            assert row["mentions"] == row["rows"] >= row["times_told"] == 2


def test_graph_writes_off_drops_what_turns_say_and_keeps_what_is_authored(tmp_path: Path) -> None:
    graph = GraphSettings(extraction_writes_enabled=False)
    settings = pipeline_settings().model_copy(update={"graph": graph})
    with Pipeline(tmp_path, settings) as pipeline:
        pipeline.say("I live in Trondheim.", speaker="Rita")
        pipeline.command(
            told("Oslo it is", ("Ana", "in", "Oslo")), AliasCommand(name="Oslo", alias="Kristiania")
        )
        pipeline.run()
        assert pipeline.result(2)[1]["status"] == "added"
        assert set(pipeline.values("SELECT name FROM entities")) == {"Ana", "Oslo"}
        assert pipeline.values("SELECT relation_type FROM relations") == ["in"]
