"""The topics on Kafka: made as `schemas.topics` lists them, and compared with that list.

Existing topics are never altered: one that differs is reported, with what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError

from palimpsest.schemas.topics import ALL_TOPICS, Topic
from palimpsest.streams.kafka.cluster import MAX_REQUEST_BYTES, READ_BY, Cluster
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.logs.base import LogError

DAY_MILLISECONDS = 24 * 60 * 60 * 1000
OPEN_RECORD_BYTES = 4 * 1024 * 1024
"""Largest record that the broker takes from producers. The pipeline dead-letters, whole, records
larger than log.max_record_bytes; the broker refuses those larger than this."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic as it is, and how that differs from what it should be. `created` just now;
    `partitions` None where it is missing."""

    topic: str
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
    return {**settings, "cleanup.policy": "delete", "retention.ms": kept, "retention.bytes": "-1"}


def create_topics(cluster: Cluster, replication_factor: int) -> list[TopicState]:
    """Make the topics that are missing; the state of all of them. Raises LogError when Kafka
    cannot be reached or refuses."""
    with KafkaLog(cluster) as log:
        missing = {state.topic for state in _described(log) if state.partitions is None}
        if missing:
            log.ask(lambda admin: _create(admin, cluster, missing, replication_factor))
        return [replace(each, created=each.topic in missing) for each in _described(log)]


def _create(
    admin: KafkaAdminClient, cluster: Cluster, missing: Collection[str], replication_factor: int
) -> None:
    wanted = {
        cluster.physical(topic.name): {
            "num_partitions": cluster.partitions,
            "replication_factor": replication_factor,
            "configs": configuration(topic),
        }
        for topic in ALL_TOPICS
        if topic.name in missing
    }
    try:
        admin.create_topics(wanted)
    except TopicAlreadyExistsError:
        pass  # another process was faster; what it made is looked at next
    except KafkaError as error:
        raise LogError(f"Kafka did not make the topics: {error}") from error
    admin.wait_for_topics([*wanted])


def describe_topics(cluster: Cluster) -> list[TopicState]:
    """The state of every topic. Raises LogError when Kafka cannot be reached."""
    with KafkaLog(cluster) as log:
        return _described(log)


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

    def delete(admin: KafkaAdminClient) -> None:
        try:
            admin.delete_records(before)
        except KafkaError as error:
            raise LogError(f"Kafka did not delete the records: {error}") from error

    with KafkaLog(cluster) as log:
        log.ask(delete)


def _described(log: KafkaLog) -> list[TopicState]:
    cluster = log.cluster
    names = {cluster.physical(topic.name): topic for topic in ALL_TOPICS}
    found = {each["name"]: each for each in log.ask(lambda admin: admin.describe_topics([*names]))}
    present = [name for name in names if not found[name]["error_code"]]
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in present]
    settings = {}
    if present:
        described = log.ask(lambda admin: admin.describe_configs(resources, config_filter="all"))
        settings = described["topic"]
    return [
        _state(cluster, topic, found[name]["partitions"], settings[name])
        if name in present
        else TopicState(topic.name, None, None, {}, ("is missing: topics create makes it",))
        for name, topic in names.items()
    ]


def _state(
    cluster: Cluster,
    topic: Topic,
    partitions: Sequence[Mapping[str, Sized]],
    settings: Mapping[str, Mapping[str, str]],
) -> TopicState:
    values = {name: str(setting["value"]) for name, setting in settings.items()}
    return TopicState(
        topic.name,
        len(partitions),
        len(partitions[0]["replica_nodes"]) if partitions else 0,
        {name: values.get(name, "") for name in configuration(topic)},
        tuple(_differences(cluster, topic, len(partitions), values)),
    )


def _differences(
    cluster: Cluster, topic: Topic, partitions: int, values: Mapping[str, str]
) -> Iterable[str]:
    if partitions != cluster.partitions:
        yield (
            f"has {partitions} partitions, {cluster.partitions} are set; the number"
            " never changes once there are records, because a scope stays in its partition:"
            " set log.partitions to it"
        )
    for setting, wanted in configuration(topic).items():
        value = values.get(setting)
        if value != wanted and not _is_enough(setting, value, wanted):
            name = cluster.physical(topic.name)
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
