from __future__ import annotations

import duckdb
import pytest

from palimpsest.schemas.rows.columns import Row
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph import NamedEntity
from palimpsest.stores.recall.intent import Intent
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.strategies import DEFAULTS, Related, StrategySettings, additions
from tests.unit.small_store import edge, empty_store, entity, indexed, memory, mention, put, turn

ANA = NamedEntity("ana", "Ana", "person", None, 3)
BEN = NamedEntity("ben", "Ben", "person", None, 2)


@pytest.fixture
def store() -> duckdb.DuckDBPyConnection:
    """Five turns of a session, two facts, a chain of causes."""
    connection = empty_store()
    put(connection, *(turn(f"t{n}", f"turn {n}", minutes=n) for n in range(1, 6)))
    put(connection, *(edge(f"t{n}", "temporal", f"t{n + 1}") for n in range(1, 5)))
    put(
        connection,
        memory("f1", "Ana left the firm"),
        memory("f2", "the firm moved away"),
        memory("f3", "the rent rose"),
        edge("f1", "derived_from", "t3"),
        edge("f2", "causal", "f1", confidence=0.7),
        edge("f3", "causal", "f2", confidence=0.7),
    )
    return connection


def added(
    store: duckdb.DuckDBPyConnection,
    intent: Intent,
    *hits: tuple[str, float],
    depth: int = 2,
    named: tuple[NamedEntity, ...] = (),
    settings: StrategySettings = DEFAULTS,
    scope: str = "s",
) -> dict[str, Related]:
    index = indexed(store, scope)
    allowed = VisibilityMask.by(index, Query(scope, ""))
    found = additions(store, index.graph, intent, dict(hits), named, depth, allowed, settings)
    assert list(found) == sorted(found, key=lambda each: (-each.score, each.id))
    return {each.id: each for each in found}


class TestWhy:
    def test_the_chain_is_walked_to_its_depth(self, store: duckdb.DuckDBPyConnection) -> None:
        assert set(added(store, "why", ("f1", 0.8), depth=1)) == {"f2", "t3"}
        assert set(added(store, "why", ("f1", 0.8), depth=2)) == {"f2", "f3", "t3"}
        assert added(store, "why", ("f1", 0.8), depth=0) == {}

    def test_scores_fall_along_the_chain_and_say_why(
        self, store: duckdb.DuckDBPyConnection
    ) -> None:
        found = added(store, "why", ("f1", 0.8))
        assert found["f2"].score == pytest.approx(0.8 * 0.7 * 0.7)
        assert found["f3"].score == pytest.approx(0.8 * 0.7**4)
        assert found["f2"].reason == "led to f1"
        assert found["t3"].reason == "gave f1"
        assert found["f3"].path == ("f1", "f2", "f3")

    def test_against_the_edges_too(self, store: duckdb.DuckDBPyConnection) -> None:
        found = added(store, "why", ("f3", 0.5))
        assert found["f2"].reason == "was caused by f3"
        assert set(found) == {"f2", "f1"}

    def test_a_circle_ends(self, store: duckdb.DuckDBPyConnection) -> None:
        put(store, edge("f1", "causal", "f3"))
        assert set(added(store, "why", ("f1", 0.8), depth=50)) == {"f2", "f3", "t3"}

    def test_what_replaced_and_what_is_gone(self, store: duckdb.DuckDBPyConnection) -> None:
        put(store, memory("new"), memory("old", is_deleted=True), memory("older"))
        put(store, edge("new", "supersedes", "old"), edge("old", "supersedes", "older"))
        found = added(store, "why", ("new", 0.5))
        assert set(found) == {"older"}
        assert found["older"].reason == "was replaced by old"

    def test_temporal_edges_are_no_causes(self, store: duckdb.DuckDBPyConnection) -> None:
        assert set(added(store, "why", ("t3", 0.5), depth=1)) == {"f1"}


class TestWhen:
    def test_turns_before_and_after(self, store: duckdb.DuckDBPyConnection) -> None:
        found = added(store, "when", ("t2", 0.8), depth=2)
        assert {key: each.score for key, each in found.items()} == pytest.approx(
            {"t1": 0.4, "t3": 0.4, "t4": 0.2}
        )
        assert found["t4"].reason == "2 turns after t2"
        assert found["t1"].reason == "1 turn before t2"

    def test_a_fact_is_where_its_turn_is(self, store: duckdb.DuckDBPyConnection) -> None:
        found = added(store, "when", ("f1", 0.8), depth=1)
        assert {key: each.score for key, each in found.items()} == pytest.approx(
            {"t3": 0.8, "t2": 0.4, "t4": 0.4}
        )
        assert found["t4"].reason == "1 turn after f1"
        assert found["t3"].reason == "gave f1"

    def test_hits_themselves_are_no_additions(self, store: duckdb.DuckDBPyConnection) -> None:
        assert set(added(store, "when", ("t2", 0.8), ("t3", 0.7), depth=1)) == {"t1", "t4"}


class TestWhoAndWhat:
    @pytest.fixture(autouse=True)
    def _mentions(self, store: duckdb.DuckDBPyConnection) -> None:
        put(
            store,
            entity("ana", "Ana"),
            entity("ben", "Ben"),
            mention("f1", "ana", confidence=0.9),
            mention("f2", "ana", confidence=0.5),
            mention("f2", "ben", confidence=0.5),
            mention("t1", "ben", confidence=0.8),
        )

    def test_memories_of_the_entity(self, store: duckdb.DuckDBPyConnection) -> None:
        found = added(store, "who", ("t5", 0.6), named=(ANA,))
        assert {key: each.score for key, each in found.items()} == pytest.approx(
            {"f1": 0.6 * 0.5 * 0.9, "f2": 0.6 * 0.5 * 0.5}
        )
        assert found["f1"].reason == "mentions Ana"

    def test_of_two_entities_those_of_both_come_first(
        self, store: duckdb.DuckDBPyConnection
    ) -> None:
        found = added(store, "what", ("t5", 1.0), named=(ANA, BEN))
        assert list(found) == ["f2", "f1", "t1"]
        assert found["f2"].reason == "mentions Ana, Ben"

    def test_without_a_hit_or_a_name(self, store: duckdb.DuckDBPyConnection) -> None:
        assert set(added(store, "what", named=(BEN,))) == {"f2", "t1"}
        assert added(store, "what", ("t5", 1.0)) == {}


def test_general_adds_nothing(store: duckdb.DuckDBPyConnection) -> None:
    assert added(store, "general", ("f1", 1.0), named=(ANA,)) == {}


def test_bounds(store: duckdb.DuckDBPyConnection) -> None:
    put(store, *(memory(f"x{n}") for n in range(9)))
    put(store, *(edge(f"x{n}", "causal", "f3", weight=n / 10) for n in range(9)))
    few = StrategySettings(max_additions=3)
    assert list(added(store, "why", ("f3", 1.0), settings=few)) == ["x8", "f2", "x7"]
    edges = StrategySettings(max_edges=2)
    assert set(added(store, "why", ("f3", 1.0), settings=edges, depth=1)) == {"x8", "f2"}
    seeds = StrategySettings(seeds=1)
    assert set(added(store, "when", ("t1", 1.0), ("t5", 0.9), settings=seeds, depth=1)) == {"t2"}


@pytest.mark.parametrize("intent", ["why", "when", "who", "what"])
def test_never_out_of_the_scope(intent: Intent, store: duckdb.DuckDBPyConnection) -> None:
    """Even where rows of two scopes are joined, which nothing here writes."""
    foreign: list[Row] = [
        memory("alien", scope="t"),
        edge("f1", "causal", "alien"),
        edge("f2", "derived_from", "alien"),
        edge("t2", "temporal", "alien"),
        mention("alien", "ana"),
        mention("f3", "ana", scope="t"),
        edge("t3", "temporal", "f3", scope="t"),
    ]
    put(store, *foreign)
    found = added(store, intent, ("f1", 1.0), ("t3", 0.9), named=(ANA,), depth=4)
    assert "alien" not in found
    if intent in ("who", "what", "when"):
        assert "f3" not in found
    assert added(store, intent, ("f1", 1.0), ("t3", 1.0), scope="t", depth=4).keys() <= {"alien"}
