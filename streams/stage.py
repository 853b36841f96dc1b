"""The contract of a stage: pure functions over plain data, run by the one runner.

A stage's `process` is a generator: it yields what it must know (an Ask) and is sent the
answer, as often as it needs; then it returns a Step. On its way it may yield what it anticipates
(Anticipated), which is no question. It has no clock, no randomness and no
I/O: time comes from the message, ids from the input's id. So it can be tested with values
alone and repeated at will; batching, retries, order, commits and crashes are the runner's.

Two kinds of asks. *Model asks* (Embed, Generate) go outside the process and may take long;
the runner answers those of a whole batch together, outside any transaction. *Store asks*
(Load, FindCandidates, LoadGraph) are answered in offset order and see what the earlier
records of the batch write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.envelope import Envelope, Frozen
from schemas.messages import ScoredCandidate
from schemas.rows import (
    CommandRow,
    FactRow,
    FlagsRow,
    HeldRow,
    MemoryRow,
    NameRow,
    RelationRow,
    Row,
    SessionRow,
)
from schemas.topics import Topic
from streams.logs.base import Record
from streams.models.base import Prompt, Reply

Vector = NDArray[np.float32]
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
    """A vector a text, in order; None, with the reason in `failures`, for a text that the provider
    refused, and for all of a call that it did not answer."""

    vectors: tuple[Vector | None, ...]
    failures: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Generate:
    """A model's reply to `prompt`; the `advisory` ones may be answered by None instead of being
    retried."""

    prompt: Prompt
    advisory: bool = False


@dataclass(frozen=True, slots=True)
class FindCandidates:
    """Active memories of the scope (raw turns excluded) closest to a fact, best first."""

    scope: str
    text: str
    vector: Vector | None
    limit: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """`as_of` is the shard's write sequence that the search saw."""

    found: tuple[ScoredCandidate, ...]
    as_of: int


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """Memories of the scope that changed after `as_of`, were not decided before
    `decision_order`, and are at least `cosine` close to the vector or share the hash. Where text
    or memory has no vector, the share of the text's words that the memory has stands for the
    cosine."""

    scope: str
    text: str
    content_hash: str
    vector: Vector | None
    cosine: float
    as_of: int
    decision_order: int


@dataclass(frozen=True, slots=True)
class Load:
    """Rows of one scope by key. `names` are canonical names; `unspaced_text` is text in a script
    without capitals, in which the store looks for the names it knows."""

    scope: str
    memory_ids: tuple[str, ...] = ()
    content_hashes: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    session_id: str | None = None
    names: tuple[str, ...] = ()
    unspaced_text: str = ""
    item_ids: tuple[str, ...] = ()
    turn_item_ids: tuple[str, ...] = ()
    command_id: str | None = None
    held_ids: tuple[str, ...] = ()
    fact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `Load` found; keys that are not there were not found.

    `by_hash` and `by_source` hold active, non-episodic memories. `settled` are those of the asked
    items, facts and turns, that have an outcome; `command` is the result of the asked command;
    `held` the changes of asked facts (`held_ids`) that are held back still, `facts` those of
    `fact_ids` that were taken note of before. `entities` maps known names to their ids, some of
    which may stand in the text as part of a word only. `write_seq` is the shard's write sequence
    before this record.
    """

    memories: Mapping[str, MemoryRow]
    by_hash: Mapping[str, MemoryRow]
    by_source: Mapping[str, MemoryRow]
    session: SessionRow | None
    entities: Mapping[str, str]
    flags: FlagsRow | None
    settled: frozenset[str]
    write_seq: int
    command: CommandRow | None = None
    held: Mapping[str, HeldRow] = field(default_factory=dict)
    facts: Mapping[str, FactRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadGraph:
    """Names by their canonical form, with the relations between them, and for those of `same` all
    other names of their entities; and for the names that nothing is known by, the memories whose
    text has all the words of the name. `command_id`: the command whose result will be replaced."""

    scope: str
    names: tuple[str, ...]
    memory_ids: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    command_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryText:
    """A text in which a memory's names are looked for; `key` is the memory's `embedding_key` while
    it has the text."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Graph:
    """`names` maps every asked name that is known to its row, and every further name of the
    entities of `same`; `relations` are those between these names, by their key; `texts` maps the
    asked memories, and those that may name an unknown name, to all the texts that they have had,
    oldest first; `naming` maps unknown names to such memories' ids. Replaced texts and tombstones
    count: mentions belong to a text, so it does not matter whether a memory was changed before or
    after its names became known."""

    names: Mapping[str, NameRow]
    relations: Mapping[tuple[str, str, str], RelationRow]
    texts: Mapping[str, tuple[MemoryText, ...]]
    naming: Mapping[str, tuple[str, ...]]


ModelAsk: TypeAlias = Embed | Generate
StoreAsk: TypeAlias = FindCandidates | NearDuplicates | Load | LoadGraph
Ask: TypeAlias = ModelAsk | StoreAsk
Answer: TypeAlias = Embedded | Reply | Candidates | Loaded | Graph | None


# --- what a stage says on its way, and at its end -------------------------------------------


@dataclass(frozen=True, slots=True)
class Anticipated:
    """A memory that a later stage will write: what follows is answered as if it were stored, in
    this record and the batch's later ones. This stage never stores it."""

    row: MemoryRow
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Put:
    """Insert the row. One with its key is replaced where the stage has read it; where it has not,
    the row that was there first stays, also within a batch."""

    row: Row


@dataclass(frozen=True, slots=True)
class KeepVector:
    """Keep a vector under the hash of the text that it was made from."""

    embedding_key: str
    vector: Vector


Write: TypeAlias = Put | KeepVector


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
    """What a stage knows of a record beside its message. `misrouted`: a producer put it into
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
    """

    name: str
    reads: tuple[Topic, ...]
    process: Callable[[Message, Context], Process]
    stateful: bool
    asks_in_order: bool = False
    waits_for: str | None = None
    on_invalid: Callable[[Record, str], Salvaged | None] | None = None


class ModelUnavailable(Exception):
    """Thrown into a stage's generator at a Generate that failed for good; its text is the
    reason."""


def without_asks(
    process: Callable[[Message, Context], Step],
) -> Callable[[Message, Context], Process]:
    """A stage function that needs to know nothing beside its message, as a Process."""

    def run(message: Message, context: Context) -> Process:
        return process(message, context)
        yield  # makes this a generator

    return run


# --- what the runner needs of a store -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outbound:
    """A record in a stage's outbox: encoded, committed, not yet known to be in the log."""

    seq: int
    topic: str
    scope: str
    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stage commits beside its writes: the next offset by topic, the ids of the messages
    processed with their offsets, the outbox, and through which outbox entry all is sent."""

    stage: str
    cursors: Mapping[str, int]
    seen: Sequence[tuple[str, int]]
    outbox: Sequence[Outbound]
    sent_through: int


class UnitPort(Protocol):
    """Reads and staged writes of one batch; nothing is stored before `commit`."""

    def prefetch(self, asks: Sequence[StoreAsk]) -> None: ...

    def answer(self, ask: StoreAsk) -> Answer: ...

    def anticipate(self, memory: Anticipated) -> None:
        """Answer from now on as if the memory were stored."""
        ...

    def stage(self, writes: Sequence[Write]) -> None: ...

    def commit(self, progress: Progress) -> None:
        """Raises CommittedButNotShown where the writes are stored and reading them is not sure."""
        ...


class CommittedButNotShown(Exception):
    """A commit that took place, after which what is kept in memory could not follow: only opening
    the store again makes the two agree."""


class StorePort(Protocol):
    """One partition's stores as the runner sees them."""

    @property
    def lock(self) -> asyncio.Lock:
        """Held by whoever reads and then writes."""
        ...

    def cursor_of(self, stage: str, topic: str) -> int: ...

    def seen(self, stage: str, message_ids: Sequence[str]) -> set[str]: ...

    def unsent(self, stage: str) -> list[Outbound]: ...

    def next_outbox_seq(self, stage: str) -> int: ...

    def unit(self) -> UnitPort: ...

    def refuses_data(self, error: Exception) -> bool:
        """Whether an error of the store is about the values it was given. All others concern every
        record: a disk, a lock, memory."""
        ...
