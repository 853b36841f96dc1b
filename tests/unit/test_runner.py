"""The runner: six steps, in order, and what each promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    MEMORY_COMMANDS,
)
from palimpsest.streams.logs.base import LogError, Record
from palimpsest.streams.runtime.failures import StageFailed
from palimpsest.streams.runtime.partition_task import Interrupted
from palimpsest.streams.runtime.runner import STEPS
from palimpsest.streams.stage import (
    Context,
    Failure,
    Message,
    Process,
    Salvaged,
    Step,
    without_asks,
)
from palimpsest.streams.store_port import CommittedButNotShown, Put
from tests.messages import BEGIN
from tests.unit.memory_ports import MemoryLog, MemoryStore
from tests.unit.runner_parts import (
    ECHO,
    contents,
    dead_letters,
    echo,
    runner,
    stage,
    turns,
    value,
)

# --- the steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["stateless", "stateful"])
async def test_the_six_steps_in_order(store: MemoryStore | None) -> None:
    log = MemoryLog()
    happened: list[str] = []
    echoing = runner(
        stage(ECHO, store is not None), log, store, after=lambda _, step: happened.append(step)
    )
    await echoing.process(turns(log, "a", "b"))
    assert tuple(happened) == STEPS
    assert contents(log) == ["a", "b"]
    assert log.noted == {("echo", "conversation-turns"): 2}
    counts = echoing.counts
    assert (counts.records, counts.emitted, counts.batches, counts.dead) == (2, 2, 1, 0)


async def test_output_and_position_go_together() -> None:
    log = MemoryLog()
    await runner(stage(ECHO), log).process(turns(log, "a", "b"))
    [(outgoing, positions)] = log.commits
    assert len(outgoing) == 2
    assert [p.next_offset for p in positions] == [2]


async def test_nothing_is_committed_before_step_nor_sent_before_commit() -> None:
    log, store = MemoryLog(), MemoryStore()
    state: list[tuple[str, int, int]] = []
    watching = runner(
        stage(ECHO, True),
        log,
        store,
        after=lambda _, step: state.append((step, len(store.progress), len(log.commits))),
    )
    await watching.process(turns(log, "a"))
    assert state == [
        ("decode", 0, 0),
        ("deduplicate", 0, 0),
        ("ask", 0, 0),
        ("step", 0, 0),
        ("commit", 1, 0),
        ("send", 1, 1),
    ]


async def test_results_cursor_seen_ids_and_outbox_are_one_commit() -> None:
    def keep(message: Message, context: Context) -> Step:
        return Step((Put(context.record.offset),), echo(message, context).emits)  # type: ignore[arg-type]

    log, store = MemoryLog(), MemoryStore()
    records = turns(log, "a", "b")
    await runner(stage(without_asks(keep), True), log, store).process(records)
    [progress] = store.progress
    assert store.rows == [0, 1]
    assert progress.cursors == {"conversation-turns": 2}
    assert [offset for _, offset in progress.seen] == [0, 1]
    assert [out.seq for out in progress.outbox] == [0, 1]


# --- what is done already ---------------------------------------------------------------------


async def test_offsets_before_the_cursor_are_passed_over() -> None:
    log, store = MemoryLog(), MemoryStore(cursors={("echo", "conversation-turns"): 2})
    await runner(stage(ECHO, True), log, store).process(turns(log, "a", "b", "c"))
    assert contents(log) == ["c"]
    assert store.cursors["echo", "conversation-turns"] == 3


async def test_a_message_seen_before_is_dropped_whatever_its_offset() -> None:
    log, store = MemoryLog(), MemoryStore()
    echoing = runner(stage(ECHO, True), log, store)
    await echoing.process(turns(log, "a", "b"))
    # The same messages again behind it, once by themselves and once within a batch.
    await echoing.process(turns(log, "a", "b", "c", "c"))
    same = value("c", 2)
    await echoing.process(log.put(CONVERSATION_TURNS.name, same, value("d", 9), same))
    assert contents(log) == ["a", "b", "c", "c", "d"]
    assert echoing.counts.skipped == 4


async def test_a_repeat_within_one_batch_is_done_once() -> None:
    log = MemoryLog()
    same = value("a")
    await runner(stage(ECHO), log).process(log.put(CONVERSATION_TURNS.name, same, same))
    assert contents(log) == ["a"]


async def test_what_was_committed_and_not_sent_is_sent_at_start() -> None:
    log, store = MemoryLog(), MemoryStore()
    log.fails_with = LogError("disk full")
    with pytest.raises(LogError):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a", "b"))
    assert len(store.progress) == 1
    log.fails_with = None
    again = runner(stage(ECHO, True), log, store)
    await again.start(*again.committed_outbox(log))
    assert contents(log) == ["a", "b"]
    third = runner(stage(ECHO, True), log, store)
    await third.start(*third.committed_outbox(log))
    assert contents(log) == ["a", "b"]  # the log holds them
    await third.process(log.put(CONVERSATION_TURNS.name, value("c", 9)))
    # Sent entries leave the outbox with the next commit, or at the end.
    assert [out.seq for out in store.outbox["echo"]] == [2]
    await third.mark_sent()
    assert store.outbox["echo"] == []


async def test_a_stage_that_is_no_longer_stateful_sends_what_it_had_committed() -> None:
    log, store = MemoryLog(), MemoryStore()
    log.fails_with = LogError("disk full")
    with pytest.raises(LogError):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a", "b"))
    log.fails_with = None
    now = runner(stage(ECHO, asks_in_order=True), log, store)
    await now.start(*now.committed_outbox(log))
    assert contents(log) == ["a", "b"]
    assert store.outbox == {"echo": []}


async def test_an_undecodable_key_stops_nothing() -> None:
    log, store = MemoryLog(), MemoryStore()
    record = Record(CONVERSATION_TURNS.name, 0, 0, b"\xff", b"{", BEGIN)
    await runner(stage(ECHO, True), log, store).process([record])
    assert len(dead_letters(log)) == 1


# --- dead letters and failures ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "no value"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (value().replace(b"conversation-turn/1", b"conversation-turn/9"), "unknown here"),
        (value(scope=" "[:0] or "x").replace(b'"x"', b'" "'), "scope"),
        (value("x" * 2000), "more than the 1000 allowed"),
    ],
    ids=["null", "half", "array", "version", "scope", "large"],
)
async def test_a_bad_record_is_a_dead_letter_and_the_next_goes_on(
    bad: bytes | None, reason: str
) -> None:
    log = MemoryLog()
    records = log.put(CONVERSATION_TURNS.name, bad, value("b", 2))
    echoing = runner(stage(ECHO), log, max_record_bytes=1000)
    await echoing.process(records)
    [dead_letter] = dead_letters(log)
    assert reason in dead_letter.reason
    assert (dead_letter.offset, dead_letter.stage, dead_letter.failure) == (0, "echo", "invalid")
    assert contents(log) == ["b"]
    assert log.noted == {("echo", "conversation-turns"): 2}
    assert echoing.counts.dead == 1


async def test_a_stage_may_take_an_unreadable_record_otherwise() -> None:
    for step, dead in ((Step(), 0), (None, 1)):
        log = MemoryLog()
        taking = stage(ECHO, on_invalid=lambda record, why, step=step: step and Salvaged(step))
        await runner(taking, log).process(log.put(CONVERSATION_TURNS.name, b"{"))
        assert len(dead_letters(log)) == dead


async def test_a_failed_step_is_a_dead_letter_with_its_output_beside() -> None:
    def fail(message: Message, context: Context) -> Step:
        return Step(emits=echo(message, context).emits, dead=Failure("no", raw_output="{"))

    log = MemoryLog()
    await runner(stage(without_asks(fail)), log).process(turns(log, "a"))
    assert dead_letters(log)[0].raw_output == "{"
    assert contents(log) == ["a"]


def failing_at(*offsets: int) -> Callable[[Message, Context], Process]:
    def process(message: Message, context: Context) -> Step:
        if context.record.offset in offsets:
            raise KeyError("oops")
        return echo(message, context)

    return without_asks(process)


@pytest.mark.parametrize("stateful", [False, True])
async def test_what_a_stage_raises_over_a_record_is_its_dead_letter(stateful: bool) -> None:
    log = MemoryLog()
    store = MemoryStore() if stateful else None
    raising = runner(stage(failing_at(1), stateful), log, store)
    await raising.process(turns(log, "a", "b", "c"))
    [dead_letter] = dead_letters(log)
    assert (dead_letter.offset, dead_letter.failure) == (1, "unexpected")
    assert "KeyError at process" in dead_letter.reason
    assert "oops" in dead_letter.reason
    assert contents(log) == ["a", "c"]
    assert log.noted == {("echo", "conversation-turns"): 3}
    assert (raising.counts.unexpected, raising.counts.dead) == (1, 1)


async def test_what_a_stage_raises_is_told_without_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def process(message: Message, context: Context) -> Step:
        raise ValueError(message.body.content)  # type: ignore[attr-defined]

    log = MemoryLog()
    await runner(stage(without_asks(process)), log).process(turns(log, "my pin is 4711"))
    assert "ValueError at conversation-turns[0] offset 0" in caplog.text
    assert "4711" not in caplog.text


async def test_a_stage_that_fails_at_every_record_stops() -> None:
    log = MemoryLog()
    raising = runner(stage(failing_at(*range(9))), log, max_failures=2)
    with pytest.raises(StageFailed, match=r"conversation-turns\[0\] offset 2: KeyError"):
        await raising.process(turns(log, "a", "b", "c", "d"))
    assert [dead_letter.offset for dead_letter in dead_letters(log)] == [0, 1]
    assert log.noted == {("echo", "conversation-turns"): 2}


async def test_failures_between_successes_stop_nothing() -> None:
    log = MemoryLog()
    raising = runner(stage(failing_at(0, 1, 3, 4)), log, max_failures=2)
    await raising.process(turns(log, *"abcdef"))
    assert [dead_letter.offset for dead_letter in dead_letters(log)] == [0, 1, 3, 4]
    assert contents(log) == ["c", "f"]


@pytest.mark.parametrize(
    "error",
    [OSError("disk full"), LogError("gone"), MemoryError(), RuntimeError("whatever it may be")],
)
async def test_what_concerns_every_record_stops_the_worker(error: Exception) -> None:
    log, store = MemoryLog(), MemoryStore(fails_with=error)
    with pytest.raises(type(error)):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a", "b"))
    assert log.commits == []
    assert store.progress == []


async def test_a_value_that_the_store_refuses_is_its_records_dead_letter() -> None:
    class Refusing(MemoryStore):
        def commit_error(self, staged: Sequence[object]) -> Exception | None:
            return ValueError("no such value") if "b" in staged else None

    def process(message: Message, context: Context) -> Step:
        text = message.body.content  # type: ignore[attr-defined]
        return Step(writes=(Put(text),), emits=echo(message, context).emits)

    log, store = MemoryLog(), Refusing()
    await runner(stage(without_asks(process), True), log, store).process(turns(log, *"abc"))
    assert [dead_letter.offset for dead_letter in dead_letters(log)] == [1]
    assert store.rows == ["a", "c"]
    assert contents(log) == ["a", "c"]


async def test_an_error_after_the_commit_stops_the_worker() -> None:
    log, store = MemoryLog(), MemoryStore(fails_with=CommittedButNotShown("start again"))
    with pytest.raises(CommittedButNotShown):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a"))
    assert dead_letters(log) == []


async def test_the_same_id_with_another_text_or_scope_is_another_message() -> None:
    log, store = MemoryLog(), MemoryStore()
    values = (
        value("a", 1, message_id="m"),
        value("b", 1, message_id="m"),
        value("a", 2, message_id="m"),
        value("a", 1, message_id="m", scope="ben"),
        value("a", 1, message_id="m"),
    )
    echoing = runner(stage(ECHO, True), log, store)
    await echoing.process(log.put(CONVERSATION_TURNS.name, *values))
    assert contents(log) == ["a", "b", "a", "a"]
    assert len({out.value for out in log.sent()}) == 4


async def test_a_failed_commit_sends_nothing() -> None:
    log, store = MemoryLog(), MemoryStore(fails_with=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a"))
    assert log.commits == []


# --- its edges --------------------------------------------------------------------------------


async def test_ready_is_awaited_first() -> None:
    order: list[str] = []

    async def ready() -> None:
        order.append("ready")

    log = MemoryLog()
    what = runner(stage(ECHO), log, ready=ready, after=lambda _, step: order.append(step))
    await what.process(turns(log, "a"))
    assert order[:2] == ["ready", "decode"]


async def test_what_is_waited_for_others_is_no_cost_of_the_records() -> None:
    log, store, seconds, asked = MemoryLog(), MemoryStore(), [0.0], asyncio.Event()

    def after(_: str, step: str) -> None:
        seconds[0] += 0.25
        if step == "ask":
            asked.set()

    working = runner(stage(ECHO, True), log, store, after=after)
    working.monotonic = lambda: seconds[0]
    async with store.lock:
        processing = asyncio.create_task(working.process(turns(log, "a")))
        await asked.wait()
        seconds[0] += 30.0
    await processing
    assert working.counts.seconds["step"] == 30.25
    assert working.counts.waited == 30.0
    assert working.counts.spent == 1.25


async def test_what_is_raised_before_the_commit_keeps_nothing() -> None:
    for store in (None, MemoryStore()):
        log, happened = MemoryLog(), list[str]()

        def lost(done: list[str] = happened) -> None:
            done.append("before_commit")
            raise Interrupted("another's")

        fenced = runner(
            stage(ECHO, store is not None),
            log,
            store,
            before_commit=lost,
            after=lambda _, step, done=happened: done.append(step),
        )
        with pytest.raises(Interrupted):
            await fenced.process(turns(log, "a"))
        assert happened == ["decode", "deduplicate", "ask", "step", "before_commit"]
        assert log.commits == []
        assert store is None or store.progress == []


async def test_commands_and_turns_are_read_from_their_own_topics() -> None:
    log = MemoryLog()
    both = stage(ECHO, reads=(CONVERSATION_TURNS, MEMORY_COMMANDS))
    await runner(both, log).process(log.put(MEMORY_COMMANDS.name, value("a")))
    assert "does not belong on memory-commands" in dead_letters(log)[0].reason


async def test_a_record_that_takes_too_long_is_a_dead_letter_and_the_others_go_on() -> None:
    def endless(message: Message, context: Context) -> Step:
        while context.record.offset == 1:
            time.sleep(0.001)
        return echo(message, context)

    log = MemoryLog()
    slow = runner(stage(without_asks(endless)), log, record_seconds=2.0, max_failures=0)
    await slow.process(turns(log, "a", "b", "c"))
    assert contents(log) == ["a", "c"]
    [dead] = dead_letters(log)
    assert "longer than 2 s" in dead.reason
    assert (slow.counts.records, slow.counts.dead) == (3, 1)


async def test_what_takes_too_long_to_look_for_secrets_in_is_not_kept() -> None:
    def admit(record: Record) -> Record:
        while record.offset == 0:
            time.sleep(0.001)
        return record

    log = MemoryLog()
    slow = runner(stage(ECHO, admit=admit), log, record_seconds=2.0, max_failures=0)
    await slow.process(turns(log, "a", "b"))
    [dead] = dead_letters(log)
    assert dead.value_base64 == ""
    assert contents(log) == ["b"]
