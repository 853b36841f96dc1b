"""audit: every outcome is one event, and what the balance needs is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.identity import turn_item_id, unreadable_item_id
from palimpsest.schemas.messages import (
    DeadLetter,
    GraphChange,
    HistoryEvent,
    MemoryChange,
    Outcome,
)
from palimpsest.schemas.rows.pipeline import (
    AcceptedRow,
    DeadLetterRow,
    ExtractionRow,
    FactRow,
    HistoryRow,
)
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_HISTORY,
    Topic,
)
from palimpsest.streams.audit import audit_stage
from palimpsest.streams.logs.base import Record
from palimpsest.streams.runtime.output import dead_letter
from palimpsest.streams.stage import Context, Failure, Step
from tests.messages import BEGIN, envelope, published, turn
from tests.unit.by_hand import CALL, TURN, Driven, Store, drive, fact, memory, record

STAGE = audit_stage()
ERASED = replace(memory(TURN.memory_id, "", type="episodic", is_deleted=True), content_hash="")


def audit(body: Any, topic: Topic, message_id: str = "a1", offset: int = 5) -> Driven:
    message = envelope(body, topic, message_id)
    return drive(STAGE.process(message, Context(record(offset, topic.name))))


def outcome(**fields: Any) -> Outcome:
    return Outcome.model_validate(
        {"event": "created", "item_kind": "fact", "item_id": "f1", "memory_id": "m1", **fields}
    )


def test_every_outcome_is_an_event_of_topic_and_table() -> None:
    change = MemoryChange(
        outcomes=(
            outcome(new_content="Ana likes tea", metadata={"confidence": 0.9}, reason="new"),
            outcome(event="blocked", memory_id="m2", reason="update_delete_not_allowed"),
        ),
        session_id="s1",
    )
    driven = audit(change, MEMORY_CHANGES)
    events = driven.emitted(MEMORY_HISTORY)
    rows = driven.rows(HistoryRow)
    assert len(events) == len(rows) == 2
    for event, row in zip(events, rows, strict=True):
        assert isinstance(event, HistoryEvent)
        assert (event.event_id, event.event, event.memory_id, event.reason, event.session_id) == (
            row.event_id,
            row.event,
            row.memory_id,
            row.reason,
            row.session_id,
        )
        assert json.loads(row.metadata) == event.metadata
        assert row.created_at == event.created_at == BEGIN
    # Keyed by the event, so that a repeat overwrites itself on the compacted topic.
    assert [emit.key for emit in driven.step.emits] == [row.event_id for row in rows]
    assert len({row.event_id for row in rows}) == 2


def test_event_ids_follow_from_the_message() -> None:
    change = MemoryChange(outcomes=(outcome(),))
    first, again, other = (audit(change, MEMORY_CHANGES, i) for i in ("a1", "a1", "a2"))
    ids = [driven.rows(HistoryRow)[0].event_id for driven in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_a_graph_change_is_an_event() -> None:
    driven = audit(
        GraphChange(memory_ids=("m1",), entities_inserted=2, warnings=("odd",)), GRAPH_CHANGES
    )
    [row] = driven.rows(HistoryRow)
    assert (row.event, row.memory_id) == ("graph", "m1")
    metadata = json.loads(row.metadata)
    assert (metadata["entities_inserted"], metadata["warnings"]) == (2, ["odd"])


def test_an_accepted_turn_is_counted_by_its_id() -> None:
    message = published(turn("I like tea", 7))
    driven = drive(STAGE.process(message, Context(record(5, CONVERSATION_TURNS.name))))
    [row] = driven.rows(AcceptedRow)
    item_id = turn_item_id("ana", turn("I like tea", 7))
    assert (row.item_id, row.scope, row.log_offset) == (item_id, "ana", 5)
    assert driven.step.emits == ()


def test_an_unreadable_turn_is_counted_by_its_place() -> None:
    assert STAGE.on_invalid is not None
    bad = record(9, CONVERSATION_TURNS.name, b"{")
    salvaged = STAGE.on_invalid(bad, "not JSON")
    assert salvaged is not None
    step = salvaged.step
    [row] = Driven([], step).rows(AcceptedRow)
    assert row.item_id == unreadable_item_id(CONVERSATION_TURNS.name, 0, 9)
    # Counted here, buried by normalize: never two dead letters of one record.
    assert step.dead is None


def test_decide_buries_an_extraction_that_cannot_be_read() -> None:
    assert STAGE.on_invalid is not None
    salvaged = STAGE.on_invalid(record(9, FACTS_EXTRACTED.name, b"{"), "not JSON")
    assert salvaged is not None
    assert salvaged.step == Step()


@pytest.mark.parametrize("topic", [MEMORY_CHANGES, GRAPH_CHANGES, DEAD_LETTERS])
def test_other_unreadable_records_are_dead_letters(topic: Topic) -> None:
    assert STAGE.on_invalid is not None
    assert STAGE.on_invalid(record(9, topic.name, b"{"), "not JSON") is None


def test_a_dead_letter_is_kept_with_the_record() -> None:
    message = published(turn("I like tea"))
    lying = Record(CONVERSATION_TURNS.name, 0, 4, b"ana", encode(message), BEGIN, {"h": b"1"})
    failure = Failure("no", "malformed-output", raw_output="{", attempts=3)
    out = dead_letter("extract", lying, message, failure, BEGIN)
    message = decode(out.value, DEAD_LETTERS, BEGIN)
    assert isinstance(message.body, DeadLetter)
    driven = drive(STAGE.process(message, Context(record(0, DEAD_LETTERS.name))))
    [row] = driven.rows(DeadLetterRow)
    assert (row.letter_id, row.stage, row.topic, row.log_offset, row.record_key) == (
        message.id,
        "extract",
        CONVERSATION_TURNS.name,
        4,
        "ana",
    )
    assert (row.failure, row.raw_output, row.attempts, row.status) == (
        "malformed-output",
        "{",
        3,
        "dead",
    )
    assert (row.item_kind, row.item_ids) == ("turn", (turn_item_id("ana", turn("I like tea")),))
    assert json.loads(row.headers) == {"h": "1"}


EXTRACTED = FactsExtracted(
    turn=TURN,
    facts=(fact("Ana likes tea"), fact("Ana likes cake", 1)),
    call=CALL,
    warnings=("a triple had no target",),
)


def test_an_extraction_is_stored_with_what_it_cost() -> None:
    [row] = audit(EXTRACTED, FACTS_EXTRACTED, "e1").rows(ExtractionRow)
    assert (row.message_id, row.turn_memory_id, row.facts) == ("e1", TURN.memory_id, 2)
    assert (row.model, row.warnings) == (CALL.model, EXTRACTED.warnings)


@pytest.mark.parametrize(
    ("failure", "value", "stored"),
    [
        ("malformed-output", None, ["f1"]),
        ("invalid", None, ["f1"]),
        ("unexpected", None, []),  # a redrive decides all of it, as for the first time
        ("invalid", b"{", []),
    ],
)
def test_facts_that_were_not_decided_about_are_stored_with_their_dead_letter(
    failure: Any, value: bytes | None, stored: list[str]
) -> None:
    message = envelope(EXTRACTED, FACTS_EXTRACTED, "e1")
    lying = Record(FACTS_EXTRACTED.name, 0, 4, b"ana", value or encode(message), BEGIN)
    out = dead_letter("decide", lying, message, Failure("no", failure, item_ids=("f1",)), BEGIN)
    buried = decode(out.value, DEAD_LETTERS, BEGIN)
    for known, has_text in ((Store(), True), (Store.of(ERASED), False)):
        driven = drive(STAGE.process(buried, Context(record(0, DEAD_LETTERS.name))), known)
        rows = driven.rows(FactRow)
        assert [row.item_id for row in rows] == stored
        assert all(is_mark(row.content) != has_text for row in rows)
        assert len(driven.rows(DeadLetterRow)) == 1
