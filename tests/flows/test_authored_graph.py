"""The graph is authored without a text: entities, aspects, attributes and relations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palimpsest.ops.operations.graph import GetEntity
from palimpsest.schemas.commands import ForgetCommand, RememberCommand
from palimpsest.schemas.entities import AddToGraphCommand, Structure
from palimpsest.schemas.envelope import Actor
from tests.flows.test_graph import NOT_EXTRACTED, memory_id, told
from tests.harness import Pipeline
from tests.sessions_by_hand import ask

RULE = {
    "entity": "Apollo",
    "aspect": "deployment",
    "kind": "constraint",
    "content": "Never deploy on a Friday.",
    "importance": 0.9,
    "confidence": 0.7,
}
STRUCTURE = {
    "entities": [{"name": "Apollo", "type": "project", "aliases": ["Moonshot"]}],
    "aspects": [{"entity": "Apollo", "aspect": "budget"}],
    "attributes": [RULE],
    "relations": [{"source": "Nora", "relationship": "leads", "target": "Apollo"}],
}


def added(structured: dict[str, Any]) -> AddToGraphCommand:
    return AddToGraphCommand(structured=Structure.model_validate(structured))


def entity(pipeline: Pipeline, name: str) -> Any:
    return ask(pipeline, GetEntity(name, scope="ana"))


def test_the_graph_is_authored_without_a_text(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(added(STRUCTURE), added(STRUCTURE))
        pipeline.run()
        _, first = pipeline.result(1)
        [rule] = first["added"]["attributes"]
        assert (first["status"], first["known"], first["warnings"]) == ("added", {}, [])
        assert first["added"] == {
            "entities": ["Apollo"],
            "aliases": ["Moonshot"],
            "relations": ["Nora leads Apollo"],
            "aspects": ["Apollo: budget"],
            "attributes": [rule],
        }
        _, again = pipeline.result(2)
        assert (again["status"], again["added"], again["known"]) == ("already", {}, first["added"])
        found = entity(pipeline, "moonshot")
        assert (found["name"], found["type"], found["mentions"]) == ("Apollo", "project", 1)
        assert [each["name"] for each in found["relations"]] == ["Nora"]
        [attribute] = found["attributes"]
        assert {
            key: attribute[key] for key in ("memory_id", "kind", "confidence", "importance")
        } == {
            "memory_id": rule,
            "kind": "constraint",
            "confidence": 0.7,
            "importance": 0.9,
        }
        assert pipeline.rows("SELECT content, importance, confidence FROM memory_rows") == [
            {"content": RULE["content"], "importance": 0.9, "confidence": 0.7}
        ]
        # Forgotten, the attribute goes.
        pipeline.command(ForgetCommand(memory_ids=(rule,), reason="over"), first=5)
        pipeline.run()
        assert entity(pipeline, "Apollo")["attributes"] == []
        # What was added without a text stays, also where a memory that names it is erased.
        pipeline.command(told("Apollo is late", ("Apollo", "is", "late")), first=6)
        pipeline.command(
            ForgetCommand(memory_ids=(memory_id(6), rule), reason="asked", hard=True), first=7
        )
        pipeline.run()
        left = entity(pipeline, "Apollo")
        assert ([each["name"] for each in left["relations"]], left["mentions"]) == (["Nora"], 0)
        assert pipeline.values("SELECT name FROM entity_aspects") == ["budget"]


def test_attributes_of_stored_memories_and_beside_a_text(tmp_path: Path) -> None:
    """A memory that is there becomes an attribute; one with a text of its own comes with another
    text, which does not become one."""
    music = {"entity": "Nora", "aspect": "music"}
    own = RULE | {"entity": "Zora", "content": "Zora sings on Sundays", "aspect": "music"}
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(
            RememberCommand(content="Nora plays the oboe"),
            added({"attributes": [music | {"memory_id": memory_id(1)}]}),
            RememberCommand(
                content="Zora lives in Porto",
                structured=Structure.model_validate({"attributes": [own]}),
            ),
            added({"attributes": [music]}),
            added({"attributes": [music | {"memory_id": "no"}]}),
            added({"entities": [{"name": "?"}]}),
        )
        pipeline.run()
        assert pipeline.result(2)[1]["added"] == {"attributes": [memory_id(1)]}
        assert [each["content"] for each in entity(pipeline, "Nora")["attributes"]] == [
            "Nora plays the oboe"
        ]
        assert [each["content"] for each in entity(pipeline, "Zora")["attributes"]] == [
            "Zora sings on Sundays"
        ]
        assert pipeline.result(4)[0] == (
            "invalid_request: the attribute 'music' of 'Nora' has no text: give `content`, or the"
            " `memory_id` of one that is stored"
        )
        assert pipeline.result(5)[0] == "not_found: no active memory no in this scope"
        _, nothing = pipeline.result(6)
        assert (nothing["status"], len(nothing["warnings"])) == ("already", 1)


def test_an_agent_raises_nothing_over_the_usual_importance(tmp_path: Path) -> None:
    with Pipeline(tmp_path, NOT_EXTRACTED) as pipeline:
        pipeline.command(added(STRUCTURE), actor=Actor(id="bot", type="agent"))
        pipeline.run()
        assert pipeline.values("SELECT importance FROM memory_rows") == [0.8]
