"""What a promoted memory becomes in the tables. Pure."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime

from palimpsest.schemas.commands import PromotedFact, PromotedMemory
from palimpsest.schemas.promotion_rows import PROMOTION
from palimpsest.schemas.rows import (
    ArchiveRow,
    EdgeRow,
    FactRow,
    MemoryRow,
    OutcomeRow,
    ProposalRow,
    Row,
)
from palimpsest.streams.memory_rows import with_content

_TIMES = frozenset(
    {"valid_from", "valid_until", "occurred_at", "first_occurred_at", "created_at", "updated_at"}
    | {"last_accessed", "deleted_at"}
)
_LISTS = frozenset({"tags", "categories"})
_STATED = (
    *("type", "confidence", "categories", "extraction_model", "temporal_kind"),
    *("valid_from", "valid_until", "occurred_at", "first_occurred_at"),
)
"""Fields of a promoted memory that say what was stated, by what it was drawn and when it holds."""


def promoted_row(
    memory: PromotedMemory, scope: str, memory_id: str, at: datetime, metadata: dict[str, str]
) -> MemoryRow:
    """A new memory that says what the branch's does; `metadata` tells where it is from."""
    stated = {name: getattr(memory, name) for name in _STATED}
    made = MemoryRow(
        **stated,
        memory_id=memory_id,
        scope=scope,
        content="",
        normalized_content="",
        content_hash="",
        dedup_key=None,
        embedding_key="",
        importance=memory.importance,
        who="pipeline",
        why="extracted-fact",
        project=memory.project,
        session_id=memory.session_id,
        source_type="extraction",
        source_id=memory.source_id,
        created_at=at,
        updated_at=at,
        updated_by=PROMOTION,
        metadata=json.dumps(metadata, sort_keys=True, ensure_ascii=False),
    )
    return with_content(made, memory.content)


def replaced_row(row: MemoryRow, memory: PromotedMemory, at: datetime) -> MemoryRow:
    """`row`, one version further, saying what the branch's memory says. What belongs to the memory
    stays: its id, its tags, its project."""
    stated = {name: getattr(memory, name) for name in _STATED}
    said = with_content(replace(row, **stated), memory.content)
    return _changed(replace(said, importance=memory.importance), at)


def tombstone(row: MemoryRow, at: datetime) -> MemoryRow:
    return replace(_changed(row, at), is_deleted=True, deleted_at=at, dedup_key=None)


def revived(row: MemoryRow, said: MemoryRow, at: datetime) -> MemoryRow:
    """A tombstone that is a memory again, saying what `said` does."""
    return replace(
        said, version=row.version + 1, created_at=row.created_at, updated_at=at, tags=row.tags
    )


def returned(row: MemoryRow, before: MemoryRow, at: datetime) -> MemoryRow:
    """The memory as it was `before`, as its newest version."""
    back = replace(before, version=row.version, is_deleted=False, deleted_at=None)
    return _changed(with_content(back, before.content), at)


def _changed(row: MemoryRow, at: datetime) -> MemoryRow:
    return replace(
        row,
        version=row.version + 1,
        updated_at=at,
        updated_by=PROMOTION,
        decision_order=None,
    )


def memory_of(state: ArchiveRow) -> MemoryRow:
    """The memory that was archived; fields that its version did not know have their defaults."""
    said = json.loads(state.state)
    known = {field.name for field in fields(MemoryRow)}
    values = {name: value for name, value in said.items() if name in known}
    for name, value in values.items():
        if value is not None and name in _TIMES:
            values[name] = datetime.fromisoformat(value)
        elif name in _LISTS:
            values[name] = tuple(value)
    return MemoryRow(**values)


def fact_rows(
    fact: PromotedFact, scope: str, memory_id: str, reason: str, at: datetime
) -> list[Row]:
    """A fact with its end, without which it would be lost in the balance, and what was decided."""
    shared = set(PromotedFact.model_fields) & {field.name for field in fields(FactRow)}
    own = {name: getattr(fact, name) for name in shared}
    return [
        FactRow(**own, scope=scope, correlation_id=fact.item_id),
        OutcomeRow(
            item_kind="fact",
            item_id=fact.item_id,
            scope=scope,
            event=fact.event,
            memory_id=memory_id,
            reason=reason,
            recorded_at=at,
        ),
        ProposalRow(
            item_id=fact.item_id,
            round=0,
            scope=scope,
            memory_id=memory_id,
            action=fact.action,
            target_id=None if fact.action == "ADD" else memory_id,
            confidence=fact.decision_confidence,
            reason=fact.decision_reason,
            candidates="[]",
            contradiction_risk=False,
            review_needed=False,
            dropped=None,
            model=fact.decider,
            prompt_version=None,
            input_tokens=None,
            output_tokens=None,
            latency_ms=None,
            as_of=0,
            recorded_at=at,
        ),
    ]


def edge_rows(row: MemoryRow, sources: tuple[str, ...], superseded: str | None) -> list[Row]:
    """The edges to what a memory was drawn from, and to the state that it replaces."""
    ends = [(source, "derived_from") for source in sources]
    if superseded is not None:
        ends.append((superseded, "supersedes"))
    return [
        EdgeRow(source_id=row.memory_id, target_id=end, relation_type=relation, scope=row.scope)
        for end, relation in ends
    ]
