"""Reads a Kafka log by offset, and appends to it from outside a worker.

For start-up checks, catching up, balance, status and tools; `streams.kafka.faust_agents` feeds the
stages. Blocking calls, usable from any thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from palimpsest.schemas.topics import TOPICS
from palimpsest.streams.kafka.cluster import (
    MAX_REQUEST_BYTES,
    READ_BY,
    REQUEST_SECONDS,
    ROLES,
    Cluster,
    role_of,
)
from palimpsest.streams.kafka.sender import unreachable
from palimpsest.streams.logs.base import (
    LogError,
    LogUnavailable,
    Outgoing,
    Record,
    check_partition,
    partition_for,
)

T = TypeVar("T")

DEFAULT_READ_BYTES: Final = 16 * 1024 * 1024
POLL_MILLISECONDS: Final = 200
TRY_SECONDS: Final = 10.0
"""How long a request is retried while the broker has no answer yet."""
TRY_MILLISECONDS: Final = int(TRY_SECONDS * 1000)
CLOSE_SECONDS: Final = 5.0
RECONNECT_MILLISECONDS: Final = 1_000
"""The maximum wait of a client between attempts to connect. Its own 30 s are longer than a request
is retried: a recovered broker would still be reported as unreachable."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a partition holds: the first offset that can be read, and the next to be assigned."""

    beginning: int
    end: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Which log this is: the cluster's id and every topic's."""

    cluster_id: str
    topic_ids: Mapping[str, str]


class KafkaLog:
    """A LogReader, and for tools a publisher. Every method raises LogError.

    Every topic has the configured number of partitions, which `check` verifies."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = threading.RLock()
        self._options: Mapping[str, object] = {
            "bootstrap_servers": cluster.servers,
            "bootstrap_timeout_ms": TRY_MILLISECONDS,
            "reconnect_backoff_max_ms": RECONNECT_MILLISECONDS,
        }
        self._admin: KafkaAdminClient | None = None
        self._consumer: KafkaConsumer | None = None
        self._producer: KafkaProducer | None = None

    @classmethod
    def open(cls, cluster: Cluster) -> Self:
        """Connects and checks."""
        log = cls(cluster)
        try:
            log.check()
        except BaseException:
            log.close()
            raise
        return log

    def close(self) -> None:
        with self._lock:
            for client in (self._admin, self._consumer):
                if client is not None:
                    client.close()
            if self._producer is not None:
                with contextlib.suppress(KafkaError):  # no one waits for its records any more
                    self._producer.close(timeout=CLOSE_SECONDS)
            self._admin = self._consumer = self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what the log is ---------------------------------------------------------------------

    def check(self) -> None:
        """Checks that every topic has `cluster.partitions` partitions."""
        found = self._described()
        missing = [name for name in TOPICS if name not in found]
        if missing:
            raise LogError(
                f"Kafka at {self.cluster.settings.bootstrap_servers} lacks the topics"
                f" {', '.join(self.cluster.settings.topic_prefix + name for name in missing)};"
                " `palimpsest topics create` makes them"
            )
        counts = {name: len(found[name]["partitions"]) for name in TOPICS}
        for name, count in counts.items():
            if count != self.cluster.partitions:
                raise LogError(
                    f"topic {name} has {count} partitions, but {self.cluster.partitions} are set:"
                    " all topics need the same number, and it never changes, because a scope"
                    " stays in its partition. Set log.partitions to what the topics have."
                )

    def _described(self) -> dict[str, dict[str, list[object]]]:
        names = [self.cluster.physical(name) for name in TOPICS]
        answer = self.ask(lambda admin: admin.describe_topics(names))
        return {
            self.cluster.logical(topic["name"]): topic
            for topic in answer
            if not topic["error_code"]
        }

    def identity(self) -> Identity:
        """Identifies the cluster and its topics: a topic that is rebuilt has another id."""
        cluster = self.ask(lambda admin: admin.describe_cluster())
        ids = {name: str(topic["topic_id"]) for name, topic in self._described().items()}
        return Identity(str(cluster["cluster_id"]), ids)

    def partitions(self, topic: str) -> int:
        self.cluster.physical(topic)
        return self.cluster.partitions

    def watermarks(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Watermarks]:
        """Returns the watermarks of every (topic, partition), requested together."""
        wanted = {self._tp(topic, number): (topic, number) for topic, number in places}

        def ask(admin: KafkaAdminClient) -> dict[tuple[str, int], Watermarks]:
            first = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
            last = admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
            return {
                place: Watermarks(int(first[tp].offset), int(last[tp].offset))
                for tp, place in wanted.items()
            }

        return self.ask(ask) if wanted else {}

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next appended record will get; 0 for an empty partition."""
        check_partition(topic, partition, self.cluster.partitions)
        return self.watermarks([(topic, partition)])[topic, partition].end

    # --- positions ---------------------------------------------------------------------------

    def committed(self, role: str) -> dict[tuple[str, int], int]:
        """The next offset that the role's group will read, where it ever committed one."""
        group = self.cluster.group_of(role)
        answer = self.ask(lambda admin: admin.list_group_offsets({group: None})).get(group, {})
        return {
            (self.cluster.logical(tp.topic), tp.partition): int(found.offset)
            for tp, found in answer.items()
            if found.offset >= 0
        }

    def position(self, consumer: str, topic: str, partition: int) -> int:
        """The next offset that the stage's group will read; 0 if it never committed one. For the
        stages of the store role their shard's cursor is more accurate."""
        check_partition(topic, partition, self.cluster.partitions)
        return self.committed(role_of(consumer)).get((topic, partition), 0)

    def drained(self) -> bool:
        """Returns whether every stage, in any process, has acknowledged all records."""
        return not any(self.lag().values())

    def lag(self) -> dict[str, int]:
        """Number of records that no stage, in any process, has acknowledged yet, by role."""
        done: dict[tuple[str, str, int], int] = {}
        places = set()
        for role in ROLES:
            committed = self.committed(role)
            for topic in READ_BY[role]:
                for partition in range(self.cluster.partitions):
                    places.add((topic, partition))
                    done[role, topic, partition] = committed.get((topic, partition), 0)
        # Ends are read after positions: if both are equal, they were equal when the positions were
        # read.
        watermarks = self.watermarks(sorted(places))
        left = dict.fromkeys(ROLES, 0)
        for (role, topic, partition), offset in done.items():
            marks = watermarks[topic, partition]
            left[role] += max(0, marks.end - max(offset, marks.beginning))
        return left

    # --- reading -----------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int,
        max_bytes: int = DEFAULT_READ_BYTES,
    ) -> list[Record]:
        """Up to `max_records` records from `offset` on, in offset order, of at most `max_bytes`
        of keys and values together; at least one if there is any, however large. Offsets may
        have gaps (compaction)."""
        end = self.end_offset(topic, partition)
        tp = self._tp(topic, partition)
        records: list[Record] = []
        size = 0
        with self._lock, self._reached():
            if self._consumer is None:
                self._consumer = KafkaConsumer(
                    **self._options,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    max_partition_fetch_bytes=MAX_REQUEST_BYTES,
                    fetch_max_wait_ms=POLL_MILLISECONDS,
                )
            consumer = self._consumer
            consumer.assign([tp])
            consumer.seek(tp, offset)
            deadline = time.monotonic() + TRY_SECONDS
            while len(records) < max_records:
                if int(consumer.position(tp, timeout_ms=TRY_MILLISECONDS) or 0) >= end:
                    break
                limit = max_records - len(records)
                polled: list[ConsumerRecord] = consumer.poll(POLL_MILLISECONDS, limit).get(tp, [])
                for found in polled:
                    record = _record(topic, found)
                    size += len(record.key or b"") + len(record.value or b"")
                    if records and size > max_bytes:
                        return records
                    records.append(record)
                if polled:
                    deadline = time.monotonic() + TRY_SECONDS
                elif time.monotonic() > deadline:
                    raise LogUnavailable(f"{topic}[{partition}] gives no records from {offset} on")
        return records

    # --- appending ---------------------------------------------------------------------------

    def append(self, outgoing: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Appends in order, acknowledged by all in-sync replicas; returns (partition, offset) of
        each."""
        with self._lock:
            if self._producer is None:
                with self._reached():
                    self._producer = KafkaProducer(
                        **self._options,
                        acks="all",
                        enable_idempotence=True,
                        linger_ms=0,
                        max_request_size=MAX_REQUEST_BYTES,
                    )
            producer = self._producer
            try:
                sent = [
                    producer.send(
                        self.cluster.physical(out.topic),
                        value=out.value,
                        key=out.key,
                        headers=list(out.headers.items()),
                        partition=partition_for(out.scope, self.cluster.partitions)
                        if out.partition is None
                        else out.partition,
                    )
                    for out in outgoing
                ]
                producer.flush()
                metadata = [future.get(timeout=REQUEST_SECONDS) for future in sent]
            except KafkaError as error:
                raise LogError(f"Kafka did not take the records: {error}") from error
        return [(int(found.partition), int(found.offset)) for found in metadata]

    # --- requests ----------------------------------------------------------------------------

    def _tp(self, topic: str, partition: int) -> TopicPartition:
        return TopicPartition(self.cluster.physical(topic), partition)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Raises LogError for what a client raises inside."""
        try:
            yield
        except KafkaError as error:
            raise unreachable(self.cluster, error) from error

    def ask(self, question: Callable[[KafkaAdminClient], T]) -> T:
        """Returns the response, retrying while the broker is not ready to give one."""
        deadline = time.monotonic() + TRY_SECONDS
        while True:
            try:
                with self._lock:
                    if self._admin is None:
                        self._admin = KafkaAdminClient(
                            **self._options, request_timeout_ms=TRY_MILLISECONDS
                        )
                    return question(self._admin)
            except KafkaError as error:
                if not error.retriable or time.monotonic() > deadline:
                    raise unreachable(self.cluster, error) from error
                time.sleep(0.1)


def _record(topic: str, found: ConsumerRecord) -> Record:
    return Record(
        topic,
        found.partition,
        found.offset,
        found.key,
        found.value,
        _EPOCH + timedelta(milliseconds=found.timestamp),
        dict(found.headers or ()),
    )
