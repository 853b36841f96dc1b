"""What the columns of the views hold, by name; the views explain those that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from palimpsest.stores.database.balance import FACT_STATES, TURN_STATES

PARTITION = "partition"
"""The column that every view has in a query: the partition that the row lies in."""

COLUMNS: dict[str, str] = {
    # whose, what and where from
    "memory_id": "id of the memory",
    "scope": "the memory space",
    "type": "episodic (a turn), document_chunk, fact, preference, decision, opinion …",
    "content": "the text",
    "normalized_content": "the text lower-cased, without punctuation at its end: what is searched",
    "content_hash": "SHA-256 of the normalized text: equal texts have equal hashes",
    "embedding_key": "which text its vector is of",
    "embedding_model": "the models that it has vectors of, with commas; NULL while it has none",
    "importance": "from 0 to 1",
    "confidence": "how sure it is, from 0 to 1",
    "decay_rate": "how fast its importance fades; 0 never, as when confirmed",
    "pinned": "whether machines must leave it alone",
    "tags": "its tags",
    "categories": "its categories",
    "who": "who said it; pipeline for what was extracted",
    "speaker": "who said it",
    "role": "the speaker's role: user, assistant, tool or system; empty for what is no turn and"
    " where it is not known",
    "why": "how it came to be",
    "project": "the project it belongs to",
    "session_id": "the session (conversation) it belongs to",
    "source_type": "what kind of source it is from",
    "source_id": "its id where it came from",
    "extraction_model": "the model that extracted it",
    "temporal_kind": "whether it holds for a time, for good, or at a moment",
    "valid_from": "from when it holds",
    "valid_until": "until when it holds; NULL for good",
    "occurred_at": "when it happened or was said in the world",
    "first_occurred_at": "when its first statement happened or was said; occurred_at is the newest",
    "created_at": "when it came to be here",
    "updated_at": "when it was last updated here",
    "updated_by": "who updated it last",
    "last_accessed": "not kept yet: always NULL",
    "access_count": "not counted yet: always 0",
    "version": "1 at first, one more with every update",
    "is_deleted": "whether it is forgotten",
    "metadata": "anything else, as a JSON object",
    # facts and decisions
    "item_id": "id of the turn or fact",
    "item_kind": "turn or fact",
    "item_ids": "the turns or facts that were in it",
    "turn_memory_id": "the turn that it was extracted from",
    "model": "the model that was asked",
    "prompt_version": "the version of the prompt",
    "correlation_id": "the turn or command that it all began with",
    "outcome": "what became of it: created, updated, deleted, none, deduped, skipped, blocked,"
    " shadowed or dropped; NULL while it is on its way",
    "outcome_reason": "why",
    "round": "0 at first, one more each time it was sent back",
    "action": "ADD, UPDATE, DELETE or NONE",
    "target_id": "the memory that it is about",
    "candidates": "the memories that were looked at, with scores and versions, as JSON",
    "contradiction_risk": "whether it seems to contradict its target",
    "review_needed": "whether a person should look at it",
    "dropped": "why the proposal was no use; NULL for most",
    "input_tokens": "tokens that the model read",
    "output_tokens": "tokens that the model wrote",
    "cost": "what the reply cost, by the prices in the settings; NULL without them",
    "latency_ms": "how long the model took, in milliseconds",
    "as_of": "the store's write number when the candidates were read",
    "recorded_at": "when the record was appended to the log",
    "provider": "who runs the model",
    "triples": "relations between entities that were drawn from it",
    "warnings": "what of the reply could not be used, and why",
    # history
    "event_id": "id of the event",
    "old_content": "the text before",
    "new_content": "the text after",
    "changed_by": "who did it",
    "actor_type": "what kind of actor that is",
    # graph
    "entity_id": "id of the entity",
    "entity_name": "the entity's name",
    "entity_type": "person, place, organization …",
    "name": "its name as it was first written",
    "canonical_name": "its name lower-cased: the same name is the same entity",
    "aliases": "other names that it goes by",
    "summary": "what is known of it in a sentence",
    "mentions": "active memories that mention it: its rows in mentions",
    "times_told": "how often what was said or authored of the graph named it",
    "aspect_id": "id of the aspect",
    "kind": "attribute or constraint",
    "status": "active, superseded or deleted",
    "first_seen": "when it was first named",
    "source_entity_id": "the entity that it goes from",
    "target_entity_id": "the entity that it goes to",
    "strength": "how strong it is, from 0 to 1",
    "mention_text": "how the memory names it",
    "predicate": "what the relation says, in a word",
    "weight": "how much it counts, from 0 to 1",
    "evidence": "what it rests on",
    # sessions and flags
    "last_turn": "its newest turn",
    "turns": "its turns",
    "extracted_turns": "its newest turns that a model may be shown with the next, oldest first",
    "first_turn": "its oldest turn",
    "ended_at": "when it ended; NULL while it is open",
    "ended_by": "command, silence, new-session or crowded; NULL while it is open",
    "ends": "how often it has ended: a turn opens it again",
    "turns_expire_at": "until when its turns are kept here",
    "summary_by": "who wrote the summary",
    "summary_at": "when the summary was written",
    "summary_expires_at": "until when the summary is kept",
    "explicit_intent": "whether its last user turn asks to have something remembered for good",
    "expires_at": "when the row goes",
    "first_at": "when its first turn was said",
    "last_at": "when its newest turn was said",
    "enabled": "whether facts are extracted",
    "shadow_mode": "whether all is decided and recorded, and nothing written",
    "allow_update_delete": "whether UPDATE and DELETE are carried out",
    "mutations_frozen": "whether nothing may be written, also not by commands",
    "autonomous_frozen": "whether timers rest",
    "earned_update_delete": "whether it has earned to update and delete, where nobody set that",
    "self_teaching_enabled": "whether agents' tools may write long-term memories",
    # dead letters
    "letter_id": "id of the dead letter",
    "stage": "the stage that could not process it",
    "topic": "the topic it lay on",
    "partition": "the partition of the topic",
    "log_offset": "its offset in the partition",
    "record_key": "its key",
    "headers": "its headers, as JSON",
    "failure": "the kind of failure",
    "raw_output": "what the model said, where it could not be read",
    "attempts": "how often it was tried",
    "first_failed_at": "when it first failed",
    "last_failed_at": "when it last failed",
    # documents
    "document_id": "id of the document",
    "content_type": "what kind of text it was given as",
    "characters": "how long its text is, in characters",
    "chunks": "how many chunks its text has; NULL while its text is not known",
    "taken": "how many of its chunks are stored",
    "added_by": "who added it",
    "deleted_at": "when it was deleted; NULL for most",
    # promotions
    "promotion_id": "id of the promotion",
    "number": "how many promotions its scope had with it",
    "branch": "the branch that was promoted",
    "gained": "memories that were added",
    "changed": "memories that say something else since",
    "lost": "memories that were forgotten",
    "kept": "memories that were left as they are, or not taken",
    "promoted_by": "who promoted it",
    "rolled_back_by": "who rolled it back; NULL while it is applied",
    "change": "gained, changed, lost or kept",
    "counterpart": "the memory of the other side that it was paired with; NULL where none was",
    "version_before": "the memory's version before; NULL for a new one",
    "version_after": "the memory's version after; NULL for what was kept",
    "rollback": "what the rollback did with it: undone, or why it was left; NULL without one",
    # migrations
    "position": "its place among the migrations",
}

_KINDS = {"turns": TURN_STATES, "facts": FACT_STATES}
_STATES = {
    "stored": "stored as memories",
    "rejected": "rejected, with a marker in place of the text",
    "created": "that became memories",
    "updated": "that updated a memory",
    "deleted": "that had a memory forgotten",
    "none": "that were known already",
    "deduped": "whose text was there already",
    "skipped": "skipped by a rule",
    "blocked": "blocked by the mode",
    "shadowed": "decided in shadow mode, so only recorded",
    "dropped": "whose decision was no use",
    "dead": "in dead letters",
    "in_flight": "on their way",
    "lost": "that cannot be found: must be 0",
}

PIPELINE_COLUMNS: dict[str, str] = {
    "state": "where it is now: one of the columns of pipeline_balance",
    "detail": "why, or the place in the log where it was met",
    "memory_id": "the memory that it became or was decided about",
    "turns_accepted": "turns that were published",
    "facts_extracted": "facts that were extracted",
    "holds": "whether everything that went in was found again",
    **{
        f"{kind}_{state}": f"{kind} {_STATES[state]}"
        for kind, states in _KINDS.items()
        for state in states
    },
}


@dataclass(frozen=True, slots=True)
class View:
    """`columns` are explained where the column's name does not mean the same everywhere."""

    meaning: str
    query: str
    columns: Mapping[str, str] = field(default_factory=dict)

    def explained(self, column: str) -> str | None:
        """What a column holds; None for one that no one has described."""
        return self.columns.get(column, COLUMNS.get(column))


def quoted(text: str) -> str:
    """The text as SQL writes it, where no parameter can be given."""
    return "'" + text.replace("'", "''") + "'"
