from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest

from palimpsest.stores.recall.graph_boost import (
    GraphBoost,
    GraphBoostLimits,
    StoredGraph,
    graph_boost,
    named_entities,
)
from palimpsest.stores.settings import RecallSettings
from tests.unit.small_store import alias, empty_store, entity, memory, mention, put, relation


def standing() -> float:
    return 0.0


def ticking(*times: float) -> Callable[[], float]:
    """A clock that tells these times, then the last one for ever."""
    told: Iterator[float] = iter(times)
    last = times[-1]
    return lambda: next(told, last)


@pytest.fixture
def store() -> duckdb.DuckDBPyConnection:
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
        mention("m-ana", "ana"),
        mention("m-ben", "ben"),
        mention("m-both", "ana"),
        mention("m-both", "ben"),
        mention("m-gone", "ana"),
        mention("m-other", "ana", scope="t"),
        mention("m-other", "other", scope="t"),
    )
    # Room for the few mentions to be telling.
    connection.execute(
        "INSERT INTO fts_docs SELECT v.s || i, v.s, 1"
        " FROM range(100) t(i), (VALUES ('s'), ('t')) v(s)"
    )
    return connection


def boost(store: duckdb.DuckDBPyConnection, query: str, **settings: object) -> GraphBoost:
    limits = GraphBoostLimits(**settings)  # type: ignore[arg-type]
    return graph_boost(StoredGraph(store, "s"), query, standing, RecallSettings(), limits=limits)


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
    store: duckdb.DuckDBPyConnection, query: str, names: list[str]
) -> None:
    assert [found.name for found in named_entities(store, "s", query)] == names


def test_the_most_told_entities_come_first_and_are_bounded() -> None:
    store = empty_store()
    put(store, *(entity(f"e{n:02}", f"Ana {n}", mentions=n) for n in range(30)))
    found = named_entities(store, "s", "Ana")
    assert [entity.times_told for entity in found] == list(range(29, 9, -1))


def test_named_and_one_hop_either_way(store: duckdb.DuckDBPyConnection) -> None:
    found = boost(store, "what does Ben eat")
    assert set(found.hits) == {"m-ana", "m-ben", "m-both"}
    assert found.hits["m-both"].entities == ("Ana Lopez", "Ben")
    assert (found.hits["m-ben"].direct, found.hits["m-ana"].direct) == (True, False)
    assert boost(store, "the PostgreSQL server").hits.keys() == {"m-ana", "m-both"}
    assert not found.timed_out
    assert found.error is None


def test_the_more_telling_an_entity_the_stronger() -> None:
    store = empty_store()
    put(store, entity("ana", "Ana"), entity("ben", "Ben"), entity("cleo", "Cleo"))
    put(store, relation("ana", "cleo"))
    put(store, *(memory(f"m{n:02}") for n in range(16)))
    store.execute("INSERT INTO fts_docs SELECT memory_id, scope, 1 FROM memory_rows")
    put(store, *(mention(f"m{n:02}", "ana") for n in range(4)), mention("m00", "cleo"))
    put(store, *(mention(f"m{n:02}", "ben") for n in range(16)), mention("m15", "cleo"))
    # 4 of 16 memories: 1 - ln 4 / ln 16. Cleo is a neighbour, in 2 of 16.
    assert boost(store, "Ana", neighbour_share=0.5).strengths == pytest.approx(
        {"m00": 0.5, "m01": 0.5, "m02": 0.5, "m03": 0.5, "m15": 0.5 * 0.75}
    )
    assert boost(store, "Cleo").strengths == pytest.approx(
        {"m00": 0.75, "m15": 0.75, "m01": 0.125, "m02": 0.125, "m03": 0.125}
    )
    assert boost(store, "Ben").strengths == {}
    assert boost(store, "Ana", min_telling=0.6).strengths.keys() == {"m00", "m15"}
    assert boost(store, "Ana", min_telling=0.6, neighbour_share=0.0).strengths == {}
    assert boost(store, "Ana and Ben").named[0].name == "Ana"


def test_nothing_deleted_and_nothing_of_another_scope(store: duckdb.DuckDBPyConnection) -> None:
    assert set(boost(store, "Ana").hits) == {"m-ana", "m-ben", "m-both"}
    assert set(
        graph_boost(StoredGraph(store, "t"), "Ana Ben", standing, RecallSettings()).hits
    ) == {"m-other"}
    assert graph_boost(StoredGraph(store, "u"), "Ana", standing, RecallSettings()) == GraphBoost()


def test_a_boost_that_is_off_is_empty(store: duckdb.DuckDBPyConnection) -> None:
    assert (
        graph_boost(StoredGraph(store, "s"), "Ana", standing, RecallSettings(graph_weight=0.0))
        == GraphBoost()
    )


def test_the_limits_hold() -> None:
    store = empty_store()
    put(store, entity("ana", "Ana"))
    put(store, *(entity(f"n{n}", f"Friend {n}") for n in range(6)))
    put(store, *(relation("ana", f"n{n}", mentions=n + 1) for n in range(6)))
    put(store, *(memory(f"m{n}") for n in range(6)))
    put(store, *(mention(f"m{n}", f"n{n}") for n in range(6)))
    store.execute("INSERT INTO fts_docs SELECT memory_id, scope, 1 FROM memory_rows")
    assert set(boost(store, "Ana", max_neighbours=2).hits) == {"m4", "m5"}
    assert len(boost(store, "Ana", max_memories=3).hits) == 3


@pytest.mark.parametrize(
    ("times", "named", "hits"),
    [((0.0, 501.0), 1, 0), ((0.0, 0.0, 501.0), 1, 0), ((0.0, 0.0, 0.0, 501.0), 1, 3)],
)
def test_past_the_deadline_what_was_gathered_counts(
    store: duckdb.DuckDBPyConnection, times: tuple[float, ...], named: int, hits: int
) -> None:
    found = graph_boost(StoredGraph(store, "s"), "Ana", ticking(*times), RecallSettings())
    assert found.timed_out
    assert (len(found.named), len(found.hits)) == (named, hits)


def test_in_time_is_not_timed_out(store: duckdb.DuckDBPyConnection) -> None:
    assert not graph_boost(
        StoredGraph(store, "s"), "Ana", ticking(0.0, 100.0, 300.0, 500.0), RecallSettings()
    ).timed_out


def test_an_error_gives_an_empty_boost_and_is_told(store: duckdb.DuckDBPyConnection) -> None:
    store.execute("DROP TABLE mention_rows")
    found = boost(store, "Ana")
    assert found.hits == {}
    assert found.error is not None
    assert "mention_rows" in found.error
