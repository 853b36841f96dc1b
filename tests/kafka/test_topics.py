"""Topics on a real broker: made as listed, held against the list, never altered."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from typer.testing import CliRunner

from palimpsest.ops.cli.main import whole
from palimpsest.ops.kafka.broker import Broker
from palimpsest.ops.kafka.topics import configuration, create_topics, describe_topics
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_HISTORY
from palimpsest.streams.kafka import log
from palimpsest.streams.kafka.cluster import Cluster
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.logs.base import Outgoing, partition_for
from palimpsest.streams.logs.settings import KafkaSettings


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    prefix = f"t{uuid.uuid4().hex[:8]}-"
    return Cluster(
        KafkaSettings(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix), 2
    )


def test_topics_are_made_as_listed_and_only_once(cluster: Cluster) -> None:
    before = describe_topics(cluster)
    assert all(state.partitions is None and state.differences for state in before)
    made = create_topics(cluster, 1)
    assert [state.topic for state in made] == [topic.name for topic in ALL_TOPICS]
    assert all(state.created and state.partitions == 2 for state in made)
    assert not any(state.differences for state in made)
    for topic, state in zip(ALL_TOPICS, made, strict=True):
        assert dict(state.settings) == configuration(topic)
        assert state.settings["message.timestamp.type"] == "LogAppendTime"
        assert (state.settings["cleanup.policy"] == "compact") == (topic is MEMORY_HISTORY)
    again = create_topics(cluster, 1)
    assert not any(state.created or state.differences for state in again)


def test_a_missing_topic_is_made_beside_the_others(cluster: Cluster) -> None:
    create_topics(cluster, 1)
    gone = cluster.physical("dead-letters")
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers)) as admin:
        admin.delete_topics([gone])
        while gone in admin.list_topics():
            pass
    made = [state.topic for state in create_topics(cluster, 1) if state.created]
    assert made == ["dead-letters"]


def test_a_topic_that_is_other_is_told_and_left(cluster: Cluster) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers)) as admin:
        name = cluster.physical("conversation-turns")
        settings = {"retention.ms": "1000", "message.timestamp.type": "CreateTime"}
        wanted = {"num_partitions": 3, "replication_factor": 1, "configs": settings}
        admin.create_topics({name: wanted})
        admin.wait_for_topics([name])
    for states in (create_topics(cluster, 1), describe_topics(cluster)):
        turns = next(state for state in states if state.topic == "conversation-turns")
        told = " ".join(turns.differences)
        assert "has 3 partitions, 2 are set" in told
        assert "retention.ms=1000 instead of -1" in told
        assert "message.timestamp.type=CreateTime" in told
        assert f"--topic {name}" in told
        assert turns.partitions == 3
        assert turns.settings["retention.ms"] == "1000"


def test_the_command_line_makes_and_describes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [
        "--set=log.kind=kafka",
        "--set=log.partitions=2",
        f"--set=kafka.bootstrap_servers={cluster.settings.bootstrap_servers}",
        f"--set=kafka.topic_prefix={cluster.settings.topic_prefix}",
    ]
    runner = CliRunner()
    missing = runner.invoke(whole(), ["topics", "describe", *chosen])
    assert missing.exit_code == 1
    assert "memory-writes is missing: topics create makes it" in missing.output
    assert log_of(runner, chosen)["ok"] is False
    made = runner.invoke(whole(), ["topics", "create", "--json", *chosen])
    assert made.exit_code == 0, made.output
    assert {topic["topic"] for topic in json.loads(made.stdout)} == {t.name for t in ALL_TOPICS}
    assert runner.invoke(whole(), ["topics", "describe", *chosen]).exit_code == 0
    assert log_of(runner, chosen)["ok"] is True
    monkeypatch.setattr(log, "TRY_SECONDS", 1.0)
    monkeypatch.setattr(log, "TRY_MILLISECONDS", 1_000)
    began = time.monotonic()
    away = log_of(runner, [*chosen, "--set=kafka.bootstrap_servers=127.0.0.1:9"])
    assert away["ok"] is False
    assert time.monotonic() - began < 25  # the client by itself would wait for half a minute
    assert "127.0.0.1:9" in str(away["found"])
    other = runner.invoke(whole(), ["topics", "describe", *chosen, "--set=log.partitions=5"])
    assert other.exit_code == 1
    assert runner.invoke(whole(), ["topics", "create"]).exit_code == 2


def log_of(runner: CliRunner, chosen: list[str]) -> dict[str, object]:
    """What `doctor` finds of the log."""
    findings = json.loads(runner.invoke(whole(), ["doctor", "--json", *chosen]).stdout)
    return next(finding for finding in findings if finding["check"] == "log")


def test_a_null_value_purges_an_event_from_the_history(cluster: Cluster) -> None:
    create_topics(cluster, 1)
    name = cluster.physical("memory-history")
    fast = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
    with closing(KafkaAdminClient(bootstrap_servers=cluster.servers)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, fast)])
    scope = "ana"
    place = partition_for(scope, cluster.partitions)

    def event(key: str, value: bytes | None) -> Outgoing:
        return Outgoing("memory-history", scope, key.encode(), value)

    with KafkaLog.open(cluster) as log:
        log.append([event("gone", b"secret"), event("stays", b"1"), event("gone", None)])
        deadline = time.monotonic() + 120
        while True:
            log.append([event("nudge", b"")])  # begins a new segment: the last is never compacted
            records = log.read("memory-history", place, 0, 1000)
            if b"gone" not in {record.key for record in records}:
                break
            assert time.monotonic() < deadline, "not compacted within 120 s"
            time.sleep(0.5)
    assert b"1" in {record.value for record in records}
    assert b"secret" not in {record.value for record in records}
