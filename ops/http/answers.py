"""What the routes answer, as the OpenAPI document tells it. The answers come as plain JSON from the
queries; tests hold them against these models. What the library answers too has its fields there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, JsonValue

from palimpsest.ops.library import results
from palimpsest.stores.recall.query import RecallResult


class Failure(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str


@dataclass(frozen=True, slots=True)
class Memory(results.StoredMemory):
    __doc__ = None


class Memories(BaseModel):
    """A page, newest first. `next` is the cursor of the page after, null on the last."""

    memories: list[Memory]
    next: str | None


class Weak(BaseModel):
    memories: list[Memory]


class Scopes(BaseModel):
    scopes: list[results.Scope]


@dataclass(frozen=True, slots=True)
class RelatedMemory(results.RelatedMemory):
    __doc__ = None


class Found(BaseModel):
    """Results, best first; `method` tells what took part in the search."""

    query: str
    method: str
    results: list[RecallResult]


class Recalled(Found):
    """`related` is what the question's intent adds, `understood` (with `explain`) how the question
    was read."""

    related: list[RelatedMemory]
    understood: JsonValue = None


class ContextBlock(BaseModel):
    """Markdown for a model's prompt; `text` is null where nothing is known. `offers_summary`: a
    model should be asked for a summary of the session."""

    query: str
    text: str | None
    tokens: int
    budget: int | None = None
    ids: dict[str, list[str]]
    offers_summary: bool


class AuditEvent(BaseModel):
    event_id: str
    event: str
    old_content: str | None
    new_content: str | None
    changed_by: str
    actor_type: str
    reason: str
    metadata: dict[str, JsonValue]
    session_id: str
    correlation_id: str
    created_at: datetime


class History(BaseModel):
    id: str
    events: list[AuditEvent]


class Provenance(BaseModel):
    """A memory with its turns (`derived_from`), the facts drawn from it, its earlier states, the
    decisions about it, the entities it names and its events."""

    memory: Memory
    derived_from: list[Memory]
    facts: list[Memory]
    before: list[dict[str, JsonValue]]
    decisions: list[dict[str, JsonValue]]
    entities: list[dict[str, JsonValue]]
    history: list[AuditEvent]


class Entity(BaseModel):
    """`mentions` counts memories that name it, `times_told` how often it was told of."""

    id: str
    scope: str
    name: str
    type: str
    aliases: list[str]
    summary: str | None
    mentions: int
    times_told: int
    pinned: bool
    first_seen: datetime
    updated_at: datetime


class Entities(BaseModel):
    entities: list[Entity]
    next: str | None


class Relation(BaseModel):
    direction: Literal["out", "in"]
    relation: str
    name: str
    type: str
    mentions: int
    confidence: float


class Attribute(BaseModel):
    aspect: str
    kind: str
    memory_id: str
    content: str
    confidence: float
    importance: float


class EntityInfo(Entity):
    relations: list[Relation]
    attributes: list[Attribute]
    memories: list[Memory]


class Vector(BaseModel):
    """A line of the export."""

    id: str
    scope: str
    model: str
    dimensions: int
    content_hash: str
    vector: list[float]


class StageState(BaseModel):
    stage: str
    partition: int
    cursor: int
    end: int
    lag: int
    state: str


class PipelineStatus(BaseModel):
    """`held_back` counts the changes that wait for a person's review, by scope; `waiting` has what
    workers on Kafka wait for."""

    stages: list[StageState]
    balance: dict[str, Any]
    dead_letters: int
    held_back: dict[str, int]
    providers: dict[str, Any]
    waiting: list[str]


class Domain(BaseModel):
    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    counts: dict[str, int]


class Health(BaseModel):
    """`score` is the mean of the domains', `status` that of the worst."""

    score: float
    status: Literal["healthy", "degraded", "unhealthy"]
    domains: dict[str, Domain]


class Agreement(BaseModel):
    deciders: list[results.DeciderAgreement]


class Stats(BaseModel):
    scope: str | None
    active: int
    turns: int
    memories: int
    pinned: int
    forgotten: int
    embedded: int
    sessions: int
    entities: int
    types: dict[str, int]


class SqlColumn(BaseModel):
    name: str
    type: str


class SqlRows(BaseModel):
    columns: list[SqlColumn]
    rows: list[list[JsonValue]]


class State(BaseModel):
    status: Literal["ok"]


class Wrong(BaseModel):
    where: str
    why: str


class TurnsAccepted(BaseModel):
    """How many turns are in the log now, and what was wrong with the others."""

    accepted: int
    refused: list[Wrong]


class Accepted(BaseModel):
    """A command that is in the log and not carried out yet; `Location` tells where its result will
    be."""

    command_id: str
    applied: Literal[False]


class Done(BaseModel):
    """`applied` is false where every memory that the command names was left as it is."""

    command_id: str
    applied: bool


class RememberedOne(BaseModel):
    id: str
    deduped: bool
    version: int


class Remembered(Done):
    result: RememberedOne


class MayErase(Done):
    """Of a command that erased texts: whether files may still have them (`pending`) or not
    (`done`), and where else there are some."""

    erasure: Literal["pending", "done"] | None = None
    left: list[str] | None = None


class Changed(MayErase):
    """`result` tells what became of each memory, by its `id` and `status`."""

    result: list[dict[str, JsonValue]]


class ErasedScope(MayErase):
    """`result` tells how many `memories` were erased."""

    result: dict[str, JsonValue]


class ChangedOne(MayErase):
    id: str
    status: Literal["updated", "no_changes", "forgotten", "erased", "recovered", "confirmed"]
    version: int


class Aliased(Done):
    result: dict[str, JsonValue]


class LineRefused(BaseModel):
    line: int
    why: str


class Imported(BaseModel):
    """`taken` are the lines whose content is there now, `memories` the memories among them that
    were not there before; `refused` tells the first hundred of `refused_lines`. `complete`: the
    file was whole. `pending` are commands that are not carried out yet."""

    applied: bool
    taken: int
    memories: int
    refused: list[LineRefused]
    refused_lines: int
    complete: bool
    pending: list[str]


@dataclass(frozen=True, slots=True)
class Candidate(results.Candidate):
    __doc__ = None


class ForgetPreview(BaseModel):
    """What would be forgotten (`candidates`), and what would go with it where `cascade` is set;
    `hides` are the texts in which that would be hidden."""

    scope: str
    candidates: list[Candidate]
    cascade: list[Candidate]
    hides: list[results.HiddenText] = []
    not_found: list[str]
    more: bool
    needs_confirmation: bool
    confirm_token: str


class Counted(BaseModel):
    """How many memories a scope holds, and the token to erase them all."""

    scope: str
    memories: int
    confirm_token: str


class CommandState(BaseModel):
    """`result` as the route that gave the command would have answered it; null before."""

    command_id: str
    scope: str
    applied: bool
    command: str | None = None
    error: str | None = None
    result: JsonValue = None
    recorded_at: datetime | None = None
    erasure: Literal["pending", "done"] | None = None
    left: list[str] | None = None
