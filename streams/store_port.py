"""All that stages and stores know of each other: requests, answers, writes and commits.

Plain data, and the store as the runner sees it. A store imports nothing else of `streams`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.privacy import Levels
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import (
    AspectRow,
    AspectWeightRow,
    AttributeRow,
    NameLinkRow,
    NameRow,
    RelationRow,
)
from palimpsest.schemas.rows.memories import ArchiveRow, MemoryRow
from palimpsest.schemas.rows.pipeline import (
    CommandRow,
    DeadLetterRow,
    DocumentRow,
    EmbeddingRow,
    FactRow,
    FlagsRow,
    PendingProposalRow,
    PromotionItemRow,
    PromotionPartRow,
    PromotionRow,
    RetentionRow,
)
from palimpsest.schemas.rows.sessions import SessionRow, ShortTermRow

if TYPE_CHECKING:  # The process of an analyst's query would take twice the time to start.
    from palimpsest.schemas.messages import ScoredCandidate

FORGOTTEN = "forgotten"
HIDDEN = "a statement of it was forgotten or recovered"
FADED = "faded"
MERGED = "merged"
"""Why a state of a memory was archived: the memory was forgotten; something drawn from it was; its
confidence had faded; another memory says the same. What is faded or merged may still be true."""
SAME_IS_PENDING = "the same change is pending already"
"""Why a fact whose change of a memory waits for review became none: it was said before. The memory
of its outcome is the one that it is against."""
BETWEEN = "excludes what was said before"
"""Evidence of a `supersedes` edge: what has ended had itself ended an earlier text of what ended
it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a memory says that was drawn from a text, as it was drawn. `is_forgotten`: a command has
    forgotten the memory, and nobody recovered it."""

    memory_id: str
    text: str
    is_forgotten: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A memory that others were drawn from, with all that was drawn from it. `text` and `metadata`
    are those that it has with nothing of it hidden; `is_hidden`: it is deleted since all of it is
    hidden, and not because somebody has forgotten it."""

    row: MemoryRow
    text: str
    metadata: str
    is_hidden: bool
    statements: tuple[Statement, ...]


Vector = NDArray[np.float32]


# --- asks -----------------------------------------------------------------------------------

AnswerT = TypeVar("AnswerT")


class AnsweredBy(Generic[AnswerT]):
    """Base of all asks: `yield from` an ask sends it, and returns its answer."""

    __slots__ = ()

    def __iter__(self) -> Generator[Self, object, AnswerT]:
        return cast(AnswerT, (yield self))


@dataclass(frozen=True, slots=True)
class FindCandidates(AnsweredBy["Candidates"]):
    """Requests the active memories of the scope (raw turns excluded) closest to a fact, best first,
    without those that score below `min_score`; and up to `limit_by_words` that contain most of
    `words`, however far they are from the fact."""

    scope: str
    text: str
    vector: Vector | None
    limit: int
    min_score: float
    words: str = ""
    limit_by_words: int = 0


@dataclass(frozen=True, slots=True)
class Candidates:
    """`as_of` is the shard's write sequence that the search saw."""

    found: tuple[ScoredCandidate, ...]
    as_of: int
    by_words: tuple[ScoredCandidate, ...] = ()


@dataclass(frozen=True, slots=True)
class NearDuplicates(AnsweredBy["Candidates"]):
    """Requests the memories of the scope that changed after `as_of`, were not decided before
    `decision_order`, and are at least `cosine` close to the vector or share the hash. Where the
    text or the memory has no vector, the share of the text's words that the memory contains
    replaces the cosine."""

    scope: str
    text: str
    content_hash: str
    vector: Vector | None
    cosine: float
    as_of: int
    decision_order: int


@dataclass(frozen=True, slots=True)
class Load(AnsweredBy["Loaded"]):
    """Requests rows of one scope by key. `names` are canonical names; `unspaced_text` is text in a
    script without capitals, in which the store looks for known names. `derived_from` requests what
    was derived from these memories, and with `present_text` only what their present texts were;
    `sources_of` requests what these memories were derived from.
    `session_id` adds the session, all open sessions of the scope and the session's short-term
    memory. `whole_scope` adds all memories of the scope that are not erased; `categories` adds all
    categories of the scope. `proposed_in`: which facts have a proposal of this round of decide.
    `held_for` requests the changes of these memories that are pending review, `held_from` those
    drawn from these turns, `texts_at` what memories said in a version of theirs, `states_of` all
    archived states of these memories.
    `embedding` adds the partition's embedding models; `fading_after` adds the next `fading_limit`
    memories that fade, after this id."""

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
    held_for: tuple[str, ...] = ()
    held_from: tuple[str, ...] = ()
    texts_at: tuple[tuple[str, int], ...] = ()
    states_of: tuple[str, ...] = ()
    fact_ids: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    present_text: bool = False
    whole_scope: bool = False
    categories: bool = False
    letter_id: str | None = None
    sources_of: tuple[str, ...] = ()
    retention: bool = False
    embedding: bool = False
    proposed_in: tuple[tuple[str, int], ...] = ()
    fading_after: str | None = None
    fading_limit: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of `Load`; keys that were not found are absent.

    `by_hash` and `by_source` hold active, non-episodic memories. `settled` are the requested
    items, facts and turns that have an outcome; `command` is the result of the requested command;
    `held` are the changes of requested facts and memories that are still pending review, by fact;
    `texts_at` has the texts of requested versions where the memory says something else since;
    `states` are the archived states of a memory, oldest first;
    `facts` are those of `fact_ids` that were recorded before, `proposed` the ids of those of
    `proposed_in` that have a proposal. `fading` are the ids requested by `fading_after`, in
    order. `derived` holds all sources of every memory derived from one of `derived_from`: what it
    was derived from, and what repeated it; `answers` are, by a memory and a source of it, the
    questions without which that source says nothing; `sources` holds the sources of the memories
    `sources_of`, by id. `entities` maps known names to their ids; some of these names may occur
    in the text only as part of a word. `write_seq` is the shard's write sequence before this
    record; `privacy` are the levels of the scope. `retention` are the windows that were set for
    the scope, `swept` is how far each step of the sweep has come, both if `retention` was
    requested. A memory that was swept is not found."""

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
    texts_at: Mapping[tuple[str, int], str] = field(default_factory=dict)
    states: Mapping[str, tuple[ArchiveRow, ...]] = field(default_factory=dict)
    facts: Mapping[str, FactRow] = field(default_factory=dict)
    derived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    open_sessions: tuple[SessionRow, ...] = ()
    short_term: ShortTermRow | None = None
    privacy: Levels = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    dead_letter: DeadLetterRow | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    proposed: frozenset[str] = frozenset()
    fading: tuple[str, ...] = ()
    retention: RetentionRow | None = None
    swept: Mapping[str, datetime] = field(default_factory=dict)
    embedding: EmbeddingRow | None = None


@dataclass(frozen=True, slots=True)
class LoadGraph(AnsweredBy["Graph"]):
    """Requests names by their canonical form, with the relations between them; for those in `same`,
    all other names of their entities, with the links between all of these; and for unknown names,
    the memories whose text contains all words of the name. `links` are pairs of name ids whose link
    will be written, `attributes` the keys of attributes, read with their aspects, `aspects` names
    of aspects of the entities, read with all their attributes, `weights` aspects that will be
    weighed. `command_id`: the command whose result will be replaced. `erased` adds what was erased
    from the graph."""

    scope: str
    names: tuple[str, ...]
    memory_ids: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    command_id: str | None = None
    erased: bool = False
    links: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    aspects: tuple[str, ...] = ()
    weights: tuple[tuple[str], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryText:
    """A text in which a memory's names are looked for; `key` is the memory's `embedding_key` for
    this text."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Graph:
    """`names` maps every requested name that is known to its row, and every further name of the
    entities in `same`; `relations` are those between these names, `links` those that join them, and
    `aspects` and `attributes` the wanted ones, by their keys; `texts` maps the requested memories,
    and those that may name an unknown name, to all texts they have had, oldest first; `naming`
    maps unknown names to the ids of such memories. `command` is the current result of the requested
    command; `erased` are ids of names and relations that an import may not restore. Replaced
    texts and tombstones count: mentions belong to a text, so it does not matter whether a memory
    changed before or after its names became known."""

    names: Mapping[str, NameRow]
    relations: Mapping[tuple[str, str, str], RelationRow]
    texts: Mapping[str, tuple[MemoryText, ...]]
    naming: Mapping[str, tuple[str, ...]]
    command: CommandRow | None = None
    erased: frozenset[str] = frozenset()
    links: Mapping[tuple[str, str], NameLinkRow] = field(default_factory=dict)
    aspects: Mapping[tuple[str, ...], AspectRow | None] = field(default_factory=dict)
    attributes: Mapping[tuple[str, ...], AttributeRow | None] = field(default_factory=dict)
    weights: Mapping[tuple[str, ...], AspectWeightRow | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadDocuments(AnsweredBy["Documents"]):
    """Requests documents of a scope by id and by `same_key`, and up to `limit` chunks of the
    document `chunks_of` after the position `after`."""

    scope: str
    ids: tuple[str, ...] = ()
    same_keys: tuple[str, ...] = ()
    chunks_of: str | None = None
    after: int = -1
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents found; `chunks` are positions and memories, in order."""

    by_id: Mapping[str, DocumentRow]
    by_key: Mapping[str, DocumentRow]
    chunks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LoadPromotion(AnsweredBy["Promotions"]):
    """Requests a promotion of a scope and the stored parts of `plan_id`; with `items`, also what
    the promotion did with each memory. `fact_ids`: which of these facts were recorded before."""

    scope: str
    promotion_id: str
    plan_id: str | None = None
    items: bool = False
    fact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Promotions:
    """The promotions found: `newest` is the scope's newest promotion, `parts` and `items` are in
    order, `states` maps each item's memory to its previous state. `facts` are those that are
    known."""

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
    """A memory that a later stage will write. Later requests of this record and of the batch's
    later records are answered as if it were stored. This stage never stores it. `sources` are the
    memories that the statement rests on; `vector` is None where that of the row's text is known."""

    row: MemoryRow
    vector: Vector | None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Put:
    """Inserts the row. If the stage has read a row with its key, that row is replaced; otherwise
    the first row with the key stays, also within a batch."""

    row: Row


@dataclass(frozen=True, slots=True)
class KeepVector:
    """Stores a text's embedding under the hash of the text: its vector and, from a model that has
    them, the packed vectors of its tokens (`stores.index.token_vectors`)."""

    embedding_key: str
    vector: Vector
    tokens: bytes | None = None


@dataclass(frozen=True, slots=True)
class ExpireShortTerm:
    """Deletes the short-term memories of all sessions and scopes that expire at or before this
    time."""

    at: datetime


@dataclass(frozen=True, slots=True)
class EarlierText:
    """What a memory that stays said before, on the word of an erased source alone. `key` stands for
    the text where it is removed."""

    memory_id: str
    source: str
    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Erase:
    """Removes the texts of these memories from all tables except the graph's: `texts` are their
    texts as the stage read them, `embedding_keys` the keys of these texts. The stage first puts
    their rows without text. `erasure_id` is the command's id: copies in files are erased later
    under that id. `scope_at`: the whole scope is erased as of this moment, including rows that
    concern no memory. `earlier` texts of other memories go with them."""

    erasure_id: str
    scope: str
    texts: Mapping[str, str]
    embedding_keys: tuple[str, ...]
    scope_at: datetime | None = None
    earlier: tuple[EarlierText, ...] = ()


OF_TOMBSTONES: Final = ("mentions", "vectors", "memories")
"""Steps that remove parts of forgotten memories, in order."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Removes what a step of the retention sweep names: in the scope, not later than `before`. It
    needs a batch of its own (NotAlone), and stores its `answer`. `at` as in `GraphSweep`."""

    scope: str
    step: str
    before: datetime
    at: datetime
    answer: CommandRow | None = None


@dataclass(frozen=True, slots=True)
class EraseGraph:
    """Removes from the scope's graph what only these memories support, or (None) all of it. It
    needs a batch of its own (NotAlone), because it counts what was written before."""

    scope: str
    memory_ids: tuple[str, ...] | None


Write: TypeAlias = Put | KeepVector | ExpireShortTerm | Erase | EraseGraph | Sweep


@dataclass(frozen=True, slots=True)
class Outbound:
    """A record in a stage's outbox: encoded and committed, but not yet known to be in the log.
    `traceparent` is not stored: what is sent again after a crash has none."""

    seq: int
    topic: str
    scope: str
    key: str
    value: bytes | None
    traceparent: bytes | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stage commits together with its writes: the next offset by topic, the ids and offsets
    of the processed messages, the outbox, and the last outbox entry up to which everything is
    sent."""

    stage: str
    cursors: Mapping[str, int]
    seen: Sequence[tuple[str, int]]
    outbox: Sequence[Outbound]
    sent_through: int


@dataclass(frozen=True, slots=True)
class LogItem:
    """A turn or a fact found in the log or in an outbox. `found_as` is `known`, `in_flight` or
    `dead`; `place` is where it was found, or for a dead one the reason."""

    item_kind: str
    item_id: str
    scope: str
    found_as: str
    place: str


FindItems: TypeAlias = Callable[
    [Mapping[tuple[str, str], int], Iterable[tuple[str, bytes]]], Iterable[LogItem]
]
"""Lists what is in flight outside a store, from its next offsets by stage and topic, and the topics
and values of its outboxes."""


class UnitPort(Protocol):
    """Reads and staged writes of one batch; nothing is stored before `commit`."""

    def prefetch(self, asks: Sequence[StoreAsk]) -> None: ...

    def answer(self, ask: StoreAsk) -> StoreAnswer: ...

    def anticipate(self, memory: Anticipated) -> None:
        """Answers later requests as if the memory were stored."""
        ...

    def stage(self, writes: Sequence[Write]) -> None: ...

    def commit(self, progress: Progress) -> None:
        """Raises CommittedButNotShown if the writes are stored but reads may not show them."""
        ...


Place: TypeAlias = tuple[str, int]
"""Position of a record within its partition: topic and offset."""


class NotAlone(ValueError):
    """A batch contains a write that must be committed before later records are read. The batch must
    be split: at `places`, or at every record where they are unknown."""

    def __init__(self, places: frozenset[Place] = frozenset()) -> None:
        super().__init__("a batch with a record that must be committed alone")
        self.places = places


class CommittedButNotShown(Exception):
    """The commit succeeded, but the in-memory caches could not be updated: only reopening the store
    makes the two agree."""


class PriorityLock(Protocol):
    """A lock with one holder at a time, in the order of requests; `ahead` admits a holder before
    all others that wait."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def ahead(self) -> AbstractAsyncContextManager[None]: ...


class StorePort(Protocol):
    """One partition's stores as the runner sees them."""

    @property
    def lock(self) -> PriorityLock:
        """Held for a read followed by a write."""
        ...

    @property
    def embedding_space(self) -> str:
        """The vector space that a unit of work searches if it begins now."""
        ...

    def cursor_of(self, stage: str, topic: str) -> int: ...

    def seen(self, stage: str, message_ids: Sequence[str]) -> set[str]: ...

    def unsent(self, stage: str) -> list[Outbound]: ...

    def note_sent(self, stage: str, seq: int) -> None:
        """Notes that the log has the stage's outbox up to this entry."""
        ...

    def next_outbox_seq(self, stage: str) -> int: ...

    def unit(self, space: str = "") -> UnitPort:
        """A unit of work that searches the vector space that had this name when its batch began;
        "" for the present one."""
        ...

    def refuses_data(self, error: Exception) -> bool:
        """Returns whether an error of the store is about the values it received. All other errors
        concern every record: a disk, a lock, memory."""
        ...

    def lacks_room(self, error: Exception) -> bool:
        """Returns whether the store failed for lack of memory or disk space, so that the same
        commit may succeed later. Nothing was stored."""
        ...
