from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import duckdb
import pytest

from palimpsest.stores.index.stored_scopes import Graph
from palimpsest.stores.recall.graph import (
    GraphBoost,
    GraphBoostLimits,
    NamedEntity,
    graph_boost,
    named_entities,
)
from palimpsest.stores.settings import RecallSettings
from tests.unit import small_store
from tests.unit.small_store import (
    alias,
    empty_store,
    entity,
    memory,
    mention,
    put,
    relation,
)


def standing() -> float:
    return 0.0


def ticking(*times: float) -> Callable[[], float]:
    """A clock that tells these times, then the last one for ever."""
    told: Iterator[float] = iter(times)
    last = times[-1]
    return lambda: next(told, last)


GraphOf = Callable[..., Graph]


@pytest.fixture(params=[False, True], ids=["in memory", "stored"])
def graph_of(request: pytest.FixtureRequest) -> GraphOf:
    """The graph of a store's scope, in memory and as the tables have it."""
    return partial(small_store.graph_of, stored=request.param)


@pytest.fixture(scope="module")
def store() -> duckdb.DuckDBPyConnection:
    """Only read."""
    connection = empty_store()
    put(
        connection,
        entity("ana", "Ana Lopez", mentions=5),
        entity("ben", "Ben", mentions=3),
        entity("pg", "PostgreSQL", entity_type="system"),
        alias("pg", "postgres"),
        alias("pg", "the big database"),
        entity("bart", "Bartholomew"),
        entity("will", "Will"),
        entity("olga", "Ольга"),
        entity("kenta", "健太"),
        entity("cafe", "Café Luna", entity_type="place"),
        entity("other", "Ana", scope="t", mentions=99),
        relation("ana", "ben"),
        relation("pg", "ana", "used_by"),
        relation("other", "ben", scope="t"),
        memory("m-ana"),
        memory("m-ben"),
        memory("m-both"),
        memory("m-gone", is_deleted=True),
        memory("m-other", scope="t"),
        *(memory(f"other-{n}") for n in range(30)),
        mention("m-ana", "ana"),
        mention("m-ben", "ben"),
        mention("m-both", "ana"),
        mention("m-both", "ben"),
        mention("m-gone", "ana"),
        mention("m-other", "ana", scope="t"),
        mention("m-other", "other", scope="t"),
    )
    return connection


def boost(graph: Graph, query: str, **settings: object) -> GraphBoost:
    limits = GraphBoostLimits(**settings)  # type: ignore[arg-type]
    return graph_boost(graph, query, standing, RecallSettings(), limits=limits)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("what does ANA like", ["Ana Lopez"]),
        ("Ana's dog", ["Ana Lopez"]),
        ("Ana and Ben", ["Ana Lopez", "Ben"]),
        ("the art of banana bread", []),
        ("an", []),
        ("is postgres up?", ["PostgreSQL"]),
        ("a database", ["PostgreSQL"]),
        ("the big one", ["PostgreSQL"]),
        ("the one", []),
        ("What did Will say?", ["Will"]),
        ("will it rain", []),
        ("подарок Ольге", ["Ольга"]),
        ("健太は何が好きですか", ["健太"]),
        ("健康", []),
        ("cafe luna", ["Café Luna"]),
        ("", []),
        ("%_'\"\\ (.*)", []),
    ],
)
def test_names_by_whole_tokens(
    graph_of: GraphOf, store: duckdb.DuckDBPyConnection, query: str, names: list[str]
) -> None:
    assert [found.name for found in named_entities(graph_of(store), query)] == names


def test_a_stem_is_found_whatever_the_ending(graph_of: GraphOf) -> None:
    store = empty_store()
    put(store, entity("club", "Study club"), entity("hobby", "Hobby room"))
    found = named_entities(graph_of(store), "studies and hobbies")
    assert [entity.name for entity in found] == ["Study club", "Hobby room"]


def test_the_most_mentioned_entities_come_first_and_are_bounded(graph_of: GraphOf) -> None:
    store = empty_store()
    put(store, *(entity(f"e{n:02}", f"Ana {n}", mentions=n) for n in range(30)))
    found = named_entities(graph_of(store), "Ana")
    assert [entity.mentions for entity in found] == list(range(29, 9, -1))


def test_an_entity_has_its_main_name_and_what_is_known_of_any(graph_of: GraphOf) -> None:
    store = empty_store()
    main = entity("pg", "PostgreSQL", entity_type="unknown", mentions=2)
    other = replace(alias("pg", "postgres"), entity_type="system", summary="a database", mentions=1)
    put(store, main, other)
    expected = NamedEntity("pg", "PostgreSQL", "system", "a database", 3)
    assert named_entities(graph_of(store), "is postgres up?") == (expected,)


def test_named_and_one_hop_either_way(graph_of: GraphOf, store: duckdb.DuckDBPyConnection) -> None:
    graph = graph_of(store)
    found = boost(graph, "what does Ben eat")
    assert set(found.strengths) == {"m-ana", "m-ben", "m-both"}
    assert found.strengths["m-ana"] < found.strengths["m-ben"] == found.strengths["m-both"]
    assert boost(graph, "the PostgreSQL server").strengths.keys() == {"m-ana", "m-both"}
    assert not found.timed_out
    assert found.error is None


def test_the_rarer_an_entity_the_stronger(graph_of: GraphOf) -> None:
    store = empty_store()
    put(store, entity("ana", "Ana"), entity("ben", "Ben"), entity("cleo", "Cleo"))
    put(store, relation("ana", "cleo"))
    put(store, *(memory(f"m{n:02}") for n in range(16)))
    put(store, *(mention(f"m{n:02}", "ana") for n in range(4)), mention("m00", "cleo"))
    put(store, *(mention(f"m{n:02}", "ben") for n in range(16)), mention("m15", "cleo"))
    graph = graph_of(store)
    # 4 of 16 memories: 1 - ln 4 / ln 16. Cleo is a neighbour, in 2 of 16.
    assert boost(graph, "Ana", neighbour_share=0.5).strengths == pytest.approx(
        {"m00": 0.5, "m01": 0.5, "m02": 0.5, "m03": 0.5, "m15": 0.5 * 0.75}
    )
    assert boost(graph, "Cleo").strengths == pytest.approx(
        {"m00": 0.75, "m15": 0.75, "m01": 0.125, "m02": 0.125, "m03": 0.125}
    )
    assert boost(graph, "Ben").strengths == {}
    assert boost(graph, "Ana", min_idf=0.6).strengths.keys() == {"m00", "m15"}
    assert boost(graph, "Ana", min_idf=0.6, neighbour_share=0.0).strengths == {}
    assert boost(graph, "Ana and Ben").named[0].name == "Ana"


def test_nothing_deleted_and_nothing_of_another_scope(
    graph_of: GraphOf, store: duckdb.DuckDBPyConnection
) -> None:
    assert set(boost(graph_of(store), "Ana").strengths) == {"m-ana", "m-ben", "m-both"}
    assert set(boost(graph_of(store, "t"), "Ana Ben").strengths) == {"m-other"}
    assert boost(graph_of(store, "u"), "Ana") == GraphBoost()


def test_a_boost_that_is_off_is_empty(graph_of: GraphOf, store: duckdb.DuckDBPyConnection) -> None:
    off = RecallSettings(graph_weight=0.0)
    assert graph_boost(graph_of(store), "Ana", standing, off) == GraphBoost()


def test_the_limits_hold(graph_of: GraphOf) -> None:
    store = empty_store()
    put(store, entity("ana", "Ana"))
    put(store, *(entity(f"n{n}", f"Friend {n}") for n in range(6)))
    put(store, *(relation("ana", f"n{n}", mentions=n + 1) for n in range(6)))
    put(store, *(memory(f"m{n}") for n in range(6)))
    put(store, *(mention(f"m{n}", f"n{n}") for n in range(6)))
    graph = graph_of(store)
    assert set(boost(graph, "Ana", max_neighbours=2).strengths) == {"m4", "m5"}
    assert len(boost(graph, "Ana", max_memories=3).strengths) == 3


@pytest.mark.parametrize(
    ("times", "named", "boosted"),
    [((0.0, 501.0), 1, 0), ((0.0, 0.0, 501.0), 1, 0), ((0.0, 0.0, 0.0, 501.0), 1, 3)],
)
def test_past_the_deadline_what_was_gathered_counts(
    store: duckdb.DuckDBPyConnection, times: tuple[float, ...], named: int, boosted: int
) -> None:
    graph = small_store.graph_of(store)
    found = graph_boost(graph, "Ana", ticking(*times), RecallSettings())
    assert found.timed_out
    assert (len(found.named), len(found.strengths)) == (named, boosted)


def test_in_time_is_not_timed_out(store: duckdb.DuckDBPyConnection) -> None:
    clock = ticking(0.0, 100.0, 300.0, 500.0)
    assert not graph_boost(small_store.graph_of(store), "Ana", clock, RecallSettings()).timed_out


def test_an_error_gives_an_empty_boost_and_is_reported() -> None:
    store = empty_store()
    put(store, entity("ana", "Ana"))
    graph = small_store.graph_of(store, stored=True)
    store.execute("DROP TABLE mention_rows")
    found = boost(graph, "Ana")
    assert found.strengths == {}
    assert found.error is not None
    assert "mention_rows" in found.error
