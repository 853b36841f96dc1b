"""What leaves the embedded log: superseded values, tombstones, the expired, the erased."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.streams.logs import records
from palimpsest.streams.logs.base import LogError, Outgoing, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.contract.log_contract import (
    ANN,
    HISTORY,
    PARTITIONS,
    TURNS,
    outgoing,
    read_all,
    values,
)
from tests.erased_bytes import where


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(tmp_path, PARTITIONS, clock, compact_after=50) as log:
        yield log


def history(key: str, value: str | None, scope: str = "ann") -> Outgoing:
    return Outgoing(HISTORY, scope, key.encode(), None if value is None else value.encode())


def test_compaction_leaves_the_newest_value_a_key(log: EmbeddedLog) -> None:
    log.append([history(k, f"{k}{n}") for n in range(5) for k in "abc"])
    assert log.compact(HISTORY) == 12
    assert [(r.offset, r.value) for r in read_all(log, HISTORY, ANN)] == [
        (12, b"a4"),
        (13, b"b4"),
        (14, b"c4"),
    ]
    assert log.compact(HISTORY) == 0
    assert log.append([history("d", "d0")]) == [(ANN, 15)]


def test_tombstones_remove_their_key(log: EmbeddedLog) -> None:
    log.append([history("a", "1"), history("b", "1"), history("a", None), history("c", None)])
    assert [r.value for r in read_all(log, HISTORY, ANN)] == [b"1", b"1", None, None]
    log.compact(HISTORY)
    assert [r.key for r in read_all(log, HISTORY, ANN)] == [b"b"]
    # The newest record of all is gone; its offset is not given out again.
    assert log.append([history("a", "2")]) == [(ANN, 4)]
    assert log.compact(HISTORY) == 0
    assert values(read_all(log, HISTORY, ANN)) == [b"1", b"2"]


def test_a_key_may_come_back_before_compaction(log: EmbeddedLog) -> None:
    log.append([history("a", "1"), history("a", None), history("a", "2")])
    log.compact(HISTORY)
    assert values(read_all(log, HISTORY, ANN)) == [b"2"]


def test_young_tombstones_may_be_spared(log: EmbeddedLog, clock: Clock) -> None:
    log.append([history("a", "1"), history("a", None)])
    log.compact(HISTORY, timedelta(hours=1))
    assert values(read_all(log, HISTORY, ANN)) == [None]
    clock.now += timedelta(hours=2)
    log.compact(HISTORY, timedelta(hours=1))
    assert values(read_all(log, HISTORY, ANN)) == []


def test_a_superseded_tombstone_is_not_spared(log: EmbeddedLog) -> None:
    log.append([history("a", "1"), history("a", None), history("a", "2")])
    assert log.compact(HISTORY, timedelta(hours=1)) == 2
    assert values(read_all(log, HISTORY, ANN)) == [b"2"]


def test_the_same_key_in_two_partitions_is_two_keys(log: EmbeddedLog) -> None:
    other = next(s for s in map(str, range(99)) if partition_for(s, PARTITIONS) != ANN)
    log.append([history("k", "here"), history("k", "there", other)])
    assert log.compact(HISTORY) == 0


def test_compaction_comes_by_itself(log: EmbeddedLog) -> None:
    for n in range(200):
        log.append([history("a", str(n))])
    kept = read_all(log, HISTORY, ANN)
    assert len(kept) <= 51
    assert kept[-1].value == b"199"
    log.append([history("a", str(n)) for n in range(3000)])
    assert len(read_all(log, HISTORY, ANN)) == 1


@pytest.mark.asyncio
async def test_compaction_in_many_batches_lets_appends_through(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BATCH_RECORDS", 3)
    log._compact_after = 10**9  # the one that comes by itself shall not help
    log.append([history("a", str(n)) for n in range(301)])
    compacting = asyncio.create_task(asyncio.to_thread(log.compact, HISTORY))
    for n in range(20):
        await log.commit([history("b", str(n))], [])
    await compacting
    log.compact(HISTORY)
    assert values(read_all(log, HISTORY, ANN)) == [b"300", b"19"]


def test_only_compacted_topics_compact(log: EmbeddedLog) -> None:
    with pytest.raises(LogError, match="not a compacted"):
        log.compact(TURNS)


def test_retention(log: EmbeddedLog, clock: Clock) -> None:
    topic = "cache-invalidations"
    log.append([outgoing("old", topic=topic)] * 3 + [outgoing("old")])
    clock.now += timedelta(hours=20)
    log.append([outgoing("new", topic=topic)])
    assert log.expire(clock.now) == 0
    assert log.expire(clock.now + timedelta(hours=4)) == 0  # exactly a day is not older
    assert log.expire(clock.now + timedelta(hours=5)) == 3
    assert [(r.offset, r.value) for r in read_all(log, topic, ANN)] == [(3, b"new")]
    assert log.expire(clock.now + timedelta(days=2)) == 1
    assert log.append([outgoing("newer", topic=topic)]) == [(ANN, 4)]
    assert values(read_all(log, TURNS, ANN)) == [b"old"]


def test_erased_bytes_are_nowhere_in_the_folder(log: EmbeddedLog, tmp_path: Path) -> None:
    secret = "the bytes to be forgotten"
    log.append([outgoing("kept"), outgoing(secret * 500), outgoing(secret), outgoing("kept too")])
    assert where(tmp_path, secret)
    assert where(tmp_path, secret * 2)  # compressed, and found all the same
    assert log.erase(TURNS, ANN, [1, 2, 99]) == 2
    assert where(tmp_path, secret) == []
    assert [record.offset for record in read_all(log, TURNS, ANN)] == [0, 3]
    assert log.erase(TURNS, ANN, [3]) == 1
    assert log.append([outgoing("next")]) == [(ANN, 4)]
    assert log.check() == []
