"""A scope as lines that another store can take: what `export` writes and `import` reads.

One class a kind of line. What follows from a text (hashes, keys) and what belongs to a store
(sequence numbers) is not told: the store that takes a line makes it anew. Names are told by
their canonical form, memories and facts by their ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, JsonValue, create_model

from palimpsest.schemas.envelope import Frozen, Share, UtcTime
from palimpsest.schemas.rows.columns import NOT_EXPORTED, Column, Row, columns_of
from palimpsest.schemas.rows.enumerations import (
    Action,
    EntityType,
    FactOutcome,
    FactType,
    OutcomeEvent,
    Privacy,
    TemporalKind,
)
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, HistoryRow

FORMAT: Final = "palimpsest-scope"
FORMAT_VERSION: Final = 1

Id = Annotated[str, Field(min_length=1, max_length=128)]
Word = Annotated[str, Field(max_length=256)]
Count = Annotated[int, Field(ge=0, le=2**53)]
ActorName = Literal["human", "agent", "pipeline", "system"]


LineT = TypeVar("LineT", bound=Frozen)


def with_columns(row_type: type[Row], key: str = "") -> Callable[[type[LineT]], type[LineT]]:
    """Completes the line of a row with the exported columns that it does not define itself; `key`
    is the column that it has as `id`."""

    def completed(line: type[LineT]) -> type[LineT]:
        exported = exported_columns(row_type)
        missing = [each for each in exported if each.name not in line.model_fields]
        left = {each.name: _as_field(each) for each in missing if each.name != key}
        return create_model(  # type: ignore[call-overload, no-any-return]
            line.__name__, __base__=line, __doc__=line.__doc__, __module__=line.__module__, **left
        )

    return completed


def exported_columns(row_type: type[Row]) -> list[Column]:
    """Returns the columns of a row that are exported, in order."""
    return [each for each in columns_of(row_type).values() if NOT_EXPORTED not in each.marks]


def _as_field(column: Column) -> tuple[object, object]:
    of_type = UtcTime if column.type is datetime else column.type
    if column.is_list:
        of_type = tuple[of_type, ...]  # type: ignore[valid-type]
    if column.is_optional:
        return of_type | None, None
    return of_type, ... if column.default is MISSING else column.default


@with_columns(MemoryRow, key="memory_id")
class PortableMemory(Frozen):
    """A memory, also a forgotten one."""

    kind: Literal["memory"] = "memory"
    id: Id
    type: str = Field(min_length=1, max_length=64)
    content: str = Field(min_length=1)
    importance: Share
    confidence: Share
    decay_rate: Share = 0.1
    who: Word = ""
    role: Word = ""
    why: Word = ""
    project: Word | None = None
    session_id: Word = ""
    source_type: Word = ""
    source_id: str | None = Field(default=None, max_length=1024)
    extraction_model: Word | None = None
    temporal_kind: TemporalKind = "persistent"
    updated_by: Word = ""
    access_count: Count = 0
    version: int = Field(default=1, ge=1, le=2**53)
    is_deleted: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class PortableState(Frozen):
    """An earlier state of a memory, of the version that it had."""

    kind: Literal["state"] = "state"
    memory: PortableMemory
    reason: str
    archived_at: UtcTime


@with_columns(HistoryRow, key="event_id")
class PortableEvent(Frozen):
    """Something that happened to a memory."""

    kind: Literal["event"] = "event"
    id: Id
    memory_id: Id
    event: OutcomeEvent
    changed_by: Word
    actor_type: ActorName
    reason: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    session_id: Word = ""
    correlation_id: Word = ""


@with_columns(EdgeRow)
class PortableEdge(Frozen):
    """An edge between two memories; an end may be an earlier state, as `<id>@<version>`."""

    kind: Literal["edge"] = "edge"
    source_id: Id
    target_id: Id
    relation_type: Word
    confidence: Share = 1.0


class PortableSession(Frozen):
    """A session, with the turns that the next one follows."""

    kind: Literal["session"] = "session"
    session_id: Word
    last_turn: Id
    turns: Count
    first_at: UtcTime
    last_at: UtcTime
    extracted_turns: tuple[Id, ...] = ()


class PortableCandidate(Frozen):
    """A memory that a decision saw."""

    memory_id: Id


class PortableProposal(Frozen):
    """What was proposed for a fact in one round."""

    round: Count
    memory_id: Id
    action: Action
    target_id: Id | None = None
    confidence: float
    reason: str = ""
    candidates: tuple[PortableCandidate, ...] = ()
    contradiction_risk: bool = False
    review_needed: bool = False
    dropped: str | None = None
    model: Word | None = None
    prompt_version: Word | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    latency_ms: float | None = None
    recorded_at: UtcTime


class PortableHeld(Frozen):
    """A change that waits for a person."""

    action: Action
    target_id: Id
    target_version: Count | None = None
    reason: str = ""
    recorded_at: UtcTime


class PortableFact(Frozen):
    """A fact that was drawn from a turn, what was proposed for it and what became of it."""

    kind: Literal["fact"] = "fact"
    id: Id
    turn_memory_id: Id
    content: str
    type: FactType
    confidence: float
    importance: float | None = None
    temporal_kind: TemporalKind
    valid_until: UtcTime | None = None
    categories: tuple[str, ...] = ()
    model: Word
    prompt_version: Word
    occurred_at: UtcTime
    correlation_id: Word = ""
    outcome: FactOutcome
    memory_id: Id | None = None
    reason: str = ""
    recorded_at: UtcTime
    proposals: tuple[PortableProposal, ...] = ()
    held: PortableHeld | None = None


class PortableName(Frozen):
    """A name of an entity; `main` is the entity's main name."""

    kind: Literal["name"] = "name"
    canonical_name: str = Field(min_length=1, max_length=1024)
    name: str = Field(min_length=1, max_length=1024)
    main: str = Field(min_length=1, max_length=1024)
    is_alias: bool = False
    entity_type: Word
    summary: str | None = None
    mentions: Count = 1
    pinned: bool = False
    first_seen: UtcTime
    updated_at: UtcTime
    chosen: Count = 0
    set_type: EntityType | None = None
    archived: bool = False
    edits: Count = 0
    authored: bool = False
    edited_by_person: bool = False


class PortableRelation(Frozen):
    """A relation between two names."""

    kind: Literal["relation"] = "relation"
    source: str
    target: str
    relation_type: str
    strength: float = 1.0
    mentions: Count = 1
    confidence: float
    authored: bool = False


class PortableMention(Frozen):
    """A text of a memory that has a name. `text_key` is the hash of the text."""

    kind: Literal["mention"] = "mention"
    memory_id: Id
    text_key: Id
    name: str
    mention_text: str
    confidence: float = 1.0
    stated: int = Field(
        default=-1,
        ge=-1,
        lt=2**63,
        description="a bit for each clause of the text that states something of the name; -1 where"
        " the text denies nothing",
    )


class PortableAspect(Frozen):
    """A facet of an entity, by one of its names."""

    kind: Literal["aspect"] = "aspect"
    entity: str
    canonical_name: str
    name: str
    weight: float = 0.5
    updated_at: UtcTime
    authored: bool = False


class PortableAttribute(Frozen):
    """A memory that says something about an aspect of an entity."""

    kind: Literal["attribute"] = "attribute"
    entity: str
    aspect: str
    memory_id: Id
    attribute_kind: Word = "attribute"
    status: Word = "active"
    confidence: float = 1.0
    importance: float = 0.5
    text_key: Id | None = None


@with_columns(FlagsRow)
class PortableFlags(Frozen):
    """The flags of the scope as commands set them."""

    kind: Literal["flags"] = "flags"


class PortablePrivacy(Frozen):
    """A privacy level of the scope; of a person, or without a name of all."""

    kind: Literal["privacy"] = "privacy"
    person: Word = ""
    level: Privacy
    reason: str = ""
    changed_by: Word = ""
    recorded_at: UtcTime


GRAPH_LINES: Final = (
    *(PortableName, PortableRelation, PortableMention, PortableAspect, PortableAttribute),
)
"""Lines that graph-persist writes."""
Line = Annotated[
    PortableMemory
    | PortableState
    | PortableEvent
    | PortableEdge
    | PortableSession
    | PortableFact
    | PortableName
    | PortableRelation
    | PortableMention
    | PortableAspect
    | PortableAttribute
    | PortableFlags
    | PortablePrivacy,
    Field(discriminator="kind"),
]


class NumberedLine(Frozen):
    """A line with its number in the file that it came in."""

    number: int = Field(ge=1)
    line: Line


class RefusedLine(Frozen):
    """A line that was not taken, and why."""

    number: int
    why: str


class ImportResult(Frozen):
    """What became of lines: `taken` are those whose content is there now, `memories` the memories
    among them that were not there before."""

    taken: int = 0
    memories: int = 0
    refused: tuple[RefusedLine, ...] = ()


class ImportedGraph(Frozen):
    """Lines of the graph, and what became of the other lines of their command."""

    from_scope: str
    lines: tuple[NumberedLine, ...]
    result: ImportResult


class Header(Frozen):
    """The first line of a file. `scope` is where the lines were."""

    format: Literal["palimpsest-scope"]
    version: int
    scope: str = Field(min_length=1, max_length=256)
    exported_at: UtcTime
    deleted: bool = False
    program: str = ""


class End(Frozen):
    """The last line of a file: how many lines there are between the header and it."""

    kind: Literal["end"] = "end"
    lines: Count
