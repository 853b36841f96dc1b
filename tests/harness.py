"""A small embedded pipeline for tests: a folder, a steerable clock, any model, crashes on order.

It joins the parts by hand, so that a test can replace any of them.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Self

from palimpsest.ops.parts import known_private
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import decode
from palimpsest.schemas.commands import Command
from palimpsest.schemas.envelope import Actor, derived_id
from palimpsest.schemas.messages import ConversationTurn, DeadLetter
from palimpsest.schemas.topics import (
    DEAD_LETTERS,
    TOPICS,
    Topic,
)
from palimpsest.stores.database.balance import Balance, read_balance
from palimpsest.stores.database.state_hash import state_hash, table_hashes
from palimpsest.stores.lock import StoreLock
from palimpsest.stores.settings import ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.in_flight import items_in_flight
from palimpsest.streams.logs.base import LogSender, Outgoing, Position, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.output import HEADERS, outgoing
from palimpsest.streams.runtime.partition_task import PartitionTask
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.runtime.worker import Worker
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.settings import DecisionSettings, Flags, PipelineSettings, WorkerSettings
from palimpsest.streams.stage import Message, Stage
from palimpsest.streams.topology import STAGE_NAMES, stages
from tests.messages import BEGIN, HUMAN, commanded, published, topic_of, turn

DIMENSIONS = 256
LAST = ("graph-persist", "audit")
"""The stages that no other one reads of, in their order."""
CAREFUL = Flags()
FULL = Flags(allow_update_delete=True)


def nothing(stage: str, step: str) -> None:
    pass


class Crash(BaseException):
    """The process ends here. No stage, runner or worker may swallow it."""


@dataclass
class Clock:
    """Stands still unless it is moved."""

    time: datetime = BEGIN

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **delta: float) -> None:
        self.time += timedelta(**delta)


def pipeline_settings(flags: Flags = CAREFUL, decider: str = "rules", **decision: Any) -> Settings:
    """With the bands of an embedding model that is not known."""
    return Settings(
        decision=DecisionSettings.model_validate(
            {"decider": decider, "exact": 0.98, "near": 0.70, **decision}
        ),
        pipeline=PipelineSettings(**dict(flags)),
    )


# --- the pipeline -----------------------------------------------------------------------------


class TwoStepSender:
    """Appends, then notes the position, as a broker does; `between` is called in between.
    `halfway` has the stages that began to append and did not come to note their position."""

    def __init__(self, log: EmbeddedLog, between: Callable[[Sequence[Position]], None]) -> None:
        self._log = log
        self._between = between
        self.halfway: set[str] = set()

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        consumers = {position.consumer for position in positions}
        self.halfway |= consumers
        await self._log.commit(outgoing, [])
        self._between(positions)
        await self._log.commit([], positions)
        self.halfway -= consumers


@dataclass
class Pipeline:
    """All stages on an embedded log and one shard, in `folder`.

    `batch` is how many records a stage takes at once. `crash_at` arms one crash: the n-th time
    that the stage has done the step (`between` for the moment between a broker's append and its
    note of the position, only with `two_steps`). `spoiled` may replace a stage by a broken one.
    """

    folder: Path
    settings: Settings = field(default_factory=pipeline_settings)
    language: LanguageModel = field(default_factory=RulesLanguageModel)
    embedding: EmbeddingModel = field(default_factory=lambda: HashingEmbeddingModel(DIMENSIONS))
    batch: int | Mapping[str, int] = 256
    clock: Clock = field(default_factory=Clock)
    two_steps: bool = False
    max_record_bytes: int = 1024 * 1024
    wait: Callable[[float], Any] = asyncio.sleep
    happened: Counter[tuple[str, str]] = field(default_factory=Counter)
    halfway: set[str] = field(default_factory=set)
    on_step: Callable[[str, str], None] = nothing
    spoiled: Callable[[Stage], Stage] = lambda stage: stage
    _armed: tuple[str, str, int] | None = None

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self.log = EmbeddedLog(self.folder / "log", 1, self.clock)
        try:
            self.shard = Shard(
                self.folder / "shard",
                ShardOptions(self.embedding.model, self.embedding.dimensions),
            )
        except BaseException:
            self.log.close()
            raise
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.shard.close()
            self.log.close()

    def reopen(self) -> Self:
        """As a new process finds it."""
        self.close()
        self._open()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- going in ---------------------------------------------------------------------------

    def publish(self, *messages: Message, topic: Topic | None = None) -> None:
        self.log.append([outgoing(topic or topic_of(message), message) for message in messages])

    def ingest(self, *bodies: ConversationTurn, scope: str = "ana") -> None:
        self.publish(*(published(body, scope) for body in bodies))

    def say(self, *contents: str, scope: str = "ana", first: int = 1, **fields: Any) -> None:
        """Turns with these contents, numbered from `first`."""
        numbered = enumerate(contents, start=first)
        self.ingest(*(turn(text, number, **fields) for number, text in numbered), scope=scope)

    def command(
        self, *commands: Command, first: int = 1, scope: str = "ana", actor: Actor = HUMAN
    ) -> None:
        self.publish(
            *(commanded(c, number, scope, actor) for number, c in enumerate(commands, first))
        )

    def raw(self, topic: Topic, value: bytes | None, key: bytes = b"ana") -> None:
        """Bytes as some producer sends them."""
        self.log.append([Outgoing(topic.name, key.decode(errors="replace"), key, value, HEADERS)])

    # --- running ----------------------------------------------------------------------------

    def crash_at(self, stage: str, step: str, nth: int = 1) -> None:
        self.happened.clear()
        self._armed = (stage, step, nth)

    def disarm(self) -> None:
        self._armed = None

    def _after(self, stage: str, step: str) -> None:
        self.happened[stage, step] += 1
        if self._armed == (stage, step, self.happened[stage, step]):
            self._armed = None
            raise Crash(f"{stage} after {step}")
        self.on_step(stage, step)

    def worker(self, *only: str) -> Worker:
        sender: LogSender = self.log
        if self.two_steps:
            sender = two_steps = TwoStepSender(
                self.log, lambda positions: [self._after(p.consumer, "between") for p in positions]
            )
            self.halfway = two_steps.halfway
        self.models = ModelPort(self.language, self.embedding, wait=self.wait)

        def runner(task: PartitionTask) -> StageRunner:
            return StageRunner(
                task.stage,
                0,
                self.models,
                sender,
                self.shard if task.stage.reads_store else None,
                self.clock,
                lambda: 0.0,
                max_record_bytes=self.max_record_bytes,
                ready=task.ready,
                before_commit=task.before_commit,
                after=self._after,
            )

        run = [s for s in map(self.spoiled, self._stages()) if not only or s.name in only]
        worker = Worker(self.log, run, 1, runner, WorkerSettings(stop_seconds=0.0))
        for driven in worker._driven:
            size = self.batch
            most = size if isinstance(size, int) else size.get(driven.task.stage.name, 256)
            pace = driven.task._pace  # the test's sizes, not the time's
            pace.seconds, pace.most, pace.rounds = math.inf, most, most
        self.runners = worker.runners
        return worker

    def _stages(self) -> tuple[Stage, ...]:
        return stages(self.settings, known_private({0: self.shard}))

    async def drain(self, *only: str) -> None:
        await self.worker(*only).run(until_drained=True)

    def run(self, *only: str) -> Self:
        """Until everything is processed; by these stages only, where any are named."""
        self.shard.lock = StoreLock()  # one belongs to the loop in which it was waited for
        asyncio.run(self.drain(*only) if only or self._is_watched() else self._drain_in_turn())
        return self

    def _is_watched(self) -> bool:
        """Whether the steps of the run matter to the test."""
        is_usual = (self.batch, self.two_steps, self._armed) == (256, False, None)
        return not is_usual or self.on_step is not nothing

    async def _drain_in_turn(self) -> None:
        """As few batches as there can be of the stages that nobody waits for: a commit takes ten
        milliseconds of processor."""
        first = (name for name in STAGE_NAMES if name not in LAST)
        for names in (first, *((name,) for name in LAST)):
            await self.drain(*names)

    def run_through(self) -> Self:
        """Until everything is processed, coming back after an armed crash."""
        try:
            return self.run()
        except Crash:
            return self.reopen().run()

    # --- looking ----------------------------------------------------------------------------

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        with self.shard.reading() as reader:
            result = reader.execute(query, list(parameters))
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def values(self, query: str, *parameters: object) -> list[Any]:
        """The first column."""
        with self.shard.reading() as reader:
            return [row[0] for row in reader.execute(query, list(parameters)).fetchall()]

    def memories(self, scope: str = "ana") -> list[str]:
        """Contents of the active memories that are no turns, sorted."""
        return self.values(
            "SELECT content FROM memory_rows WHERE scope = ? AND NOT is_deleted"
            " AND type <> 'episodic' ORDER BY content",
            scope,
        )

    def facts_settled(self) -> Counter[tuple[str, str]]:
        """(event, reason) of every settled fact."""
        rows = self.rows("SELECT event, reason FROM outcomes WHERE item_kind = 'fact'")
        return Counter((row["event"], row["reason"]) for row in rows)

    def result(self, number: int | str = 1, scope: str = "ana") -> tuple[str | None, Any]:
        """(error, result) of the command with this number."""
        [row] = self.rows(
            "SELECT error, result FROM command_results WHERE command_id = ?",
            derived_id("test-command", scope, number),
        )
        return row["error"], json.loads(row["result"])

    def balance(self) -> Balance:
        return read_balance(
            self.shard, partial(items_in_flight, self.log, 0, Policy.of(self.settings.pii).record)
        )

    def state(self) -> str:
        with self.shard.reading() as reader:
            return state_hash(reader)

    def state_with_times(self, tables: Sequence[str]) -> dict[str, str]:
        """The state hash of these tables, with the times of the log."""
        with self.shard.reading() as reader:
            hashes = table_hashes(reader, times=True)
        return {table: hashes[table] for table in tables}

    def state_by_table(self) -> dict[str, str]:
        """The state hash by table, with the full-text tables and the kept vectors, which the
        state hash holds for caches: they too must not depend on what happened on the way."""
        with self.shard.reading() as reader:
            hashes = table_hashes(reader)
            for table, columns in (
                ("fts_docs", "memory_id, scope, length"),
                ("fts_postings", "scope, term, memory_id, tf"),
                ("embeddings", "embedding_key, model, vector, tokens"),
            ):
                rows = reader.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
                hashes[table] = derived_id(*map(repr, rows))
        return hashes

    def records(self, topic: Topic) -> list[Record]:
        return self.log.read(topic.name, 0, 0, 100_000, 1 << 30)

    def messages(self, topic: Topic) -> list[Message]:
        return [decode(r.value, TOPICS[r.topic], r.timestamp) for r in self.records(topic)]

    def dead_letters(self) -> list[DeadLetter]:
        bodies = [message.body for message in self.messages(DEAD_LETTERS)]
        return [body for body in bodies if isinstance(body, DeadLetter)]


def differing(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Tables in which two states differ; empty when they are the same."""
    return sorted(table for table in a.keys() | b.keys() if a.get(table) != b.get(table))


def interleaved(*groups: Iterable[Message]) -> list[Message]:
    """One of each in turn."""
    return [m for m in chain.from_iterable(zip_longest(*groups)) if m is not None]
