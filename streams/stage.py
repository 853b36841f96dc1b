"""The contract of a stage: pure functions over plain data, run by the one runner.

A stage's `process` is a generator. It yields an Ask for each thing it must know and is sent the
answer (`yield from` the ask does both); finally it returns a Step. It may also yield Anticipated,
which expects no answer. It has no clock, no randomness and no I/O: time comes from the message, ids
from the input's id. A stage can therefore be tested with values alone and repeated at will; the
runner handles batching, retries, order, commits and crashes.

There are two kinds of asks. *Model asks* (Embed, Generate) leave the process and may take long; the
runner answers those of a whole batch together, outside any transaction. *Store asks*
(`streams.store_port`) are answered in offset order and see the writes of earlier records in the
batch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.topics import Topic
from palimpsest.streams.logs.base import Record
from palimpsest.streams.models.base import Embedding, Prompt, Reply
from palimpsest.streams.store_port import (
    AnsweredBy,
    Anticipated,
    StoreAnswer,
    StoreAsk,
    Vector,
    Write,
)

Message: TypeAlias = Envelope[Frozen]


# --- asks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Embed(AnsweredBy["Embedded"]):
    """Requests vectors of these texts. Answered by Embedded. `required`: wait out an outage rather
    than continue without them."""

    texts: tuple[str, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """One embedding per text, in order. None, with the reason in `failures`, for each text that the
    provider refused, and for all texts of a call that it did not answer. `space` names the model
    where a command changed the partition to another than the one that is set."""

    embeddings: tuple[Embedding | None, ...]
    failures: tuple[str | None, ...] = ()
    space: str = ""

    @property
    def vectors(self) -> tuple[Vector | None, ...]:
        return tuple(None if each is None else each.vector for each in self.embeddings)


@dataclass(frozen=True, slots=True)
class Generate(AnsweredBy[Reply | None]):
    """Requests a model's reply to `prompt`. An `advisory` request may be answered by None instead
    of being retried. `attempt` counts the requests with one prompt, from 1: a repeat of the record
    gets the recorded reply of each attempt. `fresh` skips the recorded reply and replaces it."""

    prompt: Prompt
    advisory: bool = False
    attempt: int = 1
    fresh: bool = False


ModelAsk: TypeAlias = Embed | Generate
Ask: TypeAlias = ModelAsk | StoreAsk
Answer: TypeAlias = Embedded | Reply | StoreAnswer | None

T = TypeVar("T")
Asking: TypeAlias = Generator[Ask, Answer, T]
"""A part of a stage that asks, and returns a T."""


# --- what a step contains -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emit:
    """A message to send. Its id is derived from the stage, the input and `index`; `key` defaults to
    the scope."""

    topic: Topic
    body: Frozen
    index: int | str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record cannot be processed, for the dead letter. `raw_output` is a model's reply;
    `item_ids` are the failed items, unless all items of the message failed."""

    reason: str
    failure: Literal["invalid", "malformed-output", "rejected", "unexpected"] = "invalid"
    raw_output: str | None = None
    attempts: int = 1
    item_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The result of processing one record. `rerouted` sends the record unchanged to the partition
    where its scope belongs."""

    writes: tuple[Write, ...] = ()
    emits: tuple[Emit, ...] = ()
    dead: Failure | None = None
    rerouted: bool = False


Process: TypeAlias = Generator[Ask | Anticipated, Answer, Step]


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage knows of a record besides its message. `misrouted`: the producer wrote it to a
    partition that is not its scope's."""

    record: Record
    misrouted: bool = False


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What a stage recovers from a record that is no valid message. `message` holds as much of it
    as could be read, and is the cause of what the step emits."""

    step: Step
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stream processor: its name, its input topics, and how it processes a message.

    `stateful`: its cursor, seen ids and outbox are stored in the shard and committed with its
    writes; those of other stages follow from the log. `asks_in_order`: it searches the store before
    it asks a model and writes nothing there, so the records of one scope are processed one after
    another, each seeing what was anticipated of the one before. `waits_for`: the stage whose
    effects of this stage's earlier output must be visible in the store. `on_invalid`: handles
    a record that is no valid message, given the reason, instead of a dead letter; if it returns
    None, the record becomes a dead letter after all. `admit`: transforms a record before anything
    else reads it."""

    name: str
    reads: tuple[Topic, ...]
    process: Callable[[Message, Context], Process]
    stateful: bool
    asks_in_order: bool = False
    waits_for: str | None = None
    on_invalid: Callable[[Record, str], Salvaged | None] | None = None
    admit: Callable[[Record], Record] | None = None

    @property
    def reads_store(self) -> bool:
        """Whether it asks the store anything, so that it runs where the shard is open."""
        return self.stateful or self.asks_in_order


class ModelUnavailable(Exception):
    """Thrown into a stage's generator at a Generate that failed permanently; its text is the
    reason."""


def without_asks(
    process: Callable[[Message, Context], Step],
) -> Callable[[Message, Context], Process]:
    """Turns a stage function that needs nothing besides its message into a Process."""

    def run(message: Message, context: Context) -> Process:
        return process(message, context)
        yield  # makes this a generator

    return run
