"""What a worker on Kafka waits for, since when, and which errors waiting can mend."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import aiokafka.errors
import kafka.errors
import pytest

from palimpsest.streams.kafka.cluster import REFUSALS, Waiting, is_refusal


def test_a_wait_has_its_beginning_and_is_logged_once_it_is_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    times = iter(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=at) for at in range(9))
    waiting = Waiting("kafka:9092", lambda: next(times))
    told = "waiting for the broker at kafka:9092 since 2026-03-01T00:00:00Z"
    for _ in range(6):
        waiting.note("broker")
        assert waiting.now is not None
        assert waiting.now.as_json()["text"] == told
    waiting.note("partitions")
    assert waiting.now.as_json() == {
        "for": "partitions",
        "since": "2026-03-01T00:00:06Z",
        "text": "waiting for its partitions since 2026-03-01T00:00:06Z",
    }
    waiting.note(None)
    assert waiting.now is None
    assert [record.getMessage() for record in caplog.records] == [told, "the broker answers again"]


def test_a_refusal_is_known_by_itself_and_by_what_it_caused() -> None:
    refused = aiokafka.errors.GroupAuthorizationFailedError("group")
    assert is_refusal(refused)
    assert is_refusal(kafka.errors.TopicAuthorizationFailedError())
    wrapped = aiokafka.errors.KafkaError("unexpected")
    assert not is_refusal(wrapped)
    wrapped.__cause__ = refused
    assert is_refusal(wrapped)


def test_refusals_are_errors_that_there_are() -> None:
    known = {*vars(aiokafka.errors), *vars(kafka.errors)}
    assert known >= REFUSALS


def test_what_a_rebalance_or_an_outage_raises_is_no_refusal() -> None:
    for name in (
        *("IllegalGenerationError", "UnknownMemberIdError", "RebalanceInProgressError"),
        *("CommitFailedError", "IllegalStateError", "KafkaConnectionError", "NodeNotReadyError"),
        *("GroupCoordinatorNotAvailableError", "UnknownTopicOrPartitionError", "UnknownError"),
    ):
        assert not is_refusal(getattr(aiokafka.errors, name)())
