"""The rows of a promoted memory. Pure."""

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
    columns_of,
)
from palimpsest.streams.memory_rows import with_content

_STATED = (
    *("type", "confidence", "categories", "extraction_model", "temporal_kind"),
    *("valid_from", "valid_until", "occurred_at", "first_occurred_at"),
)
"""Fields of a promoted memory about its content, its derivation and its validity."""


def promoted_row(
    memory: PromotedMemory, scope: str, memory_id: str, at: datetime, metadata: dict[str, str]
) -> MemoryRow:
    """Returns a new memory with the content of the branch's; `metadata` names its origin."""
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
    """Returns the next version of `row` with the content of the branch's memory. The id, tags and
    project of the memory stay."""
    stated = {name: getattr(memory, name) for name in _STATED}
    updated = with_content(replace(row, **stated), memory.content)
    return _changed(replace(updated, importance=memory.importance), at)


def tombstone(row: MemoryRow, at: datetime) -> MemoryRow:
    return replace(_changed(row, at), is_deleted=True, deleted_at=at, dedup_key=None)


def revived(row: MemoryRow, update: MemoryRow, at: datetime) -> MemoryRow:
    """Returns a tombstone as an active memory again, with the content of `update`."""
    return replace(
        update, version=row.version + 1, created_at=row.created_at, updated_at=at, tags=row.tags
    )


def returned(row: MemoryRow, before: MemoryRow, at: datetime) -> MemoryRow:
    """Returns the state `before` as the memory's newest version."""
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


def fact_rows(
    fact: PromotedFact, scope: str, memory_id: str, reason: str, at: datetime
) -> list[Row]:
    """Returns a fact with its outcome, required for the balance, and its decision."""
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
    """Returns the edges to the sources of a memory and to the state that it replaces."""
    ends = [(source, "derived_from") for source in sources]
    if superseded is not None:
        ends.append((superseded, "supersedes"))
    return [
        EdgeRow(source_id=row.memory_id, target_id=end, relation_type=relation, scope=row.scope)
        for end, relation in ends
    ]
