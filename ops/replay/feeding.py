"""Feeding a branch: what was said and commanded live, copied to its log in the order of the live
one, and executed there.

A partition is fed after the other, some records at a time. Whatever may depend on what models
made of the turns before waits until these are executed, so a branch does not depend on when it
was fed, how often it was interrupted, or how fast models are. Records have the ids that they have
in the live log: what is fed again after a crash is known already.
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
"""Of the live log at a time, counted from offsets that are multiples of it: where a turn falls must
not depend on where the feeding was interrupted."""

OF_LIVE_FACTS: Final = PromoteCommand | RollbackPromotionCommand | RecordShadowProposalsCommand
"""Commands that tell of facts as models drew them live: of these the branch has its own."""


FREE: Final = (
    *(RememberCommand, AddDocumentCommand, DocumentTextCommand),
    *(SessionEndCommand, UpdateShortTermCommand),
)
"""Commands that need not wait for what models make of the turns before."""


@dataclass(slots=True)
class FedClock:
    """Stands at the append time of the live record that was fed last."""

    time: datetime

    def __call__(self) -> datetime:
        return self.time


@dataclass(slots=True)
class Pacing:
    """At most `rate` turns a second (None: as fast as it goes), from the first on."""

    rate: float | None
    monotonic: Callable[[], float] = time.monotonic
    _free_at: float = 0.0

    @property
    def records(self) -> int:
        """What to feed at a time: about a second's, so that models are asked evenly."""
        return FED_RECORDS if self.rate is None else min(FED_RECORDS, math.ceil(self.rate))

    def note(self, turns: int) -> None:
        """So many were fed."""
        if self.rate is not None:
            self._free_at = max(self._free_at, self.monotonic()) + turns / self.rate

    @property
    def seconds(self) -> float:
        """How long to wait before the next."""
        return max(0.0, self._free_at - self.monotonic())


@dataclass(slots=True)
class Fed:
    """What one run has fed."""

    turns: int = 0
    commands: int = 0
    waiting: int = 0
    """Records that the live memory has not executed, or not extracted from, yet."""


@dataclass(slots=True)
class Feeding:
    """Feeds one branch. `drain` carries out what was fed and tells whether it came to its end;
    `keep` writes the branch's file; `partial`: some turns are not extracted from again, so those
    wait for what the live memory makes of them."""

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
        """Feed all that the live memory has executed; whether all of it is in the branch."""
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
        """Carry out what an earlier run has fed and not seen to its end, at the time of what was
        fed last: of several partitions the earliest, for in none does time go back."""
        log, topic = self.app.log, MEMORY_WRITES.name
        ends = [(number, log.end_offset(topic, number)) for number in range(self.branch.partitions)]
        last = [log.read(topic, number, end - 1, 1)[0].timestamp for number, end in ends if end]
        self.clock.time = min([self.clock.time, *last])
        return await self._settled(range(self.branch.partitions))

    async def _settled(self, partitions: Sequence[int]) -> bool:
        """Carry out what was fed; whether that came to its end."""
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
        """Feed these records and carry them out. How many: the one after them waits for the live
        memory. None where it was stopped."""
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
    """What the live stages wrote themselves the branch's write again. What cannot be read is fed:
    it is a dead letter here as there."""
    if message is None or not isinstance(message.body, MemoryWrite):
        return True
    write = message.body.write
    if isinstance(write, CommandIntent):
        return not isinstance(write.command, OF_LIVE_FACTS)
    return not isinstance(write, ProposalsIntent | ForgetChunksIntent)


def _waits(message: Message | None) -> bool:
    """Whether what models make of the turns before matters to it."""
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
    """The record as it lies in the live log, in the same partition, but for the settings that it
    was executed by: a branch has its own."""
    if message is not None and isinstance(message.body, MemoryWrite) and message.body.settings:
        fed = decoded(record)  # of which what was erased is gone
        if fed is not None:
            return _recorded(record, fed)
    scope = "" if message is None else message.scope
    return Outgoing(
        record.topic, scope, record.key or b"", record.value, record.headers, record.partition
    )


def _recorded(record: Record, message: Message) -> Outgoing:
    """A message in the place of the record that it stands for, to be executed by the branch's
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
