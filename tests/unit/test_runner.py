"""The runner: six steps, in order, and what each promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas.codec import decode, encode
from schemas.messages import ConversationTurn, DeadLetter
from schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    MEMORY_COMMANDS,
    TURNS_NORMALIZED,
)
from streams.asking import ModelPort, backoff
from streams.failures import StageFailed
from streams.logs.base import LogError, Record
from streams.models.base import (
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
    Vector,
)
from streams.models.hashing import hashed
from streams.normalize import normalized
from streams.runner import STEPS, StageRunner
from streams.stage import (
    Context,
    Embed,
    Embedded,
    Emit,
    Failure,
    Generate,
    Message,
    ModelUnavailable,
    Process,
    Salvaged,
    Stage,
    Step,
    without_asks,
)
from streams.store_port import CommittedButNotShown, Load, Loaded, Put
from tests.harness import BEGIN, published, turn
from tests.unit.memory_ports import MemoryLog, MemoryStore

PROMPT = Prompt("extract", "", "", {}, 10, {})


class Model:
    """Replies from a script; an exception in it is raised."""

    provider = "scripted"
    model = "m"

    def __init__(self, *script: str | Exception) -> None:
        self.script = list(script)
        self.asked: list[Prompt] = []

    async def generate(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        said = self.script.pop(0)
        if isinstance(said, Exception):
            raise said
        return Reply(said, self.model, self.provider)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


class Embedding:
    model = "e"
    dimensions = 8

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls: list[list[str]] = []

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        if self.errors:
            raise self.errors.pop(0)
        return [hashed(text, 8) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return hashed(text, 8)

    async def check(self) -> str | None:
        return None

    async def close(self) -> None:
        return None


def stage(
    process: Callable[[Message, Context], Process], stateful: bool = False, **fields: Any
) -> Stage:
    reads = fields.pop("reads", (CONVERSATION_TURNS,))
    return Stage("echo", reads=reads, process=process, stateful=stateful, **fields)


def echo(message: Message, context: Context) -> Step:
    assert isinstance(message.body, ConversationTurn)
    return Step(emits=(Emit(TURNS_NORMALIZED, normalized(message.scope, message.body), 0),))


ECHO = without_asks(echo)


def runner(
    what: Stage,
    log: MemoryLog,
    store: MemoryStore | None = None,
    language: Model | None = None,
    embedding: Embedding | None = None,
    **fields: Any,
) -> StageRunner:
    waits = fields.pop("waits", [])

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    models = ModelPort(language or Model(), embedding or Embedding(), wait=wait)
    return StageRunner(what, 0, models, log, store, lambda: BEGIN, lambda: 0.0, **fields)


def value(text: str = "hello", number: int | str = 1, **fields: Any) -> bytes:
    return encode(published(turn(text, number), **fields))


def turns(log: MemoryLog, *texts: str) -> list[Record]:
    return log.put(CONVERSATION_TURNS.name, *(value(t, n) for n, t in enumerate(texts)))


def contents(log: MemoryLog) -> list[str]:
    sent = [out for out in log.sent() if out.topic == TURNS_NORMALIZED.name]
    bodies = [decode(out.value, TURNS_NORMALIZED, None).body for out in sent]
    return [body.content for body in bodies if isinstance(body, ConversationTurn)]


def letters(log: MemoryLog) -> list[DeadLetter]:
    sent = [out for out in log.sent() if out.topic == DEAD_LETTERS.name]
    bodies = [decode(out.value, DEAD_LETTERS, None).body for out in sent]
    return [body for body in bodies if isinstance(body, DeadLetter)]


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
    # Sent entries leave the outbox with the next commit.
    assert [out.seq for out in store.outbox["echo"]] == [2]


async def test_an_undecodable_key_stops_nothing() -> None:
    log, store = MemoryLog(), MemoryStore()
    record = Record(CONVERSATION_TURNS.name, 0, 0, b"\xff", b"{", BEGIN)
    await runner(stage(ECHO, True), log, store).process([record])
    assert len(letters(log)) == 1


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
    [letter] = letters(log)
    assert reason in letter.reason
    assert (letter.offset, letter.stage, letter.failure) == (0, "echo", "invalid")
    assert contents(log) == ["b"]
    assert log.noted == {("echo", "conversation-turns"): 2}
    assert echoing.counts.dead == 1


async def test_a_stage_may_take_an_unreadable_record_otherwise() -> None:
    for step, dead in ((Step(), 0), (None, 1)):
        log = MemoryLog()
        taking = stage(ECHO, on_invalid=lambda record, why, step=step: step and Salvaged(step))
        await runner(taking, log).process(log.put(CONVERSATION_TURNS.name, b"{"))
        assert len(letters(log)) == dead


async def test_a_failed_step_is_a_dead_letter_with_its_output_beside() -> None:
    def fail(message: Message, context: Context) -> Step:
        return Step(emits=echo(message, context).emits, dead=Failure("no", raw_output="{"))

    log = MemoryLog()
    await runner(stage(without_asks(fail)), log).process(turns(log, "a"))
    assert letters(log)[0].raw_output == "{"
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
    [letter] = letters(log)
    assert (letter.offset, letter.failure) == (1, "unexpected")
    assert "KeyError at process" in letter.reason
    assert "oops" in letter.reason
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
    assert [letter.offset for letter in letters(log)] == [0, 1]
    assert log.noted == {("echo", "conversation-turns"): 2}


async def test_failures_between_successes_stop_nothing() -> None:
    log = MemoryLog()
    raising = runner(stage(failing_at(0, 1, 3, 4)), log, max_failures=2)
    await raising.process(turns(log, *"abcdef"))
    assert [letter.offset for letter in letters(log)] == [0, 1, 3, 4]
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
    assert [letter.offset for letter in letters(log)] == [1]
    assert store.rows == ["a", "c"]
    assert contents(log) == ["a", "c"]


async def test_an_error_after_the_commit_stops_the_worker() -> None:
    log, store = MemoryLog(), MemoryStore(fails_with=CommittedButNotShown("start again"))
    with pytest.raises(CommittedButNotShown):
        await runner(stage(ECHO, True), log, store).process(turns(log, "a"))
    assert letters(log) == []


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


# --- asks -------------------------------------------------------------------------------------


def embedding(message: Message, context: Context) -> Process:
    answer = yield Embed((message.body.content, "same"))  # type: ignore[attr-defined]
    assert isinstance(answer, Embedded)
    assert [v is None for v in answer.vectors] in ([False] * 2, [True] * 2)
    return echo(message, context)


async def test_all_embeddings_of_a_batch_are_one_call() -> None:
    log, model = MemoryLog(), Embedding()
    await runner(stage(embedding), log, embedding=model).process(turns(log, "a", "b"))
    assert model.calls == [["a", "same", "b"]]
    assert contents(log) == ["a", "b"]


async def test_an_embedding_that_fails_is_told_not_waited_for() -> None:
    no = PermanentModelError("401: no key")
    for errors in ([TransientModelError("down")], [no, no]):
        log, waits = MemoryLog(), list[float]()
        echoing = runner(stage(embedding), log, embedding=Embedding(*errors), waits=waits)
        await echoing.process(turns(log, "a"))
        assert contents(log) == ["a"]
        assert waits == []
        assert "embedding" in echoing.models.outages


async def test_a_required_embedding_is_waited_for() -> None:
    def requiring(message: Message, context: Context) -> Process:
        answer = yield Embed(("a",), required=True)
        assert isinstance(answer, Embedded)
        assert answer.vectors[0] is not None
        return Step()

    log, waits = MemoryLog(), list[float]()
    model = Embedding(TransientModelError("down"), TransientModelError("down"))
    waiting = runner(stage(requiring), log, embedding=model, waits=waits)
    await waiting.process(turns(log, "a"))
    assert [int(delay) for delay in waits] == [1, 2]
    assert waiting.models.outages == {}


def asking(message: Message, context: Context) -> Process:
    reply = yield Generate(PROMPT)
    assert isinstance(reply, Reply)
    return echo(message, context) if reply.text == "yes" else Step()


async def test_replies_are_waited_for_through_an_outage_in_order() -> None:
    log, waits = MemoryLog(), list[float]()
    down = TransientModelError("overloaded")
    model = Model(*[down] * 7, TransientModelError("slow down", 77.0), "yes")
    echoing = runner(stage(asking), log, language=model, waits=waits)
    await echoing.process(turns(log, "a"))
    assert [int(delay) for delay in waits] == [1, 2, 4, 8, 16, 30, 30, 77]
    assert contents(log) == ["a"]
    assert echoing.models.outages == {}


async def test_an_advisory_question_is_asked_once() -> None:
    def advised(message: Message, context: Context) -> Process:
        reply = yield Generate(PROMPT, advisory=True)
        assert reply is None
        return echo(message, context)

    for error in (TransientModelError("down"), PermanentModelError("no")):
        log, waits = MemoryLog(), list[float]()
        model = Model(error)
        await runner(stage(advised), log, language=model, waits=waits).process(turns(log, "a"))
        assert (waits, contents(log), len(model.asked)) == ([], ["a"], 1)


async def test_a_final_refusal_is_a_dead_letter_unless_the_stage_knows_better() -> None:
    log = MemoryLog()
    no = PermanentModelError("400: too long")
    refused = runner(stage(asking), log, language=Model(no, "harmless"))
    await refused.process(turns(log, "a"))
    assert letters(log)[0].reason == "400: too long"

    def stubborn(message: Message, context: Context) -> Process:
        try:
            yield Generate(PROMPT)
        except ModelUnavailable:
            return echo(message, context)
        raise AssertionError

    log = MemoryLog()
    model = Model(no, "harmless")
    await runner(stage(stubborn), log, language=model).process(turns(log, "a"))
    assert contents(log) == ["a"]


@pytest.mark.parametrize("asks_in_order", [False, True])
async def test_a_record_sees_what_the_ones_before_it_wrote(asks_in_order: bool) -> None:
    seen: list[list[object]] = []

    def process(message: Message, context: Context) -> Process:
        answer = yield Load("ana", fact_ids=("x",))
        assert isinstance(answer, Loaded)
        seen.append(list(answer.facts))
        return Step((Put(context.record.offset),))  # type: ignore[arg-type]

    log, store = MemoryLog(), MemoryStore()
    what = stage(process, True, asks_in_order=asks_in_order)
    await runner(what, log, store).process(turns(log, "a", "b", "c"))
    assert seen == [[], [0], [0, 1]]
    assert [len(asks) for asks in store.prefetched] == [3]


async def test_a_stage_that_asks_in_order_may_ask_a_model_after_the_store() -> None:
    def process(message: Message, context: Context) -> Process:
        yield Load("ana", fact_ids=("x",))
        reply = yield Generate(PROMPT)
        assert isinstance(reply, Reply)
        return echo(message, context)

    log, store = MemoryLog(), MemoryStore()
    in_order = runner(
        stage(process, True, asks_in_order=True), log, store, language=Model("yes", "yes")
    )
    await in_order.process(turns(log, "a", "b"))
    assert contents(log) == ["a", "b"]
    log, store = MemoryLog(), MemoryStore()
    await runner(stage(process, True), log, store).process(turns(log, "a"))
    assert "a model ask after a store ask" in letters(log)[0].reason


async def test_ready_is_awaited_first() -> None:
    order: list[str] = []

    async def ready() -> None:
        order.append("ready")

    log = MemoryLog()
    what = runner(stage(ECHO), log, ready=ready, after=lambda _, step: order.append(step))
    await what.process(turns(log, "a"))
    assert order[:2] == ["ready", "decode"]


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempt", "jitter", "retry_after", "seconds"),
    [
        (0, 0.0, None, 1.0),
        (3, 0.0, None, 8.0),
        (5, 0.0, None, 30.0),
        (5_000, 1.0, None, 30.5),
        (0, 1.0, 12.0, 12.5),
        (5, 0.0, 2.0, 30.0),
    ],
)
def test_backoff(attempt: int, jitter: float, retry_after: float | None, seconds: float) -> None:
    assert backoff(attempt, jitter, retry_after) == seconds


async def test_no_more_replies_at_once_than_allowed() -> None:
    import asyncio

    running = most = 0

    class Slow(Model):
        async def generate(self, prompt: Prompt) -> Reply:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return Reply("yes", "m", "scripted")

    log = MemoryLog()
    models = ModelPort(Slow(), Embedding(), concurrency=3)
    asks = StageRunner(stage(asking), 0, models, log, None, lambda: BEGIN, lambda: 0.0)
    await asks.process(turns(log, *"abcdefgh"))
    assert most == 3
    assert contents(log) == list("abcdefgh")


async def test_a_vector_asked_again_is_not_embedded_again() -> None:
    model = Embedding()
    models = ModelPort(Model(), model, embed_batch=2)
    first = await models.embed(["a", "b", "c", "a"])
    again = await models.embed(["c", "b"])
    assert model.calls == [["a", "b"], ["c"]]
    assert first.vectors[2] is again.vectors[0]
    assert len(first.vectors) == 4


async def test_commands_and_turns_are_read_from_their_own_topics() -> None:
    log = MemoryLog()
    both = stage(ECHO, reads=(CONVERSATION_TURNS, MEMORY_COMMANDS))
    await runner(both, log).process(log.put(MEMORY_COMMANDS.name, value("a")))
    assert "does not belong on memory-commands" in letters(log)[0].reason
