"""Records that are copied from another log keep their times, all of them or none."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.streams.logs.base import LogError, Outgoing
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.messages import BEGIN

TOPIC = "memory-writes"


def record(value: bytes, partition: int = 0, topic: str = TOPIC) -> Outgoing:
    return Outgoing(topic, "ana", b"ana", value, partition=partition)


def test_each_has_its_time_and_time_never_goes_back_in_a_partition(tmp_path: Path) -> None:
    with EmbeddedLog.open(tmp_path, 2, lambda: BEGIN) as log:
        moments = [BEGIN + timedelta(days=day) for day in (5, 9, 7)]
        log.append_at([(moment, record(b"x")) for moment in moments])
        log.append_at([(BEGIN, record(b"y", 1))])
        log.append_at([])
        times = [each.timestamp for each in log.read(TOPIC, 0, 0, 10)]
        assert times == [moments[0], moments[1], moments[1]]
        assert [each.timestamp for each in log.read(TOPIC, 1, 0, 10)] == [BEGIN]


def test_of_a_group_with_one_that_cannot_be_appended_nothing_is_there(tmp_path: Path) -> None:
    with EmbeddedLog.open(tmp_path, 1, lambda: BEGIN) as log:
        with pytest.raises(LogError):
            log.append_at([(BEGIN, record(b"x")), (BEGIN, record(b"y", topic="no-such"))])
        assert log.end_offset(TOPIC, 0) == 0
