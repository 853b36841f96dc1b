"""Imports lines of an exported scope into this store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from palimpsest.schemas.commands import ImportCommand
from palimpsest.schemas.identity import ImportedIds
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.messages import GraphWork
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.portable import (
    GRAPH_LINES,
    ImportedGraph,
    ImportResult,
    NumberedLine,
    PortableAttribute,
    PortableEdge,
    PortableEvent,
    PortableFact,
    PortableFlags,
    PortableMemory,
    PortableMention,
    PortablePrivacy,
    PortableSession,
    PortableState,
    RefusedLine,
)
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.pipeline import FlagsRow, OutcomeRow
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import Work, command_id, load_names, refuse_machines
from palimpsest.streams.imported_rows import (
    NotTaken,
    edge_row,
    event_row,
    fact_rows,
    imported_row,
    memory_row,
    session_row,
    state_row,
    stricter_row,
)
from palimpsest.streams.memory_rows import as_owned, is_erased, is_of_another, owned_hash
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.stage import Asking
from palimpsest.streams.store_port import Load, Put

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(slots=True)
class _Import:
    work: Work
    ids: ImportedIds
    sessions: set[str]
    settled: set[str]
    categories: ScopeCategories
    taken: int = 0
    memories: int = 0
    refused: list[RefusedLine] = field(default_factory=list)
    graph: list[NumberedLine] = field(default_factory=list)

    def check(self, line: object) -> None:
        """Raises NotTaken for a line that refers to a memory that the scope does not contain, or no
        longer contains."""
        for given in () if isinstance(line, PortableMemory) else _memory_ids(line):
            row = self.work.memories.get(self.ids.of(given.partition("@")[0]))
            if row is None:
                raise NotTaken(f"it tells of memory {given}, which is not in this scope")
            if is_erased(row):
                raise NotTaken(f"it tells of memory {given}, which was erased here")

    def put(self, *rows: Row) -> None:
        self.work.writes += map(Put, rows)

    def result(self) -> ImportResult:
        return ImportResult(taken=self.taken, memories=self.memories, refused=tuple(self.refused))


def import_lines(work: Work, command: ImportCommand) -> Asking[JsonValue]:
    """Imports the lines in order; the command's result has their number and the refused ones."""
    ids = ImportedIds(command.from_scope, work.scope)
    # The memories that the lines refer to, and what else to load.
    lines = [each.line for each in command.lines]
    memories = [line for line in lines if isinstance(line, PortableMemory)]
    hashes = [content_hash(storage_content(line.content)) for line in memories]
    hashes += [owned_hash(line.content, line.who) for line in memories]
    facts = (ids.of(line.id) for line in lines if isinstance(line, PortableFact))
    linked = [linked_text(line.type, line.who, line.content) for line in memories]
    named = (ids.of(each.partition("@")[0]) for line in lines for each in _memory_ids(line))
    also = replace(
        load_names(ids.scope, linked),
        content_hashes=tuple(dict.fromkeys(hashes)),
        item_ids=tuple(dict.fromkeys(facts)),
        categories=True,
    )
    yield from work.begin(*(list(dict.fromkeys(named)), also))
    loaded = work.loaded
    refuse_machines(work, "what is imported is taken as it says; that is for a person")
    taking = _Import(work, ids, set(), set(loaded.settled), ScopeCategories.of(work.scope, loaded))
    sessions = (each.line for each in command.lines if isinstance(each.line, PortableSession))
    for session_id in dict.fromkeys(line.session_id for line in sessions):
        found = yield from Load(work.scope, session_id=session_id)
        if found.session is not None:
            taking.sessions.add(session_id)
    for each in command.lines:
        try:
            taking.check(each.line)
            _take(taking, each)
        except NotTaken as error:
            taking.refused.append(RefusedLine(number=each.number, why=str(error)))
    work.writes += taking.categories.writes()
    result = taking.result()
    counts = {"taken": result.taken, "refused": len(result.refused)}
    work.record_outcome(
        "imported", None, f"from the scope {command.from_scope}", metadata={**counts}
    )
    if not taking.graph:
        return result.model_dump(mode="json")
    work.graph = GraphWork(
        memory_ids=(),
        command_id=command_id(work.message),
        imported=ImportedGraph(
            from_scope=command.from_scope, lines=tuple(taking.graph), result=result
        ),
    )
    return None  # graph-persist answers it


def _memory_ids(line: object) -> Iterator[str]:
    """Yields the ids of the memories that a line defines or refers to."""
    match line:
        case PortableMemory():
            yield line.id
        case PortableState():
            yield line.memory.id
        case PortableEvent() | PortableMention() | PortableAttribute():
            yield line.memory_id
        case PortableEdge():
            yield from (line.source_id, line.target_id)
        case PortableSession():
            yield from (line.last_turn, *line.extracted_turns)
        case PortableFact():
            yield line.turn_memory_id
            if line.memory_id is not None:
                yield line.memory_id


def _take(taking: _Import, given: NumberedLine) -> None:
    line = given.line
    if isinstance(line, GRAPH_LINES):
        taking.graph.append(given)
        return
    match line:
        case PortableMemory():
            _memory(taking, line)
        case PortableState():
            taking.put(state_row(taking.ids, line))
        case PortableEvent():
            taking.put(event_row(taking.ids, line))
        case PortableEdge():
            taking.put(edge_row(taking.ids, line))
        case PortableSession():
            # A session that is open here stays unchanged.
            if line.session_id not in taking.sessions:
                taking.sessions.add(line.session_id)
                taking.put(session_row(taking.ids, line))
        case PortableFact():
            _fact(taking, line)
        case PortableFlags():
            if taking.work.loaded.flags is None:  # those that are set here stay
                taking.put(imported_row(FlagsRow, taking.ids, line))
        case PortablePrivacy():
            taking.put(*stricter_row(taking.ids, line, taking.work.loaded.privacy))
    taking.taken += 1


def _memory(taking: _Import, line: PortableMemory) -> None:
    row = memory_row(taking.ids, line)
    work = taking.work
    if not row.content:
        raise NotTaken("its content is empty")
    if not _UUID.fullmatch(row.memory_id):
        raise NotTaken(f"{line.id!r} is no id of a memory")
    there = work.loaded.memories.get(row.memory_id)
    if there is not None and there.scope != taking.ids.scope:
        raise NotTaken(f"the id {line.id} is that of a memory of another scope")
    there = work.memories.get(row.memory_id)
    if there is not None:
        if is_erased(there):
            raise NotTaken(f"the memory {row.memory_id} was erased here")
        hashes = (row.content_hash, owned_hash(row.content, row.who))
        if there.type != row.type or there.content_hash not in hashes:
            raise NotTaken(f"the memory {row.memory_id} is there, says something else, and stays")
        return
    if is_withheld(work.loaded.privacy, row.who):
        raise NotTaken("private: the privacy level of whom it is about is full")
    same = None if row.dedup_key is None else work.same_content(row)
    if same is not None and is_of_another(work.memories[same], row.who, True):
        row = as_owned(row)
        same = work.same_content(row)
    if same is not None:
        raise NotTaken(f"memory {same} says the same: two active memories of a scope may not")
    # It fades on from here, whenever it was last accessed.
    row = work.put(replace(row, decayed_at=work.at))
    taking.categories.note(row)
    taking.memories += 1
    if row.type == "episodic":
        # Publishing the turn again is a repeat.
        outcome = OutcomeRow(
            item_kind="turn",
            item_id=row.memory_id,
            scope=taking.ids.scope,
            event="created",
            memory_id=row.memory_id,
            reason="imported",
            recorded_at=taking.work.at,
        )
        taking.put(outcome)


def _fact(taking: _Import, line: PortableFact) -> None:
    item_id = taking.ids.of(line.id)
    if item_id not in taking.settled:
        taking.settled.add(item_id)
        taking.put(*fact_rows(taking.ids, line, taking.work.loaded.write_seq))
