"""What the stages made of turns and commands, and what commands set: facts, decisions, outcomes,
results; history and dead letters; documents, promotions, recalls; flags, levels and windows."""

# Annotations are read while the program runs, so they are not postponed here.

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from palimpsest.schemas.rows.columns import (
    NOT_EXPORTED,
    NOT_KNOWN_BEFORE,
    SCHEDULE,
    Appended,
    Cost,
    ItemId,
    MaybeAppended,
    MemoryId,
    RecordedAt,
    Row,
    Scope,
    SessionId,
    Since,
)
from palimpsest.schemas.rows.enumerations import Privacy

PROMOTION: Final = "promotion"
"""Who changed a memory last that a promotion, or its rollback, changed (`updated_by`)."""
RecallId = Annotated[str, "id of the recall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow(Row, table="fact_rows", key=("item_id",), indexed=False):
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
class ExtractionRow(Row, table="extractions", key=("message_id",), indexed=False):
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
class ProposalRow(Row, table="proposals", key=("item_id", "round"), indexed=False):
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
    as_of: Annotated[int, "the store's write number when the candidates were read", SCHEDULE]
    # In a store of an earlier release it is that of the extraction.
    recorded_at: Annotated[RecordedAt, NOT_KNOWN_BEFORE]
    cost: Annotated[Cost, Since(8)] = None


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
class OutcomeRow(Row, table="outcomes", key=("item_kind", "item_id"), indexed=False):
    """The end of a turn or fact in the balance: once, unless a person settles what is `blocked`."""

    item_kind: Annotated[str, "turn or fact"]
    item_id: ItemId
    scope: Scope
    event: Annotated[str, "what became of it"]
    memory_id: Annotated[str | None, "the memory that it became or was decided about"]
    reason: Annotated[str, "why"]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow(Row, table="accepted_turns", key=("item_id",), indexed=False):
    """A turn that the log took, counted apart from what became of it."""

    item_id: ItemId
    scope: Scope
    log_offset: Annotated[int, "its offset in the partition", SCHEDULE]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow(Row, table="history_rows", key=("event_id",), indexed=False):
    """One audit event."""

    event_id: Annotated[str, "id of the event"]
    scope: Scope
    memory_id: Annotated[str | None, "id of the memory"]
    event: Annotated[
        str,
        "created, updated, deleted, recovered, none, deduped, skipped, blocked, shadowed, dropped,"
        " reconsidered, archived, purged, graph, flags, privacy, retention, session-ended,"
        " repaired or diagnosed",
    ]
    old_content: Annotated[str | None, "the text before"]
    new_content: Annotated[str | None, "the text after; NULL of a deletion"]
    changed_by: Annotated[str, "who did it"]
    actor_type: Annotated[str, "what kind of actor that is"]
    reason: Annotated[str, "why"]
    metadata: Annotated[str, "anything else, as a JSON object"]
    session_id: SessionId
    correlation_id: Annotated[str, "the turn or command that it all began with"]
    created_at: Annotated[Appended, "when it came to be here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow(Row, table="dead_letter_rows", key=("letter_id",), rewritten=True):
    """A dead letter as audit read it."""

    letter_id: Annotated[str, "id of the dead letter"]
    scope: Scope
    stage: Annotated[str, "the stage that could not process it"]
    topic: Annotated[str, "the topic it lay on"]
    partition: Annotated[int, "the partition of the topic", SCHEDULE]
    log_offset: Annotated[int, "its offset in the partition", SCHEDULE]
    record_key: Annotated[str | None, "its key"]
    value_base64: Annotated[str, "its value"]
    headers: Annotated[str, "its headers, as JSON"]
    failure: Annotated[str, "the kind of failure"]
    reason: Annotated[str, "what was wrong with it"]
    raw_output: Annotated[str | None, "what the model said, where it could not be read"]
    attempts: Annotated[int, "how often it was tried"]
    item_kind: Annotated[str | None, "turn or fact"]
    item_ids: Annotated[tuple[str, ...], "the turns or facts that were in it"]
    first_failed_at: Annotated[Appended, "when it first failed"]
    last_failed_at: Annotated[Appended, "when it last failed"]
    status: Annotated[str, "dead, redriven or dropped"] = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow(Row, table="command_results", key=("command_id",), rewritten=True):
    """The result of a command, for a waiting caller."""

    command_id: Annotated[str, "id of the command"]
    scope: Scope
    command: Annotated[str, "what kind of command it is"]
    error: Annotated[str | None, "why it failed"]
    result: Annotated[str, "its result as JSON, null until it is known"]
    recorded_at: RecordedAt
    digest: Annotated[str | None, "tells it from others under its id", Since(7)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsRow(Row, table="scope_flags", key=("scope",), rewritten=True):
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
class PrivacyRow(Row, table="privacy_rows", key=("scope", "person_key"), since=14, rewritten=True):
    """The level of a person in a scope as a command set it."""

    scope: Scope
    person_key: Annotated[
        str, "the name as it is compared; empty for the whole scope", NOT_EXPORTED
    ]
    person: Annotated[str, "the name as it was given first; empty for the whole scope"]
    level: Annotated[Privacy, "none, partial or full"]
    reason: Annotated[str, "why it was set"]
    changed_by: Annotated[str, "who set it"]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow(Row, table="document_rows", key=("document_id",), rewritten=True):
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
    created_at: Annotated[Appended, "when it came to be here"]
    updated_at: Annotated[Appended, "when it last came further"]
    deleted_at: Annotated[MaybeAppended, "when it was deleted; NULL for most"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentMemoryRow(
    Row, table="document_memory_rows", key=("document_id", "position"), indexed=False
):
    """The memory that holds the chunk at a position of a document. A text that a document has twice
    is one memory at two positions."""

    document_id: Annotated[str, "id of the document"]
    position: Annotated[int, "the number of the chunk in its document, from 0"]
    memory_id: MemoryId
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRow(
    Row, table="promotion_rows", key=("promotion_id", "scope"), since=12, rewritten=True
):
    """A promotion in one scope."""

    promotion_id: Annotated[str, "id of the promotion"]
    scope: Scope
    number: Annotated[int, "how many promotions its scope had with it"]
    branch: Annotated[str, "the branch that was promoted"]
    plan_id: Annotated[str, "id of the plan that it carried out"]
    status: Annotated[str, "applied or rolled-back"] = "applied"
    gained: Annotated[int, "memories that were added"]
    changed: Annotated[int, "memories that say something else since"]
    lost: Annotated[int, "memories that were forgotten"]
    kept: Annotated[int, "memories that were left as they are, or not taken"]
    reason: Annotated[str, "why it was promoted, as who did it said"]
    promoted_by: Annotated[str, "who promoted it"]
    recorded_at: RecordedAt
    rolled_back_by: Annotated[str | None, "who rolled it back; NULL while it is applied"] = None
    updated_at: Annotated[Appended, "when it was promoted, or rolled back"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionItemRow(
    Row, table="promotion_item_rows", key=("promotion_id", "memory_id"), since=12, rewritten=True
):
    """What a promotion did with one memory."""

    promotion_id: Annotated[str, "id of the promotion"]
    memory_id: MemoryId
    scope: Scope
    change: Annotated[str, "gained, changed, lost or kept"]
    why: Annotated[str, "of what was kept: why; empty for what was done"] = ""
    counterpart: Annotated[
        str | None, "the memory of the other side that it was paired with; NULL where none was"
    ] = None
    version_before: Annotated[int | None, "the memory's version before; NULL for a new one"] = None
    version_after: Annotated[int | None, "the memory's version after; NULL for what was kept"] = (
        None
    )
    rollback: Annotated[
        str | None, "what the rollback did with it: undone, or why it was left; NULL without one"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPartRow(
    Row, table="promotion_part_rows", key=("scope", "plan_id", "part"), since=12, rewritten=True
):
    """A part of a promotion that waits for the last one."""

    scope: Scope
    plan_id: Annotated[str, "id of the plan"]
    part: Annotated[int, "its number in the plan"]
    promotion_id: Annotated[str, "id of the promotion"]
    payload: Annotated[str, "its changes as JSON; an empty list once they were carried out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowProposalRow(
    Row, table="shadow_proposals", key=("item_id", "round", "decider"), since=13, indexed=False
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoriesRow(Row, table="scope_categories", key=("scope",), since=15, rewritten=True):
    """The categories that memories of a scope have: those of new ones are folded onto them."""

    scope: Scope
    names: Annotated[tuple[str, ...], "its categories, in alphabetical order"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRow(Row, table="embedding_rows", key=("scope",), since=23, rewritten=True):
    """The model that a store searches with, where a command has changed it, and the models that it
    may change to. Models are JSON of `EmbeddingChoice`. A store has one row, under the scope of
    such commands; a store that was dealt out of several has theirs, and the newest counts."""

    scope: Scope
    live: Annotated[str, "the model that all searches use"]
    former: Annotated[str | None, "the model used before, while its vectors are kept"] = None
    upcoming: Annotated[str | None, "the model that a migration makes vectors for"] = None
    switches: Annotated[bool, "whether the worker switches once all vectors exist"] = False
    allow_missing: Annotated[int, "how many memories may lack a vector at that switch"] = 0
    dropped: Annotated[tuple[str, ...], "models whose vectors are removed"] = ()
    switched_seq: Annotated[int, "the store's write sequence at the last switch", SCHEDULE] = 0
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResultRow(
    Row, table="recall_results", key=("recall_id", "rank"), since=19, indexed=False
):
    """A memory that a recall returned."""

    recall_id: RecallId
    rank: Annotated[int, "its place among the results, from 1"]
    scope: Scope
    memory_id: MemoryId
    score: Annotated[float | None, "its score, from 0 to 1; NULL of a context and a get"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRow(Row, table="recalls", key=("recall_id",), since=19, indexed=False):
    """A recall, a context or a get that was answered. It is not exported with a scope."""

    recall_id: RecallId
    scope: Scope
    kind: Annotated[str, "recall, context or get"]
    asked_at: Annotated[Appended, "when it was answered"]
    session_id: Annotated[str, "the session that the question named; empty without one"]
    asked_by: Annotated[str | None, "who asked, if known"]
    question_id: Annotated[
        str | None, "the same for equal questions of a scope; NULL of a get, and once erased"
    ]
    question: Annotated[
        str | None,
        "the question without secrets; NULL of a get, where it is not kept, and once erased",
    ]
    recorded_at: RecordedAt


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRow(Row, table="scope_retention", key=("scope",), since=20, rewritten=True):
    """The retention windows of a scope as commands set them, in days; NULL falls back to the
    settings."""

    scope: Scope
    deleted_days: Annotated[int | None, "how long forgotten memories can be recovered"] = None
    history_days: Annotated[int | None, "how long history events are kept"] = None
    completed_days: Annotated[int | None, "how long completed pipeline items are kept"] = None
    dead_letter_days: Annotated[int | None, "how long dead letters are kept"] = None
    recall_days: Annotated[int | None, "how long recorded recalls are kept"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(Row, table="scope_sweeps", key=("scope", "step"), since=20, rewritten=True):
    """How far a step of the retention sweep has come in a scope: what is not later is gone, and is
    not stored again."""

    scope: Scope
    step: Annotated[str, "mentions, vectors, memories, history, completed or dead-letters"]
    before: Annotated[Appended, "what is not later than this is gone"]


def same_key(kind: str, source: str | None, digest: str | None) -> str:
    """What a document is known by within its scope: a URL by its address, all others by their
    text."""
    return f"url|{source}" if kind == "url" else f"text|{digest}"
