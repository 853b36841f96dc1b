"""The one processing loop of every stage, for the embedded log and for Kafka alike.

A batch consists of records of one partition of a stage's topics, each topic's in offset order and,
as far as their times show, all in the order in which they came. It has six steps: decode;
deduplicate, which skips processed messages; ask the models; step; commit; send, and record the
stage's progress. After a crash at any point, the next run ends in the state of an uninterrupted
run.

A failure on one record ends that record: if a batch fails, its records are processed one by one, in
order, and the one that fails alone becomes a dead letter. A failure that concerns every record
stops the worker: the log, the store, the disk, memory, and a stage that fails on many records in a
row."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.identity import message_key
from palimpsest.schemas.limits import DEFAULT_MAX_RECORD_BYTES
from palimpsest.schemas.topics import TOPICS
from palimpsest.streams.logs.base import (
    LogReader,
    LogSender,
    Outgoing,
    Position,
    Record,
    partition_for,
)
from palimpsest.streams.runtime.batch_record import RecordRun, check_alone, divided
from palimpsest.streams.runtime.failures import (
    StageFailed,
    failure_line,
    first_failure,
    is_about_a_record,
    is_too_slow,
    log_fields,
    unexpected,
)
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.offload import P, T, computed, in_thread, timed
from palimpsest.streams.runtime.output import dead_letter, emitted, headers, missing, rerouted
from palimpsest.streams.runtime.pace import GATHER_SECONDS
from palimpsest.streams.runtime.time_limit import RecordTooSlow, bounded
from palimpsest.streams.runtime.tracing import HEADER, Span, Tracer, untraced, valid, working_on
from palimpsest.streams.stage import (
    Context,
    Embed,
    Embedded,
    Failure,
    Generate,
    ModelUnavailable,
    Stage,
    Step,
)
from palimpsest.streams.store_port import (
    NotAlone,
    Outbound,
    Progress,
    StoreAsk,
    StorePort,
    UnitPort,
)

logger = logging.getLogger(__name__)

STEPS = ("decode", "deduplicate", "ask", "step", "commit", "send")
DEFAULT_MAX_FAILURES = 100
DEFAULT_RECORD_SECONDS = 60.0


@dataclass(slots=True)
class Counts:
    """What a runner did since it started: records, and seconds by step of the loop."""

    records: int = 0
    skipped: int = 0
    emitted: int = 0
    dead: int = 0
    unexpected: int = 0
    batches: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    waited: float = 0.0
    """Seconds of the total during which other stages held the store or the event loop."""

    @property
    def spent(self) -> float:
        """Seconds that the records themselves cost: all steps, without waiting for others."""
        return sum(self.seconds.values()) - self.waited

    @property
    def stored(self) -> float:
        """Seconds of the steps that use the store."""
        return self.seconds["deduplicate"] + self.seconds["commit"]


@dataclass(slots=True)
class StageRunner:
    """Runs one stage on one partition.

    `ready` is awaited before a batch is read. `before_commit` is called right before its results
    are committed (by a stage without a store: sent), without an await in between; if it raises, the
    batch ends and none of it is kept. `after` is for crash tests only: it is called with each of
    STEPS when that step is done. `partitions` is the number of partitions of every topic. After
    `max_failures` consecutive records on which the stage failed unexpectedly, the next failure
    stops the worker. A record for which one step of the stage takes longer than `record_seconds`
    becomes a dead letter and does not count as such a failure. `now` and `monotonic` are the only
    clocks. Without a `tracer` nothing is traced: a rebuild repeats what was traced when it
    happened."""

    stage: Stage
    partition: int
    models: ModelPort
    sender: LogSender
    store: StorePort | None
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    ready: Callable[[], Awaitable[None]] | None = None
    before_commit: Callable[[], None] | None = None
    after: Callable[[str, str], None] = lambda stage, step: None
    partitions: int = 1
    max_failures: int = DEFAULT_MAX_FAILURES
    record_seconds: float = DEFAULT_RECORD_SECONDS
    tracer: Tracer | None = None
    counts: Counts = field(default_factory=Counts)
    _failures: int = 0
    _sent_through: int = -1
    _clock: float = 0.0
    _spans: list[Span] = field(default_factory=list)

    @property
    def state_store(self) -> StorePort | None:
        """The store if the stage is stateful: it keeps the cursor, the seen ids and the outbox."""
        return self.store if self.stage.stateful else None

    def committed_outbox(self, log: LogReader) -> tuple[list[Outbound], list[Outbound]]:
        """Returns what an earlier run committed and may not have sent: all of it, and the part that
        is missing in the log. Blocks; raises errors of reading the log.

        A stage that is not stateful has an outbox only where an earlier release gave it one."""
        if self.store is None:
            return [], []
        committed = self.store.unsent(self.stage.name)
        return committed, missing(committed, log, self.partition)

    async def start(self, committed: Sequence[Outbound], missing: Sequence[Outbound]) -> None:
        """Sends what an earlier run did not send, as `committed_outbox` found it."""
        if missing:
            await self.sender.commit([self._sent(out) for out in missing], [])
        if not committed:
            return
        self._note_sent(committed[-1].seq)
        if self.state_store is None:
            await self.mark_sent()

    async def mark_sent(self) -> None:
        """Removes from the outbox what was sent, as the next commit would."""
        if self.store is not None and self._sent_through >= 0:
            sent = Progress(self.stage.name, {}, [], [], self._sent_through)
            async with self._alone(self.store):
                await self._in_thread(self.store.unit().commit, sent)

    async def process(self, records: Sequence[Record]) -> None:
        """Processes a batch to the end: commits results, sends output, acknowledges all records.
        Raises failures that concern every record, and then acknowledges none of the remaining
        records."""
        if self.ready is not None:
            await self.ready()
        try:
            settled = await self._settle(records)
        except Exception as error:
            cause = first_failure(error)
            self._end_spans(type(cause).__name__)
            if not is_about_a_record(cause, self.store):
                raise
            await self._isolate(records, cause)
        else:
            self._failures = 0
            await self._send(records, *settled)

    async def _isolate(self, records: Sequence[Record], cause: BaseException) -> None:
        """Retries the parts of a failed batch, none of which was kept, so that each succeeds or
        fails on its own."""
        if len(records) > 1:
            places = cause.places if isinstance(cause, NotAlone) else frozenset()
            for part in divided(records, places):
                await self.process(part)
            return
        [record] = records
        if not is_too_slow(cause):
            if self._failures >= self.max_failures:
                raise StageFailed(self.stage.name, record, cause) from cause
            self._failures += 1
        self.counts.unexpected += 1
        fields = log_fields(self.stage.name, record)
        logger.error("%s", failure_line(self.stage.name, record, cause), extra=fields)
        await self._send(records, *(await self._settle(records, unexpected(cause))))

    async def _settle(
        self, records: Sequence[Record], failure: Failure | None = None
    ) -> tuple[Sequence[Outgoing], int | None, int]:
        """Runs steps 1 to 5. Returns what to send, the last outbox entry among it, and how many
        records were processed. `failure` makes the single record a dead letter without processing
        it."""
        self._clock = self.monotonic()
        began = 0 if self.tracer is None else self.tracer.now()
        runs = await self._computed(self._decoded, records, failure)
        self._done("decode")
        runs = await self._deduplicated(runs)
        if self.tracer is not None:
            self._spans.clear()  # those of a batch that was cancelled
            for run in runs:
                run.span = self.tracer.processing(self.stage.name, run.record, run.message, began)
                if run.span is not None:
                    self._spans.append(run.span)
        self._done("deduplicate")
        space = "" if self.store is None else self.store.embedding_space
        await ask_models(runs, self.models, self.stage.asks_in_order, space)
        self._done("ask")
        check_alone(runs)
        outbox = await self._commit_steps(records, runs, space)
        if outbox is None:
            return self._output(runs), None, len(runs)
        return [self._sent(out) for out in outbox], outbox[-1].seq if outbox else None, len(runs)

    async def _send(
        self, records: Sequence[Record], outgoing: Sequence[Outgoing], last: int | None, done: int
    ) -> None:
        """Runs step 6."""
        await self.sender.commit(outgoing, self._positions(records))
        if last is not None:
            self._note_sent(last)
        self._end_spans()
        self._done("send")
        self.counts.batches += 1
        self.counts.records += done
        self.counts.skipped += len(records) - done

    def _note_sent(self, seq: int) -> None:
        assert self.store is not None
        self._sent_through = seq
        self.store.note_sent(self.stage.name, seq)

    # --- 1 and 2: decode and deduplicate -----------------------------------------------------

    def _decoded(self, records: Sequence[Record], failure: Failure | None) -> list[RecordRun]:
        cursors = {topic: self._cursor(topic) for topic in {record.topic for record in records}}
        return [
            self._begun(record, failure)
            for record in records
            if record.offset >= cursors[record.topic]
        ]

    def _begun(self, record: Record, failure: Failure | None) -> RecordRun:
        if self.stage.admit is not None:
            record = self._admitted(record, self.stage.admit, failure)
        run = RecordRun(record, self.record_seconds)
        topic = TOPICS[record.topic]
        try:
            run.message = decode(record.value, topic, record.timestamp, self.max_record_bytes)
        except InvalidRecord as error:
            salvaged = None
            if self.stage.on_invalid is not None and failure is None:
                salvaged = self.stage.on_invalid(record, str(error))
            if salvaged is None:
                run.step = Step(dead=failure or Failure(str(error)))
            else:
                run.message, run.step = salvaged.message, salvaged.step
            return run
        if failure is not None:
            run.step = Step(dead=failure)
        else:
            is_misrouted = (
                self.partitions > 1
                and topic.open_to_producers
                and partition_for(run.message.scope, self.partitions) != record.partition
            )
            run.process = self.stage.process(run.message, Context(record, is_misrouted))
        return run

    def _admitted(
        self, record: Record, admit: Callable[[Record], Record], failure: Failure | None
    ) -> Record:
        """Returns the record as the stage may see it. If that exceeds the time limit, the dead
        letter keeps nothing of the record, because its secrets are unknown."""
        try:
            with bounded(self.record_seconds):
                return admit(record)
        except RecordTooSlow:
            if failure is None:
                raise
            return replace(record, value=None)

    def _cursor(self, topic: str) -> int:
        store = self.state_store
        return 0 if store is None else store.cursor_of(self.stage.name, topic)

    async def _deduplicated(self, runs: list[RecordRun]) -> list[RecordRun]:
        """Removes the messages seen before and repeats within the batch."""
        for run in runs:
            run.key = None if run.message is None else message_key(run.message)
        keys = [run.key for run in runs if run.key is not None]
        done: set[str] = set()
        if self.state_store is not None:
            done = await self._in_thread(self.state_store.seen, self.stage.name, keys)
        kept = []
        for run in runs:
            if run.key is not None:
                if run.key in done:
                    continue
                done.add(run.key)
            kept.append(run)
        return kept

    # --- 4 and 5: step and commit; 3, the models, is in model_calls ----------------------------

    async def _commit_steps(
        self, records: Sequence[Record], runs: Sequence[RecordRun], space: str
    ) -> Sequence[Outbound] | None:
        """Runs every record to its step, and commits if the stage is stateful. Returns the outbox
        of the batch, None for a stage that is not stateful."""
        store = self.state_store
        if store is not None:
            async with self._alone(store):
                unit = store.unit(space)
                await self._prefetch(unit, runs)
                await self._computed(self._told_in_order, unit, runs)
                return await self._commit(unit, records, runs)
        if self.store is not None and self.stage.asks_in_order:
            await self._settle_by_scope(self.store.unit(space), runs, space)
        self._stepped()
        self._done("commit")
        return None

    async def _commit(
        self, unit: UnitPort, records: Sequence[Record], runs: Sequence[RecordRun]
    ) -> Sequence[Outbound]:
        self._stepped()
        assert self.store is not None
        seq = self.store.next_outbox_seq(self.stage.name)
        outbox = []
        for number, out in enumerate(self._output(runs)):
            key = out.key.decode(errors="replace")
            traceparent = out.headers.get(HEADER)
            outbox.append(Outbound(seq + number, out.topic, out.scope, key, out.value, traceparent))
        progress = Progress(
            stage=self.stage.name,
            cursors={
                position.topic: max(self._cursor(position.topic), position.next_offset)
                for position in self._positions(records)
            },
            seen=[(run.key, run.record.offset) for run in runs if run.key is not None],
            outbox=outbox,
            sent_through=self._sent_through,
        )
        await self._in_thread(unit.commit, progress)
        self._done("commit")
        return progress.outbox

    async def _prefetch(self, unit: UnitPort, runs: Sequence[RecordRun]) -> None:
        asks = [run.ask for run in runs if isinstance(run.ask, StoreAsk)]
        await self._in_thread(unit.prefetch, asks)

    def _told_in_order(self, unit: UnitPort, runs: Sequence[RecordRun]) -> None:
        for run in runs:
            while run.step is None:
                if isinstance(run.ask, Embed | Generate):
                    raise TypeError(f"a model ask after a store ask: {type(run.ask).__name__}")
                run.answer_from(unit)
            unit.stage(run.step.writes)

    async def _settle_by_scope(self, unit: UnitPort, runs: Sequence[RecordRun], space: str) -> None:
        await self._prefetch(unit, runs)
        by_scope: dict[str, list[RecordRun]] = defaultdict(list)
        for run in runs:
            by_scope[run.message.scope if run.message else ""].append(run)
        async with asyncio.TaskGroup() as group:
            for of_scope in by_scope.values():
                group.create_task(self._settle_scope(unit, of_scope, space))
        await forget_useless(runs, self.models)

    async def _settle_scope(self, unit: UnitPort, runs: Sequence[RecordRun], space: str) -> None:
        for run in runs:
            while run.step is None:
                if isinstance(run.ask, Embed | Generate):
                    await converse(run, self.models, space)
                else:
                    run.answer_from(unit)

    # --- 6: send -----------------------------------------------------------------------------

    def _output(self, runs: Sequence[RecordRun]) -> list[Outgoing]:
        outgoing = []
        for run in runs:
            step, name, traceparent = run.step, self.stage.name, self._traceparent(run)
            assert step is not None
            if step.dead is not None:
                given = run.record, run.message, step.dead, self.now(), traceparent
                outgoing.append(dead_letter(name, *given))
                self.counts.dead += 1
                if logger.isEnabledFor(logging.INFO):
                    fields = {**log_fields(name, run.record), "failure": step.dead.failure}
                    logger.info("a record became a dead letter", extra=fields)
            if run.message is not None and step.rerouted:
                outgoing.append(rerouted(run.record, run.message))
            if run.message is not None:
                outgoing += emitted(name, run.message, step.emits, traceparent)
        self.counts.emitted += len(outgoing)
        return outgoing

    def _sent(self, out: Outbound) -> Outgoing:
        # A stage with a store works on one partition, and all of its output stays in it.
        return Outgoing(
            out.topic,
            out.scope,
            out.key.encode(),
            out.value,
            headers(out.traceparent),
            partition=self.partition,
        )

    def _positions(self, records: Sequence[Record]) -> list[Position]:
        last = {record.topic: record for record in records}
        return [
            Position(self.stage.name, topic, record.partition, record.offset + 1)
            for topic, record in last.items()
        ]

    # --- traces ------------------------------------------------------------------------------

    def _end_spans(self, error: str | None = None) -> None:
        for span in self._spans:
            span.end(error)
        self._spans.clear()

    def _traceparent(self, run: RecordRun) -> bytes | None:
        """The header of what follows from a record. A stage that does not trace passes on the
        record's own; one with a store needs none, as its process traces all or nothing."""
        if run.span is not None:
            assert run.step is not None
            run.span.note("palimpsest.emitted", len(run.step.emits))
            if run.step.dead is not None:
                run.span.end(run.step.dead.failure)
            return run.span.traceparent
        if self.stage.stateful or run.message is None:
            return None
        return valid(run.record.headers.get(HEADER)) or untraced(run.message.correlation_id)

    # --- time spent on the batch itself ------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _alone(self, store: StorePort) -> AsyncIterator[None]:
        began = self.monotonic()
        is_awaited = self.stage.name not in GATHER_SECONDS
        async with store.lock.ahead() if is_awaited else store.lock:
            self.counts.waited += self.monotonic() - began
            yield

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        began = self.monotonic()
        result, seconds = await in_thread(timed, self.monotonic, partial(call, *args, **kwargs))
        self.counts.waited += self.monotonic() - began - seconds
        return result

    async def _computed(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await computed(call, *args, **kwargs)

    def _stepped(self) -> None:
        self._done("step")
        if self.before_commit is not None:
            self.before_commit()

    def _done(self, step: str) -> None:
        now = self.monotonic()
        self.counts.seconds[step] += now - self._clock
        self._clock = now
        self.after(self.stage.name, step)


# Answers the model asks of a batch: outside any transaction, many at once.


async def ask_models(
    runs: Sequence[RecordRun], models: ModelPort, asks_in_order: bool, space: str
) -> None:
    """Advances every record as far as model answers allow: embeddings of all records in one call,
    by the model of this vector space; replies concurrently, unless the stage asks in order."""
    await computed(_begin, runs)  # a large record must not block the event loop
    await _embed(runs, models, space)
    asking = [run for run in runs if isinstance(run.ask, Embed | Generate)]
    if asking and not asks_in_order:
        async with asyncio.TaskGroup() as group:
            for run in asking:
                group.create_task(converse(run, models, space))
        await forget_useless(asking, models)


def _begin(runs: Sequence[RecordRun]) -> None:
    for run in runs:
        if run.step is None:
            run.resume(None)


async def forget_useless(runs: Sequence[RecordRun], models: ModelPort) -> None:
    """Replies that no stage can read are not read again: a model that was mended would not be asked
    by who repeats the record."""
    for run in runs:
        dead = None if run.step is None else run.step.dead
        if dead is not None and dead.failure == "malformed-output":
            await models.forget(run.generated)


async def converse(run: RecordRun, models: ModelPort, space: str) -> None:
    """Answers one record's model asks until it asks the store or is done."""
    while isinstance(run.ask, Embed | Generate):
        if isinstance(run.ask, Embed):
            with working_on((run,)):
                embedded = await models.embed(run.ask.texts, run.ask.required, space)
            run.resume(embedded)
            continue
        run.generated.append(run.ask)
        try:
            with working_on((run,)):
                reply = await models.answer(run.ask, run.message.scope if run.message else "")
        except ModelUnavailable as refusal:
            run.resume(refusal)
        else:
            run.resume(reply)


async def _embed(runs: Sequence[RecordRun], models: ModelPort, space: str) -> None:
    embedding_runs = [(run, run.ask) for run in runs if isinstance(run.ask, Embed)]
    if not embedding_runs:
        return
    texts = [text for _, ask in embedding_runs for text in ask.texts]
    with working_on([run for run, _ in embedding_runs]):
        answer = await models.embed(texts, any(ask.required for _, ask in embedding_runs), space)

    def resume() -> None:
        start = 0
        for run, ask in embedding_runs:
            end = start + len(ask.texts)
            part = answer.embeddings[start:end], answer.failures[start:end]
            run.resume(Embedded(*part, answer.space))
            start = end

    await computed(resume)
