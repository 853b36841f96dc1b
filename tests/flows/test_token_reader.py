"""Token vectors are those of the text that a memory has now, from wherever they are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import duckdb
import lancedb
import pytest

from palimpsest.stores.index import lance
from palimpsest.stores.index import token_reader as tokens
from palimpsest.stores.index.token_reader import HeldTokens, TokenReader
from palimpsest.stores.shard import Shard
from palimpsest.streams.store_port import KeepVector, Progress, Put
from tests.memory_rows import (
    MODEL,
    SCOPE,
    memory,
    open_shard,
    packed_of,
    turn,
    vector_of,
    write,
)

ROWS = [
    *(turn(f"t{n}", f"turn {n} about boats", n) for n in range(40)),
    *(memory(f"f{n}", f"fact {n} about boats", 50 + n) for n in range(40)),
]
IDS = [row.memory_id for row in ROWS]
EXPECTED = {row.memory_id: packed_of(row) for row in ROWS}


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any store is one whose tokens are copied."""
    monkeypatch.setattr(lance, "TOKENS_FROM", 1)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = open_shard(tmp_path / "shard")
    write(shard, ROWS)
    yield shard
    shard.close()


def forget_cached(shard: Shard) -> None:
    space = shard.space
    space.tokens = TokenReader(shard.reading, MODEL, space.indexes.texts_of, space._copied_tokens)


def refuse_store(reader: TokenReader) -> None:
    """Let nothing come from DuckDB any more."""

    def closed() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        raise AssertionError("the store was read")

    reader._reading = closed


def test_what_was_just_committed_is_read_from_memory(shard: Shard) -> None:
    shard.indexes.get(SCOPE)
    refuse_store(shard.tokens)
    assert shard.packed_tokens(IDS) == EXPECTED


def test_what_is_not_cached_is_read_from_lancedb(shard: Shard) -> None:
    shard.vector_table().sync()
    shard.indexes.get(SCOPE)
    forget_cached(shard)
    refuse_store(shard.tokens)
    assert shard.packed_tokens(IDS) == EXPECTED
    shard.vector_table().close()
    assert shard.packed_tokens(IDS) == EXPECTED  # cached by the question before


def test_a_small_store_has_them_once(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance, "TOKENS_FROM", len(ROWS) + 1)
    table = shard.vector_table()
    table.sync()
    assert table.tokens(IDS) == {}
    forget_cached(shard)
    assert shard.packed_tokens(IDS) == EXPECTED


def _gone(shard: Shard) -> None:
    shutil.rmtree(shard.vector_table().folder)


def _damaged(shard: Shard) -> None:
    for file in shard.vector_table().folder.rglob("*.lance"):
        if file.is_file():
            file.write_bytes(b"garbage")


def _closed(shard: Shard) -> None:
    shard.vector_table().close()


def _synced(shard: Shard) -> None:
    shard.vector_table().sync()


def _optimized(shard: Shard) -> None:
    shard.vector_table().close()
    shard.vector_table().sync()


def _rebuilt(shard: Shard) -> None:
    _gone(shard)
    _optimized(shard)


def _not_resident(shard: Shard) -> None:
    shard.indexes.clear()


@pytest.mark.parametrize(
    "happens", [_gone, _damaged, _closed, _synced, _optimized, _rebuilt, _not_resident]
)
def test_they_are_the_same_whatever_happened_to_the_copies(
    shard: Shard, happens: Callable[[Shard], None]
) -> None:
    shard.indexes.get(SCOPE)
    shard.vector_table().sync()
    happens(shard)
    forget_cached(shard)
    assert shard.packed_tokens([*IDS, "unknown"]) == EXPECTED


def test_they_are_the_same_after_a_restart(shard: Shard) -> None:
    shard.vector_table().sync()
    folder, before = shard.folder, shard.packed_tokens(IDS)
    shard.close()
    again = open_shard(folder)
    assert again.packed_tokens(IDS) == before  # LanceDB is not open yet
    again.vector_table().sync()
    forget_cached(again)
    assert again.packed_tokens(IDS) == before
    again.close()


@pytest.mark.parametrize("resident", [True, False])
def test_a_copy_of_an_earlier_text_is_not_taken(shard: Shard, resident: bool) -> None:
    shard.vector_table().sync()
    if resident:
        shard.indexes.get(SCOPE)
    changed = memory("f1", "nothing but penguins", 200, version=2)
    gone = replace(memory("f2", "fact 2 about boats", 201, version=2), is_deleted=True)
    write(shard, [changed, gone])
    for _ in range(2):
        assert shard.packed_tokens(["f1", "f2"]) == {"f1": packed_of(changed)}
        forget_cached(shard)


def test_a_commit_during_a_question_leaves_no_earlier_text_behind(shard: Shard) -> None:
    """The question reads LanceDB's row of the text before; only then the text is replaced."""
    shard.vector_table().sync()
    shard.indexes.get(SCOPE)
    changed = memory("f1", "nothing but penguins", 200, version=2)

    def copied(memory_ids: Sequence[str]) -> Mapping[str, HeldTokens]:
        found = shard.space._copied_tokens(memory_ids)
        write(shard, [changed])
        return found

    shard.space.tokens = TokenReader(shard.reading, MODEL, shard.indexes.texts_of, copied)
    assert shard.packed_tokens(["f1"])["f1"] in {EXPECTED["f1"], packed_of(changed)}
    assert shard.packed_tokens(["f1"]) == {"f1": packed_of(changed)}
    write(shard, [replace(memory("f1", "fact 1 about boats", 201), version=3)])
    assert shard.packed_tokens(["f1"]) == {"f1": EXPECTED["f1"]}


def test_an_older_copy_of_a_text_that_came_back_is_taken(shard: Shard) -> None:
    shard.vector_table().sync()
    shard.indexes.get(SCOPE)
    for seq, text in ((200, "nothing but penguins"), (201, "fact 1 about boats")):
        write(shard, [memory("f1", text, seq, version=seq)])
    forget_cached(shard)
    refuse_store(shard.tokens)
    assert shard.packed_tokens(["f1"]) == {"f1": EXPECTED["f1"]}


def test_tokens_that_come_later_than_the_vector_are_noticed(shard: Shard) -> None:
    table = shard.vector_table()
    with shard.writing() as connection:
        connection.execute("UPDATE embeddings SET tokens = NULL")
    table.sync()
    assert table.tokens(IDS) == {}
    with shard.writing() as connection:
        connection.execute(
            "UPDATE embeddings SET tokens = encode('late ' || embedding_key) WHERE embedding_key"
            " IN (SELECT embedding_key FROM memory_rows WHERE memory_id = 't1')"
        )
    late = {"t1": f"late {ROWS[1].embedding_key}".encode()}
    forget_cached(shard)
    assert shard.packed_tokens(["t1", "t2"]) == late
    table.close()
    assert table.sync().written == 1
    assert {i: held.packed for i, held in table.tokens(IDS).items()} == late


def test_a_table_without_tokens_is_made_anew(shard: Shard) -> None:
    table = shard.vector_table()
    table.sync()
    table.close()
    older = lancedb.connect(table.folder).open_table(lance.TABLE)
    older.drop_columns(["tokens"])
    assert table.sync().rebuilt == "damaged: it has other columns"
    forget_cached(shard)
    assert shard.packed_tokens(IDS) == EXPECTED


def test_the_cache_is_bounded_and_keeps_what_was_used_last(shard: Shard) -> None:
    size = len(EXPECTED["t0"]) + tokens.ENTRY_BYTES
    reader = TokenReader(
        shard.reading, MODEL, shard.indexes.texts_of, lambda ids: {}, cache_bytes=3 * size + 30
    )
    shard.indexes.get(SCOPE)
    assert reader.of(IDS) == EXPECTED
    assert len(reader._cached) == 3
    assert reader.of(["t0", "t1", "t2"]) == {i: EXPECTED[i] for i in ("t0", "t1", "t2")}
    reader.of(["t0"])
    reader.of(["t3"])
    refuse_store(reader)
    assert reader.of(["t0", "t2", "t3"]) == {i: EXPECTED[i] for i in ("t0", "t2", "t3")}
    with pytest.raises(AssertionError, match="the store was read"):
        reader.of(["t1"])


def test_a_memory_without_a_vector_costs_no_look_at_the_store(shard: Shard) -> None:
    row = turn("refused", "what the model did not take", 300)
    write(shard, [row], vectors=False)
    shard.indexes.get(SCOPE)
    refuse_store(shard.tokens)
    assert shard.packed_tokens(["refused", "t0"]) == {"t0": EXPECTED["t0"]}


def test_of_a_text_that_is_stored_already_the_stored_tokens_count(shard: Shard) -> None:
    """As everywhere: what is kept under a hash first stays."""
    forget_cached(shard)
    row = memory("again", "fact 1 about boats", 300)
    assert row.embedding_key == ROWS[41].embedding_key
    unit = shard.unit()
    unit.stage([KeepVector(row.embedding_key, vector_of(row), b"other"), Put(row)])
    unit.commit(Progress("test", {}, (), (), 0))
    assert shard.packed_tokens(["again"]) == {"again": EXPECTED["f1"]}
