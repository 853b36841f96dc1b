"""What a caller sent counts until it is normalized and written, and only against that caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.ops.http.problems import Problem
from palimpsest.ops.http.service import UnprocessedBytes
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.streams.logs.base import LogError, Outgoing, Position
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.messages import BEGIN

LIMIT = 100


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(tmp_path, 2, lambda: BEGIN) as log:
        yield log


def record(size: int, topic: str = CONVERSATION_TURNS.name, partition: int = 0) -> Outgoing:
    return Outgoing(topic, "ana", b"ana", b"x" * size, partition=partition)


def processed(log: EmbeddedLog, stage: str, topic: str, through: int, partition: int = 0) -> None:
    asyncio.run(log.commit((), [Position(stage, topic, partition, through)]))


def refused(unprocessed: UnprocessedBytes, caller: str = "ana") -> bool:
    try:
        unprocessed.append(caller, [record(1)])
    except Problem:
        return True
    return False


def test_a_caller_that_has_reached_the_limit_is_refused_and_others_are_not(
    log: EmbeddedLog,
) -> None:
    unprocessed = UnprocessedBytes(log, log.append, LIMIT)
    unprocessed.append("ana", [record(LIMIT - 1)])
    unprocessed.append("ana", [record(10 * LIMIT)])  # one request may go beyond it
    with pytest.raises(Problem, match="unprocessed_bytes_per_token") as refusal:
        unprocessed.append("ana", [record(1)])
    assert (refusal.value.code, refusal.value.headers) == ("rate_limited", {"Retry-After": "1"})
    assert not refused(unprocessed, "ben")
    unprocessed.append("ben", [record(LIMIT)], begun=True)
    unprocessed.append("ben", [record(LIMIT)], begun=True)  # the same request goes on
    assert refused(unprocessed, "ben")
    assert log.end_offset(CONVERSATION_TURNS.name, 0) == 5


def test_bytes_count_until_both_stages_are_done_with_them(log: EmbeddedLog) -> None:
    unprocessed = UnprocessedBytes(log, log.append, LIMIT)
    unprocessed.append(
        "ana", [record(LIMIT), record(1, MEMORY_COMMANDS.name), record(1, partition=1)]
    )
    processed(log, "normalize", CONVERSATION_TURNS.name, 1)
    processed(log, "normalize", MEMORY_COMMANDS.name, 1)
    assert refused(unprocessed)  # the other partition
    log.append([record(1, MEMORY_WRITES.name), record(1, MEMORY_WRITES.name, partition=1)])
    processed(log, "normalize", CONVERSATION_TURNS.name, 1, partition=1)
    assert refused(unprocessed)  # normalized, and not written
    processed(log, "apply-writes", MEMORY_WRITES.name, 1)
    assert refused(unprocessed)
    log.append([record(1, MEMORY_WRITES.name)])  # of somebody else, later
    processed(log, "apply-writes", MEMORY_WRITES.name, 1, partition=1)
    assert not refused(unprocessed)


def test_small_requests_that_are_processed_are_never_refused(log: EmbeddedLog) -> None:
    unprocessed = UnprocessedBytes(log, log.append, LIMIT)
    for number in range(50):
        unprocessed.append("ana", [record(LIMIT // 10)])
        processed(log, "normalize", CONVERSATION_TURNS.name, number + 1)
        log.append([record(1, MEMORY_WRITES.name)])
        # Somebody always writes: the stage is never at the end.
        processed(log, "apply-writes", MEMORY_WRITES.name, number)


def test_what_could_not_be_appended_does_not_count(log: EmbeddedLog) -> None:
    def full(records: object) -> list[tuple[int, int]]:
        raise LogError("the disk is full")

    unprocessed = UnprocessedBytes(log, full, LIMIT)
    for _ in range(2):
        with pytest.raises(LogError):
            unprocessed.append("ana", [record(LIMIT)])
