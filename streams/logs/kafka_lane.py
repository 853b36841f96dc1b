"""One stage on one partition between two rebalances: what arrives is processed in order.

Nothing here knows Faust: a lane is fed records with the means to acknowledge them, and asks its
`Tenure` whether the partition is still its own.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.topics import MEMORY_WRITES
from streams.logs.base import UNAVAILABLE_SECONDS, LogReader, LogUnavailable, Position, Record
from streams.pace import Pace
from streams.runner import StageRunner
from streams.store_port import Outbound
from streams.worker import Interrupted, spent_seconds

Ready = Callable[[], Awaitable[None]]

ASK_AGAIN_SECONDS = 0.05
CROWD = 4
"""This many waiting batches double the patience."""
TURN_ROUNDS = 8
TURN_SECONDS = 0.001
MAX_GATHER_SECONDS = 0.02
PATIENCE_SECONDS: Mapping[str, float] = {"decide": 0.2, "graph-persist": 0.5, "audit": 1.0}
"""How long a stage lets records gather that nobody waits for: a turn can be found once normalize
and apply-writes are done with it."""
MOST_PATIENCE_SECONDS = 3.0
FEW_RECORDS = 8
"""Of so many it is the commit that costs; of more the records do, which gathering cannot spare."""
STORE_SHARE = 0.2
"""Part of the time that such a stage may spend in its stores, on all partitions together. A commit
costs about the same however small it is: were each partition to make one as soon as it can, few
turns a second on many partitions would take all of the time."""
FULL_BATCHES = 4
"""A topic is not fetched further while this many batches of it wait; it goes on at half."""


class Lost(Exception):
    """The partition is another's, or is about to be: drop the batch, acknowledge nothing."""


class Unsure(Exception):
    """Whether the partition is still ours is not known now: begin the batch again when it is."""


class Tenure(Protocol):
    """Whether a partition is this worker's."""

    def lost(self) -> str | None:
        """Why the partition is no longer ours; None while nothing says so."""
        ...

    def sure(self) -> bool:
        """Whether the broker confirmed our membership recently enough that nobody else can have
        been given the partition."""
        ...


class Flow(Protocol):
    """The stream of records of one role."""

    def hold(self, topic: str, partition: int) -> None:
        """Fetch no more of the partition for now; what is fetched still comes."""
        ...

    def let_go(self, topic: str, partition: int) -> None: ...


class Turns:
    """Lets batches begin one after another, with room between them.

    A batch keeps the event loop to itself while it computes and commits. Were all lanes to begin
    as soon as they can, records would hardly arrive between their batches, and each would find
    only a few. One that waits for a model or a broker holds up nobody.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, patience_seconds: float = 0.0) -> None:
        """Until it is the caller's turn to begin. Who has patience lets those go first that come
        within it and have none; the more are waiting, the longer."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        due = loop.time() + patience_seconds * (1 + len(self._waiting) / CROWD)
        heapq.heappush(self._waiting, (due, next(self._count), turn))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._give())
        await turn

    async def _give(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if turn.cancelled():
                continue
            turn.set_result(None)
            for _ in range(TURN_ROUNDS):
                await asyncio.sleep(0)
            await asyncio.sleep(TURN_SECONDS)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record and how to acknowledge it."""

    record: Record
    acknowledge: Callable[[], None]


@dataclass(slots=True)
class Progress:
    """How far the stages of one partition have come, for those that wait for another.

    `awaited` is the offset through which memory-writes was filled when the partition was opened.
    """

    sent_through: Callable[[], int]
    awaited: int = 0
    applied: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, applied: int) -> None:
        self.applied = max(self.applied, applied)
        self.wake()

    def wake(self) -> None:
        """Let everyone who waits look again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def until_applied(self, given_up: Callable[[], bool]) -> None:
        """Until all that this worker, or the one before it, proposed is in the store. Raises Lost
        once `given_up`."""
        target = max(self.awaited, self.sent_through())
        while self.applied < target:
            if given_up():
                raise Lost("revoked while waiting for what was proposed before")
            await self._moved.wait()


@dataclass(slots=True)
class Opened:
    """What a lane gets once its partition's store is open. `next_offsets` is where the stage is in
    each of its topics, `committed` where the records that arrive begin."""

    runner: StageRunner
    log: LogReader
    progress: Progress
    next_offsets: Mapping[str, int]
    committed: Mapping[str, int]


class Lane:
    """Serial processing of one stage's one partition. `pace` is how many records it takes at once,
    `share` the part of the time that it may spend in its store where nobody waits for it.

    `failed` is called with what the worker must end for. Records may be `put` before the lane is
    opened; they wait.
    """

    def __init__(
        self,
        name: str,
        partition: int,
        topics: Sequence[str],
        pace: Pace,
        tenure: Tenure,
        flow: Flow,
        failed: Callable[[BaseException], None],
        turns: Turns,
        share: float = STORE_SHARE,
    ) -> None:
        self.name = name
        self.partition = partition
        self.pace = pace
        self._tenure = tenure
        self._flow = flow
        self._failed = failed
        self._turns = turns
        self._patience = PATIENCE_SECONDS.get(name, 0.0)
        self._share = share
        self._waiting: dict[str, deque[Arrival]] = {topic: deque() for topic in topics}
        self._held: set[str] = set()
        self._wake = asyncio.Event()
        self._opened: Opened | None = None
        self._committing = False
        self._uncommitted = asyncio.Event()
        self._uncommitted.set()
        self.next_offsets = dict.fromkeys(topics, 0)
        self.closed = False
        self.taken = 0
        """Records of the batch under way; 0 between batches."""
        self._last_seconds = 0.0
        self._store_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    # --- from outside ------------------------------------------------------------------------

    def open(self, opened: Opened) -> None:
        """Begin to work."""
        if self.closed:
            return
        self._opened = opened
        self.next_offsets = dict(opened.next_offsets)
        self._task = asyncio.create_task(self._run(opened), name=f"{self.name}[{self.partition}]")

    def put(self, topic: str, arrival: Arrival) -> None:
        """Take a record, without waiting; those of a partition come in offset order."""
        if self.closed:
            return
        waiting = self._waiting[topic]
        waiting.append(arrival)
        self._wake.set()
        if len(waiting) >= FULL_BATCHES * self.pace.most:
            self._held.add(topic)
            self._flow.hold(topic, self.partition)

    def close(self) -> None:
        """Take nothing any more and begin nothing; what waits is read again by the next owner."""
        self.closed = True
        for topic in self._held:
            self._flow.let_go(topic, self.partition)
        self._held.clear()
        for waiting in self._waiting.values():
            waiting.clear()
        self._wake.set()
        if self._opened is not None:
            self._opened.progress.wake()

    async def ended(self, grace_seconds: float, limit_seconds: float) -> None:
        """After `close`: until the batch under way is done. One that is not being committed after
        `grace_seconds` (it waits for a model) is cancelled, as if it had never begun. Raises
        TimeoutError after `limit_seconds`; what was committed and not sent is then sent by the
        next owner."""
        task = self._task
        if task is None:
            return
        await asyncio.wait([task], timeout=grace_seconds)
        try:
            if self._committing:
                async with asyncio.timeout(limit_seconds):
                    await self._uncommitted.wait()
        finally:
            task.cancel()
            await asyncio.wait([task])

    def positions(self) -> list[Position]:
        return [
            Position(self.name, topic, self.partition, offset)
            for topic, offset in self.next_offsets.items()
        ]

    @property
    def waiting(self) -> int:
        """Records that were fetched and not begun."""
        return sum(map(len, self._waiting.values()))

    def wanted(self) -> dict[str, int]:
        """The offset that it waits for in each topic; nothing while it has something to do."""
        if self.closed or self.taken or self._opened is None or any(self._waiting.values()):
            return {}
        return self.next_offsets

    def at(self, step: str) -> None:
        """Told by the runner of every step done: the last look before results are committed, and
        where a batch may no longer be thrown away."""
        if step != "step":
            return
        why = self._tenure.lost()
        if why is not None:
            raise Lost(why)
        if not self._tenure.sure():
            raise Unsure
        self._committing = True
        self._uncommitted.clear()

    # --- the work ----------------------------------------------------------------------------

    async def _run(self, opened: Opened) -> None:
        try:
            await self._begin(opened)
            while not self.closed:
                if not any(self._waiting.values()):
                    self._wake.clear()
                    await self._wake.wait()
                await self._gather()
                await self._pass(opened)
        except asyncio.CancelledError:
            raise
        except (Lost, Interrupted):
            self.close()
        except BaseException as error:
            self.close()
            self._failed(error)

    async def _begin(self, opened: Opened) -> None:
        """Send what may not have been sent, and process what nobody will deliver again: records
        that the group has acknowledged, but this store has not seen."""
        runner = opened.runner
        if runner.stage.waits_for is not None:
            runner.ready = self._ready_after(opened, runner.ready)
        self._note_applied(opened)
        await self._until_sure()
        await runner.start(*await self._outbox(opened))
        for topic, committed in opened.committed.items():
            await self._catch_up(opened, topic, committed)

    async def _outbox(self, opened: Opened) -> tuple[list[Outbound], list[Outbound]]:
        while True:
            try:
                return await asyncio.to_thread(opened.runner.committed_outbox, opened.log)
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_SECONDS)

    def _ready_after(self, opened: Opened, ready: Ready | None) -> Ready:
        async def both() -> None:
            if ready is not None:
                await ready()
            await opened.progress.until_applied(lambda: self.closed)

        return both

    async def _pass(self, opened: Opened) -> None:
        """One batch of what every topic has."""
        batches = {topic: self._taken(topic) for topic in self._waiting}
        records: list[Record] = []
        for topic, batch in batches.items():
            fresh = self._undone(topic, batch)
            expected = self.next_offsets[topic]
            if fresh and fresh[0].offset > expected:
                await self._catch_up(opened, topic, fresh[0].offset)
            records += fresh
        if self.closed:
            return
        if records:
            await self._process(opened, records)
        if self._tenure.lost() is not None:
            raise Lost("after the commit")
        for batch in batches.values():
            for arrival in batch:
                arrival.acknowledge()

    async def _gather(self) -> None:
        """Let what is on its way arrive: a batch costs about the same however small it is."""
        if all(len(waiting) < self.pace.size for waiting in self._waiting.values()):
            gather = min(self._last_seconds, MAX_GATHER_SECONDS)
            spare = patience(self._patience, self._store_seconds, self._share)
            await asyncio.sleep(max(gather, spare))
        await self._turns.wait(self._patience)

    def _taken(self, topic: str) -> list[Arrival]:
        waiting = self._waiting[topic]
        first = [arrival.record for arrival in itertools.islice(waiting, self.pace.size)]
        batch = [waiting.popleft() for _ in self.pace.taken(first)]
        if topic in self._held and len(waiting) <= FULL_BATCHES * self.pace.most // 2:
            self._held.discard(topic)
            self._flow.let_go(topic, self.partition)
        return batch

    def _undone(self, topic: str, batch: Sequence[Arrival]) -> list[Record]:
        expected = self.next_offsets[topic]
        return [arrival.record for arrival in batch if arrival.record.offset >= expected]

    async def _catch_up(self, opened: Opened, topic: str, end: int) -> None:
        """Process the records from where the stage is up to `end` as they are in the log."""
        while (start := self.next_offsets[topic]) < end and not self.closed:
            count = min(self.pace.size, end - start)
            try:
                found = await asyncio.to_thread(
                    opened.log.read, topic, self.partition, start, count
                )
            except LogUnavailable:
                await asyncio.sleep(UNAVAILABLE_SECONDS)
                continue
            records = self.pace.taken([record for record in found if record.offset < end])
            if not records:
                self.next_offsets[topic] = end  # removed from the log, by compaction or a purge
                return
            await self._process(opened, records)

    async def _process(self, opened: Opened, records: Sequence[Record]) -> None:
        self.taken = len(records)
        try:
            while True:
                await self._until_sure()
                began, stored = time.monotonic(), _store_seconds(opened.runner)
                before = spent_seconds(opened.runner)
                try:
                    await opened.runner.process(records)
                    self._last_seconds = time.monotonic() - began
                    self.pace.note(records, spent_seconds(opened.runner) - before)
                    spent = _store_seconds(opened.runner) - stored
                    self._store_seconds = spent * min(1.0, FEW_RECORDS / len(records))
                    break
                except Unsure:
                    continue
                finally:
                    self._committing = False
                    self._uncommitted.set()
        finally:
            self.taken = 0
        self.next_offsets.update((record.topic, record.offset + 1) for record in records)
        self._note_applied(opened)

    def _note_applied(self, opened: Opened) -> None:
        applied = self.next_offsets.get(MEMORY_WRITES.name)
        if applied is not None:
            opened.progress.note(applied)

    async def _until_sure(self) -> None:
        """Until the partition is surely ours. Raises Lost when it is not."""
        while True:
            why = self._tenure.lost()
            if why is not None or self.closed:
                raise Lost(why or "revoked")
            if self._tenure.sure():
                return
            await asyncio.sleep(ASK_AGAIN_SECONDS)


def patience(least: float, store_seconds: float, share: float) -> float:
    """Seconds to let records gather: what keeps a lane whose last batch spent so many in its store
    within its share of the time. None, where somebody waits (`least` is 0)."""
    return max(least, min(store_seconds / share, MOST_PATIENCE_SECONDS)) if least else 0.0


def _store_seconds(runner: StageRunner) -> float:
    return runner.counts.seconds["drop"] + runner.counts.seconds["commit"]
