"""apply-writes: intents become memory. Deterministic over the intent and the store."""

from __future__ import annotations

from collections.abc import Generator

from schemas.identity import turn_memory_id
from schemas.messages import (
    CommandIntent,
    MemoryChange,
    MemoryWrite,
    Outcome,
    ProposalsIntent,
    RawTurnIntent,
    RejectedTurnIntent,
)
from schemas.rows import EdgeRow, SessionRow, embedding_text, linked_text
from schemas.topics import MEMORY_WRITES
from streams.apply_commands import command_step
from streams.apply_proposals import proposals_step
from streams.linker import candidate_names, unspaced_part
from streams.memory import turn_memory
from streams.outcomes import changes, link_writes, outcome_row
from streams.settings import ApplySettings
from streams.stage import (
    Answer,
    Ask,
    Context,
    Embed,
    Embedded,
    KeepVector,
    Load,
    Loaded,
    Message,
    Process,
    Put,
    Stage,
    Step,
    Write,
)


def apply_writes_stage(settings: ApplySettings) -> Stage:
    """The stage that owns the memory tables."""

    def process(message: Message, context: Context) -> Process:
        body = message.body
        assert isinstance(body, MemoryWrite)
        match body.write:
            case RawTurnIntent():
                return (yield from _raw_turn(message, body.write))
            case RejectedTurnIntent():
                return _rejected_turn(message, body.write)
            case ProposalsIntent():
                return (yield from proposals_step(message, body.write, settings))
            case CommandIntent():
                return (yield from command_step(message, body.write, settings))

    return Stage(name="apply-writes", reads=(MEMORY_WRITES,), process=process, stateful=True)


def _raw_turn(message: Message, intent: RawTurnIntent) -> Generator[Ask, Answer, Step]:
    """A turn becomes an episodic memory; the same turn again is nothing new."""
    turn = intent.turn
    embedded = yield Embed((embedding_text("episodic", turn.speaker, turn.content),))
    assert isinstance(embedded, Embedded)
    text = linked_text("episodic", turn.speaker, turn.content)
    memory_id = turn_memory_id(message.scope, turn.turn_id)
    loaded = yield Load(
        message.scope,
        memory_ids=(memory_id,),
        session_id=turn.session_id,
        names=tuple(candidate_names(text)),
        unspaced_text=unspaced_part(text),
    )
    assert isinstance(loaded, Loaded)
    if memory_id in loaded.memories:
        return Step()
    row = turn_memory(message, turn, loaded.write_seq + 1)
    writes: list[Write] = [Put(row), Put(_session_row(message, row.session_id, memory_id, loaded))]
    if embedded.vectors[0] is not None:
        writes.insert(0, KeepVector(row.embedding_key, embedded.vectors[0]))
    if loaded.session is not None and turn.session_id:
        edge = EdgeRow(
            source_id=loaded.session.last_turn,
            target_id=memory_id,
            relation_type="temporal",
            scope=message.scope,
        )
        writes.append(Put(edge))
    writes += link_writes(message.scope, memory_id, loaded, text)
    outcome = Outcome(
        event="created",
        item_kind="turn",
        item_id=memory_id,
        memory_id=memory_id,
        new_content=row.content,
        reason="turn stored",
        version=1,
    )
    return Step(
        writes=(*writes, Put(outcome_row(message, outcome))),
        emits=changes(MemoryChange(outcomes=(outcome,), session_id=turn.session_id)),
    )


def _session_row(message: Message, session_id: str, memory_id: str, loaded: Loaded) -> SessionRow:
    known = loaded.session
    return SessionRow(
        scope=message.scope,
        session_id=session_id,
        last_turn=memory_id,
        turns=1 if known is None else known.turns + 1,
        first_at=message.occurred_at if known is None else known.first_at,
        last_at=message.occurred_at,
    )


def _rejected_turn(message: Message, intent: RejectedTurnIntent) -> Step:
    """Counted with its reason; nothing of its text is there to keep."""
    outcome = Outcome(
        event="rejected",
        item_kind="turn",
        item_id=turn_memory_id(message.scope, intent.turn_id),
        reason=intent.reason,
    )
    return Step(
        writes=(Put(outcome_row(message, outcome)),),
        emits=changes(MemoryChange(outcomes=(outcome,), session_id=intent.session_id)),
    )
