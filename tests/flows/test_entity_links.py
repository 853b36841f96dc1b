"""Names are told to be one entity's, and it is taken back: the graph is as it would be without."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.graph import ProposedMerges, ShowGraph
from palimpsest.ops.operations.scopes import GraphStatistics
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ForgetCommand,
    RememberCommand,
    UnaliasCommand,
)
from palimpsest.schemas.entities import Structure, StructuredEntity
from palimpsest.streams.runtime.runner import STEPS
from tests.examples import examples
from tests.flows.test_graph import NOT_EXTRACTED, memory_id, seen, told
from tests.harness import Crash, Pipeline, differing
from tests.sessions_by_hand import ask

NAMES = ("Ana", "Anna", "Annie", "Anita")
SAID: Sequence[Command] = (
    told("Ana lives in Porto", ("Ana", "lives in", "Porto")),
    told("Anna works with Annie", ("Anna", "works with", "Annie")),
    told("Anita sails", ("Anita", "owns", "a boat")),
    told("Annie met Ana in Oslo", ("Annie", "met", "Ana"), ("Ana", "visited", "Oslo")),
    told("Anna plays chess", ("Anna", "plays", "chess")),
)


def picture(folder: Path, commands: Sequence[Command], batch: int = 256) -> dict[str, list[Any]]:
    with Pipeline(folder, NOT_EXTRACTED, batch=batch) as pipeline:
        for number, command in enumerate(commands):
            # What is said has the same id in every order.
            place = SAID.index(command) + 1 if command in SAID else 100 + number
            pipeline.command(command, first=place)
        pipeline.run()
        return seen(pipeline)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_what_was_taken_back_leaves_no_trace(seed: int, tmp_path: Path) -> None:
    """Links in random order, some taken back, with memories told in between."""
    chance = random.Random(seed)
    links: dict[tuple[str, str], bool] = {}
    commands: list[Command] = []
    for said in SAID:
        commands.append(said)
        for _ in range(chance.randint(0, 3)):
            pair = tuple(chance.sample(NAMES, 2))
            taken_back = [each for each, is_active in links.items() if is_active]
            if taken_back and chance.random() < 0.5:
                pair = chance.choice(taken_back)
                commands.append(UnaliasCommand(name=pair[0], alias=pair[1]))
                links[pair[1], pair[0]] = links[pair] = False
            else:
                commands.append(AliasCommand(name=pair[0], alias=pair[1]))
                links[pair] = True
    left = [AliasCommand(name=a, alias=b) for (a, b), is_active in links.items() if is_active]
    chance.shuffle(left)
    found = picture(tmp_path / "told", commands, chance.choice((1, 2, 256)))
    assert found == picture(tmp_path / "never", [*SAID, *left])


def results(pipeline: Pipeline, *numbers: int) -> list[Any]:
    answers = [pipeline.result(number) for number in numbers]
    return [error or result["status"] for error, result in answers]


def test_what_taking_back_answers(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            *SAID[:3],
            AliasCommand(name="Ana", alias="Anna"),
            AliasCommand(name="Anna", alias="Annie"),
            UnaliasCommand(name="Ana", alias="Annie"),  # one only through Anna
            UnaliasCommand(name="Anna", alias="Ana"),  # the other way round is the same
            UnaliasCommand(name="Ana", alias="Anita"),
            UnaliasCommand(name="Ana", alias="Zora"),
            UnaliasCommand(name="Ana", alias="ANA"),
        )
        pipeline.run()
        through, separated, apart, unknown, same = results(pipeline, 6, 7, 8, 9, 10)
        assert through.startswith("invalid_request: 'Ana' and 'Annie' are names of one entity")
        assert "Anna" in through
        assert (separated, apart) == ("separated", "kept_apart")
        assert unknown == "not_found: nothing called 'Zora' is known in this scope"
        assert same.startswith("invalid_request")
        _, answer = pipeline.result(7)
        assert [(each["name"], each["aliases"]) for each in answer["entities"]] == [
            ("Anna", ["Annie"]),
            ("Ana", []),
        ]


def test_an_alias_that_came_with_a_memory_is_taken_back(tmp_path: Path) -> None:
    entity = StructuredEntity(name="Ana", type="person", aliases=("Ani",))
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            RememberCommand(
                content="Ana, or Ani, is here", structured=Structure(entities=(entity,))
            ),
            UnaliasCommand(name="Ana", alias="Ani"),
        )
        pipeline.run()
        assert results(pipeline, 2) == ["separated"]
        assert [row["name"] for row in pipeline.rows("FROM entities ORDER BY name")] == [
            "Ana",
            "Ani",
        ]


def test_links_go_with_their_names(tmp_path: Path) -> None:
    """Erasing what alone told of a name removes its links."""
    entity = StructuredEntity(name="Quilla", aliases=("Quillo",))
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            RememberCommand(content="Quilla and Quillo", structured=Structure(entities=(entity,))),
            *SAID[:2],
            AliasCommand(name="Ana", alias="Anna"),
        )
        pipeline.run()
        assert len(pipeline.rows("FROM internal.name_links")) == 2
        pipeline.command(
            ForgetCommand(memory_ids=(memory_id(1),), reason="asked", hard=True), first=5
        )
        pipeline.run()
        assert len(pipeline.rows("FROM internal.name_links")) == 1


@pytest.mark.parametrize("seed", range(examples(1)))
def test_crashes_do_not_show(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    commands = [
        *SAID,
        AliasCommand(name="Ana", alias="Anna"),
        AliasCommand(name="Anna", alias="Annie"),
        UnaliasCommand(name="Ana", alias="Anna"),
        SAID[0],
    ]
    with Pipeline(tmp_path / "whole", NOT_EXTRACTED) as pipeline:
        pipeline.command(*commands)
        whole = pipeline.run().state_by_table()
    with Pipeline(tmp_path / "crashed", NOT_EXTRACTED, batch=2) as pipeline:
        pipeline.command(*commands)
        for stage in ("apply-writes", "graph-persist"):
            pipeline.crash_at(stage, chance.choice(STEPS), chance.randint(1, 3))
            try:
                pipeline.run()
            except Crash:
                pipeline.reopen()
        pipeline.disarm()
        pipeline.run()
        assert differing(pipeline.state_by_table(), whole) == []


def merges(pipeline: Pipeline) -> Any:
    return ask(pipeline, ProposedMerges(scope="ana"))["merges"]


def test_entities_that_may_be_one_are_listed_until_somebody_says(tmp_path: Path) -> None:
    said = (
        told("Bob coaches the Hawks", ("Bob", "coaches", "the Hawks")),
        told("Robert Kane coaches the Hawks", ("Robert Kane", "coaches", "the Hawks")),
        told("Kate rooms with Priya", ("Kate", "roommate of", "Priya")),
        told("Katherine Wood rooms with Priya", ("Katherine Wood", "roommate of", "Priya")),
        told("Max is Priya's cousin", ("Max", "cousin of", "Priya")),
    )
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*said)
        pipeline.run()
        found = merges(pipeline)
        assert [(each["name"], each["alias"], each["names_are"]) for each in found] == [
            ("Bob", "Robert Kane", "nickname"),
            ("Kate", "Katherine Wood", "nickname"),
        ]
        assert found[0]["shared"] == [
            {"relation": "coaches", "direction": "out", "name": "the Hawks"}
        ]
        pipeline.command(
            AliasCommand(name="Bob", alias="Robert Kane"),
            UnaliasCommand(name="Kate", alias="Katherine Wood"),
            first=10,
        )
        pipeline.run()
        assert merges(pipeline) == []
        pipeline.command(UnaliasCommand(name="Bob", alias="Robert Kane"), first=20)
        pipeline.run()
        assert merges(pipeline) == []  # a person has told them apart


def test_the_graph_around_an_entity(tmp_path: Path) -> None:
    chain = [told(f"N{n} knows N{n + 1}", (f"N{n}", "knows", f"N{n + 1}")) for n in range(5)]
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*chain)
        pipeline.run()

        def names(**asked: Any) -> tuple[list[str], int, bool]:
            found = ask(pipeline, ShowGraph(scope="ana", **asked))
            return (
                sorted(node["name"] for node in found["nodes"]),
                len(found["edges"]),
                found["complete"],
            )

        assert names(name="n2", depth=1) == (["N1", "N2", "N3"], 2, True)
        assert names(name="N0", depth=2) == (["N0", "N1", "N2"], 2, True)
        assert names(name="N0", depth=4, limit=2) == (["N0", "N1"], 1, False)
        assert names() == ([f"N{n}" for n in range(6)], 5, True)
        with pytest.raises(NotFoundError, match="nothing called Nobody is known"):
            names(name="Nobody")


def test_the_graph_is_counted(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            *SAID,
            AliasCommand(name="Ana", alias="Anna"),
            told("Zora sings"),
            RememberCommand(
                content="Nothing at all",
                structured=Structure(entities=(StructuredEntity(name="Yara", type="person"),)),
            ),
            AliasCommand(name="Zora", alias="Zorana"),
            AliasCommand(name="Mira", alias="Mirabel"),
            ForgetCommand(memory_ids=(memory_id(8),), reason="wrong"),
        )
        pipeline.run()
        counts = ask(pipeline, GraphStatistics(scope="ana", limit=1))
        assert ask(pipeline, GraphStatistics(scope="other"))["entities"] == 0
    assert (counts["entities"], counts["aliases"]) == (9, 3)
    assert counts["orphans"] == 1  # Mira; what only the forgotten memory told is no entity
    assert counts["hubs"] == [{"name": "Ana", "related": 4}]
    assert counts["relation_types"]["lives in"] == 1
    assert counts["entity_types"] == {"unknown": 9}
