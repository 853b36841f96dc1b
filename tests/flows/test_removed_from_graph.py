"""What people remove from the graph is gone everywhere, by all names, until it is told again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.commands import AliasCommand, UnaliasCommand
from palimpsest.schemas.entities import (
    EditEntityCommand,
    RemoveFromGraphCommand,
    StructureToRemove,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.stores.index.stored_scopes import StoredGraph
from tests.flows.test_authored_graph import STRUCTURE, added, entity
from tests.flows.test_graph import NOT_EXTRACTED, memory_id, told
from tests.harness import Pipeline

AGENT = Actor(id="bot", type="agent")
LEADS = {"source": "nora", "relationship": "Leads", "target": "Moonshot"}
DIET = {"entity": "Ana", "aspect": "diet"}


def removed(**structured: Any) -> RemoveFromGraphCommand:
    return RemoveFromGraphCommand(structured=StructureToRemove.model_validate(structured))


def related(pipeline: Pipeline, name: str) -> list[str]:
    """To whom the entity is related; the same by the tables, in memory and in a new index."""
    [entity_id] = pipeline.values("SELECT entity_id FROM entities WHERE canonical_name = ?", name)
    stored = StoredGraph(pipeline.shard.reading, "ana")
    graphs = [pipeline.shard.indexes.get("ana").graph, stored]
    pipeline.shard.indexes.clear()
    graphs.append(pipeline.shard.indexes.get("ana").graph)
    found = [sorted(other for other, _ in graph.related([entity_id])) for graph in graphs]
    assert found[0] == found[1] == found[2]
    shown = [each["name"] for each in entity(pipeline, name)["relations"]]
    assert len(shown) == len(found[0])
    return sorted(shown)


def aspects(pipeline: Pipeline, name: str) -> list[tuple[str, str]]:
    """Aspects and their memories."""
    found = entity(pipeline, name)["attributes"]
    return sorted((each["aspect"], each["memory_id"]) for each in found)


def test_a_relation_goes_by_all_names_and_comes_back_once_told(tmp_path: Path) -> None:
    lives = ("Anna", "lives in", "Porto")
    gone = {"source": "ana", "relationship": "lives in", "target": "porto"}
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            added(STRUCTURE),
            told("Anna lives in Porto", lives),
            told("Anna likes Porto", ("Anna", "likes", "Porto")),
            AliasCommand(name="Ana", alias="Anna"),
            removed(relations=[LEADS, gone]),
        )
        pipeline.run()
        assert pipeline.result(5) == (
            None,
            {
                "status": "removed",
                "removed": {"relations": ["nora leads Moonshot", "ana lives in porto"]},
                "missing": {},
            },
        )
        assert related(pipeline, "nora") == related(pipeline, "apollo") == []
        assert related(pipeline, "ana") == ["Porto"]
        assert pipeline.values("SELECT relation_type FROM relations") == ["likes"]
        pipeline.command(removed(relations=[gone]), first=6)
        pipeline.run()
        assert pipeline.result(6)[1] == {
            "status": "no_changes",
            "removed": {},
            "missing": {"relations": ["ana lives in porto"]},
        }
        pipeline.command(told("Anna still lives in Porto", lives), added(STRUCTURE), first=7)
        pipeline.run()
        assert related(pipeline, "ana") == ["Porto", "Porto"]
        assert related(pipeline, "nora") == ["Apollo"]
        assert pipeline.result(8)[1]["added"]["relations"] == ["Nora leads Apollo"]
        [mentions] = pipeline.values(
            "SELECT mentions FROM relations WHERE relation_type = 'lives in'"
        )
        assert mentions == 1


def test_attributes_and_aspects_go_by_all_names(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        first, second = memory_id(1), memory_id(2)
        pipeline.command(told("Ana eats no nuts"), told("Anna eats no fish"))
        pipeline.run()
        one, other = (
            {"entity": name, "aspect": "Diet", "memory_id": each}
            for name, each in (("Ana", first), ("Anna", second))
        )
        pipeline.command(
            added({"attributes": [one, other]}),
            AliasCommand(name="Ana", alias="Anna"),
            removed(attributes=[DIET | {"memory_id": second}]),
            first=3,
        )
        pipeline.run()
        assert pipeline.result(5)[1]["removed"] == {"attributes": [second]}
        assert aspects(pipeline, "Anna") == [("Diet", first)]
        pipeline.command(removed(aspects=[DIET]), first=6)
        pipeline.run()
        assert pipeline.result(6)[1]["removed"] == {"aspects": ["Ana: diet"]}
        assert aspects(pipeline, "Anna") == []
        assert pipeline.values("SELECT name FROM entity_aspects") == []
        # Adding one back brings no other back, whichever name it had.
        pipeline.command(
            added({"attributes": [other]}), UnaliasCommand(name="Ana", alias="Anna"), first=7
        )
        pipeline.run()
        assert pipeline.result(7)[1]["added"] == {"attributes": [second]}
        assert aspects(pipeline, "Anna") == [("Diet", second)]
        assert aspects(pipeline, "Ana") == []
        # The memories are as they were.
        assert pipeline.values("SELECT DISTINCT is_deleted FROM memory_rows") == [False]


def test_what_was_never_there_is_missing(tmp_path: Path) -> None:
    nowhere = {"source": "Nobody", "relationship": "knows", "target": "Ana"}
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            added({"entities": [{"name": "Ana"}]}),
            removed(relations=[nowhere], aspects=[DIET], attributes=[DIET | {"memory_id": "no"}]),
        )
        pipeline.run()
        assert pipeline.result(2)[1] == {
            "status": "no_changes",
            "removed": {},
            "missing": {
                "relations": ["Nobody knows Ana"],
                "aspects": ["Ana: diet"],
                "attributes": ["no"],
            },
        }
        assert pipeline.values("SELECT name FROM name_rows") == ["Ana"]


@pytest.mark.parametrize(
    "structured",
    [{"relations": [LEADS]}, {"aspects": [{"entity": "Apollo", "aspect": "budget"}]}],
    ids=["relation", "aspect"],
)
def test_agents_remove_nothing_of_what_a_person_edited(
    structured: dict[str, Any], tmp_path: Path
) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(added(STRUCTURE), EditEntityCommand(name="Apollo", type="project"))
        pipeline.command(EditEntityCommand(name="Apollo", pinned=True), first=3)
        pipeline.command(removed(**structured), actor=AGENT, first=4)
        pipeline.run()
        assert pipeline.result(4)[0] == (
            "forbidden: a person edited or pinned 'Apollo': only a person may"
        )
        assert related(pipeline, "nora") == ["Apollo"]
        pipeline.command(removed(**structured), first=5)
        pipeline.run()
        assert pipeline.result(5)[1]["status"] == "removed"
