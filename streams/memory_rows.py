"""How facts and turns become rows of memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from palimpsest.schemas.envelope import Envelope, Frozen, local_time
from palimpsest.schemas.extraction import Fact, TurnReference
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.memory_texts import (
    dedup_key,
    embedding_key,
    embedding_text,
    refers_to_speaker,
)
from palimpsest.schemas.messages import NormalizedTurn, Proposal
from palimpsest.schemas.normal_forms import (
    content_hash,
    is_same_text,
    normalized_content,
    storage_content,
)
from palimpsest.schemas.rows.columns import columns_of, row_of
from palimpsest.schemas.rows.memories import SOURCE_TYPES, ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import CommandRow, FlagsRow
from palimpsest.streams.settings import Flags

EPISODIC_IMPORTANCE = 0.3
_MADE_BY_THE_PROGRAM = frozenset({"extraction", "document", "profile"})
"""Sources whose ids are the program's own: of others they are what somebody chose to give."""
DRAWN = "extracted-fact"
"""The `why` of a memory that was extracted from a statement."""
CONFIRMED_DECAY_RATE = 0.0

STATEMENT = (
    "content",
    "normalized_content",
    "content_hash",
    "dedup_key",
    "embedding_key",
    "type",
    "confidence",
    "retained",
    "categories",
    "extraction_model",
    "temporal_kind",
    "valid_from",
    "valid_until",
    "occurred_at",
    "utc_offset_minutes",
)
"""The columns of a memory that say what was stated, by whom it was drawn and when it holds."""


def answer_row(
    message: Envelope[Frozen],
    command_id: str,
    command: str,
    digest: str | None,
    result: JsonValue,
    error: str | None = None,
) -> CommandRow:
    """The answer for the caller that waits for a command, given while this message is processed."""
    return CommandRow(
        command_id=command_id,
        scope=message.scope,
        command=command,
        error=error,
        result=json.dumps(result, sort_keys=True, ensure_ascii=False),
        recorded_at=message.recorded,
        digest=digest,
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a proposal comes from, for the row that it makes: `occurred_at` is when the fact was
    stated, `at` when the change is recorded, `by` who changes, `model` what drew the fact,
    `order` the place in the order of decisions (None for a command's). `utc_offset_minutes` is that
    of the source, since edition 4 of the rules."""

    scope: str
    occurred_at: datetime
    at: datetime
    model: str
    order: int | None = None
    project: str | None = None
    session_id: str = ""
    by: str = "pipeline"
    utc_offset_minutes: int | None = None


def origin_of(
    message: Envelope[Frozen],
    turn: TurnReference,
    model: str,
    order: int,
    source: MemoryRow | None,
) -> Origin:
    """The origin of what is drawn from a turn, of which `source` is the memory."""
    return Origin(
        message.scope,
        message.occurred_at,
        message.recorded,
        model,
        order,
        turn.project,
        turn.session_id,
        utc_offset_minutes=None if source is None else source.utc_offset_minutes,
    )


def turn_text(message: Envelope[Frozen], turn: NormalizedTurn) -> str:
    """What the vector of a turn's memory is made from."""
    said_at = local_time(message.occurred_at, turn.utc_offset_minutes or 0)
    return embedding_text("episodic", turn.speaker, turn.content, said_at, turn.role)


def turn_memory(message: Envelope[Frozen], turn: NormalizedTurn, write_seq: int) -> MemoryRow:
    """The episodic memory of a turn."""
    return row_of(
        MemoryRow,
        turn,
        memory_id=turn_memory_id(message.scope, turn.turn_id),
        scope=message.scope,
        type="episodic",
        dedup_key=None,
        embedding_key=embedding_key(turn_text(message, turn)),
        importance=EPISODIC_IMPORTANCE,
        confidence=1.0,
        who=turn.speaker,
        why="conversation-turn",
        source_id=turn.source_id or turn.turn_id,
        occurred_at=message.occurred_at,
        created_at=message.recorded,
        updated_at=message.recorded,
        updated_by="pipeline",
        metadata=json.dumps(turn.metadata, sort_keys=True, ensure_ascii=False),
        write_seq=write_seq,
    )


def fact_memory(origin: Origin, proposal: Proposal) -> MemoryRow:
    """The memory that an ADD creates: importance is the fact's confidence unless the model rated
    it."""
    fact = proposal.fact
    return row_of(
        MemoryRow,
        fact,
        **text_columns(origin.scope, fact.type, fact.content),
        memory_id=proposal.memory_id,
        scope=origin.scope,
        importance=fact.confidence if fact.importance is None else fact.importance,
        who="pipeline",
        why=DRAWN,
        project=origin.project,
        session_id=origin.session_id,
        source_type="extraction",
        source_id=fact.item_id,
        extraction_model=origin.model,
        occurred_at=origin.occurred_at,
        utc_offset_minutes=origin.utc_offset_minutes,
        created_at=origin.at,
        updated_at=origin.at,
        updated_by=origin.by,
        decision_order=origin.order,
    )


def text_columns(scope: str, memory_type: str, content: str) -> dict[str, object]:
    """The columns that follow from the text of a memory that is no turn."""
    stored = storage_content(content)
    digest = content_hash(stored)
    return {
        "content": stored,
        "normalized_content": normalized_content(stored),
        "content_hash": digest,
        "dedup_key": None if memory_type in SOURCE_TYPES else dedup_key(scope, digest),
        "embedding_key": embedding_key(stored),
    }


def restated(row: MemoryRow, statement: MemoryRow, fact: Fact) -> MemoryRow:
    """Returns `row` with the content of `statement`, a memory made of `fact`: everything that
    belongs to a statement comes from the new one. What belongs to the memory stays (its owner, its
    tags, its pin), and so does its importance unless the model rated the new one."""
    return replace(
        row,
        **{name: getattr(statement, name) for name in STATEMENT},
        importance=row.importance if fact.importance is None else fact.importance,
        first_occurred_at=min(row.first_occurred_at or row.occurred_at, statement.occurred_at),
    )


CLOCKS_DIFFER = timedelta(days=2)
"""How far ahead a time may lie, because of time zones and of producers' clocks."""


def is_said_later(when: datetime, than: datetime, now: datetime) -> bool:
    """Returns whether what is dated `when` was said after what is dated `than`. A date long after
    `now` is wrong, and says nothing."""
    return than < when and when - max(now, than) <= CLOCKS_DIFFER


def ended(row: MemoryRow, at: datetime) -> MemoryRow:
    """Returns a new memory of a statement as one that something said later, `at`, excludes. Its
    content may be stated anew, so it does not take the dedup key."""
    until = at if row.valid_until is None else min(row.valid_until, at)
    return replace(row, valid_from=row.occurred_at, valid_until=until, dedup_key=None)


def said_again(row: MemoryRow, again: Origin) -> MemoryRow | None:
    """Returns the memory with the dates of its first and its newest statement after one more; None
    if they are the same. It stays the same version: it says what it said."""
    first, when = row.first_occurred_at or row.occurred_at, again.occurred_at
    if first <= when <= row.occurred_at or when - again.at > CLOCKS_DIFFER:
        return None
    begins = None if row.valid_from is None else min(row.valid_from, when)
    row = replace(row, first_occurred_at=min(first, when), valid_from=begins)
    if when < row.occurred_at:
        return row
    return replace(row, occurred_at=when, utc_offset_minutes=again.utc_offset_minutes)


def with_content(row: MemoryRow, content: str) -> MemoryRow:
    """Returns the row with other content and everything derived from its text. A text that stays
    keeps its hash, which may be an owner's (`as_owned`)."""
    stored = storage_content(content)
    is_kept = bool(row.content_hash) and is_same_text(stored, row.content)
    digest = row.content_hash if is_kept else content_hash(stored)
    said_at = local_time(row.occurred_at, row.utc_offset_minutes or 0)
    embedded = embedding_text(row.type, row.who, stored, said_at, row.role)
    return replace(
        row,
        content=stored,
        normalized_content=normalized_content(stored),
        content_hash=digest,
        dedup_key=None if may_be_repeated(row) else dedup_key(row.scope, digest),
        embedding_key=embedding_key(embedded),
    )


def may_be_repeated(row: MemoryRow) -> bool:
    """Returns whether another active memory may have the same content: beside a turn or a profile,
    and beside a statement that ended and may hold again."""
    return row.type in SOURCE_TYPES or is_past(row)


def is_past(row: MemoryRow) -> bool:
    """Returns whether the memory ended when something said later excluded it."""
    return row.valid_from is not None and row.valid_until is not None


# One content is one memory, unless it is of several owners: "I am allergic to kiwi" is another
# statement of each who says it. The memory that came first has the hash of the content alone.
_NO_OWNER: Final = ("", "pipeline")


def is_of_another(row: MemoryRow, owner: str, is_named: bool) -> bool:
    """Whether the memory, which has the same content, belongs to another owner than this one. Where
    the caller named nobody, only a statement in the first person has an owner."""
    if row.who in _NO_OWNER or row.who.casefold() == owner.casefold():
        return False
    return is_named or refers_to_speaker(row.content)


def owned_hash(content: str, owner: str) -> str:
    """The content hash of what another owner said before in the same words."""
    return content_hash(f"{owner}: {storage_content(content)}")


def as_owned(row: MemoryRow) -> MemoryRow:
    """Returns the row as a memory next to another owner's of the same content."""
    digest = owned_hash(row.content, row.who)
    return replace(row, content_hash=digest, dedup_key=dedup_key(row.scope, digest))


def changed(
    row: MemoryRow, at: datetime, by: str, write_seq: int, decision_order: int | None = None
) -> MemoryRow:
    """Returns the next version of the row."""
    return replace(
        row,
        version=row.version + 1,
        updated_at=at,
        updated_by=by,
        write_seq=write_seq,
        decision_order=decision_order,
    )


def deleted(row: MemoryRow, at: datetime) -> MemoryRow:
    """The row as a tombstone: its content stays for recovery, its dedup key becomes free."""
    return replace(row, is_deleted=True, deleted_at=at, dedup_key=None)


def without_text(row: MemoryRow, at: datetime) -> MemoryRow:
    """Returns the row as a tombstone without its text; in-flight derivations still find it
    deleted."""
    return replace(
        deleted(row, row.deleted_at or at),
        type=row.type if row.type == "episodic" else "fact",
        importance=0.0,
        confidence=0.0,
        content="",
        normalized_content="",
        content_hash="",
        embedding_key="",
        tags=(),
        categories=(),
        who="",
        role="",
        why="erased",
        project=None,
        source_type=row.source_type if row.source_type in _MADE_BY_THE_PROGRAM else "",
        source_id=row.source_id if row.source_type in _MADE_BY_THE_PROGRAM else None,
        temporal_kind="persistent",
        extraction_model=None,
        pinned=False,
        valid_from=None,
        valid_until=None,
        last_accessed=None,
        access_count=0,
        decayed_at=None,
        retained=1.0,
        metadata="{}",
    )


def is_erased(row: MemoryRow) -> bool:
    """Returns whether the memory's content was erased."""
    return row.is_deleted and not row.content_hash


def state_of(row: MemoryRow) -> str:
    """The row as JSON. Without a role, an offset, an edit or a decay that it has not, as before
    there were any, so that a rebuild of a log gives what was archived then."""
    state = asdict(row)
    absences = {"role": "", "decayed_at": None, "retained": 1.0}
    absences |= {"utc_offset_minutes": None, "revised_at": None}
    for name, absent in absences.items():
        if state[name] == absent:
            del state[name]
    return json.dumps(state, sort_keys=True, ensure_ascii=False, default=str)


def archived(row: MemoryRow, reason: str, at: datetime) -> ArchiveRow:
    """The cold-tier copy of a state about to be replaced or deleted."""
    return ArchiveRow(
        memory_id=row.memory_id,
        version=row.version,
        scope=row.scope,
        type=row.type,
        content=row.content,
        state=state_of(row),
        reason=reason,
        archived_at=at,
    )


def memory_of(state: ArchiveRow) -> MemoryRow:
    """Returns the archived memory; fields that its version did not have get their defaults."""
    archived = json.loads(state.state)
    known = columns_of(MemoryRow)
    values = {name: value for name, value in archived.items() if name in known}
    for name, value in values.items():
        if known[name].is_list:
            values[name] = tuple(value)
        elif value is not None and known[name].type is datetime:
            values[name] = datetime.fromisoformat(value)
    return MemoryRow(**values)


def edge(
    source: str, target: str, relation: str, scope: str, confidence: float = 1.0, evidence: str = ""
) -> EdgeRow:
    return EdgeRow(
        source_id=source,
        target_id=target,
        relation_type=relation,
        scope=scope,
        confidence=confidence,
        evidence=evidence,
    )


def edge_rows(
    row: MemoryRow,
    sources: Iterable[str],
    superseded: MemoryRow | None = None,
    answers: str | None = None,
) -> list[EdgeRow]:
    """The edges from a memory to its sources, and to the state that it replaces. The edge to the
    question that its first source `answers` names that source in its evidence."""
    sources = tuple(sources)
    found = [
        edge(row.memory_id, source, "derived_from", row.scope)
        if source != answers
        else edge(row.memory_id, source, "derived_from", row.scope, evidence=sources[0])
        for source in sources
    ]
    if superseded is not None:
        found.append(edge(row.memory_id, archived_id(superseded), "supersedes", row.scope))
    return found


def archived_id(row: MemoryRow) -> str:
    """The name of an archived state of a memory in edges."""
    return f"{row.memory_id}@{row.version}"


def protected(row: MemoryRow) -> bool:
    """Returns whether no machine may change its content: pinned, or confirmed by a person."""
    return row.pinned or row.decay_rate == CONFIRMED_DECAY_RATE


def skip_reason(fact: Fact, min_confidence: float) -> str | None:
    """Returns why an ADD of the fact is skipped regardless of the store."""
    if fact.confidence < min_confidence:
        return "low_fact_confidence"
    if not normalized_content(storage_content(fact.content)):
        return "empty_fact_content"
    return None


def effective(defaults: Flags, row: FlagsRow | None) -> Flags:
    """The flags of a scope: what commands set, the settings for the rest. What a scope has earned
    counts where no one has set it."""
    if row is None:
        return defaults
    own = {name: getattr(row, name) for name in Flags.model_fields}
    if own["allow_update_delete"] is None and row.earned_update_delete:
        own["allow_update_delete"] = True
    return defaults.model_copy(update={k: flag for k, flag in own.items() if flag is not None})
