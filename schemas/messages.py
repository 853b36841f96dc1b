"""Every message of the pipeline, typed and frozen. One class a body, one schema name a class.

The reader's order is the flow's: a turn is published, normalized, extracted from, decided on,
written, persisted to the graph, audited.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from palimpsest.schemas.aspects import AspectChange, Classification
from palimpsest.schemas.commands import (
    Command,
    DecayCommand,
    DocumentTextCommand,
    MemoryCommand,
)
from palimpsest.schemas.entities import (
    EditEntityCommand,
    StructuredAspect,
    StructuredAttribute,
    StructuredEntity,
    StructureToRemove,
)
from palimpsest.schemas.envelope import Actor, ActorType, Frozen, Share, Triple, UtcTime
from palimpsest.schemas.extraction import Fact, FactsExtracted, ModelCall, TurnReference
from palimpsest.schemas.portable import ImportedGraph
from palimpsest.schemas.rows.enumerations import Action, OutcomeEvent, Privacy

Role = Literal["user", "assistant", "tool", "system"]


_ROLE_OF_SPEAKER: Final[dict[str, Role]] = {
    **dict.fromkeys(("assistant", "the assistant", "ai", "ai assistant"), "assistant"),
    **dict.fromkeys(("bot", "chatbot", "chatgpt"), "assistant"),
    **{"system": "system", "tool": "tool", "function": "tool"},
}


def role_of_speaker(speaker: str) -> Role:
    """The role of a speaker without one: the names of assistants, of the system and of tools have
    theirs, everybody else is a user."""
    return _ROLE_OF_SPEAKER.get(" ".join(speaker.split()).casefold(), "user")


class ConversationTurn(Frozen):
    """One message of a conversation, as its producer published it. `utc_offset_minutes` tells the
    zone of its speaker where the envelope's time, mostly in UTC, does not: what "yesterday" is.
    Where it has no `role`, the speaker's name tells it, and else it is a user's. `revised_at` is
    when its text was last edited where it was said: a later one replaces the text under the same
    `turn_id`."""

    turn_id: str = Field(min_length=1, max_length=256)
    session_id: str = Field(default="", max_length=256)
    speaker: str = Field(default="", max_length=256)
    role: Role = Field(
        default_factory=lambda known: role_of_speaker(known.get("speaker", "")),
        json_schema_extra={"default": "user"},
    )
    content: str
    privacy: Privacy = "none"
    source_type: str = Field(default="conversation", max_length=64)
    source_id: str | None = Field(default=None, max_length=512)
    project: str | None = Field(default=None, max_length=256)
    tags: tuple[str, ...] = ()
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    utc_offset_minutes: int | None = Field(default=None, ge=-1439, le=1439)
    revised_at: UtcTime | None = None


class ContextTurn(Frozen):
    """An earlier turn of the session, shown to a model so that names and pronouns can be told.
    `role` is its speaker's, `memory_id` its memory; older records have none, which is as a
    user's."""

    speaker: str
    role: Role | None = None
    occurred_at: UtcTime
    content: str
    memory_id: str | None = None


class NormalizedTurn(ConversationTurn):
    """A turn after normalize. `content` is the storage content; the rest is derived from it.

    A producer's unknown fields lie in `extensions`, so that they never meet ours. `item_id` is the
    turn's id in the balance (None in records of before it was told), `published_content` the text
    with its line breaks in records of before `content` kept them. `context` is filled in for
    `turns-normalized` only. `memory_id` is the memory to extract from where that is no turn: one
    that a command remembered.
    """

    normalized_content: str
    content_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    explicit_long_term_memory_intent: bool = False
    redactions: tuple[str, ...] = ()
    item_id: str | None = None
    published_content: str | None = None
    context: tuple[ContextTurn, ...] | None = None
    memory_id: str | None = None
    extensions: dict[str, JsonValue] | None = None


class ScoredCandidate(Frozen):
    """An existing memory that the decision saw, with the scores and the version it saw.

    `occurred_at` is when the memory was told: the model is shown it. `valid_until` is its end.
    """

    memory_id: str
    version: int
    type: str
    content: str
    score: float
    cosine: float | None = None
    keyword: float | None = None
    occurred_at: UtcTime | None = None
    valid_until: UtcTime | None = None


class Proposal(Frozen):
    """A fact with the decided action.

    `dropped` says why a model's answer could not be used (the proposal is then recorded,
    never applied). `memory_id` is the id that an ADD would create. `until`: when the first of the
    statements was made that are later than the fact and exclude it. `ends`: the other memories
    that the fact excludes, which end with it.
    """

    item_id: str
    memory_id: str
    fact: Fact
    action: Action
    target_id: str | None = None
    target_version: int | None = None
    confidence: Share
    reason: str
    candidates: tuple[ScoredCandidate, ...] = ()
    contradiction_risk: bool = False
    review_needed: bool = False
    dropped: str | None = None
    warnings: tuple[str, ...] = ()
    decider: ModelCall | None = None
    until: UtcTime | None = None
    ends: tuple[str, ...] | None = None


class RawTurnIntent(Frozen):
    """Store this turn as an episodic memory."""

    intent: Literal["turn"] = "turn"
    turn: NormalizedTurn


class RejectedTurnIntent(Frozen):
    """A turn that must not be stored: counted with its reason, without its text."""

    intent: Literal["turn-rejected"] = "turn-rejected"
    turn_id: str
    item_id: str | None = None
    session_id: str = ""
    reason: str


class ProposalsIntent(Frozen):
    """The proposals of one turn.

    `as_of` is the shard's write sequence when the candidates were read; `decision_order` is
    the position of the deciding record, so that apply can tell what the decider had seen. In a
    log that was repartitioned, `as_of` is past all sequences, or 0 where a proposal was sent back.
    `by_date`: what holds follows from when it was said; older records have no such mark, and are
    carried out in the order of delivery, also in a rebuild. `held_once`: a change that is pending
    already is not held a second time; of older records each is held.
    """

    intent: Literal["proposals"] = "proposals"
    turn: TurnReference
    proposals: tuple[Proposal, ...]
    triples: tuple[Triple, ...] = ()
    call: ModelCall
    as_of: int
    decision_order: int
    round: int = 0
    warnings: tuple[str, ...] = ()
    by_date: bool | None = None
    held_once: bool | None = None


class CommandIntent(Frozen):
    """A validated command, or (with `error`) one that only yields its result. `digest` tells what
    its producer asked for from all else, see `schemas.identity.command_digest`. `hides`: what it
    forgets is hidden in the texts that stated it, and what it recovers is shown there. Older
    records have no such mark and did nothing of the kind, nor do they in a rebuild. `guards`: no
    machine pins a memory or gives it more than the usual importance, and a cascade is carried out
    as a whole or not at all; older records have no such mark either. `supersedes`: a memory whose
    text it changes gets an edge to its state of before, which older records do not leave.
    `guards_graph`: no machine takes back what a person said of entities."""

    intent: Literal["command"] = "command"
    command: Command | None = None
    actor: Actor = Actor()
    error: str | None = None
    digest: str | None = None
    hides: bool | None = None
    guards: bool | None = None
    supersedes: bool | None = None
    guards_graph: bool | None = None


class DocumentTextIntent(Frozen):
    """Store some chunks of a document; nobody waits for its result."""

    intent: Literal["document-text"] = "document-text"
    text: DocumentTextCommand


class ForgetChunksIntent(Frozen):
    """Forget the chunks of a document after position `after`, some at a time; `forgotten` and
    `kept` were counted so far. The last one answers the command that it began with, if any."""

    intent: Literal["forget-chunks"] = "forget-chunks"
    document_id: str
    reason: str
    actor: Actor = Actor()
    after: int = -1
    forgotten: int = 0
    kept: int = 0
    command_id: str | None = None
    digest: str | None = None


class DecayIntent(Frozen):
    """Go on with a `decay` after this memory, some at a time; `weakened` and `faded` were counted
    so far. The last one answers the command."""

    intent: Literal["decay"] = "decay"
    command: DecayCommand
    actor: Actor = Actor()
    after: str = ""
    weakened: int = 0
    faded: int = 0
    command_id: str
    digest: str | None = None


Intent = Annotated[
    RawTurnIntent
    | RejectedTurnIntent
    | ProposalsIntent
    | CommandIntent
    | DocumentTextIntent
    | ForgetChunksIntent
    | DecayIntent,
    Field(discriminator="intent"),
]


EDITION: Final = 11
"""The edition of new records: a change of what apply-writes makes of a record raises it."""


class MemoryWrite(Frozen):
    """An intent on the write-ahead log of memory. `settings`: by section those that decide what it
    comes to and differ from the defaults, as they were when it was written; older records carry
    none, and are carried out by those of the program. `edition`: by which edition of its rules
    apply-writes executes it; older records carry none, and a rebuild makes of them what was made
    then. Since 1, the event of a deletion has no new content; since 2, a text that is stored on
    request ends when it says so, and has the categories of all that it states; since 3, a memory
    that is stated again settles what may not hold beside it, and an approved change that is older
    than its memory becomes past; since 4, a fact has the clock of its source; since
    5, the relations of a turn are linked to the facts that name them; since 6, a pending change
    is settled by a statement that excludes it and by the change of its memory, and is about the
    text of its memory, whatever else changed of that, and a text of a turn that arrives after a
    later edit is in its history; since 8, a memory is forgotten with the turns that its present
    text was drawn from, whatever was drawn from others before; since 9, an erasure with its cascade
    removes what memories that stay said before on the word of what is erased alone; since 10, a
    memory whose present text goes with a cascade is taken back to what another source says; since
    11, a statement of several in one sentence settles what waits, as one of its own does."""

    write: Intent
    settings: dict[str, dict[str, JsonValue]] | None = None
    edition: int | None = None


class Outcome(Frozen):
    """What became of one proposal, turn or command row.

    `item_kind` tells which balance it settles: a turn, a fact, or none (commands).
    """

    event: OutcomeEvent
    item_kind: Literal["turn", "fact", "command"]
    item_id: str
    memory_id: str | None = None
    old_content: str | None = None
    new_content: str | None = None
    reason: str = ""
    changed_by: str = "pipeline"
    actor_type: ActorType = "pipeline"
    version: int | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class GraphSweep(Frozen):
    """A step of the retention sweep that follows graph-persist: it removes tombstones of memories
    that were deleted not later than `before`. `at` is when the command was recorded: later texts
    do not count for what the graph keeps."""

    step: Literal["mentions", "vectors", "memories"]
    before: UtcTime
    at: UtcTime


class GraphWork(Frozen):
    """What the graph should take from a change: triples, and the memories that they belong to.
    `command_id`: the command that told it, where extraction did not; that of an alias is answered
    by graph-persist, which alone knows what came of it, and so is that of `separated`, two names
    that denote two entities, of `edited`, a change of one, and of `removed`, parts of the graph.
    `tells`: graph-persist answers the command with what of the structure was new. `by_person`:
    whether a person asked for it; older records do not tell. `erased`: memories that the graph
    forgets, with all that they alone told; `erased_scope`: all of it. `from_turns`: whether the
    graph took what turns say when this was written; older records do not tell. `classified`:
    what a model said of facts of one entity, where no one else has. `weighed`: changes of aspects'
    weights. `by_text`: a name is one of the first memory, the turn, and of those others whose text
    has it; older records link it to all."""

    memory_ids: tuple[str, ...]
    command_id: str | None = None
    triples: tuple[Triple, ...] = ()
    entities: tuple[StructuredEntity, ...] = ()
    attributes: tuple[StructuredAttribute, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    separated: tuple[tuple[str, str], ...] | None = None
    imported: ImportedGraph | None = None
    erased: tuple[str, ...] | None = None
    erased_scope: bool | None = None
    from_turns: bool | None = None
    sweep: GraphSweep | None = None
    classified: Classification | None = None
    weighed: tuple[AspectChange, ...] | None = None
    edited: EditEntityCommand | None = None
    by_person: bool | None = None
    aspects: tuple[StructuredAspect, ...] | None = None
    tells: bool | None = None
    removed: StructureToRemove | None = None
    by_text: bool | None = None


class MemoryChange(Frozen):
    """Outcome of one intent, row by row, with what the graph should take."""

    outcomes: tuple[Outcome, ...]
    session_id: str = ""
    graph: GraphWork | None = None


class GraphChange(Frozen):
    """Outcome of one graph write, in numbers of rows."""

    memory_ids: tuple[str, ...]
    entities_inserted: int = 0
    entities_updated: int = 0
    relations_inserted: int = 0
    relations_updated: int = 0
    mentions_linked: int = 0
    warnings: tuple[str, ...] = ()
    session_id: str = ""


class HistoryEvent(Frozen):
    """One audit event; a row of `memory_history` and a record of the compacted topic."""

    event_id: str
    event: OutcomeEvent
    memory_id: str | None = None
    old_content: str | None = None
    new_content: str | None = None
    changed_by: str
    actor_type: ActorType
    reason: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    session_id: str = ""
    created_at: UtcTime


class CacheInvalidation(Frozen):
    """Tells applications, after commit, which memories of a scope changed."""

    memory_ids: tuple[str, ...]
    kind: Literal["server", "personal"] = "personal"


class DeadLetter(Frozen):
    """A record that could not be processed, as it was, and why.

    `value_base64` holds the bytes; `item_kind` and `item_ids` name what the balance must
    count as dead (empty when the record could not be read that far).
    """

    topic: str
    partition: int
    offset: int
    key: str | None = None
    value_base64: str
    headers: dict[str, str] = Field(default_factory=dict)
    stage: str
    failure: Literal["invalid", "malformed-output", "rejected", "unexpected"]
    reason: str
    raw_output: str | None = None
    attempts: int = 1
    first_failed_at: UtcTime
    last_failed_at: UtcTime
    item_kind: Literal["turn", "fact", "command", "change"] | None = None
    item_ids: tuple[str, ...] = ()


class DeadLetterMark(Frozen):
    """What somebody decided of the dead letter `letter_id`: it was sent again, or discarded."""

    letter_id: str
    status: Literal["redriven", "dropped"]


SCHEMAS: dict[str, type[Frozen]] = {
    "conversation-turn/1": ConversationTurn,
    "memory-command/1": MemoryCommand,
    "turn-normalized/1": NormalizedTurn,
    "facts-extracted/1": FactsExtracted,
    "memory-write/1": MemoryWrite,
    "memory-change/1": MemoryChange,
    "graph-change/1": GraphChange,
    "history-event/1": HistoryEvent,
    "cache-invalidation/1": CacheInvalidation,
    "dead-letter/1": DeadLetter,
    "dead-letter-mark/1": DeadLetterMark,
}
"""Body class of every schema name and current version."""
