"""The rows of the stores: what stages write and read, as plain frozen data.

One class a table. `TABLE` is its name in DuckDB, `KEY` the columns that identify a row; the
fields are the columns, in order. Times are UTC. JSON columns hold text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class Row:
    """Base of all rows."""

    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]

    @property
    def key(self) -> tuple[object, ...]:
        # A list is read much quicker than a generator, and many keys are made a turn.
        return tuple([getattr(self, name) for name in self.KEY])


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow(Row):
    """A memory. `dedup_key` is scope and hash while the row is active and not episodic, else
    None: unique, so that one content cannot be two memories of a scope. `write_seq` is the
    shard's write sequence of the last change; `decision_order` the position of the record that
    decided it (None when a command wrote it). `occurred_at` is when what it says was stated;
    `first_occurred_at` when the first of its statements was, None while there is but one. `role` is
    that of a turn's speaker; empty for what is no turn, and for turns stored before it was kept."""

    TABLE: ClassVar[str] = "memory_rows"
    KEY: ClassVar[tuple[str, ...]] = ("memory_id",)

    memory_id: str
    scope: str
    type: str
    content: str
    normalized_content: str
    content_hash: str
    dedup_key: str | None
    embedding_key: str
    importance: float
    confidence: float
    decay_rate: float = 0.1
    pinned: bool = False
    tags: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    who: str = ""
    role: str = ""
    why: str = ""
    project: str | None = None
    session_id: str = ""
    source_type: str = ""
    source_id: str | None = None
    extraction_model: str | None = None
    temporal_kind: str = "persistent"
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    occurred_at: datetime
    first_occurred_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    updated_by: str
    last_accessed: datetime | None = None
    access_count: int = 0
    version: int = 1
    is_deleted: bool = False
    deleted_at: datetime | None = None
    metadata: str = "{}"
    write_seq: int = 0
    decision_order: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRow(Row):
    """A prior state of a memory, kept before it was replaced or deleted; `state` is it as JSON."""

    TABLE: ClassVar[str] = "memory_archive"
    KEY: ClassVar[tuple[str, ...]] = ("memory_id", "version")

    memory_id: str
    version: int
    scope: str
    type: str
    content: str
    state: str
    reason: str
    archived_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow(Row):
    """A directed edge between two memories."""

    TABLE: ClassVar[str] = "memory_edges"
    KEY: ClassVar[tuple[str, ...]] = ("source_id", "target_id", "relation_type")

    source_id: str
    target_id: str
    relation_type: str
    scope: str
    predicate: str = ""
    weight: float = 1.0
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow(Row):
    """A name of the entity whose main name has the id `entity_id`, told of `mentions` times."""

    TABLE: ClassVar[str] = "name_rows"
    KEY: ClassVar[tuple[str, ...]] = ("name_id",)

    name_id: str
    scope: str
    name: str
    canonical_name: str
    entity_id: str
    is_alias: bool = False
    entity_type: str
    summary: str | None = None
    mentions: int = 1
    pinned: bool = False
    first_seen: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRow(Row):
    """Source name, relation type, target name; confidence is a running average."""

    TABLE: ClassVar[str] = "relation_rows"
    KEY: ClassVar[tuple[str, ...]] = ("source_name_id", "target_name_id", "relation_type")

    source_name_id: str
    target_name_id: str
    relation_type: str
    scope: str
    strength: float = 1.0
    mentions: int = 1
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRow(Row):
    """A text of a memory (by its `embedding_key`) has a name, written as `mention_text`."""

    TABLE: ClassVar[str] = "mention_rows"
    KEY: ClassVar[tuple[str, ...]] = ("memory_id", "text_key", "name_id")

    memory_id: str
    text_key: str
    name_id: str
    scope: str
    mention_text: str
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectRow(Row):
    """A facet under which attributes of an entity, by one of its names, are grouped."""

    TABLE: ClassVar[str] = "aspect_rows"
    KEY: ClassVar[tuple[str, ...]] = ("aspect_id",)

    aspect_id: str
    name_id: str
    scope: str
    name: str
    canonical_name: str
    weight: float = 0.5
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRow(Row):
    """A memory that says something about an aspect of an entity."""

    TABLE: ClassVar[str] = "attribute_rows"
    KEY: ClassVar[tuple[str, ...]] = ("aspect_id", "memory_id")

    aspect_id: str
    memory_id: str
    scope: str
    kind: str = "attribute"
    status: str = "active"
    confidence: float = 1.0
    importance: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow(Row):
    """A fact as extracted, stored with its first proposal, or with the dead letter of decide."""

    TABLE: ClassVar[str] = "fact_rows"
    KEY: ClassVar[tuple[str, ...]] = ("item_id",)

    item_id: str
    scope: str
    turn_memory_id: str
    content: str
    type: str
    confidence: float
    importance: float | None
    temporal_kind: str
    valid_until: datetime | None
    categories: tuple[str, ...]
    model: str
    prompt_version: str
    occurred_at: datetime
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRow(Row):
    """One extraction, with its cost and warnings."""

    TABLE: ClassVar[str] = "extractions"
    KEY: ClassVar[tuple[str, ...]] = ("message_id",)

    message_id: str
    scope: str
    turn_memory_id: str
    provider: str
    model: str
    prompt_version: str
    facts: int
    triples: int
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float
    attempts: int
    warnings: tuple[str, ...]
    round: int
    recorded_at: datetime
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRow(Row):
    """What decide proposed for a fact, in one round. `candidates` is JSON."""

    TABLE: ClassVar[str] = "proposals"
    KEY: ClassVar[tuple[str, ...]] = ("item_id", "round")

    item_id: str
    round: int
    scope: str
    memory_id: str
    action: str
    target_id: str | None
    confidence: float
    reason: str
    candidates: str
    contradiction_risk: bool
    review_needed: bool
    dropped: str | None
    model: str | None
    prompt_version: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    as_of: int
    recorded_at: datetime
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingProposalRow(Row):
    """A change that was held back, with all that is needed to carry it out later. It is held for
    as long as the outcome of its fact is `blocked`. `occurred_at` is when the fact was stated."""

    TABLE: ClassVar[str] = "held_proposals"
    KEY: ClassVar[tuple[str, ...]] = ("item_id",)

    item_id: str
    scope: str
    action: str
    target_id: str
    target_version: int | None
    reason: str
    turn_memory_id: str
    content: str
    type: str
    confidence: float
    importance: float | None
    temporal_kind: str
    valid_until: datetime | None
    categories: tuple[str, ...]
    model: str
    occurred_at: datetime
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRow(Row):
    """The end of a turn or fact in the balance: once, unless a person settles what is `blocked`."""

    TABLE: ClassVar[str] = "outcomes"
    KEY: ClassVar[tuple[str, ...]] = ("item_kind", "item_id")

    item_kind: str
    item_id: str
    scope: str
    event: str
    memory_id: str | None
    reason: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow(Row):
    """The result of a command, for a waiting caller. `result` is JSON, null until it is known;
    `digest` tells the command from others under its id."""

    TABLE: ClassVar[str] = "command_results"
    KEY: ClassVar[tuple[str, ...]] = ("command_id",)

    command_id: str
    scope: str
    command: str
    error: str | None
    result: str
    recorded_at: datetime
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsRow(Row):
    """The flags of a scope as commands set them; None falls back to the settings."""

    TABLE: ClassVar[str] = "scope_flags"
    KEY: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    enabled: bool | None = None
    shadow_mode: bool | None = None
    allow_update_delete: bool | None = None
    mutations_frozen: bool | None = None
    autonomous_frozen: bool | None = None
    self_teaching_enabled: bool | None = None
    earned_update_delete: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoriesRow(Row):
    """The categories that memories of a scope were given, in alphabetical order: those of new ones
    are folded onto them."""

    TABLE: ClassVar[str] = "scope_categories"
    KEY: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowProposalRow(Row):
    """What a further decider proposed for a fact, in one round; without an action there is an
    `error`."""

    TABLE: ClassVar[str] = "shadow_proposals"
    KEY: ClassVar[tuple[str, ...]] = ("item_id", "round", "decider")

    item_id: str
    round: int
    decider: str
    scope: str
    turn_memory_id: str
    action: str | None
    target_id: str | None
    confidence: float
    reason: str
    error: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    cost: float | None
    recorded_at: datetime


DOCUMENT_CHUNK: Final = "document_chunk"
"""The type of a memory that is a piece of a document."""
SOURCE_TYPES: Final = frozenset({"episodic", DOCUMENT_CHUNK})
"""Types of memories that keep what was said or written as it was. Two may be equal, and no decision
about a fact changes or deletes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow(Row):
    """A document. `chunks` is how many its text has, None while nobody knows the text; `taken` of
    them are stored. `same_key` is what the same document is known by again; None of one that
    failed or was deleted."""

    TABLE: ClassVar[str] = "document_rows"
    KEY: ClassVar[tuple[str, ...]] = ("document_id",)

    document_id: str
    scope: str
    kind: str
    source: str | None = None
    title: str = ""
    same_key: str | None
    digest: str | None = None
    content_type: str | None = None
    characters: int | None = None
    chunk_characters: int
    chunk_overlap: int
    chunks: int | None = None
    taken: int = 0
    error: str | None = None
    added_by: str
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMemoryRow(Row):
    """The memory that holds the chunk at a position of a document, from 0. A text that a document
    has twice is one memory at two positions."""

    TABLE: ClassVar[str] = "document_memory_rows"
    KEY: ClassVar[tuple[str, ...]] = ("document_id", "position")

    document_id: str
    position: int
    memory_id: str
    scope: str


def same_key(kind: str, source: str | None, digest: str | None) -> str:
    """What a document is known by within its scope: a URL by its address, all others by their
    text."""
    return f"url|{source}" if kind == "url" else f"text|{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow(Row):
    """A session of a scope with its oldest and newest turn, the far end of the next temporal edge.
    `extracted_turns` are the newest that a model may be shown with the next turn, oldest first.
    `ended_at` and `ended_by` are None while it is open; `ends` counts how often it has ended, for
    a turn opens it again. `last_recorded_at` is when the log took its newest turn. Turns without a
    session have a row under the empty id, which is never open and never ends."""

    TABLE: ClassVar[str] = "session_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "session_id")

    scope: str
    session_id: str
    last_turn: str
    turns: int
    first_at: datetime
    last_at: datetime
    extracted_turns: tuple[str, ...] = ()
    first_turn: str = ""
    last_recorded_at: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    ends: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSessionsRow(Row):
    """The sessions of a scope that have not ended, the one that was opened first first."""

    TABLE: ClassVar[str] = "open_sessions"
    KEY: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    session_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTermRow(Row):
    """What is kept of a session for some hours: its newest turns (their memories, oldest first)
    and a summary, each until a time of its own; the row goes at `expires_at`, the later of the
    two. `summarized_through` is the newest turn when the summary was written. `explicit_intent`:
    its last user turn asks to have something remembered for good."""

    TABLE: ClassVar[str] = "short_term_rows"
    KEY: ClassVar[tuple[str, ...]] = ("scope", "session_id")

    scope: str
    session_id: str
    turns: tuple[str, ...] = ()
    turns_expire_at: datetime | None = None
    explicit_intent: bool = False
    summary: str | None = None
    summary_by: str | None = None
    summary_at: datetime | None = None
    summary_expires_at: datetime | None = None
    summarized_through: str | None = None
    expires_at: datetime
