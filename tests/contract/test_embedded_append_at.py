"""Records that are copied from another log keep their times, all of them or none."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.streams.logs.base import LogError, Outgoing, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.messages import BEGIN

TOPIC = "memory-writes"


def record(value: bytes, partition: int = 0, topic: str = TOPIC) -> Outgoing:
    return Outgoing(topic, "ana", b"ana", value, partition=partition)


def test_each_has_its_time_and_time_never_goes_back_in_a_partition(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path, 2, lambda: BEGIN) as log:
        moments = [BEGIN + timedelta(days=day) for day in (5, 9, 7)]
        log.append_at([(moment, record(b"x")) for moment in moments])
        log.append_at([(BEGIN, record(b"y", 1))])
        log.append_at([])
        times = [each.timestamp for each in log.read(TOPIC, 0, 0, 10)]
        assert times == [moments[0], moments[1], moments[1]]
        assert [each.timestamp for each in log.read(TOPIC, 1, 0, 10)] == [BEGIN]


def test_records_are_taken_over_as_they_are(tmp_path: Path) -> None:
    moments = [BEGIN + timedelta(days=day) for day in (5, 9, 7)]
    given = [
        Record(TOPIC, 1, offset, b"ana", b"%d" % offset, moment, {"kind": b"x"})
        for offset, moment in zip((3, 4, 9), moments, strict=True)
    ]
    with EmbeddedLog(tmp_path, 2, lambda: BEGIN) as log:
        with pytest.raises(LogError, match="there is no topic 'turns'; the topics are"):
            log.begin_at("turns", 3)
        log.begin_at(TOPIC, 3)
        log.place(given)
        log.place([])
        assert log.read(TOPIC, 1, 0, 10) == given
        assert [log.end_offset(TOPIC, partition) for partition in (0, 1)] == [3, 10]
        log.append([record(b"later", 1)])
        [later] = log.read(TOPIC, 1, 10, 10)
        assert (later.offset, later.timestamp) == (10, moments[1])
        log.number_it(7)
        assert log.number() == 7
    with EmbeddedLog(tmp_path / "other", 1, lambda: BEGIN) as other:
        assert other.number() == 0


def test_taken_over_keys_of_a_compacted_topic_hide_each_other(tmp_path: Path) -> None:
    topic = "memory-history"
    values = ((b"one", b"1"), (b"two", b"2"), (b"one", b"3"), (b"two", None))
    given = [
        Record(topic, 0, offset, key, value, BEGIN) for offset, (key, value) in enumerate(values)
    ]
    with EmbeddedLog(tmp_path, 1, lambda: BEGIN) as log:
        log.place(given)
        log.compact(topic)
        assert log.read(topic, 0, 0, 10) == [given[2]]


def test_of_a_group_with_one_that_cannot_be_appended_nothing_is_there(tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path, 1, lambda: BEGIN) as log:
        with pytest.raises(LogError):
            log.append_at([(BEGIN, record(b"x")), (BEGIN, record(b"y", topic="no-such"))])
        assert log.end_offset(TOPIC, 0) == 0
