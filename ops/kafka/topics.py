"""The topics on Kafka: made as `schemas.topics` lists them, and compared with that list.

Existing topics are never altered: one that differs is reported, with what to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError

from palimpsest.schemas.topics import ALL_TOPICS, Topic
from palimpsest.streams.kafka.cluster import MAX_REQUEST_BYTES, READ_BY, Cluster
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.kafka.sender import unreachable
from palimpsest.streams.logs.base import LogError

DAY_MILLISECONDS = 24 * 60 * 60 * 1000
OPEN_RECORD_BYTES = 4 * 1024 * 1024
"""Largest record that the broker takes from producers. The pipeline dead-letters, whole, records
larger than log.max_record_bytes; the broker refuses those larger than this."""
TRY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic as it is, and how that differs from what it should be. `created` just now;
    `partitions` None where it is missing."""

    name: str
    partitions: int | None
    replicas: int | None
    settings: Mapping[str, str]
    differences: tuple[str, ...]
    created: bool = False


def configuration(topic: Topic) -> dict[str, str]:
    """The settings that a topic is made with."""
    settings = {
        # Message time is the log's, never a producer's clock.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(
            OPEN_RECORD_BYTES if topic.open_to_producers else MAX_REQUEST_BYTES
        ),
    }
    if topic.cleanup == "compact":
        return {**settings, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    days = topic.retention_days
    kept = "-1" if days is None else str(days * DAY_MILLISECONDS)
    return {
        **settings,
        "cleanup.policy": "delete",
        "retention.ms": kept,
        "retention.bytes": "-1",
    }


def create_topics(cluster: Cluster, replication_factor: int) -> list[TopicState]:
    """Make the topics that are missing; the state of all of them. Raises LogError when Kafka
    cannot be reached or refuses."""
    with _Admin(cluster) as admin:
        there = {state.name for state in admin.describe() if state.partitions is not None}
        missing = [topic for topic in ALL_TOPICS if topic.name not in there]
        if missing:
            admin.create(missing, replication_factor)
        made = {topic.name for topic in missing}
        return [
            TopicState(s.name, s.partitions, s.replicas, s.settings, s.differences, s.name in made)
            for s in admin.describe()
        ]


def describe_topics(cluster: Cluster) -> list[TopicState]:
    """The state of every topic. Raises LogError when Kafka cannot be reached."""
    with _Admin(cluster) as admin:
        return admin.describe()


@dataclass(frozen=True, slots=True)
class Deletable:
    """Records of a partition before `offset`, which every stage has processed."""

    topic: str
    partition: int
    offset: int


def processed(log: KafkaLog) -> list[Deletable]:
    """How far all stages that read a topic have come in each of its partitions. Compacted topics
    and those whose records leave by themselves are left out."""
    found: dict[tuple[str, int], int] = {}
    for role, names in READ_BY.items():
        committed = log.committed(role)
        for name in names:
            for partition in range(log.partitions(name)):
                offset = committed.get((name, partition), 0)
                place = (name, partition)
                found[place] = min(found.get(place, offset), offset)
    return [Deletable(*place, offset) for place, offset in sorted(found.items()) if offset > 0]


def delete_records(cluster: Cluster, places: Iterable[Deletable]) -> None:
    """Delete what lies before these offsets, for good. Raises LogError."""
    before = {
        TopicPartition(cluster.physical(place.topic), place.partition): place.offset
        for place in places
    }
    with _Admin(cluster) as admin:
        admin.delete(before)


class _Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> _Admin:
        deadline = time.monotonic() + TRY_SECONDS
        while True:
            try:
                self._client = KafkaAdminClient(
                    bootstrap_servers=self._cluster.servers,
                    bootstrap_timeout_ms=int(TRY_SECONDS * 1000),
                )
                return self
            except KafkaError as error:
                if time.monotonic() > deadline:
                    raise unreachable(self._cluster, error) from error
                time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def create(self, topics: Iterable[Topic], replication_factor: int) -> None:
        wanted = {
            self._cluster.physical(topic.name): {
                "num_partitions": self._cluster.partitions,
                "replication_factor": replication_factor,
                "configs": configuration(topic),
            }
            for topic in topics
        }
        try:
            self._client.create_topics(wanted)
        except TopicAlreadyExistsError:
            pass  # another process was faster; what it made is looked at next
        except KafkaError as error:
            raise LogError(f"Kafka did not make the topics: {error}") from error
        self._client.wait_for_topics([*wanted])

    def delete(self, before: dict[TopicPartition, int]) -> None:
        try:
            self._client.delete_records(before)
        except KafkaError as error:
            raise LogError(f"Kafka did not delete the records: {error}") from error

    def describe(self) -> list[TopicState]:
        names = {self._cluster.physical(topic.name): topic for topic in ALL_TOPICS}
        try:
            found = {t["name"]: t for t in self._client.describe_topics([*names])}
            present = [name for name in names if not found[name]["error_code"]]
            resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in present]
            described = (
                self._client.describe_configs(resources, config_filter="all") if present else {}
            )
        except KafkaError as error:
            raise unreachable(self._cluster, error) from error
        settings = described.get("topic", {})
        return [
            self._state(topic, found[name], settings[name])
            if name in present
            else TopicState(topic.name, None, None, {}, ("is missing: topics create makes it",))
            for name, topic in names.items()
        ]

    def _state(
        self,
        topic: Topic,
        found: Mapping[str, list[dict[str, list[int]]]],
        settings: Mapping[str, Mapping[str, str]],
    ) -> TopicState:
        partitions = found["partitions"]
        values = {name: str(setting["value"]) for name, setting in settings.items()}
        wanted = configuration(topic)
        return TopicState(
            topic.name,
            len(partitions),
            len(partitions[0]["replica_nodes"]) if partitions else 0,
            {name: values.get(name, "") for name in wanted},
            tuple(self._differences(topic, len(partitions), values)),
        )

    def _differences(
        self, topic: Topic, partitions: int, values: Mapping[str, str]
    ) -> Iterable[str]:
        name = self._cluster.physical(topic.name)
        if partitions != self._cluster.partitions:
            yield (
                f"has {partitions} partitions, {self._cluster.partitions} are set; the number"
                " never changes once there are records, because a scope stays in its partition:"
                " set log.partitions to it"
            )
        for setting, wanted in configuration(topic).items():
            value = values.get(setting)
            if value != wanted and not _is_enough(setting, value, wanted):
                yield (
                    f"has {setting}={value} instead of {wanted}; if that is not meant:"
                    f" kafka-configs --alter --topic {name} --add-config {setting}={wanted}"
                )


def _is_enough(setting: str, value: str | None, wanted: str) -> bool:
    """Whether a value that is another does no harm."""
    if setting == "min.cleanable.dirty.ratio":
        return True
    if setting == "max.message.bytes" and value is not None:
        return int(value) >= int(wanted)
    return False
