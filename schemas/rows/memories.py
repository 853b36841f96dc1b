"""Memories, their earlier states, and the edges between them."""

# Annotations are read while the program runs, so they are not postponed here.

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from palimpsest.schemas.rows.columns import (
    APPEND_TIME,
    NOT_EXPORTED,
    NOT_KNOWN_BEFORE,
    SCHEDULE,
    UNIQUE,
    Appended,
    MaybeAppended,
    MemoryId,
    Row,
    Scope,
    SessionId,
    Since,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow(Row, table="memory_rows", key=("memory_id",), rewritten=True):
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
    decay_rate: Annotated[
        float, "how fast its confidence fades, a day; 0 never, as when confirmed"
    ] = 0.1
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
    utc_offset_minutes: Annotated[
        int | None,
        "the minutes that the clock of who said it is ahead of UTC; NULL for UTC and where it is"
        " not known",
        NOT_KNOWN_BEFORE,
        Since(30),
    ] = None
    revised_at: Annotated[
        datetime | None,
        "of a turn, when its text was last edited where it was said; NULL if it was not",
        Since(31),
    ] = None
    created_at: Annotated[Appended, "when it came to be here"]
    updated_at: Annotated[Appended, "when it was last updated here"]
    updated_by: Annotated[str, "who updated it last"]
    last_accessed: Annotated[MaybeAppended, "when it was last returned; NULL for never"] = None
    access_count: Annotated[int, "how often a recall, a context or a get returned it"] = 0
    decayed_at: Annotated[
        MaybeAppended,
        "until when its confidence has faded; NULL for never",
        NOT_EXPORTED,
        Since(19),
    ] = None
    retained: Annotated[
        float,
        "the part of its confidence that fading has left; an access restores the rest",
        NOT_EXPORTED,
        Since(28),
    ] = 1.0
    version: Annotated[int, "1 at first, one more with every update"] = 1
    is_deleted: Annotated[bool, "whether it is forgotten"] = False
    deleted_at: Annotated[MaybeAppended, "when it was forgotten"] = None
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


WEIGHTS: Final = ("access_count", "last_accessed", "confidence", "decayed_at", "retained")
"""The columns that an access and decay change: neither makes a new version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRow(
    Row,
    table="memory_archive",
    key=("memory_id", "version"),
    indexed=False,
    read_from="archived_states",
):
    """A prior state of a memory, kept before it was replaced or deleted. Old ones lie in files."""

    memory_id: MemoryId
    version: Annotated[int, "1 at first, one more with every update"]
    scope: Scope
    type: Annotated[str, "episodic (a turn), document_chunk, fact, preference, decision, opinion …"]
    content: Annotated[str, "the text"]
    state: Annotated[str, "the whole row as JSON", APPEND_TIME]
    reason: Annotated[str, "why it was replaced or deleted"]
    archived_at: Annotated[Appended, "when"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeRow(
    Row, table="memory_edges", key=("source_id", "target_id", "relation_type"), indexed=False
):
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


DOCUMENT_CHUNK: Final = "document_chunk"
"""The type of a memory that is a piece of a document."""
PROFILE: Final = "profile"
"""The type of a memory that sums up what others say of an entity."""
SELF_TAUGHT: Final = "self-taught"
"""The source type of memories that agents wrote on their own."""
SOURCE_TYPES: Final = frozenset({"episodic", DOCUMENT_CHUNK, PROFILE})
"""Types of memories that are no facts: what was said or written as it was, and profiles. Two may be
equal, they do not fade, and no decision about a fact changes or deletes one."""
SOURCE_LIST: Final = str(tuple(sorted(SOURCE_TYPES)))
"""The same in SQL."""


def fades(row: MemoryRow) -> bool:
    """Whether the confidence of a memory falls while it is not accessed."""
    is_kept = row.is_deleted or row.pinned or row.type in SOURCE_TYPES
    return not is_kept and row.decay_rate > 0


FADING: Final = f"NOT is_deleted AND NOT pinned AND type NOT IN {SOURCE_LIST} AND decay_rate > 0"
"""The same in SQL."""
