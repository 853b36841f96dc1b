"""Folding the recorded topics of a partition into a store, without asking a language model.

apply-writes, graph-persist and audit work as they do live, on what the log has, and append
nothing. What decide keeps of its work is taken from what it said when it decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palimpsest.ops.parts import folding_runner
from palimpsest.ops.replay.decided import recorded_decide_stage
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.recorded import names_of, recorded
from palimpsest.ops.replay.stored_vectors import StoredEmbeddings
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_CHANGES, MEMORY_WRITES
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.erasures import redact_tables, redaction_of, unfinished
from palimpsest.streams.logs.base import LogReader, Outgoing, Position, Record
from palimpsest.streams.models.base import EmbeddingModel
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import Stage
from palimpsest.streams.topology import stages

BATCH_RECORDS = 500
Ends = Mapping[str, Mapping[str, int]]
"""By stage and topic the next offset: what is before is folded."""


def never() -> bool:
    """For who does not stop."""
    return False


@dataclass(frozen=True, slots=True)
class FoldResult:
    """`records` were folded now; `embedded` texts had no stored vector. `stopped`: not all that
    was wanted is folded yet."""

    records: int
    embedded: int
    stopped: bool


async def fold_partition(
    settings: Settings,
    log: LogReader,
    partition: int,
    shard: Shard,
    ends: Ends,
    stored: Sequence[Path],
    embedding: EmbeddingModel,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> FoldResult:
    """Fold from where the shard is to `ends`. Every batch is one transaction with its cursors, so
    that it may be ended at any moment and goes on from there. Raises LogError, StoreError and what
    the embedding model raises."""
    with StoredEmbeddings.opened(stored, embedding) as embeddings:
        fold = _Fold(settings, log, partition, shard, ends, embeddings, report, stopping)
        await fold.run()
        return FoldResult(fold.records, embeddings.made, fold.stopped)


class _Unsent:
    """A LogSender that appends nothing: all of it was appended when it was said first."""

    async def commit(self, outgoing: Sequence[Outgoing], positions: Sequence[Position]) -> None:
        """Nothing."""


@dataclass
class _Fold:
    settings: Settings
    log: LogReader
    partition: int
    shard: Shard
    ends: Ends
    embeddings: StoredEmbeddings
    report: Report
    stopping: Callable[[], bool]
    records: int = 0
    stopped: bool = False
    _applied: set[str] = field(default_factory=set)

    async def run(self) -> None:
        models = ModelPort(RulesLanguageModel(), self.embeddings)
        decide = recorded_decide_stage(self.log, self.partition, self.shard)
        live = {stage.name: stage for stage in stages(self.settings)}
        self._runners = {
            stage.name: self._runner(stage, models)
            for stage in (decide, live["apply-writes"], live["graph-persist"], live["audit"])
        }
        await self._fold_topics("decide")
        await self._fold_memory()
        await self._fold_topics("graph-persist")
        await self._fold_topics("audit")
        if not self.stopped:
            await asyncio.to_thread(self._redact)

    def _runner(self, stage: Stage, models: ModelPort) -> StageRunner:
        partitions = self.log.partitions(MEMORY_WRITES.name)
        sender = _Unsent()
        return folding_runner(
            self.settings, stage, self.partition, models, sender, self.shard, partitions
        )

    def _batches(self, stage: str, topic: str) -> Iterator[list[Record]]:
        end = self.ends.get(stage, {}).get(topic, 0)
        while (offset := self.shard.cursor_of(stage, topic)) < end:
            found = self.log.read(topic, self.partition, offset, min(BATCH_RECORDS, end - offset))
            records = [record for record in found if record.offset < end]
            if not records or self.stopping():
                self.stopped |= bool(records)
                return
            yield records

    async def _fold_topics(self, stage: str) -> None:
        for topic in self._runners[stage].stage.reads:
            for records in self._batches(stage, topic.name):
                await self._process(stage, records)

    async def _fold_memory(self) -> None:
        """Memory, and after each batch the graph of it: each sees what the other wrote."""
        topic = MEMORY_WRITES.name
        done = self.shard.cursor_of("apply-writes", topic)
        self._note(recorded(self.log, topic, self.partition, 0, done))
        for records in self._batches("apply-writes", topic):
            await self._process("apply-writes", records)
            self._note(records)
            await self._fold_graph()

    def _note(self, records: Iterable[Record]) -> None:
        self._applied.update(names_of(record).id for record in records)

    async def _fold_graph(self) -> None:
        for records in self._batches("graph-persist", MEMORY_CHANGES.name):
            told = []
            for record in records:
                if names_of(record).cause not in self._applied:
                    break
                told.append(record)
            if not told:
                return
            await self._process("graph-persist", told)

    async def _process(self, stage: str, records: Sequence[Record]) -> None:
        await self._runners[stage].process(records)
        self.records += len(records)
        self.report(Progress(f"folding partition {self.partition}", self._done(), self._total()))

    def _total(self) -> int:
        return sum(end for topics in self.ends.values() for end in topics.values())

    def _done(self) -> int:
        return sum(
            min(end, self.shard.cursor_of(stage, topic))
            for stage, topics in self.ends.items()
            for topic, end in topics.items()
        )

    def _redact(self) -> None:
        """What was recorded after an erasure may quote what it took out of the tables before."""
        with self.shard.writing() as connection:
            for erasure in unfinished(connection):
                if erasure.phase == "log":
                    connection.execute("BEGIN")
                    redact_tables(connection, redaction_of(connection, erasure))
                    connection.execute("COMMIT")
