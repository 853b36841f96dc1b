"""Rows of the lines of an exported scope.

In the scope that the lines come from, ids stay. In another one they are derived from the scope and
the old id, so that the same line is the same memory however often it is imported, and no file can
name another scope's memories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from pydantic import JsonValue

from palimpsest.schemas.audit_rows import HistoryRow
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.identity import ImportedIds
from palimpsest.schemas.portable import (
    PortableEdge,
    PortableEvent,
    PortableFact,
    PortableHeld,
    PortableMemory,
    PortablePrivacy,
    PortableProposal,
    PortableSession,
    PortableState,
)
from palimpsest.schemas.privacy import LEVELS, Levels, PrivacyRow, known_key
from palimpsest.schemas.rows import (
    ArchiveRow,
    EdgeRow,
    FactRow,
    MemoryRow,
    OutcomeRow,
    PendingProposalRow,
    ProposalRow,
    Row,
    SessionRow,
)
from palimpsest.streams.memory_rows import state_of, with_content


def same_fields(line: Frozen, row_type: type[Row], *but: str) -> dict[str, object]:
    """Returns the fields that line and row have in common."""
    fields_of_line = type(line).model_fields
    return {
        field.name: getattr(line, field.name)
        for field in fields(row_type)
        if field.name in fields_of_line and field.name not in but
    }


def _json(value: Mapping[str, JsonValue]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


_NAMING_MEMORIES = frozenset(("memory_id", "target_id", "source_memory", "drawn_from"))
"""Fields of an event's metadata that name memories."""


def _of_scope(ids: ImportedIds, value: JsonValue, name: str = "") -> JsonValue:
    """Returns an event's metadata with this scope's ids of memories."""
    if isinstance(value, dict):
        return {key: _of_scope(ids, each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_of_scope(ids, each, name) for each in value]
    return ids.of(value) if isinstance(value, str) and name in _NAMING_MEMORIES else value


def memory_row(ids: ImportedIds, line: PortableMemory) -> MemoryRow:
    """Returns the memory; its sequence number is assigned when it is stored."""
    given = same_fields(line, MemoryRow, "metadata", "source_id")
    made = MemoryRow(
        **given,  # type: ignore[arg-type]
        memory_id=ids.of(line.id),
        # Of a fact it is the item, all else has it from outside.
        source_id=ids.maybe(line.source_id) if line.source_type == "extraction" else line.source_id,
        scope=ids.scope,
        normalized_content="",
        content_hash="",
        dedup_key=None,
        embedding_key="",
        metadata=_json(line.metadata),
    )
    made = with_content(made, line.content)
    return replace(made, dedup_key=None) if line.is_deleted else made


def state_row(ids: ImportedIds, line: PortableState) -> ArchiveRow:
    row = memory_row(ids, line.memory)
    return ArchiveRow(
        memory_id=row.memory_id,
        version=row.version,
        scope=ids.scope,
        type=row.type,
        content=row.content,
        state=state_of(row),
        reason=line.reason,
        archived_at=line.archived_at,
    )


def event_row(ids: ImportedIds, line: PortableEvent) -> HistoryRow:
    return HistoryRow(
        **same_fields(line, HistoryRow, "memory_id", "metadata"),  # type: ignore[arg-type]
        event_id=ids.of(line.id),
        scope=ids.scope,
        memory_id=ids.of(line.memory_id),
        metadata=_json({name: _of_scope(ids, each, name) for name, each in line.metadata.items()}),
    )


def edge_row(ids: ImportedIds, line: PortableEdge) -> EdgeRow:
    return EdgeRow(
        **same_fields(line, EdgeRow, "source_id", "target_id"),  # type: ignore[arg-type]
        source_id=ids.of_end(line.source_id),
        target_id=ids.of_end(line.target_id),
        scope=ids.scope,
    )


def session_row(ids: ImportedIds, line: PortableSession) -> SessionRow:
    """An imported session is complete: it has ended until it continues here."""
    return SessionRow(
        **same_fields(line, SessionRow, "last_turn", "extracted_turns"),  # type: ignore[arg-type]
        scope=ids.scope,
        last_turn=ids.of(line.last_turn),
        extracted_turns=tuple(map(ids.of, line.extracted_turns)),
        last_recorded_at=line.last_at,
        ended_at=line.last_at,
        ended_by="command",
        ends=1,
    )


def fact_rows(ids: ImportedIds, line: PortableFact, as_of: int) -> list[Row]:
    """Returns a fact with its outcome, required for the balance, and its decision."""
    item_id = ids.of(line.id)
    fact = FactRow(
        **same_fields(line, FactRow, "turn_memory_id"),  # type: ignore[arg-type]
        item_id=item_id,
        scope=ids.scope,
        turn_memory_id=ids.of(line.turn_memory_id),
    )
    outcome = OutcomeRow(
        item_kind="fact",
        item_id=item_id,
        scope=ids.scope,
        event=line.outcome,
        memory_id=ids.maybe(line.memory_id),
        reason=line.reason,
        recorded_at=line.recorded_at,
    )
    rows = [fact, outcome, *(_proposal(ids, item_id, each, as_of) for each in line.proposals)]
    return rows if line.held is None else [*rows, _held(ids, fact, line.held)]


def _proposal(
    ids: ImportedIds, item_id: str, proposal: PortableProposal, as_of: int
) -> ProposalRow:
    candidates = [
        {**each.model_dump(mode="json"), "memory_id": ids.of(each.memory_id)}
        for each in proposal.candidates
    ]
    return ProposalRow(
        **same_fields(proposal, ProposalRow, "memory_id", "target_id", "candidates"),  # type: ignore[arg-type]
        item_id=item_id,
        scope=ids.scope,
        memory_id=ids.of(proposal.memory_id),
        target_id=ids.maybe(proposal.target_id),
        candidates=json.dumps(candidates),
        as_of=as_of,
    )


def _held(ids: ImportedIds, fact: FactRow, pending: PortableHeld) -> PendingProposalRow:
    known = {field.name for field in fields(PendingProposalRow)}
    of_fact = {name: value for name, value in asdict(fact).items() if name in known}
    of_change = same_fields(pending, PendingProposalRow, "target_id")
    return PendingProposalRow(**{**of_fact, **of_change}, target_id=ids.of(pending.target_id))


def stricter_row(scope: str, line: PortablePrivacy, known: Levels) -> tuple[PrivacyRow, ...]:
    """The level of a line, unless one that is as strict is set here already."""
    key = known_key(known, scope, line.person)
    own = known.get(key)
    here = "none" if own is None else own.level
    if LEVELS.index(line.level) <= LEVELS.index(here) or (line.person and not key):
        return ()
    row = PrivacyRow(
        scope=scope,
        person_key=key,
        person=line.person,
        level=line.level,
        reason=line.reason,
        changed_by=line.changed_by,
        recorded_at=line.recorded_at,
    )
    return (row,)
