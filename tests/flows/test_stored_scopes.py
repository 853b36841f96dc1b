"""A scope that is too large to be resident is found the same, nearly, without being loaded."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.schemas.rows.columns import Row
from palimpsest.stores.index import lance
from palimpsest.stores.recall.context_lines import found_pieces
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import StoreSettings
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.candidates import CandidateSearch
from palimpsest.streams.store_port import FindCandidates, NearDuplicates
from tests.memory_rows import (
    BEGIN,
    SCOPE,
    after,
    drawn,
    embed,
    memory,
    open_shard,
    turn,
    write,
)

SMALL = StoreSettings(index_bytes=1024 * 1024)
"""Of 64 dimensions 900 memories are resident."""
SPEAKERS = ("Ana", "Ben", "Cleo")
TURNS = 1_500
WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in ("ano", "iru", "ole") for c in ("mi", "ta", "sz")]
QUESTIONS = [" ".join(random.Random(n).sample(WORDS, 4)) for n in range(12)]


def rows() -> list[Row]:
    """Sessions of 25 turns, with a fact drawn from every second turn."""
    chance = random.Random(11)
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    made: list[Row] = []
    for n in range(TURNS):
        text = " ".join(chance.choices(WORDS, weights, k=9))
        session = f"s{n // 25}"
        at = BEGIN + timedelta(minutes=n)
        made.append(
            turn(
                f"t{n:04}", f"{text} {n}", 2 * n + 1, who=SPEAKERS[n % 3], session_id=session,
                occurred_at=at, created_at=at, tags=("odd",) if n % 2 else (),
                metadata=f'{{"n": {n % 100}, "of": "t"}}',
            )
        )  # fmt: skip
        if n % 25:
            made.append(after(f"t{n - 1:04}", f"t{n:04}"))
        if n % 2 == 0:
            made.append(memory(f"f{n:04}", f"{text} is so", 2 * n + 2, importance=n / TURNS))
            made.append(drawn(f"f{n:04}", f"t{n:04}"))
    made += [memory(f"o{n}", f"{WORDS[n % 45]} elsewhere", 9_000 + n, scope="o") for n in range(80)]
    return made


ROWS = rows()


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    shard = open_shard(tmp_path_factory.mktemp("resident"))
    write(shard, ROWS)
    yield shard
    shard.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a shard with the rows."""
    folder = tmp_path_factory.mktemp("written")
    shard = open_shard(folder, store=SMALL)
    write(shard, ROWS)
    shard.close()
    return folder


@pytest.fixture
def stored(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shard]:
    monkeypatch.setattr(lance, "INDEXED_FROM", 1_000)
    monkeypatch.setattr(lance, "PARTITION_ROWS", 256)
    shard = open_shard(shutil.copytree(written, tmp_path / "stored"), store=SMALL)
    yield shard
    assert shard.indexes.resident(SCOPE) is None
    shard.close()


def found(shard: Shard, query: Query) -> list[tuple[str, float]]:
    answer = Retriever(shard).search(query, QueryEmbedding(embed(query.query))).answer
    return [(result.id, result.score) for result in answer.results]


def overlap(a: Shard, b: Shard, ask: Callable[[str], Query]) -> float:
    """The share of the results of all questions that both have."""
    same = asked = 0
    for text in QUESTIONS:
        one, other = ({i for i, _ in found(shard, ask(text))} for shard in (a, b))
        asked += len(one)
        same += len(one & other)
    assert asked
    return same / asked


def test_it_is_found_the_same_by_keywords(resident: Shard, stored: Shard) -> None:
    for text in QUESTIONS:
        pairs = [Retriever(s).search(Query(SCOPE, text)).answer.results for s in (resident, stored)]
        assert pairs[0] == pairs[1]


@pytest.mark.parametrize("synced", ["by LanceDB", "partly", "by DuckDB alone"])
def test_it_is_found_nearly_the_same(resident: Shard, stored: Shard, synced: str) -> None:
    if synced != "by DuckDB alone":
        stored.vector_table().sync()
        names = [index.name for index in stored.vector_table()._table.list_indices()]
        assert sorted(names) == ["memory_id_idx", "scope_idx", "vector_idx"]
    if synced == "partly":
        later = [replace(row, write_seq=20_000 + n) for n, row in enumerate(_some_rows())]
        write(stored, later)
        stored.vector_table()._delete([row.memory_id for row in later])
    assert overlap(resident, stored, lambda text: Query(SCOPE, text)) >= 0.98


def _some_rows() -> list:
    return [row for row in ROWS if getattr(row, "memory_id", "").startswith("t00")]


FILTERS: list[dict[str, object]] = [
    {"who": "ana"},
    {"types": ("fact",)},
    {"types": ("fact",), "min_importance": 0.9},
    {"session_id": "s7"},
    {"tags": ("odd", "none")},
    {"all_tags": ("odd",), "who": "Ben"},
    {"since": BEGIN + timedelta(minutes=900), "until": BEGIN + timedelta(minutes=1200)},
    {"as_of": BEGIN + timedelta(minutes=30)},
    {"project": ""},
    {"pinned": True},
    {"categories": ("none",)},
    {"metadata": ("n=7", "of=t")},
    {"metadata": ("n=7", "of=tt")},
]


@pytest.mark.parametrize("few", [2_000, 10])
def test_filters_come_before_the_search(
    resident: Shard, stored: Shard, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palimpsest.stores.index.stored_scopes.FEW", few)
    stored.vector_table().sync()
    for fields in FILTERS:
        for text in QUESTIONS[:2]:
            query = Query(SCOPE, text, **fields)  # type: ignore[arg-type]
            one, other = ([i for i, _ in found(shard, query)] for shard in (resident, stored))
            assert len(one) == len(other)
            assert len(set(one) & set(other)) >= 0.9 * len(one), (fields, one, other)


def test_neighbours_sources_and_explanations_are_the_same(resident: Shard, stored: Shard) -> None:
    stored.vector_table().sync()
    beside = []
    for text in QUESTIONS[:5]:
        query = Query(SCOPE, text, neighbours=5, explain=True, types=("episodic",))
        one, other = (
            {r.id: r for r in Retriever(shard).search(query).answer.results}
            for shard in (resident, stored)
        )
        assert one == other
        beside += [len(result.neighbours) for result in other.values()]
        assert max(beside) > 3


def test_evidence_and_what_the_intent_adds_are_there(resident: Shard, stored: Shard) -> None:
    query = Query(SCOPE, f"why {QUESTIONS[3]}", types=("fact",))
    seen = []
    for shard in (resident, stored):
        answer = Retriever(shard).search(query)
        found = found_pieces(answer, "english", frozenset())
        seen.append((answer.related, found.pieces, found.neighbors))
    assert seen[0] == seen[1]
    may = Retriever(stored).search(Query(SCOPE, QUESTIONS[3])).allowed
    assert may.among(["t0001", "f1400", "unknown", "o1"]) == {"t0001", "f1400"}


def candidates(shard: Shard, text: str, show: bool) -> object:
    search = CandidateSearch(shard)
    if show:
        search.show(memory("f0000", "nothing that was asked", 30_000), embed("nothing"))
        search.show(memory("new", text, 30_001), embed(text))
    found = search.candidates(FindCandidates(SCOPE, text, embed(text), 8, 0.2), 0).found
    assert found
    return found


@pytest.mark.parametrize("show", [False, True])
@pytest.mark.parametrize("synced", [False, True])
def test_decide_finds_the_same(resident: Shard, stored: Shard, synced: bool, show: bool) -> None:
    if synced:
        stored.vector_table().sync()
    for text in QUESTIONS:
        assert candidates(stored, text, show) == candidates(resident, text, show)


@pytest.mark.parametrize("vector", [True, False])
def test_near_duplicates_are_the_same(resident: Shard, stored: Shard, vector: bool) -> None:
    text = next(row.content for row in ROWS if getattr(row, "memory_id", "") == "f1498")
    ask = NearDuplicates(SCOPE, text, "", embed(text) if vector else None, 0.6, 2_900, 0)
    one, other = (CandidateSearch(shard).near_duplicates(ask, 0) for shard in (resident, stored))
    assert one.found
    assert one == other


def test_names_are_looked_for_by_words(resident: Shard, stored: Shard) -> None:
    words = [WORDS[:1], WORDS[:2], [WORDS[3], "unheard"], ["so"]]
    names = {" ".join(each): each for each in words}
    resident.indexes.get(SCOPE)
    one, other = (CandidateSearch(shard).naming(SCOPE, names) for shard in (resident, stored))
    assert one == other
    assert one[" ".join(WORDS[:2])]


def test_what_was_just_written_replaced_or_forgotten_is_known(stored: Shard) -> None:
    stored.vector_table().sync()
    text = "a zebra at the seaside"
    write(stored, [memory("new", text, 30_000)])
    query = Query(SCOPE, "zebra seaside")
    assert found(stored, query)[0][0] == "new"
    write(stored, [memory("new", f"{QUESTIONS[0]} now", 30_001, version=2)])
    assert found(stored, query) != []
    assert found(stored, Query(SCOPE, QUESTIONS[0]))[0][0] == "new"
    write(stored, [replace(memory("new", text, 30_002, version=3), is_deleted=True)])
    assert "new" not in {i for i, _ in found(stored, Query(SCOPE, QUESTIONS[0]))}


def test_a_damaged_copy_hinders_no_search(resident: Shard, stored: Shard) -> None:
    table = stored.vector_table()
    table.sync()
    for file in table.folder.rglob("*.lance"):
        if file.is_file():
            file.write_bytes(b"garbage")
    assert overlap(resident, stored, lambda text: Query(SCOPE, text)) >= 0.98


def test_a_scope_that_grows_too_large_leaves_memory(tmp_path: Path) -> None:
    shard = open_shard(tmp_path / "grows", store=SMALL)
    write(shard, ROWS[:500])
    before = found(shard, Query(SCOPE, QUESTIONS[1]))
    assert shard.indexes.resident(SCOPE) is not None
    assert before
    write(shard, ROWS[500:])
    assert found(shard, Query(SCOPE, QUESTIONS[1]))
    assert shard.indexes.resident(SCOPE) is None
    assert found(shard, Query("o", "elsewhere"))
    assert shard.indexes.resident("o") is not None
    shard.close()
