"""What a batch asks of models: together, waited for, refused, and never more than allowed."""

from __future__ import annotations

import pytest

from palimpsest.streams.models.base import (
    PermanentModelError,
    Prompt,
    Reply,
    TransientModelError,
)
from palimpsest.streams.runtime.model_port import ModelPort, backoff
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import (
    Context,
    Embed,
    Embedded,
    Generate,
    Message,
    ModelUnavailable,
    Process,
    Step,
)
from palimpsest.streams.store_port import Load, Loaded, Put
from tests.messages import BEGIN
from tests.unit.memory_ports import MemoryLog, MemoryStore
from tests.unit.runner_parts import (
    PROMPT,
    Embedding,
    Model,
    contents,
    dead_letters,
    echo,
    runner,
    stage,
    turns,
)


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
    assert dead_letters(log)[0].reason == "400: too long"

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


async def test_a_record_sees_what_the_ones_before_it_wrote() -> None:
    seen: list[list[object]] = []

    def process(message: Message, context: Context) -> Process:
        answer = yield Load("ana", fact_ids=("x",))
        assert isinstance(answer, Loaded)
        seen.append(list(answer.facts))
        return Step((Put(context.record.offset),))  # type: ignore[arg-type]

    log, store = MemoryLog(), MemoryStore()
    await runner(stage(process, True), log, store).process(turns(log, "a", "b", "c"))
    assert seen == [[], [0], [0, 1]]
    assert [len(asks) for asks in store.prefetched] == [3]


async def test_a_stage_that_asks_in_order_may_ask_a_model_after_the_store() -> None:
    def process(message: Message, context: Context) -> Process:
        yield Load("ana", fact_ids=("x",))
        reply = yield Generate(PROMPT)
        assert isinstance(reply, Reply)
        return echo(message, context)

    log, store = MemoryLog(), MemoryStore()
    what = stage(process, asks_in_order=True)
    await runner(what, log, store, language=Model("yes", "yes")).process(turns(log, "a", "b"))
    assert contents(log) == ["a", "b"]
    assert store.progress == []
    log, store = MemoryLog(), MemoryStore()
    await runner(stage(process, True), log, store).process(turns(log, "a"))
    assert "a model ask after a store ask" in dead_letters(log)[0].reason


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
