"""People rename, type, pin and archive entities; the graph says so everywhere, and forgets it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.graph import Entities, GetEntity, ProposedMerges, ShowGraph
from palimpsest.ops.operations.scopes import GraphStatistics
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ForgetCommand,
    UnaliasCommand,
)
from palimpsest.schemas.entities import EditEntityCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.stores.index.stored_scopes import StoredGraph
from palimpsest.stores.recall.graph import graph_boost
from palimpsest.stores.settings import RecallSettings
from tests.examples import examples
from tests.flows.test_graph import NOT_EXTRACTED, memory_id, told
from tests.harness import Pipeline
from tests.sessions_by_hand import ask

AGENT = Actor(id="bot", type="agent")
SAID: Sequence[Command] = (
    told("Jhon lives in Porto", ("Jhon", "lives in", "Porto")),
    told("Nora works with Jhon", ("Nora", "works with", "Jhon")),
    told("Nora owns a boat", ("Nora", "owns", "a boat")),
)


def edit(name: str, **changes: Any) -> EditEntityCommand:
    return EditEntityCommand(name=name, **changes)


def entity(pipeline: Pipeline, name: str) -> Any:
    return ask(pipeline, GetEntity(name, scope="ana"))


def listed(pipeline: Pipeline, archived: bool = False) -> list[str]:
    found = ask(pipeline, Entities(scope="ana", archived=archived))["entities"]
    return sorted(each["name"] for each in found)


def boosted(pipeline: Pipeline, query: str) -> list[set[str]]:
    """The names that a recall looks for, in a resident scope and in a stored one."""
    graphs = (pipeline.shard.indexes.get("ana").graph, StoredGraph(pipeline.shard.reading, "ana"))
    found = (graph_boost(graph, query, lambda: 0.0, RecallSettings()) for graph in graphs)
    return [{each.name for each in boost.named} for boost in found]


def picture(pipeline: Pipeline) -> dict[str, list[Any]]:
    """The graph as analysts see it, but for when and how often it was edited."""
    columns = {
        "entities": "scope, name, entity_type, list_sort(aliases), mentions, pinned, archived",
        "relations": "source_entity_id, target_entity_id, relation_type, mentions",
        "mentions": "memory_id, entity_name, mention_text",
    }
    return {
        view: sorted(tuple(row.values()) for row in pipeline.rows(f"SELECT {names} FROM {view}"))
        for view, names in columns.items()
    }


def test_an_entity_is_renamed_typed_and_pinned(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, edit("jhon", rename="John", type="person", pinned=True))
        pipeline.run()
        assert pipeline.result(4)[1] | {"entity_id": ""} == {
            "status": "updated",
            "entity_id": "",
            "name": "John",
            "type": "person",
            "aliases": ["Jhon"],
            "pinned": True,
            "archived": False,
            "version": 2,
        }
        for name in ("Jhon", "JOHN"):
            found = entity(pipeline, name)
            assert (found["name"], found["type"], found["aliases"]) == ("John", "person", ["jhon"])
        assert {each["name"] for each in entity(pipeline, "Nora")["relations"]} == {
            "John",
            "a boat",
        }
        assert boosted(pipeline, "where does Jhon live?") == [{"John"}, {"John"}]
        # What is said by either name is said of it.
        pipeline.command(told("John met Nora", ("John", "met", "Nora")), first=10)
        pipeline.run()
        assert entity(pipeline, "Jhon")["mentions"] == 3


def test_renaming_is_repeated_refused_and_taken_back(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, edit("jhon", rename="John"))
        pipeline.command(
            edit("John", rename="john"),
            edit("John", rename="John", type="person", if_version=3),
            edit("John", type="unknown", if_version=3),
            edit("John", rename="Nora"),
            edit("Zoe", rename="Zora"),
            edit("John", rename="?"),
            edit("John", rename="Jhon"),
            first=11,
        )
        pipeline.run()
        kinds = [
            (error or result["status"]) for error, result in map(pipeline.result, range(11, 18))
        ]
        assert kinds[:2] == ["updated", "updated"]  # the spelling, and back
        assert kinds[2] == "version_conflict: the entity is at version 4"
        assert kinds[3] == (
            "invalid_request: 'Nora' is the name of another entity; `alias` makes both one"
        )
        assert kinds[4] == "not_found: nothing called 'Zoe' is known in this scope"
        assert kinds[5].startswith("invalid_request: '?' ")
        assert kinds[6] == "updated"
        assert (entity(pipeline, "John")["name"], listed(pipeline)) == (
            "Jhon",
            ["Jhon", "Nora", "Porto", "a boat"],
        )


def test_what_is_archived_is_nowhere_until_it_is_restored(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, edit("Jhon", type="person"))
        before = picture(pipeline.run())
        pipeline.command(
            edit("Jhon", archived=True), AliasCommand(name="Nora", alias="Jhon"), first=10
        )
        pipeline.run()
        assert pipeline.result(11)[0] == "invalid_request: 'Jhon' is archived: restore it first"
        assert (listed(pipeline), listed(pipeline, archived=True)) == (
            ["Nora", "Porto", "a boat"],
            ["Jhon"],
        )
        assert [each["name"] for each in entity(pipeline, "Nora")["relations"]] == ["a boat"]
        assert boosted(pipeline, "where does Jhon live? and Nora?") == [{"Nora"}, {"Nora"}]
        graphs = (
            pipeline.shard.indexes.get("ana").graph,
            StoredGraph(pipeline.shard.reading, "ana"),
        )
        mia = entity(pipeline, "Nora")["id"]
        assert [len(graph.related([mia])) for graph in graphs] == [1, 1]
        assert ask(pipeline, GraphStatistics(scope="ana"))["entities"] == 3
        assert ask(pipeline, ProposedMerges(scope="ana"))["merges"] == []
        whole = ask(pipeline, ShowGraph(scope="ana"))
        assert (len(whole["nodes"]), len(whole["edges"])) == (3, 1)
        with pytest.raises(NotFoundError, match="Jhon is archived: to restore it, set archived"):
            ask(pipeline, ShowGraph("Jhon", scope="ana"))
        found = entity(pipeline, "Jhon")
        assert (found["archived"], len(found["memories"])) == (True, 2)
        pipeline.command(edit("Jhon", archived=False), first=20)
        assert picture(pipeline.run()) == before
        # What was said meanwhile counts.
        pipeline.command(
            edit("Jhon", archived=True),
            told("Jhon likes tea", ("Jhon", "likes", "tea")),
            edit("Jhon", archived=False),
            first=30,
        )
        pipeline.run()
        assert {each["name"] for each in entity(pipeline, "Jhon")["relations"]} == {
            "Porto",
            "Nora",
            "tea",
        }


def test_an_agent_does_not_overrule_a_person(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID)
        pipeline.command(
            edit("Jhon", type="concept"),
            edit("Jhon", pinned=True),
            AliasCommand(name="Jhon", alias="Jonny"),
            first=10,
            actor=AGENT,
        )
        pipeline.command(
            edit("Jhon", type="person"),
            UnaliasCommand(name="Jhon", alias="Jonny"),
            AliasCommand(name="Nora", alias="Norah"),
            UnaliasCommand(name="Nora", alias="a boat"),
            first=20,
        )
        pipeline.command(
            edit("Jhon", type="concept"),
            AliasCommand(name="Jonny", alias="Jhon"),
            UnaliasCommand(name="Norah", alias="Nora"),
            AliasCommand(name="Nora", alias="a boat"),
            first=30,
            actor=AGENT,
        )
        pipeline.run()
        first = [error or result["status"] for error, result in map(pipeline.result, (10, 11, 12))]
        assert first == ["updated", "forbidden: only a person may pin an entity", "added"]
        refused = [pipeline.result(number)[0] or "" for number in range(30, 34)]
        assert refused[0] == "forbidden: a person edited or pinned 'Jhon': only a person may"
        assert [each.startswith("forbidden: a person said that ") for each in refused[1:]] == [
            True
        ] * 3
        assert entity(pipeline, "Jhon")["type"] == "person"


INVERSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "type": ({"type": "project"}, {"type": "unknown"}),
    "pin": ({"pinned": True}, {"pinned": False}),
    "archive": ({"archived": True}, {"archived": False}),
}


@pytest.mark.parametrize("seed", range(examples(3)))
def test_edits_and_their_inverses_leave_the_graph_as_it_was(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    names = ["Jhon", "Nora", "Porto"]
    done: list[tuple[Command, ...]] = []
    commands: list[Command] = []
    for number in range(chance.randint(4, 8)):
        name = chance.choice(names)
        kind = chance.choice((*INVERSES, "rename", "alias"))
        if kind == "rename":
            new = f"Name{number}"
            commands.append(edit(name, rename=new))
            done.append((UnaliasCommand(name=name, alias=new),))
        elif kind == "alias":
            commands.append(AliasCommand(name=name, alias=f"Other{number}"))
            done.append((UnaliasCommand(name=name, alias=f"Other{number}"),))
        elif not any(
            isinstance(each[0], EditEntityCommand) and each[0].name == name for each in done
        ):
            commands.append(edit(name, **INVERSES[kind][0]))
            done.append((edit(name, **INVERSES[kind][1]),))
    with Pipeline(tmp_path / "edited", NOT_EXTRACTED, batch=chance.choice((1, 3, 256))) as pipeline:
        pipeline.command(*SAID)
        before = picture(pipeline.run())
        pipeline.command(*commands, first=10)
        assert picture(pipeline.run()) != before
        undone = [command for each in done for command in each]
        chance.shuffle(undone)
        pipeline.command(*undone, first=50)
        assert picture(pipeline.run()) == before
        numbers = [*range(10, 10 + len(commands)), *range(50, 50 + len(undone))]
        assert [pipeline.result(number)[0] for number in numbers] == [None] * len(numbers)


def test_unmerging_leaves_both_as_they_were_edited(tmp_path: Path) -> None:
    edits = [
        edit("Jhon", rename="John", type="person"),
        edit("Nora", rename="Norah", type="organization", pinned=True),
    ]
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, *edits)
        before = picture(pipeline.run())
        pipeline.command(
            AliasCommand(name="Nora", alias="Jhon"),
            UnaliasCommand(name="John", alias="Norah"),
            first=9,
        )
        pipeline.command(UnaliasCommand(name="Nora", alias="Jhon"), first=20)
        assert picture(pipeline.run()) == before


def test_erasing_leaves_no_name_behind(tmp_path: Path) -> None:
    """Not the one that a person gave, either; nor does a rebuild bring it back."""
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, edit("Jhon", rename="John", type="person"))
        pipeline.command(
            ForgetCommand(memory_ids=(memory_id(1), memory_id(2)), reason="asked", hard=True),
            first=10,
        )
        pipeline.run()
        names = {row["name"] for row in pipeline.rows("SELECT name FROM internal.name_rows")}
        assert names == {"Nora", "a boat"}
        assert pipeline.rows("FROM internal.name_links") == []


@pytest.mark.parametrize("erased", [1, 2])
def test_a_given_name_stays_as_long_as_its_entity(tmp_path: Path, erased: int) -> None:
    """Although no memory contains it, and one of those that mention the entity is erased."""
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(*SAID, edit("Jhon", rename="John", type="person"))
        pipeline.command(
            ForgetCommand(memory_ids=(memory_id(erased),), reason="asked", hard=True), first=10
        )
        pipeline.run()
        assert "John" in listed(pipeline)
