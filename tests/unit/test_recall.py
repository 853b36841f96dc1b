"""Recall over a real shard: what is found, in which order, why, and never from another scope."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameRow
from palimpsest.stores.ranking import PROFILES
from palimpsest.stores.recall.pool import PoolSearch, search_plan
from palimpsest.stores.recall.query import Fusion, Query, RecallAnswer, WhyNot
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings
from palimpsest.stores.shard import Shard
from tests.memory_rows import (
    BEGIN,
    SCOPE,
    conversation,
    drawn,
    embed,
    memory,
    open_shard,
    turn,
    write,
)
from tests.unit.recall_parts import answer, ids, said_anew

LINES = [
    ("Ana", "I adopted a grey kitten called Pixel on Sunday."),
    ("Ben", "Lovely! How is it settling in?"),
    ("Ana", "It sleeps in my violin case all day."),
    ("Ben", "My sister plays the violin in Oslo."),
    ("Ana", "The ERR-4711 printer error is back at work."),
    ("Ben", "Try v0.58.1 of the driver, it fixed mine."),
    ("Ana", "We ski in Chamonix every February."),
    ("Ben", "I would rather stay by the fire and read Tolstoy."),
]


NAMED: list[Row] = [
    NameRow(
        name_id="chamonix",
        entity_id="chamonix",
        scope=SCOPE,
        name="Chamonix",
        canonical_name="chamonix",
        entity_type="place",
        first_seen=BEGIN,
        updated_at=BEGIN,
    ),
    MentionRow(
        memory_id="ana-s1-6",
        text_key=turn("ana-s1-6", LINES[6][1], 7).embedding_key,
        name_id="chamonix",
        scope=SCOPE,
        mention_text="Chamonix",
        confidence=0.9,
    ),
]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = open_shard(tmp_path / "shard")
    yield shard
    shard.close()


@pytest.fixture
def talk(shard: Shard) -> Shard:
    write(shard, conversation(LINES))
    return shard


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """A `talk` that is only read."""
    shard = open_shard(tmp_path_factory.mktemp("read"))
    write(shard, conversation(LINES))
    yield shard
    shard.close()


def ask(shard: Shard, text: str, vectors: bool = True, **fields: object) -> RecallAnswer:
    query = replace(Query(SCOPE, text), **fields)  # type: ignore[arg-type]
    return answer(shard, query, embed(text) if vectors else None)


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("What is the name of the kitten?", 0),
        ("ERR-4711", 4),
        ("err-4711 printer", 4),
        ("which driver version fixed it, v0.58.1?", 5),
        ("Who reads Tolstoy?", 7),
        ("skiing in Chamonix", 6),
    ],
)
def test_what_answers_comes_first(read: Shard, text: str, number: int, vectors: bool) -> None:
    answer = ask(read, text, vectors)
    assert answer.method == ("hybrid" if vectors else "keyword")
    assert ids(answer)[0] == f"ana-s1-{number}"


def test_the_best_keyword_match_of_twenty_comes_first(shard: Shard) -> None:
    words = "harbour lantern copper meadow violin thunder saddle"
    asked = words.split()
    rows = [memory(f"m{n:02}", f"note {n} {' '.join(asked[: n % 7])} end", n) for n in range(1, 21)]
    write(shard, [*rows, memory("best", words, 21)])
    answer = ask(shard, words, vectors=False, limit=20)
    assert ids(answer)[0] == "best"
    scores = [result.score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[1] + 0.05


@pytest.mark.parametrize("text", ["quetzalcoatlus", "zzz yyy", "数据库", "ξένος"])
@pytest.mark.parametrize("vectors", [True, False])
def test_what_matches_nothing_returns_the_nearest_as_unlikely(
    read: Shard, text: str, vectors: bool
) -> None:
    answer = ask(read, text, vectors, limit=5)
    assert len(answer.results) == 5
    assert answer.method == ("hybrid" if vectors else "keyword")
    assert vectors or all(result.unlikely for result in answer.results)
    assert ids(answer) == ids(ask(read, text, vectors, limit=8))[:5]


def test_what_the_query_has_words_of_is_not_unlikely(read: Shard) -> None:
    answer = ask(read, "grey kitten Pixel", limit=50)
    assert not answer.results[0].unlikely
    assert answer.results[-1].unlikely


def test_a_least_score_leaves_out_what_has_less(read: Shard) -> None:
    every = ask(read, "grey kitten Pixel", limit=50).results
    least = every[1].score
    some = ask(read, "grey kitten Pixel", limit=50, min_score=least).results
    assert some == tuple(each for each in every if each.score >= least)
    as_set = Retriever(read, RecallSettings(min_score=least)).search(
        Query(SCOPE, "grey kitten Pixel", 50), QueryEmbedding(embed("grey kitten Pixel"))
    )
    assert ids(as_set.answer) == [each.id for each in some]


@pytest.mark.parametrize("vectors", [True, False])
def test_a_filter_returns_what_passes_it_up_to_the_limit(read: Shard, vectors: bool) -> None:
    """Also where no leg finds anything of it."""
    answer = ask(read, "quetzalcoatlus", vectors, who="Ben", limit=50)
    assert {*ids(answer)} == {f"ana-s1-{number}" for number in (1, 3, 5, 7)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "a",
        "?",
        "😀🎉",
        "'; DROP TABLE memory_rows; --",
        'kitten" OR 1=1 %_\\',
        "котёнок по имени",
        "\u0000kitten",
        "kitten " * 1_500,
        "".join(chr(0x4E00 + n) for n in range(5_000)),
    ],
)
@pytest.mark.parametrize("vectors", [True, False])
def test_any_text_can_be_asked(read: Shard, text: str, vectors: bool) -> None:
    answer = ask(read, text, vectors)
    assert answer.query == text
    if not text.strip():
        assert (answer.method, answer.results) == ("none", ())
    assert len(ask(read, "kitten").results) > 0


def test_an_empty_scope_and_a_wrong_vector(read: Shard) -> None:
    assert answer(read, Query("nobody", "kitten"), embed("kitten")).results == ()
    assert answer(read, Query("nobody", "kitten"), embed("kitten")).method == "keyword"
    with pytest.raises(ValueError, match="64 numbers"):
        answer(read, Query(SCOPE, "kitten"), embed("kitten")[:10])
    with pytest.raises(ValueError, match="limit"):
        answer(read, Query(SCOPE, "kitten", limit=0))
    with pytest.raises(ValueError, match="time zone"):
        answer(read, Query(SCOPE, "kitten", since=BEGIN.replace(tzinfo=None)))


def test_the_first_ten_do_not_depend_on_how_many_are_asked_for(read: Shard) -> None:
    few = ask(read, "violin and skiing", limit=3)
    many = ask(read, "violin and skiing", limit=50)
    assert few.results == many.results[:3]


def test_the_parts_of_a_score_add_up(talk: Shard) -> None:
    write(talk, [memory("f1", "Ana adopted a kitten", 30), drawn("f1", "ana-s1-0")])
    write(talk, NAMED)
    fusions: tuple[Fusion, ...] = ("hybrid", "rrf", "keyword", "vector")
    query = Query(SCOPE, "Ana adopted what in Chamonix yesterday?", explain=True)
    asked = QueryEmbedding(embed(query.query))
    for fusion in fusions:
        for profile in PROFILES:
            chosen = RecallSettings.model_validate({"fusion": fusion, "profile": profile})
            found = Retriever(talk, chosen, clock=lambda: BEGIN).search(query, asked)
            assert found.results
            for result in found.results:
                assert result.explanation is not None
                parts = result.explanation.parts
                assert "graph" in parts
                assert sum(parts.values()) == pytest.approx(result.score, abs=2e-6)
                assert 0.0 <= result.score <= 1.0


def test_a_pinned_memory_is_ranked_as_of_importance_1(shard: Shard) -> None:
    alike = ("the tea is in the tin", "in the tin is the tea")
    pinned = memory("pinned", alike[0], 1, pinned=True, importance=0.1, occurred_at=BEGIN)
    write(shard, [pinned, memory("other", alike[1], 2, importance=0.9, occurred_at=BEGIN)])
    chosen = RecallSettings.model_validate({"fusion": "keyword", "profile": "balanced"})
    query = Query(SCOPE, "tea tin", explain=True)

    def shares() -> dict[str, float]:
        found = Retriever(shard, chosen, clock=lambda: BEGIN).search(query, None).results
        return {each.id: each.explanation.parts["profile"] for each in found if each.explanation}

    before = shares()
    assert before["pinned"] - before["other"] == pytest.approx(0.15 * (1.0 - 0.9), abs=1e-6)
    write(shard, [replace(pinned, pinned=False, version=2, write_seq=3)])
    after = shares()
    assert after["other"] - after["pinned"] == pytest.approx(0.15 * (0.9 - 0.1), abs=1e-6)


def test_what_the_graph_supports_is_in_the_pool_and_gains_a_share_of_its_score(
    talk: Shard,
) -> None:
    write(talk, [memory(f"n{n}", f"kitten number {n}", 100 + n) for n in range(60)])
    index = talk.indexes.get(SCOPE)
    query, settings = Query(SCOPE, "kitten"), RecallSettings()
    plan = search_plan(query, ["kitten"], None, (), settings)
    search = PoolSearch(index, query, plan, "english", settings)
    assert "ana-s1-6" not in search.pool({})[0].ids
    rows, _ = search.pool({"ana-s1-6": 1.0, "unknown": 1.0})
    assert rows.graph[rows.ids.index("ana-s1-6")] == 1.0
    write(talk, NAMED)
    found = {r.id: r for r in ask(talk, "ski Chamonix", explain=True).results}["ana-s1-6"]
    assert found.scores.graph == 1.0
    assert found.explanation is not None
    assert found.explanation.parts["graph"] == pytest.approx(0.05 / 1.05 * found.score, abs=1e-6)


def test_a_turn_and_its_facts_are_one_result_unless_told_apart(talk: Shard) -> None:
    write(
        talk,
        [
            memory("f1", "Ana adopted a grey kitten called Pixel", 30, source_id="item-1"),
            drawn("f1", "ana-s1-0"),
            memory("f2", "The kitten is grey", 31),
            drawn("f2", "ana-s1-0"),
        ],
    )
    together = ask(talk, "grey kitten Pixel", explain=True)
    found = [r for r in together.results if r.id in ("f1", "f2", "ana-s1-0")]
    assert [result.id for result in found] == ["f1"]
    assert found[0].source_ids == ("ana-s1-0",)
    assert found[0].derived_from == ("ana-s1-0",)
    assert found[0].explanation is not None
    assert set(found[0].explanation.grouped) == {"f2", "ana-s1-0"}
    apart = ask(talk, "grey kitten Pixel", group=False)
    assert {"f1", "f2", "ana-s1-0"} <= set(ids(apart))
    of_turn = next(r for r in apart.results if r.id == "ana-s1-0")
    assert of_turn.score == found[0].score


def test_neighbours_come_with_a_turn(read: Shard) -> None:
    result = ask(read, "violin case", neighbours=2).results[0]
    assert result.id == "ana-s1-2"
    assert [(n.id, n.offset) for n in result.neighbours] == [
        ("ana-s1-0", -2),
        ("ana-s1-1", -1),
        ("ana-s1-3", 1),
        ("ana-s1-4", 2),
    ]
    first = ask(read, "adopted kitten", neighbours=1).results[0]
    assert [n.offset for n in first.neighbours] == [1]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """Only read."""
    shard = open_shard(tmp_path_factory.mktemp("mixed"))
    day = timedelta(days=1)
    write(
        shard,
        [
            memory("plain", "the tea is green", 1, occurred_at=BEGIN),
            memory("tagged", "the tea is black", 2, tags=("drink", "hot"), occurred_at=BEGIN + day),
            memory("hot", "the tea is hot", 3, tags=("hot",), occurred_at=BEGIN + 2 * day),
            memory("pinned", "the tea is for Ana", 4, pinned=True, importance=0.9, project="p1"),
            memory("sorted", "the tea is sorted", 5, categories=("food",), type="preference"),
            turn("said", "tea it is", 6, who="Zoë", session_id="s9"),
            memory("heard", "someone wants tea", 7, created_at=BEGIN + 9 * day),
            drawn("heard", "said"),
        ],
    )
    yield shard
    shard.close()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"types": ("preference",)}, {"sorted"}),
        ({"types": ("preference", "episodic")}, {"sorted", "said"}),
        ({"types": ("unknown",)}, set()),
        ({"tags": ("drink", "hot")}, {"tagged", "hot"}),
        ({"all_tags": ("drink", "hot")}, {"tagged"}),
        ({"categories": ("food", "x")}, {"sorted"}),
        ({"who": "zoë"}, {"said", "heard"}),
        ({"who": "nobody"}, set()),
        ({"pinned": True}, {"pinned"}),
        ({"min_importance": 0.8}, {"pinned"}),
        ({"project": "p1"}, {"pinned"}),
        ({"session_id": "s9"}, {"said"}),
        ({"since": BEGIN + timedelta(days=1), "until": BEGIN + timedelta(days=2)}, {"tagged"}),
        ({"types": ("fact",), "tags": ("hot",), "pinned": False}, {"tagged", "hot"}),
    ],
)
@pytest.mark.parametrize("vectors", [True, False])
def test_filters_apply_before_the_search(
    mixed: Shard, filters: dict[str, object], expected: set[str], vectors: bool
) -> None:
    assert set(ids(ask(mixed, "tea", vectors, group=False, **filters))) == expected


def test_as_of_leaves_out_what_came_later(mixed: Shard) -> None:
    now = ask(mixed, "tea", group=False, limit=20)
    then = ask(mixed, "tea", group=False, limit=20, as_of=BEGIN + timedelta(days=8))
    assert set(ids(now)) - set(ids(then)) == {"heard"}


def test_filtered_hits_are_found_behind_a_thousand_others(shard: Shard) -> None:
    rows: list[Row] = [memory(f"m{n}", f"tea time number {n}", n) for n in range(1, 1_001)]
    rows.append(memory("rare", "tea among many other long words of no use", 2_000, tags=("rare",)))
    write(shard, rows)
    assert ids(ask(shard, "tea time", tags=("rare",), limit=1)) == ["rare"]


def test_what_has_ended_ranks_lower(shard: Shard) -> None:
    write(
        shard,
        [
            memory("a-past", "Ana is in Rome", 1, valid_until=BEGIN - timedelta(days=1)),
            memory("b-now", "Ana is in Rome", 2, valid_until=BEGIN + timedelta(days=1)),
        ],
    )
    assert ids(ask(shard, "Ana in Rome")) == ["b-now", "a-past"]


def test_a_change_is_seen_at_once(talk: Shard) -> None:
    assert ids(ask(talk, "kitten Pixel"))[0] == "ana-s1-0"
    old = turn("ana-s1-0", LINES[0][1], 1, session_id="s1")
    write(talk, [replace(said_anew(old, "I adopted a parrot."), version=2, write_seq=40)])
    assert ask(talk, "Pixel", vectors=False).results[0].unlikely
    assert ids(ask(talk, "parrot", vectors=False))[0] == "ana-s1-0"
    write(talk, [replace(old, is_deleted=True, version=3, write_seq=41)])
    assert "ana-s1-0" not in ids(ask(talk, "parrot kitten", limit=50))
    write(talk, [replace(old, version=4, write_seq=42)])
    assert ids(ask(talk, "kitten Pixel"))[0] == "ana-s1-0"


def test_readers_may_search_while_a_writer_writes(talk: Shard) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                assert "ana-s1-0" in ids(ask(talk, "kitten Pixel", limit=50))
                if threading.current_thread().name.endswith("0"):
                    talk.indexes.clear()
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read, name=f"reader-{n}") for n in range(3)]
    for reader in readers:
        reader.start()
    for number in range(30):
        write(talk, [memory(f"w{number}", f"note {number} on the weather", 100 + number)])
    done.set()
    for reader in readers:
        reader.join()
    assert not failures, failures
    assert len(ask(talk, "weather", limit=100, vectors=False, min_score=0.1).results) == 30


AS_SET = RecallSettings()


def placed(shard: Shard, query: Query, settings: RecallSettings = AS_SET) -> list[WhyNot]:
    async def ask() -> list[WhyNot]:
        retriever, embedding = Retriever(shard, settings), QueryEmbedding(embed(query.query))
        found = await retriever.retrieve(query, embedding)
        return list(await retriever.why_not(query, embedding, found))

    return asyncio.run(ask())


def test_a_memory_is_placed_in_the_ranking_or_its_absence_explained(talk: Shard) -> None:
    query = Query(SCOPE, "Where is the kitten?", limit=1, why_not=("ana-s1-0", "ana-s1-6", "x"))
    first, other, unknown = placed(talk, query)
    assert (first.reason, first.rank, first.shown_by) == ("returned", 1, None)
    assert first.explanation is not None
    assert first.score == pytest.approx(sum(first.explanation.parts.values()), abs=1e-6)
    assert (other.reason, unknown.reason) == ("limit", "inactive")
    assert other.rank is not None
    assert other.rank > 1
    everything = answer(talk, replace(query, limit=50, why_not=()), embed(query.query))
    assert ids(everything)[other.rank - 1] == "ana-s1-6"

    [by_score] = placed(talk, replace(query, min_score=0.99, why_not=("ana-s1-6",)))
    assert by_score.reason == "min_score"
    [filtered] = placed(talk, replace(query, who="Ben", pinned=False, why_not=("ana-s1-6",)))
    assert (filtered.reason, filtered.filters) == ("filtered", ("who",))


def test_a_memory_outside_the_pool_is_scored_as_if_it_were_in_it(talk: Shard) -> None:
    lines = [("Ben", f"Kitten number {number} sleeps.") for number in range(40)]
    write(talk, conversation(lines, "s2", first=100))
    far = Query(SCOPE, "kitten sleeps", why_not=("ana-s1-7",))
    [result] = placed(talk, far, RecallSettings(pool=10))
    assert result.reason == "not_considered"
    assert result.scores is not None
    assert result.scores.keyword == 0.0
    assert result.rank is not None
    assert result.rank > 10
