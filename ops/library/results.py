"""What the library answers: the answers of the queries, typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import JsonValue, TypeAdapter

from palimpsest.ops.queries.errors import RequestError
from palimpsest.stores.recall.query import Mark, RecallAnswer

T = TypeVar("T")


class NotYetAppliedError(RequestError):
    """What was published is durable, and was not carried out in time; it still will be. A command
    can be asked for by its `command_id`."""

    code = "not_yet_applied"

    def __init__(self, text: str, command_id: str | None = None) -> None:
        super().__init__(text)
        self.command_id = command_id


class NotDoneError(RequestError):
    """A command was refused, or some of it. `kind` is why (`palimpsest.ops.commanding.Kind`), that
    of the first memory where `changes` tells what became of each."""

    code = "not_done"

    def __init__(self, text: str, changes: tuple[Change, ...] = (), kind: str = "failed") -> None:
        super().__init__(text)
        self.changes = changes
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Added:
    """Turns that were published: the ids under which they are memories, in order."""

    memory_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What a command did to one memory. `deduped`: it was there already; `protected`: no machine
    may change it any more."""

    id: str
    version: int | None = None
    status: str = ""
    deduped: bool = False
    protected: bool = False
    why: str = ""
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """What became of two names: they were one already (`already`), one became another name of
    the other's entity (`added`), or two entities became one (`merged`)."""

    status: str


@dataclass(frozen=True, slots=True)
class CommandState:
    """A command that was carried out, or refused: then `error` begins with why, and a colon."""

    command_id: str
    scope: str
    applied: bool
    command: str
    error: str | None
    result: JsonValue
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that would be forgotten; `score` where it was found by a question. `drawn_from` are
    the memories because of which it would go."""

    id: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_type: str
    tags: tuple[str, ...]
    pinned: bool
    version: int
    occurred_at: datetime
    score: float | None = None
    drawn_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenText:
    """A text in which what is forgotten would be hidden; `left` is what would be shown of it, None
    for nothing."""

    id: str
    content: str
    left: str | None


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """What would be forgotten, and what was drawn from that and nothing else (`cascade`); `hides`
    are the texts that it was drawn from itself, in which it would be hidden. `more`:
    further ones match. `needs_confirmation`: they are so many that `forget` wants the
    `confirm_token`, which stands for these memories in these versions."""

    candidates: tuple[Candidate, ...]
    cascade: tuple[Candidate, ...]
    not_found: tuple[str, ...]
    more: bool
    needs_confirmation: bool
    confirm_token: str
    hides: tuple[HiddenText, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the candidates, as `forget` takes them."""
        return tuple(each.id for each in self.candidates)


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with all its fields; one of the type `episodic` is a turn itself, and `role` its
    speaker's (empty where that is not known)."""

    id: str
    scope: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_id: str | None
    occurred_at: datetime
    created_at: datetime
    updated_at: datetime
    updated_by: str
    importance: float
    confidence: float
    decay_rate: float
    pinned: bool
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    why: str | None
    project: str | None
    source_type: str
    extraction_model: str | None
    temporal_kind: str
    valid_from: datetime | None
    valid_until: datetime | None
    version: int
    is_deleted: bool
    deleted_at: datetime | None
    last_accessed: datetime | None
    access_count: int
    content_hash: str
    metadata: dict[str, JsonValue]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Memories, the newest first; `next` is the `before` of the page after, None at the end."""

    memories: tuple[StoredMemory, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class RelatedMemory:
    """A memory that the question's intent added to the results, and why."""

    id: str
    content: str
    type: str
    who: str
    role: str
    occurred_at: datetime
    score: float
    reason: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled(RecallAnswer):
    """The results of a recall, best first, and what its intent adds to them."""

    related: tuple[RelatedMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A Markdown block for a model's prompt; `text` is None where nothing is known. `ids` are
    those of the memories shown, by section. `offers_summary`: a model should be asked for a summary
    of the session, as it is not when it is asked to remember something for good."""

    text: str | None
    tokens: int
    ids: dict[str, tuple[str, ...]]
    offers_summary: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """An audit event of a memory."""

    event_id: str
    event: str
    old_content: str | None
    new_content: str | None
    changed_by: str
    actor_type: str
    reason: str
    created_at: datetime
    metadata: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Provenance:
    """A memory with all that led to it: the turns it was drawn from (of a turn: the facts drawn
    from it), its states before, what was decided about it, whom it names, what happened to it."""

    memory: StoredMemory
    derived_from: tuple[StoredMemory, ...]
    facts: tuple[StoredMemory, ...]
    before: tuple[dict[str, JsonValue], ...]
    decisions: tuple[dict[str, JsonValue], ...]
    entities: tuple[dict[str, JsonValue], ...]
    history: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Entity:
    """Who or what a name stands for, with its relations, its attributes and the memories that
    name it."""

    id: str
    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    mentions: int
    relations: tuple[dict[str, JsonValue], ...]
    attributes: tuple[dict[str, JsonValue], ...]
    memories: tuple[StoredMemory, ...]


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity of a list; `times_told` is how often it was told of."""

    id: str
    name: str
    type: str
    aliases: tuple[str, ...]
    summary: str | None
    mentions: int
    times_told: int
    pinned: bool
    first_seen: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class EntityPage:
    """Entities, the most often told of first; `next` is the `after` of the page after, None at
    the end."""

    entities: tuple[EntityRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Scope:
    """A memory space with how much is in it."""

    scope: str
    turns: int
    memories: int
    facts: int
    last_activity: datetime | None


@dataclass(frozen=True)
class Stats:
    """How much is remembered; `types` with how many there are of each."""

    active: int
    turns: int
    memories: int
    pinned: int
    forgotten: int
    embedded: int
    sessions: int
    entities: int
    types: dict[str, int]


@dataclass(frozen=True, slots=True)
class DeciderAgreement:
    """Of the `proposals` that a decider was asked for in a scope, how many failed, named the same
    action as the live one, and also the same memory; of those that a person judged, how many it
    had with people. `earned`: whether the scope has earned to update and delete."""

    scope: str
    decider: str
    proposals: int
    failed: int
    same_action: int
    agrees: int
    judged: int
    with_people: int
    earned: bool


def typed(kind: type[T], answer: Any) -> T:
    """The JSON of a query as a result."""
    result: T = _adapter(cast("Any", kind)).validate_python(answer)
    return result


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def changes_of(result: JsonValue, done: frozenset[str]) -> tuple[Change, ...]:
    """What a command did. Raises NotDoneError where any part of it was refused."""
    told: Sequence[JsonValue] = result if isinstance(result, list) else [result]
    changes = tuple(typed(Change, each) for each in told)
    refused = [each for each in changes if each.status and each.status not in done]
    if refused:
        why = "; ".join(
            f"{each.id}: {each.status}{f' ({each.why})' if each.why else ''}" for each in refused
        )
        raise NotDoneError(why, changes, refused[0].status)
    return changes
