"""What a decision is shown does not depend on how the facts before it were batched."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.scoring import (
    at_least_best,
    best_of_segments,
    row_cosines,
    row_products,
)
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.writing.candidates import CandidateSearch
from palimpsest.stores.writing.scope_caches import NewestFacts
from palimpsest.streams.store_port import FindCandidates, NearDuplicates, Vector
from tests.examples import examples
from tests.memory_rows import DIMENSIONS, SCOPE, embed, memory, options, vector_of

WORDS = ("tea", "coffee", "likes", "Ana", "garden", "runs", "blue", "house", "the", "of", "Oslo")
REFUSED = ("m3", "m8")
"""Memories whose text the embedder did not take."""
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


@dataclass
class OneScope:
    index: ScopeIndex = field(default_factory=lambda: ScopeIndex(DIMENSIONS))

    def search(self, need: SearchPlan) -> ScopeIndex:
        return self.index


def unread() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    raise AssertionError("there is no store")


class NothingRead(NewestFacts):
    """Knows of what it is told only."""

    def __init__(self) -> None:
        super().__init__(unread)
        self._scopes = {}


@dataclass
class FakeShard:
    indexes: OneScope = field(default_factory=OneScope)
    options: object = field(default_factory=options)
    newest_facts: NewestFacts = field(default_factory=NothingRead)


@st.composite
def changes(draw: st.DrawFn) -> list[MemoryRow]:
    """Rows as stages write them, one after another: new, said anew, touched, deleted."""
    rows: list[MemoryRow] = []
    latest: dict[str, MemoryRow] = {}
    for seq in range(1, draw(st.integers(1, 30)) + 1):
        number = draw(st.integers(0, 15))
        before = latest.get(f"m{number}")
        order = draw(st.one_of(st.none(), st.integers(0, 20)))
        row = memory(f"m{number}", draw(TEXTS), seq, decision_order=order)
        what = draw(st.sampled_from(("say", "touch", "delete")))
        if before is not None and what == "touch":
            row = replace(before, version=before.version + 1, write_seq=seq, decision_order=order)
        elif before is not None and what == "delete":
            row = replace(before, write_seq=seq, is_deleted=True)
        latest[row.memory_id] = row
        rows.append(row)
    return rows


def split(rows: list[MemoryRow], at: int) -> CandidateSearch:
    """A search that finds the first `at` rows committed and the others in its batch."""
    shard = FakeShard()
    for row in rows[:at]:
        shard.indexes.index.put_row(row, kept_vector(row), "english")
    shard.newest_facts.note(rows[:at])
    search = CandidateSearch(shard)  # type: ignore[arg-type]
    for row in rows[at:]:
        search.show(row, kept_vector(row))
    return search


def kept_vector(row: MemoryRow) -> Vector | None:
    return None if row.memory_id in REFUSED else vector_of(row)


@settings(max_examples=examples(15))
@given(changes(), TEXTS, st.data())
def test_a_batch_over_the_index_is_as_one_index(
    rows: list[MemoryRow], text: str, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows)))
    vector = data.draw(st.sampled_from((embed(text), None)))
    ask = FindCandidates(SCOPE, text, vector, 5, 0.1)
    near = NearDuplicates(
        SCOPE,
        text,
        rows[0].content_hash,
        vector,
        0.7,
        data.draw(st.integers(0, len(rows))),
        data.draw(st.integers(0, 20)),
    )
    whole = split(rows, len(rows))
    parted = split(rows, at)
    assert parted.candidates(ask, 0) == whole.candidates(ask, 0)
    assert parted.near_duplicates(near, 0) == whole.near_duplicates(near, 0)


@pytest.mark.parametrize("asked", [True, False], ids=["asked-without", "found-without"])
def test_without_a_vector_words_tell_what_is_nearly_the_same(asked: bool) -> None:
    """A near duplicate that nobody saw is not written beside because an embedder was away."""
    name = "m1" if asked else REFUSED[0]
    rows = [
        memory("m0", "Ana lives in Oslo by the sea", 1),
        memory(name, "Ana likes green tea a lot", 2),
    ]
    for text, found in (
        ("Ana likes green tea", [name]),
        ("Ana likes green tea a lot", [name]),
        ("Ana keeps bees", []),
        ("Rita drinks black coffee", []),
    ):
        vector = None if asked else embed(text)
        ask = NearDuplicates(SCOPE, text, "0" * 64, vector, 0.7, 0, 0)
        for at in (0, 1, 2):
            near = split(rows, at).near_duplicates(ask, 0).found
            assert [candidate.memory_id for candidate in near] == found, text
        seen = replace(ask, as_of=2)
        assert split(rows, 2).near_duplicates(seen, 0).found == ()


def test_many_equal_scores_are_cut_by_id() -> None:
    rows = [memory(f"m{number:03}", "Ana likes tea", number) for number in range(200)]
    ask = FindCandidates(SCOPE, "Ana likes tea", embed("Ana likes tea"), 5, 0.1)
    for at in (0, 100, 200):
        found = split(rows, at).candidates(ask, 0).found
        assert [candidate.memory_id for candidate in found] == [f"m00{n}" for n in range(5)]
        assert found[0].score == pytest.approx(1.0, abs=1e-3)
        assert found[0].occurred_at == rows[0].occurred_at


def test_the_same_words_elsewhere_rank_below_the_same_statement() -> None:
    rows = [
        memory("same", "Ana moved to Oslo in May", 1),
        memory("other", "Ben moved his piano", 2),
        memory("far", "The garden needs water", 3),
    ]
    ask = FindCandidates(SCOPE, "Ana moved to Oslo", embed("Ana moved to Oslo"), 5, 0.1)
    found = split(rows, 2).candidates(ask, 7)
    assert found.as_of == 7
    assert found.found[0].memory_id == "same"
    assert "far" not in [candidate.memory_id for candidate in found.found]


def test_nothing_is_found_where_nothing_is() -> None:
    search = split([], 0)
    assert search.candidates(FindCandidates(SCOPE, "tea", embed("tea"), 5, 0.1), 0).found == ()
    assert search.candidates(FindCandidates(SCOPE, "", None, 5, 0.1), 0).found == ()


@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_row_has_its_cosine_whatever_stands_beside_it(rows: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    vectors = chance.normal(size=(rows, 256)).astype(np.float32)
    query = chance.normal(size=256).astype(np.float32)
    for of_rows in (row_cosines, row_products):
        together = of_rows(vectors, query)
        for number in range(rows):
            assert of_rows(vectors[number : number + 1], query)[0] == together[number]


@given(st.lists(st.integers(0, 9), max_size=2000), st.integers(1, 30))
def test_the_best_places_are_those_that_sorting_gives(values: list[int], count: int) -> None:
    scores = np.array(values, dtype=np.float64)
    index = ScopeIndex(DIMENSIONS)
    for number in range(len(values)):
        index.facts.ids.append(f"m{number:04}")
    places = at_least_best(scores, count)
    best = best_of_segments([index.facts], [places], [scores[places]], count)[0]
    ranked = sorted((-value, n) for n, value in enumerate(values) if value > 0)[:count]
    assert best.tolist() == sorted(n for _, n in ranked)
