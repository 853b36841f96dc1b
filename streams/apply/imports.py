"""Imports lines of an exported scope into this store."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace

from palimpsest.schemas.commands import ImportCommand
from palimpsest.schemas.identity import ImportedIds
from palimpsest.schemas.memory_texts import linked_text
from palimpsest.schemas.messages import CommandIntent, GraphWork
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
from palimpsest.schemas.rows import FlagsRow, MemoryRow, OutcomeRow, Row
from palimpsest.streams.apply.categories import ScopeCategories
from palimpsest.streams.apply.command_work import (
    Refused,
    Work,
    command_id,
    done,
    known_id,
    refusal,
    refuse_frozen,
)
from palimpsest.streams.apply.outcomes import load_names
from palimpsest.streams.imported_rows import (
    edge_row,
    event_row,
    fact_rows,
    memory_row,
    session_row,
    state_row,
    stricter_row,
)
from palimpsest.streams.memory_rows import is_erased
from palimpsest.streams.privacy import is_withheld
from palimpsest.streams.settings import StageSettings
from palimpsest.streams.stage import Answer, Ask, Message, Step
from palimpsest.streams.store_port import Load, Loaded, Put

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NotTaken(Exception):
    """A line that is not imported; the text is the reason."""


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

    def memory(self, given: str) -> None:
        """Raises NotTaken for a memory that the scope does not contain, or no longer contains."""
        row = self.work.memories.get(self.ids.of(given.partition("@")[0]))
        if row is None:
            raise NotTaken(f"it tells of memory {given}, which is not in this scope")
        if is_erased(row):
            raise NotTaken(f"it tells of memory {given}, which was erased here")

    def put(self, *rows: Row) -> None:
        self.work.writes += map(Put, rows)

    def result(self) -> ImportResult:
        return ImportResult(taken=self.taken, memories=self.memories, refused=tuple(self.refused))


def import_step(
    message: Message, intent: CommandIntent, settings: StageSettings
) -> Generator[Ask, Answer, Step]:
    """Imports the lines in order; the command's result has their number and the refused ones."""
    command = intent.command
    assert isinstance(command, ImportCommand)
    ids = ImportedIds(command.from_scope, message.scope)
    loaded = yield _load(message, command, ids)
    assert isinstance(loaded, Loaded)
    if loaded.command is not None and loaded.command.error is None:
        return known_id(loaded.command, intent.digest)
    work = Work.begun(message, intent, settings, loaded)
    try:
        refuse_frozen(work)
        if work.by_machine:
            raise Refused("forbidden: what is imported is taken as it says; that is for a person")
    except Refused as error:
        return refusal(message, intent, str(error))
    taking = _Import(
        work, ids, set(), set(loaded.settled), ScopeCategories.of(message.scope, loaded)
    )
    for session_id in _sessions(command):
        found = yield Load(message.scope, session_id=session_id)
        assert isinstance(found, Loaded)
        if found.session is not None:
            taking.sessions.add(session_id)
    for each in command.lines:
        try:
            _take(taking, each)
        except NotTaken as error:
            taking.refused.append(RefusedLine(number=each.number, why=str(error)))
    return _end(taking, command)


def _end(taking: _Import, command: ImportCommand) -> Step:
    work = taking.work
    work.writes += taking.categories.writes()
    result = taking.result()
    counts = {"taken": result.taken, "refused": len(result.refused)}
    work.tell("imported", None, f"from the scope {command.from_scope}", metadata={**counts})
    if not taking.graph:
        return done(work, command, result.model_dump(mode="json"))
    work.graph = GraphWork(
        memory_ids=(),
        command_id=command_id(work.message),
        imported=ImportedGraph(
            from_scope=command.from_scope, lines=tuple(taking.graph), result=result
        ),
    )
    return done(work, command, None)  # graph-persist answers it


def _load(message: Message, command: ImportCommand, ids: ImportedIds) -> Load:
    lines = [each.line for each in command.lines]
    memories = [line for line in lines if isinstance(line, PortableMemory)]
    texts = [storage_content(line.content) for line in memories]
    facts = (ids.of(line.id) for line in lines if isinstance(line, PortableFact))
    linked = [linked_text(line.type, line.who, line.content) for line in memories]
    return replace(
        load_names(message.scope, linked),
        memory_ids=tuple(
            dict.fromkeys(
                ids.of(reference.partition("@")[0])
                for line in lines
                for reference in _memory_ids(line)
            )
        ),
        content_hashes=tuple(dict.fromkeys(map(content_hash, texts))),
        item_ids=tuple(dict.fromkeys(facts)),
        command_id=command_id(message),
        categories=True,
    )


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


def _sessions(command: ImportCommand) -> list[str]:
    lines = (each.line for each in command.lines)
    return list(
        dict.fromkeys(line.session_id for line in lines if isinstance(line, PortableSession))
    )


def _take(taking: _Import, given: NumberedLine) -> None:
    line = given.line
    if isinstance(line, GRAPH_LINES):
        if isinstance(line, PortableMention | PortableAttribute):
            taking.memory(line.memory_id)
        taking.graph.append(given)
        return
    match line:
        case PortableMemory():
            _memory(taking, line)
        case PortableState():
            taking.memory(line.memory.id)
            taking.put(state_row(taking.ids, line))
        case PortableEvent():
            taking.memory(line.memory_id)
            taking.put(event_row(taking.ids, line))
        case PortableEdge():
            taking.memory(line.source_id)
            taking.memory(line.target_id)
            taking.put(edge_row(taking.ids, line))
        case PortableSession():
            _session(taking, line)
        case PortableFact():
            _fact(taking, line)
        case PortableFlags():
            _flags(taking, line)
        case PortablePrivacy():
            taking.put(*stricter_row(taking.ids.scope, line, taking.work.loaded.privacy))
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
        if (there.type, there.content_hash) != (row.type, row.content_hash):
            raise NotTaken(f"the memory {row.memory_id} is there, says something else, and stays")
        return
    if is_withheld(work.loaded.privacy, row.who):
        raise NotTaken("private: the privacy level of whom it is about is full")
    same = None if row.dedup_key is None else work.same_content(row)
    if same is not None:
        raise NotTaken(f"memory {same} says the same: two active memories of a scope may not")
    row = work.put(row)
    taking.categories.note(row)
    taking.memories += 1
    if row.type == "episodic":
        _settle_turn(taking, row)


def _settle_turn(taking: _Import, row: MemoryRow) -> None:
    """Settles the turn, so that publishing it again is a repeat."""
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


def _session(taking: _Import, line: PortableSession) -> None:
    """A session that is open here stays unchanged."""
    for turn in (line.last_turn, *line.extracted_turns):
        taking.memory(turn)
    if line.session_id not in taking.sessions:
        taking.sessions.add(line.session_id)
        taking.put(session_row(taking.ids, line))


def _fact(taking: _Import, line: PortableFact) -> None:
    taking.memory(line.turn_memory_id)
    if line.memory_id is not None:
        taking.memory(line.memory_id)
    item_id = taking.ids.of(line.id)
    if item_id not in taking.settled:
        taking.settled.add(item_id)
        taking.put(*fact_rows(taking.ids, line, taking.work.loaded.write_seq))


def _flags(taking: _Import, line: PortableFlags) -> None:
    """Flags that are set here stay."""
    if taking.work.loaded.flags is None:
        given = {name: getattr(line, name) for name in type(line).model_fields if name != "kind"}
        taking.put(FlagsRow(scope=taking.ids.scope, **given))
