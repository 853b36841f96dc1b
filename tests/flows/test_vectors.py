"""The vector table is what DuckDB says, whatever happened to its files, and token vectors are those
of the text that a memory has now, from wherever they are read; catching up on vectors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import lancedb
import numpy as np
import pytest

from palimpsest.ops.embedding.tracker import catch_up, missing
from palimpsest.schemas.memory_texts import embedding_key, embedding_text
from palimpsest.stores.index import lance as vectors
from palimpsest.stores.index.lance import Synced, VectorTable
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.base import PermanentModelError, TransientModelError, Vector
from tests.erased_bytes import where
from tests.memory_rows import (
    DIMENSIONS,
    MODEL,
    SCOPE,
    embed,
    memory,
    open_shard,
    packed_of,
    turn,
    write,
)

OTHER = "o'ther \" scope; --"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any store is one whose tokens are copied."""
    monkeypatch.setattr(vectors, "TOKENS_FROM", 1)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = open_shard(tmp_path / "shard")
    write(
        shard,
        [
            memory(f"m{n:03}", f"note {n} on tea, plant {n * 7 % 50}", n, scope=scope)
            for n, scope in enumerate((SCOPE, OTHER) * 60, start=1)
        ],
    )
    yield shard
    shard.close()


def table_of(shard: Shard) -> VectorTable:
    return VectorTable(shard.folder, MODEL, DIMENSIONS, shard.reading)


Kept = tuple[list[float], bytes]


def content(table: VectorTable, scope: str = SCOPE) -> dict[str, Kept]:
    """What the table holds of a scope, read past it."""
    rows = lancedb.connect(table.folder).open_table(vectors.TABLE).to_arrow().to_pylist()
    return {
        row["memory_id"]: (row["vector"], row["tokens"]) for row in rows if row["scope"] == scope
    }


def stored(shard: Shard, scope: str = SCOPE) -> dict[str, Kept]:
    with shard.reading() as reader:
        rows = reader.execute(
            "SELECT memory_id, vector, tokens FROM memory_rows JOIN embeddings USING"
            " (embedding_key) WHERE scope = ? AND NOT is_deleted",
            [scope],
        ).fetchall()
    return {memory_id: (np.float16(vector).tolist(), tokens) for memory_id, vector, tokens in rows}


def kept_of(text: str) -> Kept:
    """Of a fact with this text."""
    row = memory("any", text)
    return embed(text).astype(np.float16).tolist(), packed_of(row)


def test_it_follows_the_store(shard: Shard) -> None:
    table = table_of(shard)
    assert table.sync().rebuilt == "missing"
    for scope in (SCOPE, OTHER):
        assert content(table, scope) == stored(shard, scope)
        assert len(content(table, scope)) == 60
    write(shard, [memory("new", "a whole new thing", 500)])
    assert table.sync().written == 1
    assert content(table) == stored(shard)
    write(shard, [replace(memory("new", "a whole new thing", 501), is_deleted=True)])
    assert table.sync().removed == 1
    assert "new" not in content(table)
    again = table.sync()
    assert (again.written, again.removed, again.position) == (0, 0, 501)


def test_tokens_are_copied_from_the_size_on_at_which_that_helps(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "TOKENS_FROM", 121)
    table = table_of(shard)
    assert table.sync().written == 120
    assert {tokens for _, tokens in content(table).values()} == {None}
    assert table.sync().written == 0
    write(shard, [memory("new", "a whole new thing", 500)])
    assert table.sync().written == 121
    assert content(table) == stored(shard)
    table.close()
    # A store of before may have a copy that it does not need.
    monkeypatch.setattr(vectors, "TOKENS_FROM", 122)
    again = table_of(shard)
    assert again.sync().written == 121
    assert {tokens for _, tokens in content(again).values()} == {None}


@pytest.mark.parametrize("rewritten", [False, True])
def test_the_tokens_of_a_text_are_not_compressed_with_those_of_others(
    shard: Shard, rewritten: bool
) -> None:
    with shard.writing() as connection:
        connection.execute("UPDATE embeddings SET tokens = encode(repeat(embedding_key, 80))")
        # One so long that DuckDB takes the column for one of long texts.
        connection.execute(
            "UPDATE embeddings SET tokens = encode(repeat(embedding_key, 400))"
            " WHERE embedding_key = (SELECT min(embedding_key) FROM embeddings)"
        )
        connection.execute("FORCE CHECKPOINT")
    if rewritten:
        shard.rewrite()
    with shard.reading() as reader:
        found = reader.execute(
            "SELECT DISTINCT compression FROM pragma_storage_info('embeddings')"
            " WHERE column_name = 'tokens' AND segment_type = 'BLOB'"
        ).fetchall()
    assert found
    assert "ZSTD" not in {name for (name,) in found}


def test_a_large_store_takes_no_memory_to_follow(shard: Shard) -> None:
    """Of what is wide, nothing but the rows in hand."""
    with shard.writing() as connection:
        connection.execute(
            "INSERT INTO memory_rows SELECT m.* REPLACE ('x' || i AS memory_id, NULL AS dedup_key,"
            " 'k' || i AS embedding_key, 500 AS write_seq)"
            " FROM (FROM memory_rows LIMIT 1) m, range(15_000) of(i)"
        )
        connection.execute(
            "INSERT INTO embeddings SELECT e.* REPLACE ('k' || i AS embedding_key,"
            " encode(repeat('t', 8192)) AS tokens)"
            " FROM (FROM embeddings LIMIT 1) e, range(15_000) of(i)"
        )
        connection.execute("SET memory_limit = '64MiB'")
    table = table_of(shard)
    assert table.sync().written == 15_120
    write(shard, [memory("new", "a whole new thing", 501)])
    assert table.sync().written == 1


def vectors_of(shard: Shard) -> dict[str, list[float]]:
    shard.indexes.clear()
    segments = shard.indexes.get(SCOPE).segments
    return {i: s.vectors[place].tolist() for s in segments for i, place in s.place_of.items()}


def test_a_scope_is_loaded_from_it_the_same(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "HELD_FROM", 1)
    table = shard.vector_table()
    assert table.held(SCOPE) is None  # before it is opened
    table.sync()
    held = table.held(SCOPE)
    assert held is not None
    assert held.num_rows == 60
    # What came after the sync, and what says something else now, is in DuckDB alone.
    write(shard, [memory("new", "a whole new thing", 500)])
    write(shard, [memory("m001", "nothing but penguins", 600, version=2)])
    with_copy = vectors_of(shard)
    monkeypatch.setattr(vectors, "HELD_FROM", 10**9)
    assert table.held(SCOPE) is None
    assert with_copy == vectors_of(shard)
    assert with_copy["m001"] == kept_of("nothing but penguins")[0]
    assert len(with_copy) == 61


def test_a_damaged_one_hinders_no_loading(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "HELD_FROM", 1)
    table = shard.vector_table()
    table.sync()
    before = vectors_of(shard)
    for file in (table.folder / "vectors.lance" / "data").iterdir():
        file.write_bytes(b"")
    assert vectors_of(shard) == before
    assert table.sync().rebuilt is not None
    assert vectors_of(shard) == before


def test_a_change_of_text_replaces_the_vector(shard: Shard) -> None:
    table = table_of(shard)
    table.sync()
    changed = memory("m001", "nothing but penguins", 600, version=2)
    write(shard, [changed])
    table.sync()
    assert len(content(table)) == 60
    assert content(table)["m001"] == kept_of("nothing but penguins")


def test_optimizing_loses_nothing(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "MERGES_BEFORE_OPTIMIZE", 2)
    table = table_of(shard)
    for number in range(5):
        write(shard, [memory(f"late{number}", f"late note {number}", 700 + number)])
        table.sync()
        assert content(table) == stored(shard)


def _garbage(folder: Path) -> None:
    for path in folder.rglob("*.lance"):
        if path.is_file():
            path.write_bytes(b"garbage" * 100)


def _truncate(folder: Path) -> None:
    for path in folder.rglob("*.lance"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty_newest_manifest(folder: Path) -> None:
    # Versions are numbered downwards from the largest number.
    newest = min(folder.rglob("*.manifest"), key=lambda path: path.name)
    newest.write_bytes(b"")


def _empty_all_manifests(folder: Path) -> None:
    for path in folder.rglob("*.manifest"):
        path.write_bytes(b"")


def _older(folder: Path) -> None:
    min(folder.rglob("*.manifest"), key=lambda path: path.name).unlink()


@pytest.mark.parametrize(
    "damage",
    [shutil.rmtree, _garbage, _truncate, _empty_newest_manifest, _empty_all_manifests, _older],
)
def test_a_damaged_table_is_made_anew(shard: Shard, damage: object) -> None:
    table = table_of(shard)
    table.sync()
    write(shard, [memory("extra", "one more on tea", 800)])
    table.sync()
    asked = QueryEmbedding(embed("note 7 on tea"))
    before = content(table)
    recalled = Retriever(shard).search(Query(SCOPE, "note 7 on tea"), asked)
    table.close()
    damage(table.folder)  # type: ignore[operator]
    again = table_of(shard)
    assert again.held(SCOPE) is None
    again.sync()
    assert content(again) == before
    after = Retriever(shard).search(Query(SCOPE, "note 7 on tea"), asked)
    assert [r.id for r in after.results] == [r.id for r in recalled.results]


def test_a_table_that_missed_writes_catches_up(shard: Shard) -> None:
    table = table_of(shard)
    table.sync()
    table.close()
    write(shard, [memory("missed", "a missed memory", 900)])
    again = table_of(shard)
    assert again.sync().written == 1
    assert content(again)["missed"] == kept_of("a missed memory")


def test_a_closed_table_has_nothing_left_to_be_merged(shard: Shard) -> None:
    table = table_of(shard)
    for number in range(5):
        write(shard, [memory(f"more{number}", f"hat number {number}", 900 + number)])
        table.sync()
    before = content(table)
    files = table.folder / f"{vectors.TABLE}.lance" / "data"
    assert len([*files.iterdir()]) > 4
    table.close()
    assert len([*files.iterdir()]) <= 2
    again = table_of(shard)
    assert again.sync() == Synced(0, 0, 904, None)
    assert content(again) == before


def test_a_table_is_used_while_it_is_written_again(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(shard)
    table.sync()
    gone = memory("gone", "a text about penguins", 900)
    write(shard, [gone])
    table.sync()
    write(shard, [replace(gone, write_seq=901, is_deleted=True)])
    real = VectorTable.sync
    found: list[object] = []

    def sync(written: VectorTable) -> Synced:
        synced = real(written)
        if written is not table:
            # What comes now is in the old files alone: of one no sequence changes.
            write(shard, [memory("late", "a late text", 902)])
            with shard.writing() as connection:
                key = memory("m001", "note 1 on tea, plant 7", 1).embedding_key
                connection.execute("DELETE FROM embeddings WHERE embedding_key = ?", [key])
            table.note(["m001"])
            found.append(real(table).written)
            held = table.vectors(["late", "m003"])
            found.append(held and held.num_rows)
        return synced

    with monkeypatch.context() as patched:
        patched.setattr(VectorTable, "sync", sync)
        table.write_again()
    assert found == [1, 2]
    assert "m001" not in stored(shard)
    assert content(table) == stored(shard)
    assert "late" in content(table)
    assert table.vectors(["late"]).num_rows == 1  # type: ignore[union-attr]
    assert [path for path in table.folder.parent.iterdir() if path != table.folder] == []
    assert where(table.folder, "gone") == []
    write(shard, [memory("later", "a later text", 903)])
    assert table.sync() == Synced(1, 0, 903, None)


def test_a_table_that_cannot_be_written_again_is_made_anew(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of(shard)
    table.sync()

    def fail(*given: object) -> None:
        raise RuntimeError("lance error: no such column")

    with monkeypatch.context() as patched:
        patched.setattr(VectorTable, "_merge", fail)
        table.write_again()
    assert "made anew: lance error: no such column" in caplog.text
    assert not table.is_open
    assert [*table.folder.parent.iterdir()] == []
    assert table.sync().rebuilt == "missing"
    assert content(table) == stored(shard)


class Model:
    """Refuses what it is told to, and is away when it is told to."""

    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self, refused: str = "\0", away: bool = False) -> None:
        self.refused = refused
        self.away = away

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if self.away:
            raise TransientModelError("away")
        if any(self.refused in text for text in texts):
            raise PermanentModelError("refused")
        return [embed(text) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return embed(text)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


async def test_memories_without_a_vector_get_one(tmp_path: Path) -> None:
    shard = open_shard(tmp_path / "shard")
    rows = [turn(f"t{n:02}", f"line {n} about hats", n) for n in range(20)]
    write(shard, [*rows, memory("bad", "unspeakable", 30)], vectors=False)
    recall = Retriever(shard)
    query = Query(SCOPE, "line 7 about hats")
    asked = QueryEmbedding(embed(query.query))
    assert recall.search(query, asked).answer.method == "keyword"
    table = table_of(shard)
    assert table.sync().written == 0
    assert missing(shard, MODEL, DIMENSIONS).total == 21

    done = await catch_up(shard, Model(away=True), table, batch=8)
    assert (done.embedded, done.failed, done.failure) == (0, 8, "away")
    done = await catch_up(shard, Model("unspeakable"), table, batch=8)
    assert (done.embedded, done.failed, done.failure) == (20, 1, "refused")
    assert missing(shard, MODEL, DIMENSIONS).total == 1
    assert recall.search(query, asked).answer.method == "hybrid"
    assert table.sync().written == 20
    known = recall.search(query, asked)
    shard.indexes.clear()
    assert recall.search(query, asked).results[0].id == known.results[0].id
    assert (await catch_up(shard, Model(), table, skip=lambda scope: scope == SCOPE)).embedded == 0
    assert (await catch_up(shard, Model(), table)).embedded == 1
    shard.close()


@pytest.mark.parametrize("day", [14, 15])
async def test_a_turn_gets_the_vector_of_the_text_that_its_key_is_of(
    tmp_path: Path, day: int
) -> None:
    """With its speaker's day; earlier versions took the day in UTC."""
    at = datetime(2026, 3, 15, 5, 30, tzinfo=UTC)
    text = embedding_text("episodic", "Ada", "The boiler broke.", at.replace(day=day))
    key = embedding_key(text)
    row = turn("t1", "The boiler broke.", who="Ada", occurred_at=at, embedding_key=key)
    shard = open_shard(tmp_path / "shard")
    write(shard, [replace(row, utc_offset_minutes=-420)], vectors=False)
    assert (await catch_up(shard, Model())).embedded == 1
    assert shard.space.stored_vector(key) == pytest.approx(embed(text))
    shard.close()


async def test_what_no_person_wrote_gets_the_vector_of_its_outline(tmp_path: Path) -> None:
    advice = "Feed it once a week, and keep it cold while you are away. " * 20
    at = datetime(2026, 3, 1, tzinfo=UTC)
    outlined = embedding_text("episodic", "Ada", advice, at, "assistant")
    key = embedding_key(outlined)
    shard = open_shard(tmp_path / "shard")
    write(shard, [turn("t1", advice, who="Ada", occurred_at=at, embedding_key=key)], vectors=False)
    assert (await catch_up(shard, Model())).embedded == 1
    assert shard.space.stored_vector(key) == pytest.approx(embed(outlined))
    shard.close()
