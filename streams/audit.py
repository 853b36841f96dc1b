"""audit: every outcome becomes one event, on the compacted topic and in `memory_history`.

It also keeps what the balance needs and no other stage holds: which turns the log took, and which
records were dead-lettered; and what extractions cost.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace

from palimpsest.schemas.codec import InvalidRecord, decode
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.identity import UNREADABLE_SCOPE, turn_item_id, unreadable_item_id
from palimpsest.schemas.messages import (
    ConversationTurn,
    DeadLetter,
    DeadLetterMark,
    GraphChange,
    HistoryEvent,
    MemoryChange,
    Outcome,
)
from palimpsest.schemas.rows.columns import row_of
from palimpsest.schemas.rows.pipeline import AcceptedRow, DeadLetterRow, HistoryRow
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_HISTORY,
)
from palimpsest.streams.decide.proposal_policy import extraction_row, fact_row, still_said
from palimpsest.streams.logs.base import Record
from palimpsest.streams.sensitive.policy import admission
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.stage import Context, Emit, Message, Process, Salvaged, Stage, Step
from palimpsest.streams.store_port import Load, Put

DEFAULT_PII = PiiSettings()


def audit_stage(pii: PiiSettings = DEFAULT_PII) -> Stage:
    """The stage. It takes turns as normalize does: their ids follow from what they say."""
    return Stage(
        name="audit",
        reads=(CONVERSATION_TURNS, FACTS_EXTRACTED, MEMORY_CHANGES, GRAPH_CHANGES, DEAD_LETTERS),
        process=_process,
        stateful=True,
        on_invalid=_accept_unreadable,
        admit=admission(pii),
    )


def _process(message: Message, context: Context) -> Process:
    match message.body:
        case DeadLetterMark() as mark:
            # The dead letter lies before it in the same partition, if it is there.
            loaded = yield from Load(message.scope, letter_id=mark.letter_id)
            row = loaded.dead_letter
            return Step() if row is None else Step(writes=(Put(replace(row, status=mark.status)),))
        case DeadLetter() as dead_letter:
            return (yield from _buried(message, dead_letter))
        case MemoryChange() as change:
            return _step_of(message, events_of(message, change))
        case GraphChange() as graph:
            outcome = Outcome(
                event="graph",
                item_kind="command",
                item_id=message.correlation_id,
                memory_id=graph.memory_ids[0] if graph.memory_ids else None,
                reason="graph updated",
                metadata={
                    "entities_inserted": graph.entities_inserted,
                    "entities_updated": graph.entities_updated,
                    "relations_inserted": graph.relations_inserted,
                    "relations_updated": graph.relations_updated,
                    "mentions_linked": graph.mentions_linked,
                    "warnings": [*graph.warnings],
                },
            )
            return _step_of(message, _events(message, (outcome,), graph.session_id))
        case FactsExtracted() as extracted:
            return Step(writes=(Put(extraction_row(message, extracted)),))
        case ConversationTurn() if context.misrouted:
            return Step()  # normalize reroutes it to its partition, where it counts
        case ConversationTurn() as turn:
            item_id = turn_item_id(message.scope, turn)
            return _accepted(context.record, item_id, message.scope)
        case other:
            raise TypeError(f"audit does not read {type(other).__name__}")


def _accepted(record: Record, item_id: str, scope: str) -> Step:
    row = AcceptedRow(
        item_id=item_id, scope=scope, log_offset=record.offset, recorded_at=record.timestamp
    )
    return Step(writes=(Put(row),))


def _accept_unreadable(record: Record, why: str) -> Salvaged | None:
    """A turn that cannot be read was taken by the log all the same; normalize dead-letters it, as
    decide does an extraction."""
    if record.topic == FACTS_EXTRACTED.name:
        return Salvaged(Step())
    if record.topic != CONVERSATION_TURNS.name:
        return None
    item_id = unreadable_item_id(record.topic, record.partition, record.offset)
    return Salvaged(_accepted(record, item_id, UNREADABLE_SCOPE))


def events_of(message: Message, change: MemoryChange) -> list[HistoryEvent]:
    """What the history will say of a change, also before audit has read it."""
    return _events(message, change.outcomes, change.session_id)


def _events(message: Message, outcomes: tuple[Outcome, ...], session_id: str) -> list[HistoryEvent]:
    return [
        HistoryEvent(
            event_id=derived_id("event", message.id, number),
            event=outcome.event,
            memory_id=outcome.memory_id,
            old_content=outcome.old_content,
            new_content=outcome.new_content,
            changed_by=outcome.changed_by,
            actor_type=outcome.actor_type,
            reason=outcome.reason,
            metadata=outcome.metadata,
            session_id=session_id,
            created_at=message.recorded,
        )
        for number, outcome in enumerate(outcomes)
    ]


def _step_of(message: Message, events: list[HistoryEvent]) -> Step:
    return Step(
        writes=tuple(Put(history_row(message, event)) for event in events),
        emits=tuple(
            Emit(MEMORY_HISTORY, event, number, key=event.event_id)
            for number, event in enumerate(events)
        ),
    )


def history_row(message: Message, event: HistoryEvent) -> HistoryRow:
    """An event as it is stored."""
    metadata = json.dumps(event.metadata, sort_keys=True, ensure_ascii=False)
    named = {"scope": message.scope, "correlation_id": message.correlation_id}
    return row_of(HistoryRow, event, **named, metadata=metadata)


def _buried(message: Message, dead_letter: DeadLetter) -> Process:
    """Stores the dead letter, and the facts that decide came to no decision about: no intent has
    them. Of a record on which it failed unexpectedly nothing was decided, and a redrive does all of
    it."""
    row = Put(
        row_of(
            DeadLetterRow,
            dead_letter,
            letter_id=message.id,
            scope=message.scope,
            log_offset=dead_letter.offset,
            record_key=dead_letter.key,
            headers=json.dumps(dead_letter.headers, sort_keys=True),
        )
    )
    if dead_letter.topic != FACTS_EXTRACTED.name or dead_letter.failure == "unexpected":
        return Step(writes=(row,))
    value = base64.b64decode(dead_letter.value_base64)
    try:
        extraction = decode(value, FACTS_EXTRACTED, dead_letter.first_failed_at)
    except InvalidRecord:
        return Step(writes=(row,))
    body = extraction.body
    assert isinstance(body, FactsExtracted)
    sources = dict.fromkeys(each for fact in body.facts for each in fact.sources(body.turn))
    loaded = yield from Load(message.scope, memory_ids=tuple(sources))
    facts = still_said(body.facts, body.turn, loaded.memories)
    undecided = [fact for fact in facts if fact.item_id in dead_letter.item_ids]
    return Step(writes=(row, *(Put(fact_row(extraction, body, fact)) for fact in undecided)))
