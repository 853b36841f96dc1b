"""Feeds a branch: copies live turns and commands to its log, in the order of the live log, and
executes them there.

Partitions are fed one after another, in blocks of records. A record that may depend on the model
output for earlier turns waits until these are executed, so a branch does not depend on when it was
fed, how often it was interrupted, or how fast models are. Records keep the ids of the live log, so
the branch recognizes a record that is fed again after a crash.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from palimpsest.ops.embedded import Application
from palimpsest.ops.replay.branches import Branch
from palimpsest.ops.replay.curation import Curation, Translated, translated_command
from palimpsest.ops.replay.live_log import LiveLog, decoded
from palimpsest.ops.replay.progress import Progress, Report
from palimpsest.schemas.codec import encode
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    DocumentTextCommand,
    PromoteCommand,
    RecordShadowProposalsCommand,
    RememberCommand,
    RollbackPromotionCommand,
    SessionEndCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.messages import (
    CommandIntent,
    DocumentTextIntent,
    ForgetChunksIntent,
    MemoryWrite,
    ProposalsIntent,
    RawTurnIntent,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import Outgoing, Record
from palimpsest.streams.stage import Message

FED_RECORDS: Final = 128
"""Records of the live log per block. Blocks start at multiples of it: a turn's block must not
depend on where the feeding was interrupted."""

OF_LIVE_FACTS: Final = PromoteCommand | RollbackPromotionCommand | RecordShadowProposalsCommand
"""Commands about facts as models extracted them live: the branch has its own."""


FREE: Final = (
    *(RememberCommand, AddDocumentCommand, DocumentTextCommand),
    *(SessionEndCommand, UpdateShortTermCommand),
)
"""Commands that need not wait for the model output for earlier turns."""


@dataclass(slots=True)
class FedClock:
    """Returns the append time of the live record that was fed last."""

    time: datetime

    def __call__(self) -> datetime:
        return self.time


@dataclass(slots=True)
class Pacing:
    """Limits the feeding to `rate` turns per second (None: no limit)."""

    rate: float | None
    monotonic: Callable[[], float] = time.monotonic
    _free_at: float = 0.0

    @property
    def records(self) -> int:
        """The number of records per block: about one second's, for an even load on models."""
        return FED_RECORDS if self.rate is None else min(FED_RECORDS, math.ceil(self.rate))

    def note(self, turns: int) -> None:
        """Counts turns that were fed."""
        if self.rate is not None:
            self._free_at = max(self._free_at, self.monotonic()) + turns / self.rate

    @property
    def seconds(self) -> float:
        """The time to wait before the next block."""
        return max(0.0, self._free_at - self.monotonic())


@dataclass(slots=True)
class Fed:
    """The counts of one run."""

    turns: int = 0
    commands: int = 0
    waiting: int = 0
    """Records that the live memory has not yet executed or extracted from."""


@dataclass(slots=True)
class Feeding:
    """Feeds one branch. `drain` executes the fed records and returns whether it finished; `keep`
    writes the branch's file; `partial`: some turns are not extracted again, so these wait for their
    live extraction."""

    app: Application
    live: LiveLog
    clock: FedClock
    branch: Branch
    keep: Callable[[Branch], None]
    drain: Callable[[], Awaitable[bool]]
    curation: Callable[[int], Curation]
    partial: bool
    pacing: Pacing
    report: Report
    stopping: asyncio.Event
    fed: Fed = field(default_factory=Fed)
    _undone: bool = True
    _models_at_work: bool = False
    _total: int = 0
    _done: int = 0

    async def all(self) -> bool:
        """Feeds all that the live memory has executed. Returns whether all of it was fed and
        executed, except for records that wait for the live memory."""
        if not await self._leftovers():
            return False
        frontiers = [self.live.frontier(number) for number in range(self.branch.partitions)]
        for number in range(self.branch.partitions):
            await asyncio.to_thread(self.live.scan, number)
        self._total = sum(
            max(0, frontier.applied - self.branch.read_through.get(number, 0))
            for number, frontier in enumerate(frontiers)
        )
        if self._total:
            self._note(self.branch.read_through, whole=False)
        for number, frontier in enumerate(frontiers):
            if not await self._partition(number, frontier.applied, frontier.unextracted):
                return False
        self._note(self.branch.read_through, whole=True)
        return True

    async def _leftovers(self) -> bool:
        """Executes what an earlier run fed but did not finish, at the time of the record that was
        fed last: the earliest of all partitions, so that time runs backwards in none."""
        log, topic = self.app.log, MEMORY_WRITES.name
        ends = [(number, log.end_offset(topic, number)) for number in range(self.branch.partitions)]
        last = [log.read(topic, number, end - 1, 1)[0].timestamp for number, end in ends if end]
        self.clock.time = min([self.clock.time, *last])
        return await self._settled(range(self.branch.partitions))

    async def _settled(self, partitions: Sequence[int]) -> bool:
        """Executes the fed records. Returns whether it finished."""
        if not self._undone:
            return not self.stopping.is_set()
        if not await self.drain():
            return False
        self._undone = self._models_at_work = False
        for number in partitions:
            self.curation(number).settle()
        return True

    async def _partition(self, number: int, end: int, unextracted: str | None) -> bool:
        offset = self.branch.read_through.get(number, 0)
        while offset < end:
            await self._pause(self.pacing.seconds)
            if self.stopping.is_set():
                return False
            size = self.pacing.records
            upto = min(end, (offset // size + 1) * size)
            records = await asyncio.to_thread(
                self.live.reader.read, MEMORY_WRITES.name, number, offset, upto - offset
            )
            taken = [record for record in records if record.offset < upto]
            ended = await self._block(number, taken, unextracted if self.partial else None)
            if ended is None:
                return False
            if ended < len(taken):
                offset = taken[ended].offset
            else:  # a read ends early where records are large
                offset = taken[-1].offset + 1 if taken else upto
            self._note({**self.branch.read_through, number: offset}, whole=False)
            if ended < len(taken):
                self.fed.waiting += end - offset
                return True
        self.fed.waiting += self.live.reader.end_offset(MEMORY_WRITES.name, number) - end
        return True

    async def _block(
        self, number: int, records: Sequence[Record], unextracted: str | None
    ) -> int | None:
        """Feeds and executes these records up to the first that waits for the live memory. Returns
        their number, None if stopped."""
        group: list[tuple[datetime, Outgoing]] = []
        turns, ended = 0, len(records)
        for place, record in enumerate(records):
            message = decoded(record)
            if message is not None and message.id == unextracted:
                ended = place
                break
            self._done += 1
            if not _is_fed(message):
                continue
            command = None if message is None else translated_command(message)
            if message is not None and command is not None:
                self._append(group)
                if not await self._commanded(number, message, command, record):
                    return None
                self.fed.commands += 1
                continue
            if _waits(message) and (self._models_at_work or turns):
                self._append(group)
                if not await self._settled([number]):
                    return None
            turns += _is_turn(message)
            if message is not None:
                record = self.live.without_erased(record, message)  # noqa: PLW2901
            group.append((record.timestamp, _copied(record, message)))
            self._models_at_work |= _asks_models(message)
        self._append(group)
        if not await self._settled([number]):
            return None
        self.fed.turns += turns
        self.report(Progress("extracting", self._done, self._total, "records"))
        self.pacing.note(turns)
        return ended

    async def _commanded(
        self, number: int, message: Message, command: Translated, record: Record
    ) -> bool:
        if not await self._settled([number]):
            return False
        told = await self.curation(number).translated(message, command, record)
        self._append([(record.timestamp, _recorded(record, each)) for each in told])
        return True

    def _append(self, group: list[tuple[datetime, Outgoing]]) -> None:
        if group:
            self.clock.time = group[-1][0]
            self.app.log.append_at(group)
            self._undone = True
            group.clear()

    def _note(self, read_through: dict[int, int], whole: bool) -> None:
        self.branch = self.branch.model_copy(update={"read_through": read_through, "whole": whole})
        self.keep(self.branch)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self.stopping.wait()
            except TimeoutError:
                pass


def _is_fed(message: Message | None) -> bool:
    """Returns whether a record is fed. The branch's stages write the records of the live stages
    again, so these are not fed. Unreadable records are: they become dead letters here as well."""
    if message is None or not isinstance(message.body, MemoryWrite):
        return True
    write = message.body.write
    if isinstance(write, CommandIntent):
        return not isinstance(write.command, OF_LIVE_FACTS)
    return not isinstance(write, ProposalsIntent | ForgetChunksIntent)


def _waits(message: Message | None) -> bool:
    """Returns whether a record depends on the model output for earlier turns."""
    if message is None or not isinstance(message.body, MemoryWrite):
        return False
    write = message.body.write
    if not isinstance(write, CommandIntent):
        return False
    return not isinstance(write.command, FREE)


def _is_turn(message: Message | None) -> bool:
    body = None if message is None else message.body
    return isinstance(body, MemoryWrite) and isinstance(body.write, RawTurnIntent)


def _asks_models(message: Message | None) -> bool:
    body = None if message is None else message.body
    return isinstance(body, MemoryWrite) and not isinstance(body.write, DocumentTextIntent)


def _copied(record: Record, message: Message | None) -> Outgoing:
    """Returns the live record for the same partition, without the settings of its live execution:
    a branch has its own."""
    if message is not None and isinstance(message.body, MemoryWrite) and message.body.settings:
        fed = decoded(record)  # the record without erased texts
        if fed is not None:
            return _recorded(record, fed)
    scope = "" if message is None else message.scope
    return Outgoing(
        record.topic, scope, record.key or b"", record.value, record.headers, record.partition
    )


def _recorded(record: Record, message: Message) -> Outgoing:
    """Returns the output that replaces a record by this message, to be executed with the branch's
    settings."""
    assert isinstance(message.body, MemoryWrite)
    body = message.body.model_copy(update={"settings": None})
    return Outgoing(
        record.topic,
        message.scope,
        record.key or b"",
        encode(message.model_copy(update={"body": body})),
        record.headers,
        record.partition,
    )
