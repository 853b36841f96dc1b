"""The worker: every stage on, in order, until drained or told to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palimpsest.schemas.codec import encode
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES, TURNS_NORMALIZED
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.normalize import normalized
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.partition_task import PartitionTask
from palimpsest.streams.runtime.runner import StageFailed, StageRunner
from palimpsest.streams.runtime.worker import Worker
from palimpsest.streams.settings import WorkerSettings
from palimpsest.streams.stage import Context, Emit, Message, Stage, Step, without_asks
from tests.messages import BEGIN, published, turn
from tests.unit.memory_ports import MemoryLog, MemoryStore


def passing(message: Message, context: Context) -> Step:
    assert isinstance(message.body, ConversationTurn)
    return Step(emits=(Emit(TURNS_NORMALIZED, normalized(message.scope, message.body), 0),))


def ending(message: Message, context: Context) -> Step:
    return Step()


def stage(name: str, process: Any = passing, **fields: Any) -> Stage:
    values = {"reads": (CONVERSATION_TURNS,), "stateful": False, **fields}
    return Stage(name, process=without_asks(process), **values)


def worker(
    log: MemoryLog, *stages: Stage, store: MemoryStore | None = None, **fields: Any
) -> tuple[Worker, list[StageRunner]]:
    models = ModelPort(RulesLanguageModel(), HashingEmbeddingModel(8))
    edges = {name: fields.pop(name) for name in ("after", "max_failures") if name in fields}

    def runner(task: PartitionTask) -> StageRunner:
        return StageRunner(
            task.stage,
            task.partition,
            models,
            log,
            store if task.stage.stateful else None,
            lambda: BEGIN,
            lambda: 0.0,
            ready=task.ready,
            before_commit=task.before_commit,
            **edges,
        )

    working = Worker(log, stages, 1, runner, fields.pop("limits", WorkerSettings()), **fields)
    return working, working.runners


def fill(log: MemoryLog, count: int, first: int = 0) -> None:
    values = (encode(published(turn(f"text {n}", n))) for n in range(first, first + count))
    log.put(CONVERSATION_TURNS.name, *values)


SECOND = stage("second", ending, reads=(TURNS_NORMALIZED,))


async def test_it_drains_through_all_stages() -> None:
    log = MemoryLog()
    fill(log, 5)
    working, [_, second] = worker(log, stage("first"), SECOND)
    await working.run(until_drained=True)
    assert second.counts.records == 5
    assert log.noted == {("first", "conversation-turns"): 5, ("second", "turns-normalized"): 5}


async def test_nothing_to_do_is_drained() -> None:
    working, _ = worker(MemoryLog(), stage("first"), SECOND)
    await working.run(until_drained=True)


async def test_what_is_published_while_it_is_asked_who_is_busy_is_processed() -> None:
    """What works beside the stages publishes, and is not busy any more when it is asked."""
    log, left = MemoryLog(), [2]

    def busy() -> bool:
        if left[0]:
            left[0] -= 1
            fill(log, 1, first=left[0])
        return False

    working, [first] = worker(log, stage("first"), busy=busy)
    await working.run(until_drained=True)
    assert first.counts.records == 2


async def test_it_goes_on_from_the_noted_positions() -> None:
    log = MemoryLog()
    fill(log, 5)
    log.noted["first", "conversation-turns"] = 3
    working, [first] = worker(log, stage("first"))
    await working.run(until_drained=True)
    assert first.counts.records == 2


async def test_a_stage_with_a_store_goes_by_the_store_s_cursor() -> None:
    log, store = MemoryLog(), MemoryStore(cursors={("first", "conversation-turns"): 4})
    fill(log, 5)
    working, [first] = worker(log, stage("first", stateful=True), store=store)
    await working.run(until_drained=True)
    assert first.counts.records == 1


async def test_the_log_gets_to_know_where_a_store_is_in_a_topic_that_is_new_to_its_stage() -> None:
    log, store = MemoryLog(), MemoryStore(cursors={("first", "conversation-turns"): 5})
    fill(log, 5)
    working, [first] = worker(log, stage("first", stateful=True), store=store)
    await working.run(until_drained=True)
    assert first.counts.records == 0
    assert log.position("first", "conversation-turns", 0) == 5


async def test_a_log_older_than_the_store_is_refused() -> None:
    log, store = MemoryLog(), MemoryStore(cursors={("first", "conversation-turns"): 9})
    fill(log, 5)
    working, _ = worker(log, stage("first", stateful=True), store=store)
    with pytest.raises(LogError, match="do not belong together"):
        await working.run(until_drained=True)
    assert log.commits == []


async def test_batches_are_bounded_and_smaller_where_a_model_is_asked() -> None:
    log = MemoryLog()
    fill(log, 10)
    limits = WorkerSettings(batch_records=4, model_batch_records=2)
    working, [first, second] = worker(
        log, stage("first"), stage("asking"), limits=limits, model_stages={"asking": 2}
    )
    await working.run(until_drained=True)
    # 4, 4 and 2 records; 2 a time where the model answers two at once.
    assert (first.counts.batches, second.counts.batches) == (3, 5)


async def test_it_waits_for_work_and_stops_when_told() -> None:
    log = MemoryLog()
    done = asyncio.Event()

    async def on_batch(runner: StageRunner) -> None:
        if runner.counts.records == 3:
            done.set()

    working, [first] = worker(log, stage("first"), on_batch=on_batch)
    running = asyncio.create_task(working.run())
    for number in range(3):
        message = published(turn("text", number))
        record = encode(message)
        log.put(CONVERSATION_TURNS.name, record)
        await log.commit([], [])  # rings
    await done.wait()
    working.stop()
    await running
    assert first.counts.records == 3


async def test_a_failure_stops_all_and_is_what_is_raised() -> None:
    def failing(message: Message, context: Context) -> Step:
        raise KeyError("oops")

    log = MemoryLog()
    fill(log, 2)
    working, _ = worker(
        log,
        stage("first"),
        stage("bad", failing),
        limits=WorkerSettings(stop_seconds=0.0),
        max_failures=0,
    )
    with pytest.raises(StageFailed, match="stage bad stopped"):
        await working.run()
    assert ("bad", "conversation-turns") not in log.noted


def waiting_pair() -> tuple[Stage, Stage, list[str]]:
    """decide reads turns and waits for apply, which reads memory-writes."""
    order: list[str] = []

    def decide(message: Message, context: Context) -> Step:
        order.append(f"decide {context.record.offset}")
        return Step()

    def apply(message: Message, context: Context) -> Step:
        order.append("apply")
        return Step()

    deciding = stage("decide", decide, waits_for="apply")
    return deciding, stage("apply", apply, reads=(MEMORY_WRITES,)), order


async def test_a_stage_waits_for_what_it_must_see() -> None:
    deciding, applying, order = waiting_pair()
    log = MemoryLog()
    fill(log, 2)
    # Unreadable writes are dead-lettered, which is progress too.
    log.put(MEMORY_WRITES.name, b"{", b"{", b"{")
    seen: list[int] = []

    def after(stage: str, step: str) -> None:
        if (stage, step) == ("apply", "send"):
            seen.append(len(order))

    working, _ = worker(
        log, deciding, applying, limits=WorkerSettings(batch_records=1), after=after
    )
    await working.run(until_drained=True)
    # All three were applied before the first decision.
    assert seen == [0, 0, 0]
    assert order == ["decide 0", "decide 1"]


async def test_a_stop_does_not_hang_on_a_stage_that_waits() -> None:
    deciding, applying, _ = waiting_pair()
    log = MemoryLog()
    fill(log, 2)
    log.put(MEMORY_WRITES.name, b"{", b"{", b"{")
    working, [decide, _] = worker(
        log,
        deciding,
        applying,
        limits=WorkerSettings(batch_records=1),
        after=lambda stage, step: working.stop(),
    )
    async with asyncio.timeout(30):
        await working.run()
    assert decide.counts.records == 0


async def test_without_the_awaited_stage_nothing_is_waited_for() -> None:
    deciding, _, order = waiting_pair()
    log = MemoryLog()
    fill(log, 1)
    log.put(MEMORY_WRITES.name, b"{")
    working, _ = worker(log, deciding)
    await working.run(until_drained=True)
    assert order == ["decide 0"]
