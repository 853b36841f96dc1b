"""All that stages and stores know of each other: what is asked, answered, written and committed.

Plain data, and the store as the runner sees it. A store imports nothing else of `streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.audit_rows import DeadLetterRow
from palimpsest.schemas.messages import ScoredCandidate
from palimpsest.schemas.privacy import Levels
from palimpsest.schemas.promotion_rows import PromotionItemRow, PromotionPartRow, PromotionRow
from palimpsest.schemas.rows import (
    ArchiveRow,
    CommandRow,
    DocumentRow,
    FactRow,
    FlagsRow,
    MemoryRow,
    NameRow,
    PendingProposalRow,
    RelationRow,
    Row,
    SessionRow,
    ShortTermRow,
)
from palimpsest.schemas.sources import Source

Vector = NDArray[np.float32]


# --- asks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCandidates:
    """Active memories of the scope (raw turns excluded) closest to a fact, best first; those that
    score below `min_score` are not shown."""

    scope: str
    text: str
    vector: Vector | None
    limit: int
    min_score: float


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
    without capitals, in which the store looks for the names it knows. `derived_from`: what was
    drawn from these memories is wanted; `sources_of`: what these were drawn from. With
    `session_id` come the session, all open ones of the
    scope and the session's short-term memory. `whole_scope`: all memories of the scope that are
    not erased are wanted, too; `categories`: all that the scope has."""

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
    derived_from: tuple[str, ...] = ()
    whole_scope: bool = False
    categories: bool = False
    letter_id: str | None = None
    sources_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `Load` found; keys that are not there were not found.

    `by_hash` and `by_source` hold active, non-episodic memories. `settled` are those of the asked
    items, facts and turns, that have an outcome; `command` is the result of the asked command;
    `held` the changes of asked facts (`held_ids`) that are pending review still, `facts` those of
    `fact_ids` that were taken note of before. `derived` has all sources of every memory that was
    drawn from one of `derived_from`: what it was drawn from, and what said the same again;
    `sources` are those of the memories `sources_of`, by id.
    `entities` maps known names to their ids, some of
    which may stand in the text as part of a word only. `write_seq` is the shard's write sequence
    before this record; `privacy` are the levels of the scope.
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
    held: Mapping[str, PendingProposalRow] = field(default_factory=dict)
    facts: Mapping[str, FactRow] = field(default_factory=dict)
    derived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    open_sessions: tuple[SessionRow, ...] = ()
    short_term: ShortTermRow | None = None
    privacy: Levels = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    dead_letter: DeadLetterRow | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadGraph:
    """Names by their canonical form, with the relations between them, and for those of `same` all
    other names of their entities; and for the names that nothing is known by, the memories whose
    text has all the words of the name. `command_id`: the command whose result will be replaced.
    `erased`: what was erased of the graph is wanted, too."""

    scope: str
    names: tuple[str, ...]
    memory_ids: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    command_id: str | None = None
    erased: bool = False


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
    oldest first; `naming` maps unknown names to such memories' ids. `command` is the result of the
    asked command so far; `erased` are ids of names and relations that an import may not bring back.
    Replaced texts and tombstones
    count: mentions belong to a text, so it does not matter whether a memory was changed before or
    after its names became known."""

    names: Mapping[str, NameRow]
    relations: Mapping[tuple[str, str, str], RelationRow]
    texts: Mapping[str, tuple[MemoryText, ...]]
    naming: Mapping[str, tuple[str, ...]]
    command: CommandRow | None = None
    erased: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LoadDocuments:
    """Documents of a scope by id and by `same_key`; of the document `chunks_of` up to `limit`
    chunks after the position `after`."""

    scope: str
    ids: tuple[str, ...] = ()
    same_keys: tuple[str, ...] = ()
    chunks_of: str | None = None
    after: int = -1
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Documents:
    """What was found; `chunks` are positions and memories, in order."""

    by_id: Mapping[str, DocumentRow]
    by_key: Mapping[str, DocumentRow]
    chunks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPromotion:
    """A promotion of a scope; the parts of `plan_id` that were kept; with `items`, what it did with
    each memory. `fact_ids`: which of these facts were taken note of before."""

    scope: str
    promotion_id: str
    plan_id: str | None = None
    items: bool = False
    fact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Promotions:
    """What was found: `newest` is the scope's newest promotion, `parts` and `items` are in order,
    `states` what the items' memories were before, by memory. `facts` are those that are known."""

    promotion: PromotionRow | None
    newest: PromotionRow | None
    parts: tuple[PromotionPartRow, ...] = ()
    items: tuple[PromotionItemRow, ...] = ()
    states: Mapping[str, ArchiveRow] = field(default_factory=dict)
    facts: frozenset[str] = frozenset()


StoreAsk: TypeAlias = (
    FindCandidates | NearDuplicates | Load | LoadGraph | LoadDocuments | LoadPromotion
)
StoreAnswer: TypeAlias = Candidates | Loaded | Graph | Documents | Promotions


# --- what is anticipated, written and committed ---------------------------------------------


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
    """Keep a text's embedding under the hash of the text: its vector and, from a model that has
    them, the packed vectors of its tokens (`stores.index.token_vectors`)."""

    embedding_key: str
    vector: Vector
    tokens: bytes | None = None


@dataclass(frozen=True, slots=True)
class ExpireShortTerm:
    """Drop the short-term memories, of all sessions and scopes, that end at this time or before."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Erase:
    """Take the texts of these memories out of all tables but the graph's: `texts` are what each of
    them says as the stage read it, `embedding_keys` those of these texts. Their rows are put
    without text before. `erasure_id` is the command's: what of it lies in files is left to be
    executed under that id. `scope_at`: all of the scope is erased, as of this moment, also what
    tells of no memory."""

    erasure_id: str
    scope: str
    texts: Mapping[str, str]
    embedding_keys: tuple[str, ...]
    scope_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EraseGraph:
    """Take out of the graph of a scope what these memories alone told, or (None) all of it; in a
    batch of its own (NotAlone), for it counts what was told before."""

    scope: str
    memory_ids: tuple[str, ...] | None


Write: TypeAlias = Put | KeepVector | ExpireShortTerm | Erase | EraseGraph


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
    """What a stage commits alongside its writes: the next offset by topic, the ids of the messages
    processed with their offsets, the outbox, and through which outbox entry all is sent."""

    stage: str
    cursors: Mapping[str, int]
    seen: Sequence[tuple[str, int]]
    outbox: Sequence[Outbound]
    sent_through: int


@dataclass(frozen=True, slots=True)
class LogItem:
    """A turn or a fact met in the log or in an outbox. `found_as` is `known`, `in_flight` or
    `dead`; `place` is where it was met, of a dead one why it is dead."""

    item_kind: str
    item_id: str
    scope: str
    found_as: str
    place: str


FindItems: TypeAlias = Callable[
    [Mapping[tuple[str, str], int], Iterable[tuple[str, bytes]]], Iterable[LogItem]
]
"""What is in flight beside a store, given its next offsets by stage and topic, and the topics and
values of its outboxes."""


class UnitPort(Protocol):
    """Reads and staged writes of one batch; nothing is stored before `commit`."""

    def prefetch(self, asks: Sequence[StoreAsk]) -> None: ...

    def answer(self, ask: StoreAsk) -> StoreAnswer: ...

    def anticipate(self, memory: Anticipated) -> None:
        """Answer from now on as if the memory were stored."""
        ...

    def stage(self, writes: Sequence[Write]) -> None: ...

    def commit(self, progress: Progress) -> None:
        """Raises CommittedButNotShown where the writes are stored and reading them is not sure."""
        ...


Place: TypeAlias = tuple[str, int]
"""Of a record within its partition: topic and offset."""


class NotAlone(ValueError):
    """Among a batch's writes is one that must be committed before what comes after it is read; the
    batch is to be divided: at `places`, or where they are not known at every record."""

    def __init__(self, places: frozenset[Place] = frozenset()) -> None:
        super().__init__("a batch with a record that must be committed alone")
        self.places = places


class CommittedButNotShown(Exception):
    """A commit that took place, after which what is cached in memory could not follow: only opening
    the store again makes the two agree."""


class PriorityLock(Protocol):
    """Held by one at a time, in the order of asking; `ahead` lets a holder in before all others
    that wait."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def ahead(self) -> AbstractAsyncContextManager[None]: ...


class StorePort(Protocol):
    """One partition's stores as the runner sees them."""

    @property
    def lock(self) -> PriorityLock:
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

    def lacks_room(self, error: Exception) -> bool:
        """Whether an error of the store is for want of memory or of room on the disk, so that the
        same commit may succeed later. Nothing of it was stored."""
        ...
