"""The contract of a stage: pure functions over plain data, run by the one runner.

A stage's `process` is a generator: it yields what it must know (an Ask) and is sent the
answer, as often as it needs; then it returns a Step. On its way it may yield what it anticipates
(Anticipated), which is no question. It has no clock, no randomness and no I/O: time comes from
the message, ids from the input's id. So it can be tested with values alone and repeated at will;
batching, retries, order, commits and crashes are the runner's.

Two kinds of asks. *Model asks* (Embed, Generate) go outside the process and may take long;
the runner answers those of a whole batch together, outside any transaction. *Store asks*
(`streams.store_port`) are answered in offset order and see what the earlier records of the batch
write.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.topics import Topic
from palimpsest.streams.logs.base import Record
from palimpsest.streams.models.base import Embedding, Prompt, Reply
from palimpsest.streams.store_port import Anticipated, StoreAnswer, StoreAsk, Vector, Write

Message: TypeAlias = Envelope[Frozen]


# --- asks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Embed:
    """Vectors of these texts. Answered by Embedded. `required`: rather wait out an outage than do
    without."""

    texts: tuple[str, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedding a text, in order; None, with the reason in `failures`, for a text that the
    provider refused, and for all of a call that it did not answer."""

    embeddings: tuple[Embedding | None, ...]
    failures: tuple[str | None, ...] = ()

    @property
    def vectors(self) -> tuple[Vector | None, ...]:
        return tuple(None if each is None else each.vector for each in self.embeddings)


@dataclass(frozen=True, slots=True)
class Generate:
    """A model's reply to `prompt`; the `advisory` ones may be answered by None instead of being
    retried. `attempt` counts the askings of one prompt, from 1: a repeat of the record gets the
    recorded reply of each. `fresh`: what is recorded is passed over and replaced."""

    prompt: Prompt
    advisory: bool = False
    attempt: int = 1
    fresh: bool = False


ModelAsk: TypeAlias = Embed | Generate
Ask: TypeAlias = ModelAsk | StoreAsk
Answer: TypeAlias = Embedded | Reply | StoreAnswer | None


# --- what a step gives ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emit:
    """A message to send. Its id follows from the stage, the input and `index`; `key` is the scope
    unless given."""

    topic: Topic
    body: Frozen
    index: int | str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record cannot be processed, for the dead letter. `raw_output` is a model's reply;
    `item_ids` are the items that failed, where it is not all that the message carries."""

    reason: str
    failure: Literal["invalid", "malformed-output", "rejected", "unexpected"] = "invalid"
    raw_output: str | None = None
    attempts: int = 1
    item_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """All that processing one record results in. `rerouted` sends the record as it is to the
    partition where its scope belongs."""

    writes: tuple[Write, ...] = ()
    emits: tuple[Emit, ...] = ()
    dead: Failure | None = None
    rerouted: bool = False


Process: TypeAlias = Generator[Ask | Anticipated, Answer, Step]


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage knows of a record alongside its message. `misrouted`: a producer put it into
    another partition than its scope's."""

    record: Record
    misrouted: bool = False


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What a stage makes of a record that is no message. `message` is as much of it as could be
    read, which what the step emits was caused by."""

    step: Step
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stream processor: its name, what it reads, and what it does with a message.

    `stateful`: its cursor, seen ids and outbox lie in the shard, committed with its writes.
    `asks_in_order`: it asks models about what the store holds, so the records of one scope are
    processed one after another, each seeing what the one before wrote.
    `waits_for`: the stage whose effects of this stage's earlier output it must see in the store.
    `on_invalid`: what to do with a record that is no message, given why, where that is not a dead
    letter; None from it means a dead letter after all.
    `admit`: what a record is made into before anything else is known of it.
    """

    name: str
    reads: tuple[Topic, ...]
    process: Callable[[Message, Context], Process]
    stateful: bool
    asks_in_order: bool = False
    waits_for: str | None = None
    on_invalid: Callable[[Record, str], Salvaged | None] | None = None
    admit: Callable[[Record], Record] | None = None


class ModelUnavailable(Exception):
    """Thrown into a stage's generator at a Generate that failed for good; its text is the
    reason."""


def without_asks(
    process: Callable[[Message, Context], Step],
) -> Callable[[Message, Context], Process]:
    """A stage function that needs to know nothing alongside its message, as a Process."""

    def run(message: Message, context: Context) -> Process:
        return process(message, context)
        yield  # makes this a generator

    return run
