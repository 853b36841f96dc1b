"""The embedded log keeps every log's promises, and its own: one file, any number of processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.streams.logs import embedded
from palimpsest.streams.logs.base import LogError, Position, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog, Mode
from palimpsest.streams.logs.records import PACKED
from tests.contract.log_contract import (
    ANN,
    HISTORY,
    PARTITIONS,
    TURNS,
    WRITES,
    Log,
    LogContract,
    outgoing,
    read_all,
    values,
)

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def now() -> datetime:
    return datetime.now(UTC)


def open_log(
    folder: Path, mode: Mode = "process", partitions: int | None = PARTITIONS
) -> EmbeddedLog:
    return EmbeddedLog(folder, partitions, now, mode)


class TestEmbeddedLog(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Log]:
        with open_log(tmp_path) as log:
            yield log


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(tmp_path, PARTITIONS, clock, compact_after=50) as log:
        yield log


def ann(offset: int, topic: str = TURNS, consumer: str = "normalize") -> Position:
    return Position(consumer, topic, ANN, offset)


# --- opening ----------------------------------------------------------------------------------


def test_what_was_appended_is_there_when_opened_again(tmp_path: Path) -> None:
    with open_log(tmp_path / "new" / "folder") as log:
        assert log.append([outgoing("a"), outgoing("b")]) == [(ANN, 0), (ANN, 1)]
    with open_log(tmp_path / "new" / "folder", partitions=None) as log:
        assert log.partitions(TURNS) == PARTITIONS
        assert values(read_all(log, TURNS, ANN)) == [b"a", b"b"]
        assert log.append([outgoing("c")]) == [(ANN, 2)]


def test_closing_leaves_one_file_and_the_name_tags(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([outgoing("a")])
    log.close()
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "log.lock",
        "log.sqlite",
        "log.turn",
    ]


@pytest.mark.asyncio
async def test_a_closed_log_says_so(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.close()
    with pytest.raises(LogError, match="closed"):
        await log.commit([outgoing("a")], [])
    with pytest.raises(LogError, match="closed"):
        log.append([outgoing("a")])
    with pytest.raises(LogError, match="closed"):
        log.read(TURNS, 0, 0, 1)


@pytest.mark.parametrize("mode", ["process", "publish", "read"])
def test_another_partition_count_is_refused(tmp_path: Path, mode: Mode) -> None:
    open_log(tmp_path).close()
    with pytest.raises(LogError, match=r"made with 4 partitions.*Set log\.partitions to 4"):
        open_log(tmp_path, mode, partitions=8)


def test_a_new_log_needs_a_partition_count(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="how many partitions"):
        open_log(tmp_path, partitions=None)
    with pytest.raises(LogError, match="at least 1"):
        open_log(tmp_path, partitions=0)
    with open_log(tmp_path, partitions=1) as log:
        assert log.append([outgoing("a", "any"), outgoing("b", "other")]) == [(0, 0), (0, 1)]


def test_reading_needs_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no log at .*log\.sqlite.*palimpsest run"):
        open_log(tmp_path, "read")


def test_a_file_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("PRAGMA user_version=99")
    for mode in ("process", "read"):
        with pytest.raises(LogError, match="format 99"):
            open_log(tmp_path, mode)


def test_values_are_compressed_where_that_is_shorter(tmp_path: Path) -> None:
    said = [b'{"content":"the same again"}' * 100, b"x", b"", PACKED + b"not compressed", PACKED]
    with open_log(tmp_path) as log:
        log.append([replace(outgoing("a"), value=value) for value in (*said, None)])
        assert values(read_all(log, TURNS, ANN)) == [*said, None]
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        stored = [row[0] for row in connection.execute(f'SELECT value FROM "{TURNS}" ORDER BY id')]
    assert len(stored[0]) < len(said[0]) / 10
    assert stored[1:3] == said[1:3]
    assert stored[-1] is None


def test_a_file_from_before_values_were_compressed_is_read_and_written(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    before = [b'{"content":"as it is"}', PACKED + b"of a producer"]
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute("PRAGMA user_version=1")
        connection.executemany(
            f'INSERT INTO "{TURNS}" VALUES (?, 0, ?, ?, NULL)',
            [((ANN << 40) + n, b"ann", value) for n, value in enumerate(before)],
        )
        connection.execute(
            "UPDATE partitions SET next_offset=2 WHERE topic=? AND partition=?", (TURNS, ANN)
        )
    connection.close()
    with open_log(tmp_path, "read") as log:
        assert values(read_all(log, TURNS, ANN)) == before
    with open_log(tmp_path) as log:
        log.append([outgoing("a")])
        assert values(read_all(log, TURNS, ANN)) == [*before, b"a"]
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_topics_that_came_later_are_added(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    with sqlite3.connect(tmp_path / "log.sqlite") as connection:
        connection.execute('DROP TABLE "dead-letters"')
        connection.execute("DELETE FROM partitions WHERE topic='dead-letters'")
    connection.close()
    with pytest.raises(LogError, match="lacks topics"):
        open_log(tmp_path, "read")
    with open_log(tmp_path) as log:
        assert log.end_offset("dead-letters", 0) == 0


@pytest.mark.parametrize(
    "content", [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_foreign_file_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.sqlite"
    path.write_bytes(content)
    for mode in ("process", "publish", "read"):
        with pytest.raises(LogError, match=r"log\.sqlite"):
            open_log(tmp_path, mode)
    assert path.read_bytes() == content
    path.unlink()
    open_log(tmp_path).close()  # the failed attempts did not keep the lock


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append([outgoing("x" * 500) for _ in range(2000)])
    path = tmp_path / "log.sqlite"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 40_000] = os.urandom(40_000)
    path.write_bytes(damaged)
    with open_log(tmp_path, "read") as log:
        assert log.check()
        with pytest.raises(LogError, match=r"log\.sqlite: the file is damaged.*restore it"):
            read_all(log, TURNS, ANN)


def test_a_sound_file_checks_out(log: EmbeddedLog) -> None:
    log.append([outgoing(str(n), f"scope {n}") for n in range(100)])
    assert log.check() == []


# --- modes ------------------------------------------------------------------------------------


def test_a_second_processor_is_refused_by_name(tmp_path: Path) -> None:
    with open_log(tmp_path), pytest.raises(LogError, match=rf"process {os.getpid()}, since 20"):
        open_log(tmp_path)
    open_log(tmp_path).close()


@pytest.mark.asyncio
async def test_publishers_append_but_note_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, open_log(tmp_path, "publish") as publisher:
        await publisher.commit([outgoing("a")], [])
        await log.commit([], [ann(1)])
        assert publisher.append([outgoing("b")]) == [(ANN, 1)]
        assert values(read_all(log, TURNS, ANN)) == [b"a", b"b"]
        assert publisher.position("normalize", TURNS, ANN) == 1
        for forbidden in (
            lambda: publisher.seek(ann(0)),
            lambda: publisher.compact(HISTORY),
            lambda: publisher.expire(now()),
            lambda: publisher.erase(TURNS, ANN, [0]),
        ):
            with pytest.raises(LogError, match="mode 'process'"):
                forbidden()
        with pytest.raises(LogError, match="mode 'process'"):
            await publisher.commit([outgoing("c")], [ann(1)])
        assert log.end_offset(TURNS, ANN) == 2


@pytest.mark.asyncio
async def test_readers_touch_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, open_log(tmp_path, "read") as reader:
        await log.commit([outgoing("a")], [])
        assert values(read_all(reader, TURNS, ANN)) == [b"a"]
        with pytest.raises(LogError, match="reading only"):
            reader.append([outgoing("b")])
        with pytest.raises(LogError, match="reading only"):
            await reader.commit([outgoing("b")], [])


# --- appending --------------------------------------------------------------------------------


def test_time_does_not_go_back_within_a_partition(log: EmbeddedLog, clock: Clock) -> None:
    other = next(s for s in map(str, range(99)) if partition_for(s, PARTITIONS) != ANN)
    for step in (0, 5, -3600, 2, 10):
        clock.now = START + timedelta(seconds=step, microseconds=7)
        log.append([outgoing(str(step))])
    log.append([outgoing("elsewhere", other)])
    seconds = [(record.timestamp - START).total_seconds() for record in read_all(log, TURNS, ANN)]
    assert seconds == [0.000007, 5.000007, 5.000007, 5.000007, 10.000007]


def test_places_come_in_the_order_of_the_records(log: EmbeddedLog) -> None:
    scopes = [f"scope {n % 9}" for n in range(50)]
    places = log.append([outgoing(str(n), scope) for n, scope in enumerate(scopes)])
    for (partition, offset), scope, n in zip(places, scopes, range(50), strict=True):
        assert partition == partition_for(scope, PARTITIONS)
        assert values(log.read(TURNS, partition, offset, 1)) == [str(n).encode()]


@pytest.mark.parametrize(("first", "end"), [(0, 12), (0, 7), (3, 4), (4, 9), (11, 99), (5, 5)])
@pytest.mark.parametrize(("size", "read_bytes"), [(100, 1 << 20), (2, 1 << 20), (100, 2_500)])
def test_values_are_those_of_the_records(
    log: EmbeddedLog,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    end: int,
    size: int,
    read_bytes: int,
) -> None:
    monkeypatch.setattr("palimpsest.streams.logs.embedded.DEFAULT_READ_BYTES", read_bytes)
    other = next(s for s in map(str, range(99)) if partition_for(s, PARTITIONS) != ANN)
    for number in range(12):
        log.append([outgoing(str(number) * 1_000), outgoing("b", other)])
    log.erase(TURNS, ANN, [2, 6])
    within = [record for record in read_all(log, TURNS, ANN) if first <= record.offset < end]
    found = list(log.values(TURNS, ANN, first, end, size))
    assert [offset for offsets, _ in found for offset in offsets] == [r.offset for r in within]
    assert [value for _, some in found for value in some] == values(within)
    assert all(1 <= len(offsets) <= min(size, read_bytes // 1_000) for offsets, _ in found)


@pytest.mark.asyncio
async def test_a_position_past_the_end_is_refused_with_its_records(log: EmbeddedLog) -> None:
    with pytest.raises(LogError, match="log older than its store"):
        await log.commit([outgoing("a", topic=WRITES)], [ann(7)])
    assert log.end_offset(WRITES, ANN) == 0
    with pytest.raises(LogError, match="negative"):
        await log.commit([], [ann(-1)])


def test_seek_moves_either_way_within_the_log(log: EmbeddedLog) -> None:
    log.append([outgoing(str(n)) for n in range(5)])
    for offset in (4, 1, 5, 0):
        log.seek(ann(offset))
        assert log.position("normalize", TURNS, ANN) == offset
    with pytest.raises(LogError, match="the log ends before"):
        log.seek(ann(6))
    assert log.positions() == [ann(0)]


@pytest.mark.asyncio
async def test_a_cancelled_commit_leaves_the_log_usable(log: EmbeddedLog) -> None:
    task = asyncio.create_task(log.commit([outgoing("a")] * 2000, []))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await log.commit([outgoing("b")], [])
    appended = values(read_all(log, TURNS, ANN))
    assert appended in ([b"b"], [b"a"] * 2000 + [b"b"])


def test_threads_may_share_a_log(log: EmbeddedLog) -> None:
    errors: list[LogError] = []

    def work(name: str) -> None:
        try:
            for n in range(30):
                log.append([outgoing(f"{name} {n}")])
                log.read(TURNS, ANN, 0, 100)
        except LogError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    records = read_all(log, TURNS, ANN)
    assert [record.offset for record in records] == list(range(180))
    for name in map(str, range(6)):
        mine = [v for v in values(records) if v and v.startswith(name.encode() + b" ")]
        assert mine == [f"{name} {n}".encode() for n in range(30)]


# --- waiting ----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_waiting_returns_at_once_when_there_is_something(log: EmbeddedLog) -> None:
    log.append([outgoing("a")])
    assert await log.wait([ann(0, WRITES), ann(0)], 60)


@pytest.mark.asyncio
async def test_waiting_ends_with_its_time(log: EmbeddedLog) -> None:
    log.append([outgoing("a")])
    assert not await log.wait([ann(1), ann(0, WRITES)], 0.05)
    assert not await log.wait([ann(1)], 0)
    assert not await log.wait([], 0.01)


@pytest.mark.asyncio
async def test_a_commit_here_wakes_without_polling(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "POLL_SECONDS", 3600)
    waiting = asyncio.create_task(log.wait([ann(0)], 3600))
    await asyncio.sleep(0)  # lets it begin to wait
    await log.commit([outgoing("elsewhere", topic=WRITES)], [])
    assert not waiting.done()
    await log.commit([outgoing("here")], [])
    assert await asyncio.wait_for(waiting, 60)


@pytest.mark.asyncio
async def test_an_append_of_another_process_wakes(tmp_path: Path) -> None:
    with (
        open_log(tmp_path) as log,
        open_log(tmp_path, "read") as reader,
        open_log(tmp_path, "publish") as publisher,
    ):
        waiting = [
            asyncio.create_task(log.wait([ann(0)], 60)),
            asyncio.create_task(reader.wait([ann(0)], 60)),
        ]
        await asyncio.sleep(0)
        publisher.append([outgoing("a")])
        assert await asyncio.gather(*waiting) == [True, True]


@pytest.mark.asyncio
async def test_one_task_looks_for_all_who_wait(tmp_path: Path) -> None:
    def looking() -> int:
        return sum(task.get_name() == "log" for task in asyncio.all_tasks())

    with open_log(tmp_path) as log, open_log(tmp_path, "publish") as publisher:
        waiting = [asyncio.create_task(log.wait([ann(0)], 60)) for _ in range(6)]
        await asyncio.sleep(0)
        assert looking() == 1
        waiting.pop().cancel()
        publisher.append([outgoing("a")])
        assert await asyncio.gather(*waiting) == [True] * 5
        await asyncio.sleep(0)
        assert looking() == 0


@pytest.mark.asyncio
async def test_who_waits_for_a_log_that_is_closed_is_told(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        waiting = asyncio.create_task(log.wait([ann(0)], 60))
        await asyncio.sleep(0)
    with pytest.raises(LogError):
        await waiting


@pytest.mark.asyncio
async def test_waiting_is_not_woken_by_records_that_have_gone(log: EmbeddedLog) -> None:
    log.append([outgoing("a"), outgoing("b")])
    log.erase(TURNS, ANN, [1])
    assert log.end_offset(TURNS, ANN) == 2
    assert not await log.wait([ann(1)], 0)
