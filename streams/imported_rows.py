"""Rows of the lines of an exported scope.

In the scope that the lines come from, ids stay. In another one they are derived from the scope and
the old id, so that the same line is the same memory however often it is imported, and no file can
name another scope's memories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.identity import ImportedIds
from palimpsest.schemas.portable import (
    PortableEdge,
    PortableEvent,
    PortableFact,
    PortableMemory,
    PortablePrivacy,
    PortableSession,
    PortableState,
)
from palimpsest.schemas.privacy import LEVELS, Levels, known_key
from palimpsest.schemas.rows.columns import Row, RowT, shared
from palimpsest.schemas.rows.memories import ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import (
    FactRow,
    HistoryRow,
    OutcomeRow,
    PendingProposalRow,
    PrivacyRow,
    ProposalRow,
)
from palimpsest.schemas.rows.sessions import SessionRow
from palimpsest.streams.memory_rows import archived, with_content


class NotTaken(Exception):
    """A line that is not imported; the text is the reason."""


_NAME_MEMORIES = frozenset(
    ("memory_id", "target_id", "turn_memory_id", "last_turn", "extracted_turns")
)
"""Columns that name memories."""


def imported_row(row_type: type[RowT], ids: ImportedIds, line: Frozen, **given: object) -> RowT:
    """Returns the row of a line in the scope: with the `given` columns, and with all others that
    row and line have in common, where memories have the ids of the scope."""
    common = shared(row_type, line)
    for name in _NAME_MEMORIES & common.keys():
        value = common[name]
        if isinstance(value, tuple):
            common[name] = tuple(map(ids.of, value))
        elif isinstance(value, str):
            common[name] = ids.of(value)
    return row_type(**{"scope": ids.scope, **common, **given})


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
    made = imported_row(
        MemoryRow,
        ids,
        line,
        memory_id=ids.of(line.id),
        # Of a fact it is the item, all else has it from outside.
        source_id=ids.maybe(line.source_id) if line.source_type == "extraction" else line.source_id,
        normalized_content="",
        content_hash="",
        dedup_key=None,
        embedding_key="",
        metadata=_json(line.metadata),
    )
    made = with_content(made, line.content)
    return replace(made, dedup_key=None) if line.is_deleted else made


def state_row(ids: ImportedIds, line: PortableState) -> ArchiveRow:
    return archived(memory_row(ids, line.memory), line.reason, line.archived_at)


def event_row(ids: ImportedIds, line: PortableEvent) -> HistoryRow:
    metadata = {name: _of_scope(ids, each, name) for name, each in line.metadata.items()}
    return imported_row(HistoryRow, ids, line, event_id=ids.of(line.id), metadata=_json(metadata))


def edge_row(ids: ImportedIds, line: PortableEdge) -> EdgeRow:
    ends = {"source_id": ids.of_end(line.source_id), "target_id": ids.of_end(line.target_id)}
    return imported_row(EdgeRow, ids, line, **ends)


def session_row(ids: ImportedIds, line: PortableSession) -> SessionRow:
    """An imported session is complete: it has ended until it continues here."""
    ended = {"ended_at": line.last_at, "ended_by": "command", "ends": 1}
    return imported_row(SessionRow, ids, line, last_recorded_at=line.last_at, **ended)


def fact_rows(ids: ImportedIds, line: PortableFact, as_of: int) -> list[Row]:
    """Returns a fact with its outcome, required for the balance, and its decision."""
    item_id = ids.of(line.id)
    fact = imported_row(FactRow, ids, line, item_id=item_id)
    outcome = {"item_kind": "fact", "item_id": item_id, "event": line.outcome}
    rows: list[Row] = [fact, imported_row(OutcomeRow, ids, line, **outcome)]
    for proposal in line.proposals:
        candidates = json.dumps(
            [
                {**each.model_dump(mode="json"), "memory_id": ids.of(each.memory_id)}
                for each in proposal.candidates
            ]
        )
        given = {"item_id": item_id, "candidates": candidates, "as_of": as_of}
        rows.append(imported_row(ProposalRow, ids, proposal, **given))
    if line.held is not None:
        of_fact = shared(PendingProposalRow, fact)
        rows.append(imported_row(PendingProposalRow, ids, line.held, **of_fact))
    return rows


def stricter_row(ids: ImportedIds, line: PortablePrivacy, known: Levels) -> tuple[PrivacyRow, ...]:
    """The level of a line, unless one that is as strict is set here already."""
    key = known_key(known, ids.scope, line.person)
    own = known.get(key)
    here = "none" if own is None else own.level
    if LEVELS.index(line.level) <= LEVELS.index(here) or (line.person and not key):
        return ()
    return (imported_row(PrivacyRow, ids, line, person_key=key),)
