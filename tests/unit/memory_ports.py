"""A store and a log in memory, as the runner sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from palimpsest.stores.lock import StoreLock
from palimpsest.streams.logs.base import Outgoing, Position, Record
from palimpsest.streams.stage import Answer
from palimpsest.streams.store_port import (
    Anticipated,
    Load,
    Loaded,
    Outbound,
    Progress,
    Put,
    StoreAsk,
    Write,
)
from tests.messages import BEGIN


class MemoryLog:
    """Topics as lists; sender and reader at once."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Record]] = {}
        self.noted: dict[tuple[str, str], int] = {}
        self.commits: list[tuple[tuple[Outgoing, ...], tuple[Position, ...]]] = []
        self.fails_with: Exception | None = None
        self._rung = asyncio.Condition()

    def put(self, topic: str, *values: bytes | None) -> list[Record]:
        lying = self.topics.setdefault(topic, [])
        added = [
            Record(topic, 0, len(lying) + n, b"ana", value, BEGIN) for n, value in enumerate(values)
        ]
        lying += added
        return added

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        if self.fails_with is not None:
            raise self.fails_with
        self.commits.append((tuple(outgoing), tuple(positions)))
        for out in outgoing:
            self.put(out.topic, out.value)
        for position in positions:
            self.noted[position.consumer, position.topic] = position.next_offset
        async with self._rung:
            self._rung.notify_all()

    def sent(self) -> list[Outgoing]:
        return [out for outgoing, _ in self.commits for out in outgoing]

    def partitions(self, topic: str) -> int:
        return 1

    def end_offset(self, topic: str, partition: int) -> int:
        return len(self.topics.get(topic, ()))

    def position(self, consumer: str, topic: str, partition: int) -> int:
        return self.noted.get((consumer, topic), 0)

    def read(
        self, topic: str, partition: int, offset: int, max_records: int, max_bytes: int = 0
    ) -> list[Record]:
        return self.topics.get(topic, [])[offset : offset + max_records]

    async def wait(self, positions: Iterable[Position], timeout_seconds: float) -> bool:
        """Until there is something to read, however long that takes."""
        wanted = list(positions)
        async with self._rung:
            while not any(self.end_offset(p.topic, 0) > p.next_offset for p in wanted):
                await self._rung.wait()
        return True


@dataclass
class MemoryStore:
    """Rows by key; answers Load with the ids put so far."""

    rows: list[object] = field(default_factory=list)
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)
    seen_ids: set[tuple[str, str]] = field(default_factory=set)
    outbox: dict[str, list[Outbound]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    asked: list[StoreAsk] = field(default_factory=list)
    prefetched: list[list[StoreAsk]] = field(default_factory=list)
    fails_with: Exception | None = None
    lock: StoreLock = field(default_factory=StoreLock)

    def cursor_of(self, stage: str, topic: str) -> int:
        return self.cursors.get((stage, topic), 0)

    def seen(self, stage: str, message_ids: Sequence[str]) -> set[str]:
        return {m for m in message_ids if (stage, m) in self.seen_ids}

    def unsent(self, stage: str) -> list[Outbound]:
        return list(self.outbox.get(stage, ()))

    def note_sent(self, stage: str, seq: int) -> None:
        self.sent[stage] = seq

    def next_outbox_seq(self, stage: str) -> int:
        return max((out.seq + 1 for out in self.outbox.get(stage, ())), default=0)

    def refuses_data(self, error: Exception) -> bool:
        return False

    def lacks_room(self, error: Exception) -> bool:
        return False

    def commit_error(self, staged: Sequence[object]) -> Exception | None:
        return self.fails_with

    embedding_space = ""

    def unit(self, space: str = "") -> MemoryUnit:
        return MemoryUnit(self)


class MemoryUnit:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._staged: list[object] = []

    def prefetch(self, asks: Sequence[StoreAsk]) -> None:
        self._store.prefetched.append(list(asks))

    def answer(self, ask: StoreAsk) -> Answer:
        self._store.asked.append(ask)
        assert isinstance(ask, Load)
        known = {key: key for key in [*self._store.rows, *self._staged]}
        return Loaded({}, {}, {}, None, {}, None, frozenset(), 0, facts=known)  # type: ignore[arg-type]

    def anticipate(self, memory: Anticipated) -> None:
        raise AssertionError("no stage of these tests anticipates")

    def stage(self, writes: Sequence[Write]) -> None:
        self._staged += [write.row for write in writes if isinstance(write, Put)]

    def commit(self, progress: Progress) -> None:
        store = self._store
        error = store.commit_error(self._staged)
        if error is not None:
            raise error
        store.rows += self._staged
        store.progress.append(progress)
        for topic, offset in progress.cursors.items():
            store.cursors[progress.stage, topic] = offset
        store.seen_ids |= {(progress.stage, message_id) for message_id, _ in progress.seen}
        kept = [o for o in store.unsent(progress.stage) if o.seq > progress.sent_through]
        store.outbox[progress.stage] = [*kept, *progress.outbox]
