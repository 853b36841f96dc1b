"""graph-persist: triples and structure become entities, relations and mentions."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.identity import aspect_id, entity_id
from schemas.messages import (
    GraphChange,
    GraphWork,
    MemoryChange,
    StructuredAttribute,
    StructuredEntity,
    Triple,
)
from schemas.rows import AspectRow, AttributeRow, EntityRow, MentionRow, RelationRow
from schemas.topics import GRAPH_CHANGES, MEMORY_CHANGES
from streams.graph_persist import graph_persist_stage
from streams.stage import Graph, LoadGraph
from tests.harness import BEGIN, envelope
from tests.unit.by_hand import SCOPE, Driven, Store, context, drive


def persist(work: GraphWork | None, graph: Graph | None = None, enabled: bool = True) -> Driven:
    body = MemoryChange(outcomes=(), session_id="s1", graph=work)
    message = envelope(body, MEMORY_CHANGES, "g1", SCOPE)
    store = Store() if graph is None else Store(graph=graph)
    return drive(graph_persist_stage(enabled).process(message, context()), store)


def known(*rows: EntityRow, relations: tuple[RelationRow, ...] = (), **rest: Any) -> Graph:
    entities = {name: row for row in rows for name in (row.canonical_name, *row.aliases)}
    keys = {(r.source_entity_id, r.target_entity_id, r.relation_type): r for r in relations}
    return Graph(entities, keys, rest.get("texts", {}), rest.get("naming", {}))


def entity(name: str, **fields: Any) -> EntityRow:
    values: dict[str, Any] = {
        "entity_id": entity_id(SCOPE, name.lower()),
        "scope": SCOPE,
        "name": name,
        "canonical_name": name.lower(),
        "entity_type": "unknown",
        "first_seen": BEGIN,
        "updated_at": BEGIN,
        **fields,
    }
    return EntityRow(**values)


def triple(source: str, relation: str, target: str, **fields: Any) -> Triple:
    return Triple(source=source, relationship=relation, target=target, **fields)


def work(*triples: Triple, **fields: Any) -> GraphWork:
    return GraphWork(memory_ids=fields.pop("memory_ids", ("m1",)), triples=triples, **fields)


def change(driven: Driven) -> GraphChange:
    [body] = driven.emitted(GRAPH_CHANGES)
    assert isinstance(body, GraphChange)
    return body


def mentions(driven: Driven) -> dict[tuple[str, str], str]:
    names = {entity_id(SCOPE, n): n for n in ("ana", "oslo", "postgresql", "bergen")}
    return {
        (row.memory_id, names[row.entity_id]): row.mention_text for row in driven.rows(MentionRow)
    }


def test_a_triple_makes_two_entities_a_relation_and_mentions() -> None:
    given = triple("Ana", "Lives  In", "Oslo", source_type="person", confidence=0.8)
    driven = persist(work(given, memory_ids=("m1", "m2")))
    rows = {row.canonical_name: row for row in driven.rows(EntityRow)}
    assert set(rows) == {"ana", "oslo"}
    assert (rows["ana"].entity_type, rows["ana"].mentions, rows["ana"].name) == ("person", 1, "Ana")
    [relation] = driven.rows(RelationRow)
    assert (relation.relation_type, relation.mentions, relation.strength, relation.confidence) == (
        "lives in",
        1,
        1.0,
        0.8,
    )
    assert set(mentions(driven)) == {
        ("m1", "ana"),
        ("m2", "ana"),
        ("m1", "oslo"),
        ("m2", "oslo"),
    }
    told = change(driven)
    assert (told.entities_inserted, told.relations_inserted, told.mentions_linked) == (2, 1, 4)


def test_what_is_known_is_counted_and_gets_the_better_type() -> None:
    rows = (entity("Ana", mentions=4), entity("Oslo", entity_type="place"))
    given = triple("ANA", "in", "oslo", source_type="person", target_type="system")
    driven = persist(work(given), known(*rows))
    found = {row.canonical_name: row for row in driven.rows(EntityRow)}
    assert (found["ana"].mentions, found["ana"].entity_type, found["ana"].name) == (
        5,
        "person",
        "Ana",
    )
    assert (found["oslo"].mentions, found["oslo"].entity_type) == (2, "place")
    assert (change(driven).entities_inserted, change(driven).entities_updated) == (0, 2)


def test_the_confidence_of_a_relation_is_a_running_average() -> None:
    ana, oslo = entity("Ana"), entity("Oslo")
    seen = RelationRow(
        source_entity_id=ana.entity_id,
        target_entity_id=oslo.entity_id,
        relation_type="in",
        scope=SCOPE,
        mentions=3,
        confidence=0.6,
    )
    driven = persist(
        work(triple("Ana", "in", "Oslo", confidence=1.0)), known(ana, oslo, relations=(seen,))
    )
    [row] = driven.rows(RelationRow)
    assert row.mentions == 4
    assert row.confidence == pytest.approx(0.7)
    assert row.strength == 1.0


def test_a_relation_twice_in_one_change_is_seen_twice() -> None:
    driven = persist(
        work(triple("Ana", "in", "Oslo", confidence=0.5), triple("ana", "IN", "oslo", confidence=1))
    )
    [row] = driven.rows(RelationRow)
    assert (row.mentions, row.confidence) == (2, 0.75)
    assert {r.canonical_name: r.mentions for r in driven.rows(EntityRow)} == {"ana": 2, "oslo": 2}


@pytest.mark.parametrize("name", ["A", " b ", "é"])
def test_too_short_a_name_is_dropped_with_a_warning(name: str) -> None:
    driven = persist(work(triple(name, "in", "Oslo"), triple("Bo", "in", "Oslo")))
    assert {row.canonical_name for row in driven.rows(EntityRow)} == {"bo", "oslo"}
    assert len(driven.rows(RelationRow)) == 1
    [warning] = change(driven).warnings
    assert "too short" in warning


def test_earlier_memories_that_name_a_new_entity_are_linked() -> None:
    graph = known(
        texts={
            "m1": ("Ana lives in Oslo",),
            "m8": ("we were in OSLO's harbour",),
            "m9": ("oslo in small letters is no name",),
        },
        naming={"oslo": ("m8", "m9"), "ana": ()},
    )
    driven = persist(work(triple("Ana", "in", "oslo")), graph)
    assert mentions(driven) == {
        ("m1", "ana"): "Ana",
        ("m1", "oslo"): "Oslo",
        ("m8", "oslo"): "OSLO",
    }
    assert change(driven).mentions_linked == 2


@pytest.mark.parametrize("texts", [("in OSLO", "not in Oslo"), ("not in Oslo", "in OSLO")])
def test_of_all_texts_of_a_memory_the_least_form_is_kept(texts: tuple[str, str]) -> None:
    graph = known(texts={"m8": (*texts, "in Bergen")}, naming={"oslo": ("m8",)})
    driven = persist(work(triple("Ana", "in", "Oslo")), graph)
    assert mentions(driven)["m8", "oslo"] == "OSLO"


def test_a_triple_is_about_the_first_text_of_its_memory() -> None:
    graph = known(entity("Oslo"), texts={"m1": ("we were there", "we were in OSLO")})
    driven = persist(work(triple("Ana", "in", "oslo")), graph)
    assert mentions(driven)["m1", "oslo"] == "oslo"


def test_an_alias_resolves() -> None:
    row = entity("PostgreSQL", aliases=("postgres",))
    driven = persist(work(triple("Ana", "uses", "Postgres")), known(row))
    found = {r.canonical_name: r.mentions for r in driven.rows(EntityRow)}
    assert found == {"ana": 1, "postgresql": 2}
    assert driven.rows(RelationRow)[0].target_entity_id == row.entity_id


def test_an_alias_told_links_what_names_it() -> None:
    graph = known(
        entity("PostgreSQL"), texts={"m8": ("we run Postgres",)}, naming={"postgres": ("m8",)}
    )
    driven = persist(GraphWork(memory_ids=(), aliases=(("PostgreSQL", "Postgres"),)), graph)
    [row] = driven.rows(EntityRow)
    assert (row.canonical_name, row.aliases) == ("postgresql", ("postgres",))
    assert mentions(driven) == {("m8", "postgresql"): "Postgres"}


def test_a_name_with_an_entity_of_its_own_keeps_it() -> None:
    driven = persist(
        GraphWork(memory_ids=(), aliases=(("PostgreSQL", "Ana"),)),
        known(entity("PostgreSQL"), entity("Ana")),
    )
    assert [row.aliases for row in driven.rows(EntityRow)] == [()]
    assert "already names another" in change(driven).warnings[0]


def test_an_alias_again_is_nothing_new() -> None:
    row = entity("PostgreSQL", aliases=("postgres",))
    driven = persist(GraphWork(memory_ids=(), aliases=(("postgresql", "POSTGRES"),)), known(row))
    assert driven.rows(EntityRow) == [row]


def test_authored_structure() -> None:
    given = work(
        entities=(StructuredEntity(name="Ana", type="person", aliases=("Annie",)),),
        attributes=(StructuredAttribute(entity="Ana", aspect="Diet", kind="constraint"),),
    )
    driven = persist(given)
    [row] = driven.rows(EntityRow)[-1:]
    assert (row.name, row.entity_type, row.aliases) == ("Ana", "person", ("annie",))
    [aspect] = driven.rows(AspectRow)
    assert aspect.aspect_id == aspect_id(row.entity_id, "diet")
    [attribute] = driven.rows(AttributeRow)
    assert (attribute.memory_id, attribute.kind, attribute.status) == ("m1", "constraint", "active")


@pytest.mark.parametrize(
    ("given", "enabled"), [(None, True), (work(triple("Ana", "in", "Oslo")), False)]
)
def test_nothing_to_do(given: GraphWork | None, enabled: bool) -> None:
    driven = persist(given, enabled=enabled)
    assert driven.asks == []
    assert driven.step.writes == ()
    assert driven.step.emits == ()


def test_it_asks_for_all_names_once() -> None:
    driven = persist(work(triple("Ana", "in", "Oslo"), triple("Oslo", "has", "Ana")))
    [ask] = driven.of(LoadGraph)
    assert ask.names == ("ana", "oslo")
    assert ask.memory_ids == ("m1",)
