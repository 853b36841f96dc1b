"""Sends finished work to Kafka: records, each acknowledged by the broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError

from palimpsest.streams.kafka.cluster import MAX_REQUEST_BYTES, REQUEST_SECONDS, Cluster, is_refusal
from palimpsest.streams.logs.base import (
    LogError,
    LogUnavailable,
    Outgoing,
    Position,
    check_partition,
    check_position,
    partition_for,
)

MAX_BATCH_BYTES: Final = 1024 * 1024
OVERHEAD_BYTES: Final = 1024
RETRY_SECONDS: Final = 0.5
STOP_SECONDS: Final = 5.0

_place = lru_cache(maxsize=65_536)(partition_for)


class _Sent(Protocol):
    """The broker's response for a batch: the offset of its first record."""

    offset: int


class KafkaSender:
    """A LogSender on one idempotent producer. Use it as an async context manager.

    `commit` returns when all in-sync replicas have every record; during an outage of the broker it
    waits and retries, and `outage` holds what is being waited for. Records of one call keep their
    order within a partition. It records no positions: a worker does, by acknowledging."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._ends: dict[tuple[str, int], int] = {}
        self.outage: str | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Connects. Raises LogError, or LogUnavailable if the broker is unreachable."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._cluster.servers,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=MAX_REQUEST_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
        )
        try:
            await producer.start()
        except KafkaError as error:
            await producer.stop()
            raise unreachable(self._cluster, error) from error
        self._producer = producer

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            # What is not sent by now waits for an unreachable broker. It is in the outbox of its
            # store, or its source was not acknowledged.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._producer.stop()

    def sent_through(self, topic: str, partition: int) -> int:
        """The offset after the last record that this sender appended there; 0 for none."""
        return self._ends.get((topic, partition), 0)

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Appends `outgoing`. Raises LogError for a record that the broker refuses permanently;
        others of the same call may then have been appended."""
        places: dict[tuple[str, int], list[Outgoing]] = defaultdict(list)
        count = self._cluster.partitions
        for out in outgoing:
            partition = _place(out.scope, count) if out.partition is None else out.partition
            check_partition(out.topic, partition, count)
            places[out.topic, partition].append(out)
        for position in positions:
            check_position(position, count)
        cut = {place: _chunks(records) for place, records in places.items()}
        waiting = []
        async with self._turn:  # the batches of one call are queued before those of the next
            for (topic, partition), chunks in cut.items():
                batches = [(chunk, await self._send(chunk, topic, partition)) for chunk in chunks]
                waiting.append(self._confirmed(batches, topic, partition))
        for sent in waiting:
            await sent

    async def _confirmed(
        self,
        batches: Sequence[tuple[Sequence[Outgoing], asyncio.Future[_Sent]]],
        topic: str,
        partition: int,
    ) -> None:
        """Waits for the broker's responses to what was passed to the producer."""
        for chunk, future in batches:
            sent = future
            while True:
                try:
                    end = (await sent).offset + len(chunk)
                    break
                except KafkaError as error:
                    self._refuse(error, topic, partition)
                    await asyncio.sleep(RETRY_SECONDS)
                    sent = await self._send(chunk, topic, partition)
            self.outage = None
            if end > self.sent_through(topic, partition):
                self._ends[topic, partition] = end

    async def _send(
        self, chunk: Sequence[Outgoing], topic: str, partition: int
    ) -> asyncio.Future[_Sent]:
        assert self._producer is not None
        name = self._cluster.physical(topic)
        while True:
            batch = self._producer.create_batch()
            for out in chunk:
                added = batch.append(
                    key=out.key, value=out.value, timestamp=None, headers=[*out.headers.items()]
                )
                assert added is not None, "chunks are made to fit"
            batch.close()
            try:
                future: asyncio.Future[_Sent] = await self._producer.send_batch(
                    batch, name, partition=partition
                )
            except KafkaError as error:
                self._refuse(error, topic, partition)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return future

    def _refuse(self, error: KafkaError, topic: str, partition: int) -> None:
        if not (error.retriable or isinstance(error, KafkaTimeoutError)):
            kind = LogError if is_refusal(error) else LogUnavailable
            raise kind(
                f"the broker does not take records for {topic}[{partition}]:"
                f" {type(error).__name__}: {error}"
            ) from error
        self.outage = f"{type(error).__name__}: {error}"


def _chunks(records: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Splits the records in order into chunks that fit a batch; a larger record forms its own."""
    chunks: list[list[Outgoing]] = []
    room = 0
    for out in records:
        # A lower bound of the record's size in a batch.
        headers = sum(len(name) + len(value) + 10 for name, value in out.headers.items())
        size = len(out.key) + len(out.value or b"") + headers + 40
        if size > MAX_REQUEST_BYTES - OVERHEAD_BYTES:
            raise LogError(
                f"a record for {out.topic} has {size} bytes; Kafka takes {MAX_REQUEST_BYTES}"
            )
        if not chunks or size > room:
            chunks.append([])
            room = MAX_BATCH_BYTES
        chunks[-1].append(out)
        room -= size
    return chunks


def unreachable(cluster: Cluster, error: BaseException) -> LogError:
    """Returns LogUnavailable for what may pass; a refused permission or password does not."""
    kind = LogError if is_refusal(error) else LogUnavailable
    return kind(
        f"cannot reach Kafka at {cluster.settings.bootstrap_servers}: {type(error).__name__}:"
        f" {error}; start it, or set kafka.bootstrap_servers"
    )
