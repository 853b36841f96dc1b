"""A runner with models from a script, and what it has sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.messages import ConversationTurn, DeadLetter
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    TURNS_NORMALIZED,
)
from palimpsest.streams.logs.base import Record
from palimpsest.streams.models.base import (
    Prompt,
    Reply,
    Vector,
)
from palimpsest.streams.models.hashing import hashed
from palimpsest.streams.normalize import normalized
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.runner import StageRunner
from palimpsest.streams.stage import (
    Context,
    Emit,
    Message,
    Process,
    Stage,
    Step,
    without_asks,
)
from tests.messages import BEGIN, published, turn
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


def dead_letters(log: MemoryLog) -> list[DeadLetter]:
    sent = [out for out in log.sent() if out.topic == DEAD_LETTERS.name]
    bodies = [decode(out.value, DEAD_LETTERS, None).body for out in sent]
    return [body for body in bodies if isinstance(body, DeadLetter)]
