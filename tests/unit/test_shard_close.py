"""A shard is closed while others read: they end first, and the folder is let go of after."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from ops.queries import DirectQueries
from ops.requests import RequestError, SqlRequest
from stores import shard as shards
from stores.lock import FolderInUse
from stores.shard import Shard, ShardOptions

OPTIONS = ShardOptions("test", 8)
ENDLESS = "SELECT sum(sqrt(a)) FROM range(1000000000000) AS numbers(a)"


class Reader:
    """A query that lasts until it is let go."""

    def __init__(self, shard: Shard) -> None:
        self.connection = shard.reader()
        self.reading, self.go_on = threading.Event(), threading.Event()
        self.connection.create_function("wait_here", self._wait, [], "INTEGER", side_effects=True)

    def _wait(self) -> int:
        self.reading.set()
        assert self.go_on.wait(30)
        return 7

    def read(self) -> list[Any]:
        return self.connection.execute("SELECT wait_here()").fetchall()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_query_under_way_is_waited_for(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    shard = Shard(tmp_path, OPTIONS)
    reader = Reader(shard)
    rows = pool.submit(reader.read)
    assert reader.reading.wait(30)
    closing = pool.submit(shard.close)
    with pytest.raises(FolderInUse):
        Shard(tmp_path, OPTIONS)
    assert not closing.done()
    reader.go_on.set()
    assert rows.result(30) == [(7,)]
    closing.result(30)
    Shard(tmp_path, OPTIONS).close()
    with pytest.raises(duckdb.ConnectionException):
        reader.connection.execute("SELECT 1")


def test_a_query_without_an_end_is_interrupted(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "READERS_SECONDS", 0.1)
    shard = Shard(tmp_path, OPTIONS)
    reader = shard.reader()
    begun = threading.Event()

    def read() -> None:
        begun.set()
        reader.execute(ENDLESS).fetchall()

    reading = pool.submit(read)
    assert begun.wait(30)
    shard.close()
    # Interrupted in its query, or closed just before it.
    with pytest.raises((duckdb.InterruptException, duckdb.ConnectionException)):
        reading.result(30)


async def test_whoever_asked_is_told_to_try_again(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "READERS_SECONDS", 0.1)
    shard = Shard(tmp_path, OPTIONS)
    begun = threading.Event()

    def given(partition: int) -> Shard:
        begun.set()
        return shard

    sources: Any = SimpleNamespace(partitions=1, shard=given, log=None)
    asked = asyncio.create_task(DirectQueries(sources).table(SqlRequest(ENDLESS, seconds=60.0)))
    assert await asyncio.to_thread(begun.wait, 30)
    await asyncio.to_thread(shard.close)
    with pytest.raises(RequestError, match="try again"):
        await asked
