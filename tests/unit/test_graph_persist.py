"""graph-persist: triples and structure become entities, relations and mentions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from palimpsest.schemas.entities import StructuredAttribute, StructuredEntity
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import aspect_id, entity_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.messages import GraphChange, GraphWork, MemoryChange
from palimpsest.schemas.rows.graph import AspectRow, AttributeRow, MentionRow, NameRow, RelationRow
from palimpsest.schemas.rows.pipeline import CommandRow
from palimpsest.schemas.topics import GRAPH_CHANGES, MEMORY_CHANGES
from palimpsest.streams.graph.graph_persist import graph_persist_stage
from palimpsest.streams.store_port import Graph, LoadGraph, MemoryText
from tests.messages import BEGIN, envelope
from tests.unit.by_hand import SCOPE, Driven, Store, context, drive

TEXT = "of this all is said"


def persist(work: GraphWork | None, graph: Graph | None = None, enabled: bool = True) -> Driven:
    body = MemoryChange(outcomes=(), session_id="s1", graph=work)
    message = envelope(body, MEMORY_CHANGES, "g1", SCOPE)
    store = Store(graph=known() if graph is None else graph)
    return drive(graph_persist_stage(enabled).process(message, context()), store)


def known(*rows: NameRow, relations: tuple[RelationRow, ...] = (), **rest: Any) -> Graph:
    names = {row.canonical_name: row for row in rows}
    keys = {(r.source_name_id, r.target_name_id, r.relation_type): r for r in relations}
    given = {"m1": (TEXT,), "m2": (TEXT,), **rest.get("texts", {})}
    texts = {
        memory_id: tuple(MemoryText(embedding_key(text), text) for text in each)
        for memory_id, each in given.items()
    }
    return Graph(names, keys, texts, rest.get("naming", {}))


def entity(name: str, **fields: Any) -> NameRow:
    name_id = entity_id(SCOPE, name.lower())
    values: dict[str, Any] = {
        "name_id": name_id,
        "entity_id": name_id,
        "scope": SCOPE,
        "name": name,
        "canonical_name": name.lower(),
        "entity_type": "unknown",
        "first_seen": BEGIN,
        "updated_at": BEGIN,
        **fields,
    }
    return NameRow(**values)


def triple(source: str, relation: str, target: str, **fields: Any) -> Triple:
    return Triple(source=source, relationship=relation, target=target, **fields)


def work(*triples: Triple, **fields: Any) -> GraphWork:
    return GraphWork(memory_ids=fields.pop("memory_ids", ("m1",)), triples=triples, **fields)


def change(driven: Driven) -> GraphChange:
    [body] = driven.emitted(GRAPH_CHANGES)
    assert isinstance(body, GraphChange)
    return body


def mentions(driven: Driven) -> dict[tuple[str, str], str]:
    names = {entity_id(SCOPE, n): n for n in ("ana", "oslo", "postgres", "postgresql", "bergen")}
    return {
        (row.memory_id, names[row.name_id]): row.mention_text for row in driven.rows(MentionRow)
    }


def names_put(driven: Driven) -> dict[str, NameRow]:
    """The last row put of each name."""
    return {row.canonical_name: row for row in driven.rows(NameRow)}


def alias(name: str, other: str) -> GraphWork:
    return GraphWork(memory_ids=(), aliases=((name, other),), command_id="c1")


def answer(driven: Driven) -> Any:
    """The error, or the result, of the command."""
    [row] = driven.rows(CommandRow)
    assert (row.command_id, row.command) == ("c1", "alias")
    return row.error or json.loads(row.result)


def test_a_name_is_of_the_turn_and_of_the_facts_that_have_it() -> None:
    """Records from before link it to whatever else the turn said."""
    texts = {"m1": ("I moved to Oslo and got a dog.",), "m2": ("Ana lives in Oslo.",)}
    graph = known(texts={**texts, "m3": ("Ana has a dog.",)})
    given = work(triple("Ana", "lives in", "Oslo"), memory_ids=("m1", "m2", "m3"))
    here = {("m1", "ana"), ("m2", "ana"), ("m3", "ana"), ("m1", "oslo"), ("m2", "oslo")}
    assert set(mentions(persist(given.model_copy(update={"by_text": True}), graph))) == here
    assert set(mentions(persist(given, graph))) == here | {("m3", "oslo")}


def test_a_triple_makes_two_entities_a_relation_and_mentions() -> None:
    given = triple("Ana", "Lives  In", "Oslo", source_type="person", confidence=0.8)
    driven = persist(work(given, memory_ids=("m1", "m2")))
    rows = {row.canonical_name: row for row in driven.rows(NameRow)}
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
    found = {row.canonical_name: row for row in driven.rows(NameRow)}
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
        source_name_id=ana.name_id,
        target_name_id=oslo.name_id,
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
    assert {r.canonical_name: r.mentions for r in driven.rows(NameRow)} == {"ana": 2, "oslo": 2}


@pytest.mark.parametrize("name", ["A", " b ", "é"])
def test_too_short_a_name_is_dropped_with_a_warning(name: str) -> None:
    driven = persist(work(triple(name, "in", "Oslo"), triple("Bo", "in", "Oslo")))
    assert {row.canonical_name for row in driven.rows(NameRow)} == {"bo", "oslo"}
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


def test_each_text_of_a_memory_has_its_own_mentions() -> None:
    graph = known(texts={"m8": ("in OSLO", "not in Oslo", "in Bergen")}, naming={"oslo": ("m8",)})
    driven = persist(work(triple("Ana", "in", "Oslo")), graph)
    found = {row.text_key: row.mention_text for row in driven.rows(MentionRow)}
    assert found[embedding_key("in OSLO")] == "OSLO"
    assert found[embedding_key("not in Oslo")] == "Oslo"
    assert embedding_key("in Bergen") not in found


def test_a_triple_is_about_the_first_text_of_its_memory() -> None:
    graph = known(entity("Oslo"), texts={"m1": ("we were there", "we were in OSLO")})
    driven = persist(work(triple("Ana", "in", "oslo")), graph)
    found = {(row.text_key, row.mention_text) for row in driven.rows(MentionRow)}
    assert found == {(embedding_key("we were there"), name) for name in ("Ana", "oslo")}


# --- names that mean the same -----------------------------------------------------------------


def test_what_is_said_of_an_alias_stays_with_that_name() -> None:
    """So that it does not matter whether it was told to be one before or after."""
    main = entity("PostgreSQL")
    other = entity("Postgres", entity_id=main.name_id, is_alias=True, mentions=0)
    driven = persist(work(triple("Ana", "uses", "Postgres")), known(main, other))
    found = {name: row.mentions for name, row in names_put(driven).items()}
    assert found == {"ana": 1, "postgres": 1}
    assert driven.rows(RelationRow)[0].target_name_id == other.name_id


def test_an_unknown_alias_is_added_and_links_what_names_it() -> None:
    graph = known(
        entity("PostgreSQL"), texts={"m8": ("we run Postgres",)}, naming={"postgres": ("m8",)}
    )
    driven = persist(alias("PostgreSQL", "Postgres"), graph)
    row = names_put(driven)["postgres"]
    assert (row.entity_id, row.is_alias, row.mentions) == (
        entity_id(SCOPE, "postgresql"),
        True,
        0,
    )
    assert mentions(driven) == {("m8", "postgres"): "Postgres"}
    assert answer(driven) == {
        "status": "added",
        "entity_id": entity_id(SCOPE, "postgresql"),
        "name": "PostgreSQL",
        "aliases": ["Postgres"],
    }


def test_two_entities_are_merged() -> None:
    driven = persist(alias("PostgreSQL", "Ana"), known(entity("PostgreSQL"), entity("Ana")))
    row = names_put(driven)["ana"]
    assert (row.entity_id, row.is_alias) == (entity_id(SCOPE, "postgresql"), True)
    told = answer(driven)
    assert (told["status"], told["name"], told["aliases"]) == ("merged", "PostgreSQL", ["Ana"])


def test_an_alias_again_is_nothing_new() -> None:
    main = entity("PostgreSQL")
    other = entity("Postgres", entity_id=main.name_id, is_alias=True)
    driven = persist(alias("postgresql", "POSTGRES"), known(main, other))
    assert driven.rows(NameRow) == []
    assert answer(driven)["status"] == "already"


@pytest.mark.parametrize(
    ("name", "other", "why"),
    [
        ("Oslo", " oslo ", "the same name"),
        ("Oslo", '"Oslo"', "the same name"),
        ("Oslo", "ＯＳＬＯ", "the same name"),
        ("Oslo", "it", "names nobody"),
        ("we", "Oslo", "names nobody"),
        ("Oslo", "X", "too short"),
        ("Oslo", "!!!", "no letter"),
        ("Oslo", "O" * 300, "longer than"),
    ],
)
def test_an_alias_that_cannot_be_is_refused_with_why(name: str, other: str, why: str) -> None:
    driven = persist(alias(name, other), known(entity("Oslo")))
    assert driven.rows(NameRow) == []
    told = answer(driven)
    assert told.startswith("invalid_request: ")
    assert why in told


def test_an_alias_of_before_commands_were_named_is_carried_out_unanswered() -> None:
    given = GraphWork(memory_ids=(), aliases=(("PostgreSQL", "Postgres"),))
    driven = persist(given, known(entity("PostgreSQL")), enabled=False)
    assert set(names_put(driven)) == {"postgres"}
    assert driven.rows(CommandRow) == []


@pytest.mark.parametrize("name", ["We", "it", "My friend", "彼女", "Mein Freund", "我的朋友", "هو"])
def test_a_word_that_points_at_someone_is_no_entity(name: str) -> None:
    driven = persist(work(triple(name, "likes", "Oslo"), triple("Ana", "likes", "Oslo")))
    assert set(names_put(driven)) == {"ana", "oslo"}
    assert len(driven.rows(RelationRow)) == 1
    [warning] = change(driven).warnings
    assert "names nobody" in warning


@pytest.mark.parametrize("name", ["Will", "May", "IT", "US", "My Fair Lady", "my friend Bob"])
def test_a_name_that_is_also_a_word_is_kept(name: str) -> None:
    assert name.lower() in names_put(persist(work(triple(name, "likes", "Oslo"))))


def test_quotes_around_a_name_are_not_part_of_it() -> None:
    driven = persist(work(triple('"Dune"', "is liked by", "«Ana»"), triple("Dune", "by", "ana")))
    assert {name: row.name for name, row in names_put(driven).items()} == {
        "dune": "Dune",
        "ana": "Ana",
    }


# --- what is authored -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        work(triple("Ana", "in", "Oslo"), command_id="c1"),
        work(entities=(StructuredEntity(name="Ana"),)),
        alias("Ana", "Annie"),
    ],
)
def test_with_graph_writes_off_what_is_authored_is_written(given: GraphWork) -> None:
    assert "ana" in names_put(persist(given, enabled=False))


def test_authored_structure() -> None:
    given = work(
        entities=(StructuredEntity(name="Ana", type="person", aliases=("Annie",)),),
        attributes=(StructuredAttribute(entity="Ana", aspect="Diet", kind="constraint"),),
    )
    driven = persist(given)
    row = names_put(driven)["ana"]
    assert (row.name, row.entity_type) == ("Ana", "person")
    assert names_put(driven)["annie"].entity_id == row.name_id
    [aspect] = driven.rows(AspectRow)
    assert aspect.aspect_id == aspect_id(row.name_id, "diet")
    [attribute] = driven.rows(AttributeRow)
    assert (attribute.memory_id, attribute.kind, attribute.status) == ("m1", "constraint", "active")


def test_an_authored_attribute_leaves_a_known_aspect_as_it_is() -> None:
    """Its name, and the weight that an import brought; what a person says takes the place of what a
    model said, and stays."""
    given = work(attributes=(StructuredAttribute(entity="Ana", aspect="Diet", kind="constraint"),))
    [found] = persist(given).rows(AspectRow)
    [said] = persist(given).rows(AttributeRow)
    heavy = replace(found, name="diet", weight=0.9)
    by_model = replace(said, kind="attribute", text_key="t")
    for before, expected in ((None, [said]), (by_model, [said]), (said, [])):
        graph = replace(
            known(), aspects={heavy.key: heavy}, attributes={(heavy.aspect_id, "m1"): before}
        )
        driven = persist(given, graph)
        assert driven.rows(AspectRow) == []
        assert driven.rows(AttributeRow) == expected


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
