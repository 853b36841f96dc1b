"""A shard is closed while others read: they end first, and the folder is let go of after."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from palimpsest.ops.errors import RequestError
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sources import load_settings
from palimpsest.stores import shard as shards
from palimpsest.stores.database import snapshot
from palimpsest.stores.database.cursors import StoreClosed, interrupted_after
from palimpsest.stores.database.snapshot import SMALL, WRITTEN
from palimpsest.stores.index.language import LANGUAGE_STATE
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.settings import SearchSettings, ShardOptions
from palimpsest.stores.shard import Shard

OPTIONS = ShardOptions("test", 8)
ENDLESS = "SELECT sum(sqrt(a)) FROM range(1000000000000) AS numbers(a)"


class Query:
    """A query that lasts until it is let go."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.running, self.go_on = threading.Event(), threading.Event()

    def _wait(self) -> int:
        self.running.set()
        assert self.go_on.wait(30)
        return 7

    def rows(self) -> list[Any]:
        with self.shard.reading() as reader:
            reader.create_function("wait_here", self._wait, [], "INTEGER", side_effects=True)
            return reader.execute("SELECT wait_here()").fetchall()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_query_under_way_is_waited_for(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    shard = Shard(tmp_path, OPTIONS)
    query = Query(shard)
    rows = pool.submit(query.rows)
    assert query.running.wait(30)
    closing = pool.submit(shard.close)
    with pytest.raises(FolderInUse):
        Shard(tmp_path, OPTIONS)
    assert not closing.done()
    query.go_on.set()
    assert rows.result(30) == [(7,)]
    closing.result(30)
    Shard(tmp_path, OPTIONS).close()
    with pytest.raises(StoreClosed), shard.reading():
        pass


def test_a_commit_is_waited_for_and_never_interrupted(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "READERS_SECONDS", 0.0)
    shard = Shard(tmp_path, OPTIONS)
    writing, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with shard.writing() as connection:
            writing.set()
            assert go_on.wait(30)
            connection.execute("INSERT INTO shard_state SELECT i, i FROM range(100000) t(i)")

    written = pool.submit(write)
    assert writing.wait(30)
    closing = pool.submit(shard.close)
    assert not closing.done()
    go_on.set()
    written.result(30)
    closing.result(30)
    again = Shard(tmp_path, OPTIONS)
    assert again.state("99999") == "99999"
    again.close()


def endless(shard: Shard, begun: threading.Event, idle: float) -> None:
    with shard.reading() as reader:
        begun.set()
        threading.Event().wait(idle)
        reader.execute(ENDLESS).fetchall()


# At once: the first interrupts find a cursor that does nothing yet, and are forgotten.
@pytest.mark.parametrize(("patience", "idle"), [(0.1, 0.0), (0.0, 0.2)])
def test_a_query_without_an_end_is_interrupted(
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    idle: float,
) -> None:
    monkeypatch.setattr(shards, "READERS_SECONDS", patience)
    shard = Shard(tmp_path, OPTIONS)
    begun = threading.Event()
    reading = pool.submit(endless, shard, begun, idle)
    assert begun.wait(30)
    shard.close()
    with pytest.raises(StoreClosed):
        reading.result(30)


def test_the_limit_of_a_query_holds_however_short() -> None:
    with duckdb.connect() as connection, interrupted_after(0.0, connection) as is_late:
        assert is_late.wait(30)
        with pytest.raises(duckdb.InterruptException):
            connection.execute(ENDLESS)


async def test_whoever_asks_of_a_closed_store_is_told_to_try_again(tmp_path: Path) -> None:
    shard = Shard(tmp_path, OPTIONS)
    settings = load_settings([], tmp_path, None, {}).settings
    given: Any = None
    sources = Sources(settings, given, {0: shard}, 1, given, given)
    shard.close()
    with pytest.raises(RequestError, match="try again"):
        await DirectQueries(sources).table(SqlRequest("SELECT 1"))
    sources.sql.close()


@pytest.mark.parametrize("language", ["english", "german"])
def test_a_store_that_is_only_read_is_not_written(tmp_path: Path, language: str) -> None:
    """Not even when it is made: its file is a copy of an empty store's."""
    file = tmp_path / shards.DATABASE_FILE
    options = replace(OPTIONS, search=SearchSettings(language=language))
    for _ in range(2):
        shard = Shard(tmp_path, options)
        before = file.read_bytes()
        assert shard.state(LANGUAGE_STATE) == language
        assert [each.name for each in tmp_path.glob("*.wal")] == []
        shard.close()
        assert file.read_bytes() == before


def with_free_blocks(folder: Path, rows: int) -> Shard:
    """A store that got so many wide rows, with checkpoints between them."""
    shard = Shard(folder, OPTIONS)
    with shard.writing() as connection:
        connection.execute("DELETE FROM seen_messages")
        for _ in range(4):
            connection.execute(
                "INSERT INTO seen_messages SELECT 'text', repeat(sha256(random()::VARCHAR), 64), i"
                " FROM range(?) t(i)",
                [rows // 4],
            )
            connection.execute("CHECKPOINT")
    return shard


def texts(shard: Shard) -> int:
    with shard.reading() as reader:
        [(count,)] = reader.execute(
            "SELECT count(*) FROM seen_messages WHERE stage = 'text'"
        ).fetchall()
        assert reader.execute("SELECT count(*) FROM main.memories").fetchone() == (0,)
    return int(count)


def test_a_file_with_many_free_blocks_is_smaller_once_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "COMPACTED_BYTES", range(2**30))
    file = tmp_path / shards.DATABASE_FILE
    shard = with_free_blocks(tmp_path, 400)
    before = file.stat().st_size
    shard.close()
    assert file.stat().st_size < (1 - shards.FREE_SHARE) * before
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []
    again = Shard(tmp_path, OPTIONS)
    assert texts(again) == 400
    again.close()


def test_a_file_is_compacted_again_only_when_it_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "COMPACTED_BYTES", range(2**30))
    with_free_blocks(tmp_path, 200).close()
    rewritten: list[Path] = []
    monkeypatch.setattr(shards, "rewrite", lambda path, _: rewritten.append(path))
    with_free_blocks(tmp_path, 200).close()
    assert rewritten == []
    with_free_blocks(tmp_path, 400).close()
    assert rewritten == [tmp_path / shards.DATABASE_FILE]


def test_a_small_store_has_small_blocks_and_a_larger_one_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "COMPACTED_BYTES", range(2**30))

    def block_bytes() -> int:
        with duckdb.connect(str(tmp_path / shards.DATABASE_FILE)) as connection:
            [(size,)] = connection.execute(
                "SELECT block_size FROM pragma_database_size()"
            ).fetchall()
            return int(size)

    with_free_blocks(tmp_path, 200).close()
    assert block_bytes() == SMALL["default_block_size"]
    monkeypatch.setattr(snapshot, "SMALL_BYTES", 0)
    with_free_blocks(tmp_path, 400).close()
    assert block_bytes() == WRITTEN["default_block_size"]


def test_a_rewritten_file_has_the_views_of_before(tmp_path: Path) -> None:
    """With their comments and their version, whether or not it begins with an empty store's."""
    state = "FROM internal.shard_state ORDER BY ALL"
    views = (
        "SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
    )
    columns = "SELECT table_name, column_name, comment FROM duckdb_columns() ORDER BY ALL"
    shard = Shard(tmp_path, OPTIONS)

    def found() -> list[object]:
        with shard.reading() as reader:
            return [reader.execute(each).fetchall() for each in (state, views, columns)]

    before = found()
    with pytest.MonkeyPatch.context() as patch:
        for least in (snapshot.SMALL_BYTES, 0):
            patch.setattr(snapshot, "SMALL_BYTES", least)
            shard.rewrite()
            assert found() == before
    shard.close()


def test_a_file_that_cannot_be_compacted_is_closed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: bytes) -> None:
        path.with_name(f"{path.name}.new").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards, "COMPACTED_BYTES", range(2**30))
    monkeypatch.setattr(shards, "rewrite", full)
    with_free_blocks(tmp_path, 200).close()
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []
    again = Shard(tmp_path, OPTIONS)
    assert texts(again) == 200
    again.close()


SPAWNING = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard

def draws_progress(folder):
    shard = Shard(folder, ShardOptions("test", 8))
    with shard.writing() as connection:
        return connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()

if __name__ == "__main__":
    from pathlib import Path
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        print(process.submit(draws_progress, Path(sys.argv[1])).result())
"""


def test_no_progress_is_drawn_in_a_process_that_another_one_started(tmp_path: Path) -> None:
    """As those that fold partitions: it would stand in what a command prints."""
    script = tmp_path / "script.py"
    script.write_text(SPAWNING)
    command = [sys.executable, str(script), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[(False,)]\n", done.stderr
