"""The rows of the stores: what stages write and read, as plain frozen data.

One class a table. A field is a column, with its meaning and marks: the tables, the comments of
views, what the state hash leaves out and the lines of an export are made from these classes. Times
are UTC. JSON columns hold text.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum, auto
from typing import Annotated, ClassVar, Final, Literal, get_args, get_origin

# Annotations are read while the program runs, so they are not postponed here.


class Mark(Enum):
    """What follows from a column."""

    UNIQUE = auto()
    """No value stands twice."""
    APPEND_TIME = auto()
    """A log's append time, or text with one: equal after a rebuild from the same log, different
    when the same turns are published again. The state hash includes it on demand."""
    SCHEDULE = auto()
    """It depends on batching, repeats and speed: it orders or measures, and does not say what is
    remembered. Not in the state hash."""
    NOT_KNOWN_BEFORE = auto()
    """No migration can fill it: a store of an earlier release lacks what a rebuild from its log
    has, or has another time, and holds the same memory all the same. Not in the state hash."""
    NOT_EXPORTED = auto()
    """It follows from other columns or belongs to this store."""


UNIQUE, APPEND_TIME, SCHEDULE, NOT_KNOWN_BEFORE, NOT_EXPORTED = Mark


@dataclass(frozen=True, slots=True)
class Since:
    """The number of the migration that added a column. Rows of before have the default."""

    migration: int


@dataclass(frozen=True, slots=True)
class Row:
    """Base of all rows. `since` is the number of the migration that added the table."""

    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]
    SINCE: ClassVar[int] = 1

    def __init_subclass__(cls, table: str = "", key: tuple[str, ...] = (), since: int = 1) -> None:
        if table:  # dataclass() makes a class with slots a second time, without arguments
            cls.TABLE, cls.KEY, cls.SINCE = table, key, since

    @property
    def key(self) -> tuple[object, ...]:
        # A list is read much quicker than a generator, and many keys are made a turn.
        return tuple([getattr(self, name) for name in self.KEY])


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `default` is MISSING where every row names a value; `since` is 0 for a
    column that is as old as its table."""

    name: str
    type: type
    is_list: bool
    is_optional: bool
    default: object
    meaning: str
    marks: frozenset[Mark]
    since: int


_columns: Final[dict[type[Row], Mapping[str, Column]]] = {}


def columns_of(row_type: type[Row]) -> Mapping[str, Column]:
    """The columns of a row type by name, in order."""
    if row_type not in _columns:
        found = fields(row_type)
        _columns[row_type] = {
            each.name: _column(each.name, each.type, each.default) for each in found
        }
    return _columns[row_type]


def _column(name: str, annotation: object, default: object) -> Column:
    of_type, *marks = get_args(annotation)
    is_optional = isinstance(of_type, types.UnionType)
    if is_optional:
        of_type, _ = get_args(of_type)
    is_list = get_origin(of_type) is tuple
    if get_origin(of_type) is Literal:
        of_type = str
    return Column(
        name,
        get_args(of_type)[0] if is_list else of_type,
        is_list,
        is_optional,
        default,
        next(mark for mark in marks if isinstance(mark, str)),
        frozenset(mark for mark in marks if isinstance(mark, Mark)),
        next((mark.migration for mark in marks if isinstance(mark, Since)), 0),
    )


Scope = Annotated[str, "the memory space", NOT_EXPORTED]
MemoryId = Annotated[str, "id of the memory"]
ItemId = Annotated[str, "id of the turn or fact"]
SessionId = Annotated[str, "the session (conversation) it belongs to"]
Cost = Annotated[
    float | None, "what the reply cost, by the prices in the settings; NULL without them"
]
RecordedAt = Annotated[datetime, "when the record was appended to the log", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow(Row, table="memory_rows", key=("memory_id",)):
    """A memory. `dedup_key` is unique, so that one content cannot be two memories of a scope."""

    memory_id: MemoryId
    scope: Scope
    type: Annotated[str, "episodic (a turn), document_chunk, fact, preference, decision, opinion …"]
    content: Annotated[str, "the text"]
    normalized_content: Annotated[
        str, "the text lower-cased, without punctuation at its end: what is searched", NOT_EXPORTED
    ]
    content_hash: Annotated[
        str, "SHA-256 of the normalized text: equal texts have equal hashes", NOT_EXPORTED
    ]
    dedup_key: Annotated[
        str | None, "scope and hash while it is active and no turn", UNIQUE, NOT_EXPORTED
    ]
    embedding_key: Annotated[str, "which text its vector is of", NOT_EXPORTED]
    importance: Annotated[float, "from 0 to 1"]
    confidence: Annotated[float, "how sure it is, from 0 to 1"]
    decay_rate: Annotated[float, "how fast its importance fades; 0 never, as when confirmed"] = 0.1
    pinned: Annotated[bool, "whether machines must leave it alone"] = False
    tags: Annotated[tuple[str, ...], "its tags"] = ()
    categories: Annotated[tuple[str, ...], "its categories"] = ()
    who: Annotated[str, "who said it; pipeline for what was extracted"] = ""
    role: Annotated[
        str,
        "the speaker's role: user, assistant, tool or system; empty for what is no turn and where"
        " it is not known",
        NOT_KNOWN_BEFORE,
        Since(16),
    ] = ""
    why: Annotated[str, "how it came to be"] = ""
    project: Annotated[str | None, "the project it belongs to"] = None
    session_id: SessionId = ""
    source_type: Annotated[str, "what kind of source it is from"] = ""
    source_id: Annotated[str | None, "its id where it came from"] = None
    extraction_model: Annotated[str | None, "the model that extracted it"] = None
    temporal_kind: Annotated[str, "whether it holds for good, a time or a moment"] = "persistent"
    valid_from: Annotated[datetime | None, "from when it holds"] = None
    valid_until: Annotated[datetime | None, "until when it holds; NULL for good"] = None
    occurred_at: Annotated[datetime, "when it happened or was said in the world"]
    first_occurred_at: Annotated[
        datetime | None,
        "when its first statement happened or was said; occurred_at is the newest",
        Since(3),
    ] = None
    created_at: Annotated[datetime, "when it came to be here", APPEND_TIME]
    updated_at: Annotated[datetime, "when it was last updated here", APPEND_TIME]
    updated_by: Annotated[str, "who updated it last"]
    last_accessed: Annotated[datetime | None, "not kept yet: always NULL", APPEND_TIME] = None
    access_count: Annotated[int, "not counted yet: always 0"] = 0
    version: Annotated[int, "1 at first, one more with every update"] = 1
    is_deleted: Annotated[bool, "whether it is forgotten"] = False
    deleted_at: Annotated[datetime | None, "when it was forgotten", APPEND_TIME] = None
    metadata: Annotated[str, "anything else, as a JSON object"] = "{}"
    write_seq: Annotated[
        int, "the shard's write sequence of the last change", SCHEDULE, NOT_EXPORTED
    ] = 0
    decision_order: Annotated[
        int | None,
        "the place of the record that decided it; NULL when a command did",
        SCHEDULE,
        NOT_EXPORTED,
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRow(Row, table="memory_archive", key=("memory_id", "version")):
    """A prior state of a memory, kept before it was replaced or deleted."""

    memory_id: MemoryId
    version: Annotated[int, "1 at first, one more with every update"]
    scope: Scope
    type: Annotated[str, "episodic (a turn), document_chunk, fact, preference, decision, opinion …"]
    content: Annotated[str, "the text"]
    state: Annotated[str, "the whole row as JSON", APPEND_TIME]
    reason: Annotated[str, "why it was replaced or deleted"]
    archived_at: Annotated[datetime, "when", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow(Row, table="memory_edges", key=("source_id", "target_id", "relation_type")):
    """A directed edge between two memories."""

    source_id: Annotated[str, "the memory that it goes from"]
    target_id: Annotated[str, "the memory (or memory@version) that it goes to"]
    relation_type: Annotated[str, "derived_from, supersedes, temporal, entity or causal"]
    scope: Scope
    predicate: Annotated[str, "what the relation says, in a word"] = ""
    weight: Annotated[float, "how much it counts, from 0 to 1"] = 1.0
    confidence: Annotated[float, "how sure it is, from 0 to 1"] = 1.0
    valid_from: Annotated[datetime | None, "from when it holds"] = None
    valid_until: Annotated[datetime | None, "until when it holds; NULL for good"] = None
    evidence: Annotated[str, "what it rests on"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow(Row, table="name_rows", key=("name_id",)):
    """A name of the entity whose main name has the id `entity_id`."""

    name_id: Annotated[str, "id of the name", NOT_EXPORTED]
    scope: Scope
    name: Annotated[str, "its name as it was first written"]
    canonical_name: Annotated[str, "its name lower-cased: the same name is the same entity"]
    entity_id: Annotated[str, "id of the entity", NOT_EXPORTED]
    is_alias: Annotated[bool, "whether it denotes an entity with another main name"] = False
    entity_type: Annotated[str, "person, place, organization …"]
    summary: Annotated[str | None, "what is known of it in a sentence"] = None
    mentions: Annotated[int, "how often it was told of"] = 1
    pinned: Annotated[bool, "whether machines must leave it alone"] = False
    first_seen: Annotated[datetime, "when it was first named", APPEND_TIME]
    updated_at: Annotated[datetime, "when it was last updated here", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRow(
    Row, table="relation_rows", key=("source_name_id", "target_name_id", "relation_type")
):
    """Source name, relation type, target name."""

    source_name_id: Annotated[str, "the name that it goes from"]
    target_name_id: Annotated[str, "the name that it goes to"]
    relation_type: Annotated[str, "what the source is to the target"]
    scope: Scope
    strength: Annotated[float, "how strong it is, from 0 to 1"] = 1.0
    mentions: Annotated[int, "how often it was told"] = 1
    confidence: Annotated[float, "the average of all that told it, from 0 to 1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow(Row, table="mention_rows", key=("memory_id", "text_key", "name_id")):
    """A text of a memory has a name, written as `mention_text`."""

    memory_id: MemoryId
    text_key: Annotated[str, "the `embedding_key` of the text"]
    name_id: Annotated[str, "the name that is in it"]
    scope: Scope
    mention_text: Annotated[str, "how the memory names it"]
    confidence: Annotated[float, "how sure it is that the entity is meant, from 0 to 1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectRow(Row, table="aspect_rows", key=("aspect_id",)):
    """A facet under which attributes of an entity, by one of its names, are grouped."""

    aspect_id: Annotated[str, "id of the aspect"]
    name_id: Annotated[str, "the name of the entity"]
    scope: Scope
    name: Annotated[str, "the facet as it was first written"]
    canonical_name: Annotated[str, "the facet lower-cased"]
    weight: Annotated[float, "how much it counts, from 0 to 1"] = 0.5
    updated_at: Annotated[datetime, "when it was last updated here", APPEND_TIME]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRow(Row, table="attribute_rows", key=("aspect_id", "memory_id")):
    """A memory that says something about an aspect of an entity."""

    aspect_id: Annotated[str, "id of the aspect"]
    memory_id: MemoryId
    scope: Scope
    kind: Annotated[str, "attribute or constraint"] = "attribute"
    status: Annotated[str, "active, superseded or deleted"] = "active"
    confidence: Annotated[float, "how sure it is, from 0 to 1"] = 1.0
    importance: Annotated[float, "from 0 to 1"] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow(Row, table="fact_rows", key=("item_id",)):
    """A fact as extracted, stored with its first proposal, or with the dead letter of decide."""

    item_id: ItemId
    scope: Scope
    turn_memory_id: Annotated[str, "the turn that it was extracted from"]
    content: Annotated[str, "the text"]
    type: Annotated[str, "episodic (a turn), document_chunk, fact, preference, decision, opinion …"]
    confidence: Annotated[float, "how sure it is, from 0 to 1"]
    importance: Annotated[float | None, "from 0 to 1"]
    temporal_kind: Annotated[str, "whether it holds for good, a time or a moment"]
    valid_until: Annotated[datetime | None, "until when it holds; NULL for good"]
    categories: Annotated[tuple[str, ...], "its categories"]
    model: Annotated[str, "the model that was asked"]
    prompt_version: Annotated[str, "the version of the prompt"]
    occurred_at: Annotated[datetime, "when it happened or was said in the world"]
    correlation_id: Annotated[str, "the turn or command that it all began with"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRow(Row, table="extractions", key=("message_id",)):
    """One extraction, with its cost and warnings."""

    message_id: Annotated[str, "id of the message"]
    scope: Scope
    turn_memory_id: Annotated[str, "the turn that it was extracted from"]
    provider: Annotated[str, "who runs the model"]
    model: Annotated[str, "the model that was asked"]
    prompt_version: Annotated[str, "the version of the prompt"]
    facts: Annotated[int, "facts that were drawn from it"]
    triples: Annotated[int, "relations between entities that were drawn from it"]
    input_tokens: Annotated[int | None, "tokens that the model read"]
    output_tokens: Annotated[int | None, "tokens that the model wrote"]
    latency_ms: Annotated[float, "how long the model took, in milliseconds", SCHEDULE]
    attempts: Annotated[int, "tries until the reply could be read"]
    warnings: Annotated[tuple[str, ...], "what of the reply could not be used, and why"]
    round: Annotated[int, "0 at first, one more each time it was sent back"]
    recorded_at: RecordedAt
    cost: Annotated[Cost, Since(8)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRow(Row, table="proposals", key=("item_id", "round")):
    """What decide proposed for a fact, in one round."""

    item_id: ItemId
    round: Annotated[int, "0 at first, one more each time it was sent back"]
    scope: Scope
    memory_id: Annotated[str, "the memory that the fact would become"]
    action: Annotated[str, "ADD, UPDATE, DELETE or NONE"]
    target_id: Annotated[str | None, "the memory that it is about"]
    confidence: Annotated[float, "how sure the decision is, from 0 to 1"]
    reason: Annotated[str, "why it was decided so"]
    candidates: Annotated[
        str, "the memories that were looked at, with scores and versions, as JSON"
    ]
    contradiction_risk: Annotated[bool, "whether it seems to contradict its target"]
    review_needed: Annotated[bool, "whether a person should look at it"]
    dropped: Annotated[str | None, "why the proposal was no use; NULL for most"]
    model: Annotated[str | None, "the model that was asked"]
    prompt_version: Annotated[str | None, "the version of the prompt"]
    input_tokens: Annotated[int | None, "tokens that the model read"]
    output_tokens: Annotated[int | None, "tokens that the model wrote"]
    latency_ms: Annotated[float | None, "how long the model took, in milliseconds", SCHEDULE]
    as_of: Annotated[
        int, "the store's write number when the candidates were read", SCHEDULE, NOT_EXPORTED
    ]
    # In a store of an earlier release it is that of the extraction.
    recorded_at: Annotated[RecordedAt, NOT_KNOWN_BEFORE]
    cost: Annotated[Cost, NOT_EXPORTED, Since(8)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingProposalRow(Row, table="held_proposals", key=("item_id",)):
    """A change that was held back, with all that is needed to carry it out later. It is held for
    as long as the outcome of its fact is `blocked`. `occurred_at` is when the fact was stated."""

    item_id: ItemId
    scope: Scope
    action: Annotated[str, "ADD, UPDATE, DELETE or NONE"]
    target_id: Annotated[str, "the memory that it is about"]
    target_version: Annotated[int | None, "the version that the decision saw"]
    reason: Annotated[str, "why it was decided so"]
    turn_memory_id: Annotated[str, "the turn that it was extracted from"]
    content: Annotated[str, "the text"]
    type: Annotated[str, "episodic (a turn), document_chunk, fact, preference, decision, opinion …"]
    confidence: Annotated[float, "how sure it is, from 0 to 1"]
    importance: Annotated[float | None, "from 0 to 1"]
    temporal_kind: Annotated[str, "whether it holds for good, a time or a moment"]
    valid_until: Annotated[datetime | None, "until when it holds; NULL for good"]
    categories: Annotated[tuple[str, ...], "its categories"]
    model: Annotated[str, "the model that was asked"]
    occurred_at: Annotated[datetime, "when it happened or was said in the world"]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow(Row, table="outcomes", key=("item_kind", "item_id")):
    """The end of a turn or fact in the balance: once, unless a person settles what is `blocked`."""

    item_kind: Annotated[str, "turn or fact"]
    item_id: ItemId
    scope: Scope
    event: Annotated[str, "what became of it"]
    memory_id: Annotated[str | None, "the memory that it became or was decided about"]
    reason: Annotated[str, "why"]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow(Row, table="command_results", key=("command_id",)):
    """The result of a command, for a waiting caller."""

    command_id: Annotated[str, "id of the command"]
    scope: Scope
    command: Annotated[str, "what kind of command it is"]
    error: Annotated[str | None, "why it failed"]
    result: Annotated[str, "its result as JSON, null until it is known"]
    recorded_at: RecordedAt
    digest: Annotated[str | None, "tells it from others under its id", Since(7)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsRow(Row, table="scope_flags", key=("scope",)):
    """The flags of a scope as commands set them; None falls back to the settings."""

    scope: Scope
    enabled: Annotated[bool | None, "whether facts are extracted"] = None
    shadow_mode: Annotated[
        bool | None, "whether all is decided and recorded, and nothing written"
    ] = None
    allow_update_delete: Annotated[bool | None, "whether UPDATE and DELETE are carried out"] = None
    mutations_frozen: Annotated[
        bool | None, "whether nothing may be written, also not by commands"
    ] = None
    autonomous_frozen: Annotated[bool | None, "whether timers rest"] = None
    self_teaching_enabled: Annotated[
        bool | None, "whether agents' tools may write long-term memories", NOT_EXPORTED, Since(10)
    ] = None
    earned_update_delete: Annotated[
        bool | None,
        "whether it has earned to update and delete, where nobody set that",
        NOT_EXPORTED,
        Since(13),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoriesRow(Row, table="scope_categories", key=("scope",), since=15):
    """The categories that memories of a scope have: those of new ones are folded onto them."""

    scope: Scope
    names: Annotated[tuple[str, ...], "its categories, in alphabetical order"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowProposalRow(
    Row,
    table="shadow_proposals",
    key=("item_id", "round", "decider"),
    since=13,
):
    """What a further decider proposed for a fact, in one round; without an action there is an
    `error`."""

    item_id: ItemId
    round: Annotated[int, "0 at first, one more each time it was sent back"]
    decider: Annotated[str, "as it is named in pipeline.shadow_deciders"]
    scope: Scope
    turn_memory_id: Annotated[str, "the turn that it was extracted from"]
    action: Annotated[str | None, "what it would do; NULL where it said nothing usable"]
    target_id: Annotated[str | None, "the memory that it would change, or that says the same"]
    confidence: Annotated[float, "how sure it is, from 0 to 1"]
    reason: Annotated[str, "why"]
    error: Annotated[str | None, "why there is no action"]
    input_tokens: Annotated[int | None, "tokens that the model read"]
    output_tokens: Annotated[int | None, "tokens that the model wrote"]
    latency_ms: Annotated[float | None, "how long the model took, in milliseconds", SCHEDULE]
    cost: Cost
    recorded_at: RecordedAt


DOCUMENT_CHUNK: Final = "document_chunk"
"""The type of a memory that is a piece of a document."""
SOURCE_TYPES: Final = frozenset({"episodic", DOCUMENT_CHUNK})
"""Types of memories that keep what was said or written as it was. Two may be equal, and no decision
about a fact changes or deletes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow(Row, table="document_rows", key=("document_id",)):
    """A document. `chunks` is how many its text has, `taken` of them are stored."""

    document_id: Annotated[str, "id of the document"]
    scope: Scope
    kind: Annotated[str, "text, url or file"]
    source: Annotated[str | None, "the address of a URL, the name of a file"] = None
    title: Annotated[str, "its title, which its chunks have as a tag"] = ""
    same_key: Annotated[
        str | None, "what the same document is known by; NULL of one that failed or was deleted"
    ]
    digest: Annotated[str | None, "SHA-256 of its chunks: by it the same text is known again"] = (
        None
    )
    content_type: Annotated[str | None, "what kind of text it was given as"] = None
    characters: Annotated[int | None, "how long its text is, in characters"] = None
    chunk_characters: Annotated[int, "the length of a chunk in characters"]
    chunk_overlap: Annotated[int, "how many characters of a chunk begin the next"]
    chunks: Annotated[
        int | None, "how many chunks its text has; NULL while its text is not known"
    ] = None
    taken: Annotated[int, "how many of its chunks are stored"] = 0
    error: Annotated[str | None, "why it failed"] = None
    added_by: Annotated[str, "who added it"]
    created_at: Annotated[datetime, "when it came to be here", APPEND_TIME]
    updated_at: Annotated[datetime, "when it last came further", APPEND_TIME]
    deleted_at: Annotated[datetime | None, "when it was deleted; NULL for most", APPEND_TIME] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMemoryRow(Row, table="document_memory_rows", key=("document_id", "position")):
    """The memory that holds the chunk at a position of a document. A text that a document has twice
    is one memory at two positions."""

    document_id: Annotated[str, "id of the document"]
    position: Annotated[int, "the number of the chunk in its document, from 0"]
    memory_id: MemoryId
    scope: Scope


def same_key(kind: str, source: str | None, digest: str | None) -> str:
    """What a document is known by within its scope: a URL by its address, all others by their
    text."""
    return f"url|{source}" if kind == "url" else f"text|{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Row, table="session_rows", key=("scope", "session_id")):
    """A session of a scope with its oldest and newest turn, the far end of the next temporal edge.
    Turns without a session have a row under the empty id, which is never open and never ends."""

    scope: Scope
    session_id: SessionId
    last_turn: Annotated[str, "its newest turn"]
    turns: Annotated[int, "how many turns it has"]
    first_at: Annotated[datetime, "when its first turn was said"]
    last_at: Annotated[datetime, "when its newest turn was said"]
    extracted_turns: Annotated[
        tuple[str, ...],
        "its newest turns that a model may be shown with the next, oldest first",
        Since(2),
    ] = ()
    first_turn: Annotated[str, "its oldest turn", NOT_EXPORTED, Since(10)] = ""
    last_recorded_at: Annotated[
        datetime | None, "when the log took its newest turn", APPEND_TIME, NOT_EXPORTED, Since(10)
    ] = None
    ended_at: Annotated[
        datetime | None,
        "when it ended; NULL while it is open",
        APPEND_TIME,
        NOT_EXPORTED,
        Since(10),
    ] = None
    ended_by: Annotated[
        str | None,
        "command, silence, new-session or crowded; NULL while it is open",
        NOT_EXPORTED,
        Since(10),
    ] = None
    ends: Annotated[
        int, "how often it has ended: a turn opens it again", NOT_EXPORTED, Since(10)
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSessionsRow(Row, table="open_sessions", key=("scope",)):
    """The sessions of a scope that have not ended."""

    scope: Scope
    session_ids: Annotated[
        tuple[str, ...], "the sessions that have not ended, in the order in which they began"
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTermRow(Row, table="short_term_rows", key=("scope", "session_id")):
    """What is kept of a session for some hours: its newest turns and a summary, each until a time
    of its own; the row goes at `expires_at`, the later of the two."""

    scope: Scope
    session_id: SessionId
    turns: Annotated[tuple[str, ...], "the memories of its newest turns, oldest first"] = ()
    turns_expire_at: Annotated[
        datetime | None, "until when its turns are kept here", APPEND_TIME
    ] = None
    explicit_intent: Annotated[
        bool, "whether its last user turn asks to have something remembered for good"
    ] = False
    summary: Annotated[str | None, "what it is about"] = None
    summary_by: Annotated[str | None, "who wrote the summary"] = None
    summary_at: Annotated[datetime | None, "when the summary was written", APPEND_TIME] = None
    summary_expires_at: Annotated[
        datetime | None, "until when the summary is kept", APPEND_TIME
    ] = None
    summarized_through: Annotated[str | None, "the newest turn when the summary was written"] = None
    expires_at: Annotated[datetime, "when the row goes", APPEND_TIME]
