"""A unit of work: what a batch sees, what it leaves, and that nothing of it shows afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from palimpsest.schemas.memory_texts import dedup_key
from palimpsest.schemas.rows.graph import MentionRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import DocumentMemoryRow, OutcomeRow
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.memory_rows import changed, deleted, with_content
from palimpsest.streams.store_port import (
    Candidates,
    FindCandidates,
    KeepVector,
    Load,
    Loaded,
    NearDuplicates,
    Progress,
    Put,
    Write,
)
from tests.harness import DIMENSIONS
from tests.messages import BEGIN
from tests.unit.by_hand import SCOPE, memory, vector_of

TEA = memory("tea", "Ana likes green tea", write_seq=1)
OPTIONS = ShardOptions(f"hashing-1-{DIMENSIONS}", DIMENSIONS)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path / "shard", OPTIONS)
    yield shard
    shard.close()


def kept(row: MemoryRow) -> tuple[Write, ...]:
    return KeepVector(row.embedding_key, vector_of(row.content)), Put(row)


def commit(shard: Shard, *writes: Write) -> None:
    unit = shard.unit()
    rows = [write.row for write in writes if isinstance(write, Put)]
    ids = tuple(row.memory_id for row in rows if isinstance(row, MemoryRow))
    unit.answer(Load(SCOPE, memory_ids=ids))
    unit.stage(writes)
    unit.commit(Progress("apply-writes", {"memory-writes": 1}, [], [], -1))


def rows_of(shard: Shard, query: str) -> list[tuple[object, ...]]:
    with shard.reading() as reader:
        return reader.execute(query).fetchall()


def load(shard: Shard, *earlier: Write, **asked: tuple[str, ...]) -> Loaded:
    unit = shard.unit()
    unit.stage(earlier)
    loaded = unit.answer(Load(SCOPE, **asked))  # type: ignore[arg-type]
    assert isinstance(loaded, Loaded)
    return loaded


def near(shard: Shard, text: str, *earlier: Write) -> list[str]:
    unit = shard.unit()
    unit.answer(Load(SCOPE, memory_ids=("tea",)))
    unit.stage(earlier)
    found = unit.answer(NearDuplicates(SCOPE, text, "", vector_of(text), 0.7, 0, 99))
    assert isinstance(found, Candidates)
    return [candidate.memory_id for candidate in found.found]


def test_a_content_is_found_while_a_memory_has_it(shard: Shard) -> None:
    digests = (TEA.content_hash,)
    assert load(shard, content_hashes=digests).by_hash == {}
    commit(shard, *kept(TEA))
    assert set(load(shard, content_hashes=digests).by_hash) == set(digests)
    # As the batch has left it: changed, deleted, or in another scope.
    other = with_content(changed(TEA, BEGIN, "x", 2), "Ana likes black tea")
    for staged in (other, deleted(changed(TEA, BEGIN, "x", 2), BEGIN)):
        assert load(shard, Put(staged), content_hashes=digests).by_hash == {}
    unit = shard.unit()
    elsewhere = unit.answer(Load("ben", content_hashes=digests))
    assert isinstance(elsewhere, Loaded)
    assert elsewhere.by_hash == {}


def test_a_second_ask_is_answered_from_the_store_too(shard: Shard) -> None:
    commit(shard, *kept(replace(TEA, source_id="src")))
    unit = shard.unit()
    unit.prefetch([Load(SCOPE, memory_ids=("tea",))])
    again = unit.answer(Load(SCOPE, content_hashes=(TEA.content_hash,), source_ids=("src",)))
    assert isinstance(again, Loaded)
    assert [set(again.by_hash), set(again.by_source)] == [{TEA.content_hash}, {"src"}]


def test_a_vector_stays_with_its_text_within_a_batch_and_after(shard: Shard) -> None:
    commit(shard, *kept(TEA))
    assert near(shard, TEA.content) == ["tea"]
    confirmed = replace(changed(TEA, BEGIN, "x", 2), decay_rate=0.0)
    assert near(shard, TEA.content, Put(confirmed)) == ["tea"]
    gone = deleted(changed(TEA, BEGIN, "x", 2), BEGIN)
    assert near(shard, TEA.content, Put(gone)) == []
    # Another text has not the vector of the one before.
    unlike = with_content(changed(TEA, BEGIN, "x", 2), "Rain fell")
    assert near(shard, TEA.content, Put(unlike)) == []


def test_what_is_resident_is_what_a_restart_would_load(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    shard = Shard(folder, OPTIONS)
    cake = memory("cake", "Ana bakes cake", write_seq=2)
    commit(shard, *kept(TEA), *kept(cake))
    asked = FindCandidates(SCOPE, "green tea and cake", vector_of("green tea and cake"), 5, 0.1)
    shard.unit().answer(asked)  # makes it resident
    gone = deleted(changed(TEA, BEGIN, "x", 3), BEGIN)
    back = replace(
        changed(gone, BEGIN, "x", 4),
        is_deleted=False,
        deleted_at=None,
        dedup_key=dedup_key(SCOPE, TEA.content_hash),
    )
    pinned = replace(changed(cake, BEGIN, "x", 5), pinned=True)
    for row in (gone, back, pinned):
        commit(shard, Put(row))
    resident = shard.unit().answer(asked)
    shard.close()
    shard = Shard(folder, OPTIONS)
    assert shard.unit().answer(asked) == resident
    assert isinstance(resident, Candidates)
    assert {c.memory_id: c.version for c in resident.found} == {"tea": 3, "cake": 2}
    assert all(c.cosine for c in resident.found)
    shard.close()


def test_of_rows_nobody_read_the_first_stays_whatever_the_batches(shard: Shard) -> None:
    def outcome(event: str) -> Put:
        row = OutcomeRow(
            item_kind="turn",
            item_id="t1",
            scope=SCOPE,
            event=event,
            memory_id=None,
            reason="",
            recorded_at=BEGIN,
        )
        return Put(row)

    commit(shard, outcome("created"), outcome("rejected"))
    commit(shard, outcome("rejected"))
    assert rows_of(shard, "SELECT event FROM outcomes") == [("created",)]
    # Also where the keys are read from the table, and after they were read again.
    shard.close()
    again = Shard(shard.folder, OPTIONS)
    commit(again, outcome("rejected"))
    again.known.forget()
    commit(again, outcome("rejected"))
    assert rows_of(again, "SELECT event FROM outcomes") == [("created",)]
    again.close()


def test_a_repeat_is_found_by_a_key_of_numbers_too(shard: Shard) -> None:
    """DuckDB and Python write a key in the same way, or a repeat would be stored twice."""
    row = DocumentMemoryRow(document_id="d", position=12, memory_id="m", scope=SCOPE)
    commit(shard, Put(row))
    shard.known.forget()
    commit(shard, Put(replace(row, memory_id="other")))
    assert rows_of(shard, "SELECT memory_id FROM document_memory_rows") == [("m",)]


@pytest.mark.parametrize("batches", [[["b", "a", "c"]], [["b"], ["a", "c"]], [["c"], ["b"], ["a"]]])
def test_of_mentions_the_least_stays_whatever_the_batches(
    shard: Shard, batches: list[list[str]]
) -> None:
    for batch in batches:
        rows = [
            MentionRow(
                memory_id="m",
                text_key="k",
                name_id="e",
                scope=SCOPE,
                mention_text=t,
                confidence=1.0,
            )
            for t in batch
        ]
        commit(shard, *map(Put, rows))
    assert rows_of(shard, "SELECT mention_text FROM mention_rows") == [("a",)]


def test_a_failed_commit_leaves_nothing_and_says_why(shard: Shard) -> None:
    commit(shard, *kept(TEA))
    twin = replace(TEA, memory_id="twin", write_seq=2)
    with pytest.raises(duckdb.ConstraintException, match="dedup_key"):
        commit(shard, *kept(memory("new", "Ana bakes cake", write_seq=2)), *kept(twin))
    assert rows_of(shard, "SELECT memory_id FROM memory_rows") == [("tea",)]
    assert shard.write_seq == 1
    # The shard goes on.
    commit(shard, *kept(memory("new", "Ana bakes cake", write_seq=2)))
    assert shard.write_seq == 2


def test_a_content_changes_hands_within_one_batch(shard: Shard) -> None:
    """The one memory lets it go, the other takes it: the unique key must not mind."""
    commit(shard, *kept(TEA))
    gone = deleted(changed(TEA, BEGIN, "x", 2), BEGIN)
    taken = replace(TEA, memory_id="new", write_seq=3)
    commit(shard, Put(gone), Put(taken))
    cake = memory("cake", "Ana bakes cake", write_seq=4)
    commit(shard, *kept(cake))
    swapped = [
        with_content(changed(taken, BEGIN, "x", 5), cake.content),
        with_content(changed(cake, BEGIN, "x", 6), TEA.content),
    ]
    commit(shard, *map(Put, swapped))
    found = load(shard, content_hashes=(TEA.content_hash, cake.content_hash)).by_hash
    assert {digest: row.memory_id for digest, row in found.items()} == {
        TEA.content_hash: "cake",
        cake.content_hash: "new",
    }


def test_a_stage_that_waited_does_not_turn_the_sequence_back(tmp_path: Path) -> None:
    shard = Shard(tmp_path / "shard", OPTIONS)
    waiting = shard.unit()
    commit(shard, *kept(replace(TEA, write_seq=7)))
    assert shard.write_seq == 7
    waiting.commit(Progress("decide", {"facts-extracted": 1}, [], [], -1))
    assert shard.write_seq == 7
    shard.close()
    again = Shard(tmp_path / "shard", OPTIONS)
    assert again.write_seq == 7
    again.close()


def test_token_vectors_are_kept_beside_the_vector(shard: Shard) -> None:
    coffee = memory("coffee", "Ana likes coffee", write_seq=2)
    tokens = KeepVector(TEA.embedding_key, vector_of(TEA.content), b"tokens")
    commit(shard, tokens, Put(TEA), *kept(coffee))
    assert shard.packed_tokens(["tea", "coffee", "unknown"]) == {"tea": b"tokens"}


def test_a_deleted_memory_keeps_no_postings(shard: Shard) -> None:
    cake = memory("cake", "Ana bakes cake", write_seq=2)
    commit(shard, *kept(TEA), *kept(cake))
    indexed = "SELECT memory_id FROM fts_docs UNION SELECT memory_id FROM fts_postings ORDER BY 1"
    assert rows_of(shard, indexed) == [("cake",), ("tea",)]
    gone = deleted(changed(TEA, BEGIN, "x", 3), BEGIN)
    commit(shard, Put(gone))
    assert rows_of(shard, indexed) == [("cake",)]
    # And takes them back.
    commit(shard, Put(replace(changed(TEA, BEGIN, "x", 4), version=3)))
    assert rows_of(shard, indexed) == [("cake",), ("tea",)]
