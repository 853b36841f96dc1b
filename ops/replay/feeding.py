"""Feeds a branch: copies live turns and commands to its log, in the order of the live log, and
executes them there.

Partitions are fed one after another, in blocks of records. A record that may depend on the model
output for earlier turns waits until these are executed, so a branch does not depend on when it was
fed, how often it was interrupted, or how fast models are. Records keep the ids of the live log, so
the branch recognizes a record that is fed again after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from palimpsest.ops.maintenance.embedded import Application
from palimpsest.ops.replay.branches import BranchManifest, TurnSelection, keep_branch
from palimpsest.ops.replay.curation import BranchCuration, translated_command
from palimpsest.ops.replay.live_log import Ledger, LiveLog
from palimpsest.ops.replay.log_reading import decoded, intent_of
from palimpsest.ops.replay.requests import ReplayProgress, Report
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.aspects import ClassifyFactsCommand, WeighAspectsCommand
from palimpsest.schemas.codec import encode
from palimpsest.schemas.commands import (
    AddDocumentCommand,
    ChangeEmbeddingCommand,
    DocumentTextCommand,
    LinkCausesCommand,
    PromoteCommand,
    RecordHealthCommand,
    RecordShadowProposalsCommand,
    RememberCommand,
    RepairCommand,
    RollbackPromotionCommand,
    SessionEndCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.messages import (
    CommandIntent,
    DocumentTextIntent,
    ForgetChunksIntent,
    Intent,
    MemoryWrite,
    ProposalsIntent,
    RawTurnIntent,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import Outgoing, Record
from palimpsest.streams.models.base import LanguageModel, ModelError, Prompt, Reply, Vector
from palimpsest.streams.runtime.partition_task import Interrupted

FED_RECORDS: Final = 128
"""Records of the live log per block. Blocks start at multiples of it: a turn's block must not
depend on where the feeding was interrupted."""

OF_LIVE_FACTS: Final = (
    PromoteCommand
    | RollbackPromotionCommand
    | RecordShadowProposalsCommand
    | LinkCausesCommand
    | ClassifyFactsCommand
    | WeighAspectsCommand
    | RepairCommand
    | RecordHealthCommand
    | ChangeEmbeddingCommand
)
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


# --- budget ---------------------------------------------------------------------------------------
# What a language model may read and write for a branch, and the model that keeps to it.

LEAST_BYTES_PER_TOKEN: Final = 3.0
"""At most so many tokens are expected of a prompt: most models make fewer of a text, and one that
makes more is noticed at its first reply."""


def size_of(prompt: Prompt) -> int:
    """Bytes that a model reads."""
    return len(prompt.system.encode()) + len(prompt.user.encode())


def most_tokens(prompt: Prompt, bytes_per_token: float = LEAST_BYTES_PER_TOKEN) -> int:
    """The most that a call is expected to read and write."""
    return round(size_of(prompt) / bytes_per_token) + prompt.max_output_tokens


@dataclass(slots=True)
class Budget:
    """Tokens that all runs of a re-extraction may read and write together; None: any number.

    What is under way counts with the most that it may cost, so the limit is never passed by more
    than a provider's own miscount. `exhausted` is called once, when a call does not fit any more.
    """

    ledger: Ledger
    limit: int | None
    exhausted: Callable[[], None] = lambda: None
    is_exhausted: bool = False
    _bytes_per_token: float = LEAST_BYTES_PER_TOKEN
    _reserved: int = 0
    _free: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def ask(self, model: LanguageModel, prompt: Prompt) -> Reply:
        """Asks once the call fits. Raises Interrupted when it never will; calls under way are then
        done, so that none of their replies is lost on its way."""
        reserved = most_tokens(prompt, self._bytes_per_token)
        async with self._free:
            while not self._fits(reserved):
                if not self._reserved:
                    if not self.is_exhausted:
                        self.is_exhausted = True
                        self.exhausted()
                    raise Interrupted("the budget of tokens is used up")
                await self._free.wait()
            self._reserved += reserved
        reply: Reply | None = None
        is_paid = True
        try:
            reply = await model.generate(prompt)
            return reply
        except ModelError:  # nothing was read, as far as anyone knows
            is_paid = False
            raise
        finally:
            if is_paid:  # also one that is let go of: the provider goes on
                self._note(prompt, reserved, reply)
            await asyncio.shield(self._release(reserved))

    def _fits(self, wanted: int) -> bool:
        if self.is_exhausted or self.limit is None:
            return self.limit is None
        return self.ledger.spent().tokens + self._reserved + wanted <= self.limit

    def _note(self, prompt: Prompt, reserved: int, reply: Reply | None) -> None:
        """A call is done. Where no one tells its tokens it counts with all that was set aside."""
        read = None if reply is None else reply.input_tokens
        written = None if reply is None else reply.output_tokens
        if read is None or written is None:
            written = prompt.max_output_tokens
            read = reserved - written
        else:
            self._bytes_per_token = min(self._bytes_per_token, size_of(prompt) / max(read, 1))
        self.ledger.note_spent(read, written)

    async def _release(self, reserved: int) -> None:
        async with self._free:
            self._reserved -= reserved
            self._free.notify_all()


class BudgetedModel:
    """Asks `model` as long as the budget lasts."""

    def __init__(self, model: LanguageModel, budget: Budget) -> None:
        self.provider = model.provider
        self.model = model.model
        self._asked = model
        self._budget = budget

    async def generate(self, prompt: Prompt) -> Reply:
        return await self._budget.ask(self._asked, prompt)

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        await self._asked.close()


# --- feeding --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Feeding:
    """Feeds one branch, and counts the turns and commands of this run; `waiting` are records that
    the live memory has not yet executed or extracted from. `settings` are the live ones."""

    settings: Settings
    app: Application
    live: LiveLog
    clock: FedClock
    branch: BranchManifest
    budget: Budget
    pacing: Pacing
    report: Report
    stopping: asyncio.Event
    turns: int = 0
    commands: int = 0
    waiting: int = 0
    _undone: bool = True
    _models_at_work: bool = False
    _total: int = 0
    _done: int = 0

    async def all(self) -> bool:
        """Feeds all that the live memory has executed. Returns whether all of it was fed and
        executed, except for records that wait for the live memory."""
        # What an earlier run fed but did not finish is executed at the time of the record that was
        # fed last: the earliest of all partitions, so that time runs backwards in none.
        log, topic = self.app.log, MEMORY_WRITES.name
        ends = [(number, log.end_offset(topic, number)) for number in range(self.branch.partitions)]
        last = [log.read(topic, number, end - 1, 1)[0].timestamp for number, end in ends if end]
        self.clock.time = min([self.clock.time, *last])
        if not await self._settled(range(self.branch.partitions)):
            return False
        frontiers = [self.live.frontier(number) for number in range(self.branch.partitions)]
        for number in range(self.branch.partitions):
            await asyncio.to_thread(self.live.scan, number)
        self._total = sum(
            max(0, applied - self.branch.read_through.get(number, 0))
            for number, (applied, _) in enumerate(frontiers)
        )
        if self._total:
            self._note(self.branch.read_through, whole=False)
        for number, frontier in enumerate(frontiers):
            if not await self._partition(number, *frontier):
                return False
        self._note(self.branch.read_through, whole=True)
        return True

    async def _settled(self, partitions: Sequence[int]) -> bool:
        """Executes the fed records. Returns whether it finished."""
        if not self._undone:
            return not self.stopping.is_set()
        try:
            if not await self.app.drain():
                return False
        except Interrupted:
            if self.budget.is_exhausted:
                return False
            raise
        self._undone = self._models_at_work = False
        for number in partitions:
            self._curation(number).settle()
        return True

    def _curation(self, number: int) -> BranchCuration:
        async def embed(texts: Sequence[str]) -> Sequence[Vector | None]:
            return (await self.app.models.embed(texts)).vectors

        shard, near = self.app.shards[number], self.app.settings.near
        return BranchCuration(self.live, shard, embed, near)

    async def _partition(self, number: int, end: int, unextracted: str | None) -> bool:
        if self.branch.selection in (None, TurnSelection()):
            unextracted = None  # no turn keeps its live extraction
        offset = self.branch.read_through.get(number, 0)
        while offset < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), self.pacing.seconds)
            if self.stopping.is_set():
                return False
            size = self.pacing.records
            upto = min(end, (offset // size + 1) * size)
            records = await asyncio.to_thread(
                self.live.reader.read, MEMORY_WRITES.name, number, offset, upto - offset
            )
            taken = [record for record in records if record.offset < upto]
            ended = await self._block(number, taken, unextracted)
            if ended is None:
                return False
            if ended < len(taken):
                offset = taken[ended].offset
            else:  # a read ends early where records are large
                offset = taken[-1].offset + 1 if taken else upto
            self._note({**self.branch.read_through, number: offset}, whole=False)
            if ended < len(taken):
                self.waiting += end - offset
                return True
        self.waiting += self.live.reader.end_offset(MEMORY_WRITES.name, number) - end
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
            intent = intent_of(message)
            if not _is_fed(intent):
                continue
            command = None if message is None else translated_command(message)
            waits = isinstance(intent, CommandIntent) and not isinstance(intent.command, FREE)
            if command is not None or (waits and (self._models_at_work or turns)):
                self._append(group)
                if not await self._settled([number]):
                    return None
            if message is not None and command is not None:
                told = await self._curation(number).translated(message, command, record)
                fed = (_fed(replace(record, value=encode(each))) for each in told)
                self._append([(record.timestamp, each) for each in fed])
                self.commands += 1
                continue
            turns += isinstance(intent, RawTurnIntent)
            if message is not None:
                record = self.live.without_erased(record, message)  # noqa: PLW2901
            group.append((record.timestamp, _fed(record)))
            is_free = intent is None or isinstance(intent, DocumentTextIntent)
            self._models_at_work |= not is_free
        self._append(group)
        if not await self._settled([number]):
            return None
        self.turns += turns
        self.report(ReplayProgress("extracting", self._done, self._total, "records"))
        self.pacing.note(turns)
        return ended

    def _append(self, group: list[tuple[datetime, Outgoing]]) -> None:
        if group:
            self.clock.time = group[-1][0]
            self.app.log.append_at(group)
            self._undone = True
            group.clear()

    def _note(self, read: dict[int, int], whole: bool) -> None:
        self.branch = keep_branch(self.settings, self.branch, read_through=read, whole=whole)


def _is_fed(intent: Intent | None) -> bool:
    """Returns whether a record is fed. The branch's stages write the records of the live stages
    again, so these are not fed. Unreadable records are: they become dead letters here as well."""
    if isinstance(intent, CommandIntent):
        return not isinstance(intent.command, OF_LIVE_FACTS)
    return not isinstance(intent, ProposalsIntent | ForgetChunksIntent)


def _fed(record: Record) -> Outgoing:
    """Returns the record for the same partition of the branch, without the settings of its live
    execution: a branch has its own."""
    message, value = decoded(record), record.value
    if message is not None and isinstance(message.body, MemoryWrite) and message.body.settings:
        body = message.body.model_copy(update={"settings": None})
        value = encode(message.model_copy(update={"body": body}))
    scope, key = "" if message is None else message.scope, record.key or b""
    return Outgoing(record.topic, scope, key, value, record.headers, record.partition)
