"""What is made of a producer's record, a turn and a command before anything follows from them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.codec import decode
from palimpsest.schemas.commands import (
    AliasCommand,
    Command,
    ForgetCommand,
    MemoryCommand,
    MemoryPatch,
    ModifyCommand,
    RememberCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute
from palimpsest.schemas.identity import turn_item_id
from palimpsest.schemas.messages import ConversationTurn, MemoryWrite, RejectedTurnIntent
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.streams.logs.base import Record
from palimpsest.streams.normalize import normalize_stage, normalized
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.sensitive.policy import PiiRejected, Policy
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.stage import Context, Emit
from tests.messages import BEGIN, commanded, published, turn

REDACT = Policy.of(PiiSettings())
REJECT = Policy.of(PiiSettings(mode="reject"))
OFF = Policy.of(PiiSettings(mode="off"))
SECRET = "hunter2"
TOLD = f"my password is {SECRET}"
UNCLEAR = "my password is on the note"


def record(value: object, topic: str = CONVERSATION_TURNS.name, **fields: Any) -> Record:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(topic, 0, 7, b"ana", data, BEGIN, **fields)


def sent(body: ConversationTurn) -> Record:
    out = outgoing(CONVERSATION_TURNS, published(body))
    return Record(out.topic, 0, 0, out.key, out.value, BEGIN, out.headers)


def read(taken: Record) -> ConversationTurn:
    body = decode(taken.value, CONVERSATION_TURNS, BEGIN).body
    assert isinstance(body, ConversationTurn)
    return body


EVERYWHERE = {
    "content": TOLD,
    "speaker": f"Ana pw={SECRET}",
    "session_id": f"s password: {SECRET}",
    "source_id": f"password={SECRET}",
    "project": f"password={SECRET}",
    "source_type": f"pw={SECRET}",
    "tags": ("tea", f"password={SECRET}"),
    "metadata": {
        "note": TOLD,
        "password": SECRET,
        "deep": [{"a": {"clientSecret": SECRET, f"password={SECRET}": 1}}],
    },
    "of_its_own": {"x": [TOLD], "api_key": SECRET},
    f"password={SECRET}": True,
}


def test_no_field_of_a_turn_keeps_a_secret() -> None:
    given = ConversationTurn(turn_id="t1", **EVERYWHERE)  # type: ignore[arg-type]
    for taken in (REDACT.turn(given), read(REDACT.record(sent(given)))):
        assert SECRET not in taken.model_dump_json()
        assert taken.turn_id == "t1"
        assert "tea" in taken.tags
    assert REDACT.turn(given) == read(REDACT.record(sent(given)))
    assert OFF.turn(given) == given


def test_a_record_without_findings_is_the_record_itself() -> None:
    plain = sent(turn("I like tea"))
    assert REDACT.record(plain) is plain
    inner = replace(sent(turn(TOLD)), topic=MEMORY_WRITES.name)
    assert REDACT.record(inner) is inner
    assert OFF.record(sent(turn(TOLD))).value == sent(turn(TOLD)).value
    taken = REDACT.record(sent(turn(TOLD)))
    assert REDACT.record(taken) is taken


def test_ids_and_times_stay_as_they_were_written() -> None:
    raw = json.loads(sent(turn(TOLD)).value or b"")
    raw |= {"occurred_at": "2026-03-01T09:30:00+09:00", "id": "4111111111111111"}
    raw["scope"] = "+49 30 901820"
    taken = json.loads(REDACT.record(record(raw)).value or b"")
    assert {**taken, "body": None} == {**raw, "body": None}
    assert SECRET not in str(taken["body"])


def test_sessions_may_be_named_by_a_telephone_number() -> None:
    named = turn("hello").model_copy(
        update={"session_id": "+49 30 901820", "speaker": "+49 30 901820"}
    )
    taken = REDACT.turn(named)
    assert (taken.session_id, taken.speaker) == ("+49 30 901820", "[REDACTED:phone#e4c3e80cb6]")


@pytest.mark.parametrize(
    "value",
    [b"not JSON: " + TOLD.encode(), b"\xff\xfe " + TOLD.encode(), json.dumps([TOLD]).encode()],
)
def test_what_is_no_message_is_made_safe_too(value: bytes) -> None:
    taken = REDACT.record(record(value))
    assert SECRET.encode() not in (taken.value or b"")
    assert taken.offset == 7


def test_headers_of_a_producer_are_looked_at() -> None:
    taken = REDACT.record(record({}, headers={"x": TOLD.encode(), "traceparent": b"00-1-2-01"}))
    assert taken.headers == {
        "x": b"my password is [REDACTED:password]",
        "traceparent": b"00-1-2-01",
    }


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: json.dumps(text).encode()))
def test_no_bytes_are_too_strange(value: bytes) -> None:
    for policy in (REDACT, REJECT, OFF):
        taken = policy.record(record(value))
        assert policy.record(taken).value == taken.value


MEMORY = "0b5c2a5e-7f4e-5d0e-9a55-1d8f4b6a7c21"


@pytest.mark.parametrize(
    "command",
    [
        RememberCommand(
            content=TOLD,
            tags=(f"pw={SECRET}",),
            who=f"pw={SECRET}",
            session_id=f"pw={SECRET}",
            metadata={"token": TOLD, "password": SECRET},
            structured=Structure(
                attributes=(StructuredAttribute(entity="Ana", aspect=f"password: {SECRET}"),)
            ),
        ),
        ModifyCommand(
            patches=(MemoryPatch(memory_id=MEMORY, content=TOLD, tags=(TOLD,), reason=TOLD),),
            reason=TOLD,
        ),
        ForgetCommand(memory_ids=(MEMORY,), reason=TOLD, confirm_token=MEMORY),
        AliasCommand(name="Ana", alias=f"password: {SECRET}", reason=TOLD),
        ForgetCommand.model_validate(
            {"memory_ids": [MEMORY], "reason": "x", "command": "forget", "memory_id": TOLD}
        ),
    ],
    ids=lambda command: command.command,
)
def test_no_field_of_a_command_keeps_a_secret(command: Command) -> None:
    message = commanded(command, 1)
    out = outgoing(MEMORY_COMMANDS, message)
    taken = REDACT.record(Record(out.topic, 0, 0, out.key, out.value, BEGIN, out.headers))
    body = decode(taken.value, MEMORY_COMMANDS, BEGIN).body
    assert isinstance(message.body, MemoryCommand)
    assert REDACT.command(message.body) == body
    assert SECRET not in body.model_dump_json()
    if MEMORY in message.body.model_dump_json():
        assert MEMORY in body.model_dump_json()


def test_a_text_without_a_clear_span_is_refused_where_that_is_set() -> None:
    assert REDACT.turn(turn(UNCLEAR)).content == UNCLEAR
    with pytest.raises(PiiRejected) as refused:
        REJECT.turn(turn(UNCLEAR))
    assert "note" not in str(refused.value)
    with pytest.raises(PiiRejected):
        REJECT.command(MemoryCommand(command=RememberCommand(content=UNCLEAR)))
    assert REJECT.turn(turn(TOLD)).content == "my password is [REDACTED:password]"


def written(policy: PiiSettings, raw: Record) -> MemoryWrite:
    """What normalize makes of a producer's record."""
    stage = normalize_stage(policy)
    assert stage.admit is not None
    taken = stage.admit(raw)
    process = stage.process(decode(taken.value, CONVERSATION_TURNS, BEGIN), Context(taken))
    with pytest.raises(StopIteration) as stopped:
        next(process)
    [emit] = stopped.value.value.emits
    assert isinstance(emit, Emit)
    assert isinstance(emit.body, MemoryWrite)
    return emit.body


def test_a_refused_turn_leaves_its_reason_and_nothing_that_it_says() -> None:
    intent = written(PiiSettings(mode="reject"), sent(turn(UNCLEAR))).write
    assert isinstance(intent, RejectedTurnIntent)
    assert intent.reason == "pii_rejected"
    assert "note" not in intent.model_dump_json()
    # Nor anything that it could be guessed from: another text under its id gives the same.
    other = written(PiiSettings(mode="reject"), sent(turn("our password is in the drawer"))).write
    assert intent == other


def test_the_kinds_are_told_in_order_and_ids_follow_from_what_is_left() -> None:
    given = turn("my card is 4111 1111 1111 1111").model_copy(update={"tags": (TOLD,)})
    taken = REDACT.turn(given)
    assert normalized("ana", taken).redactions == ("credit_card", "password")
    assert normalized("ana", turn("I like tea")).redactions == ()
    other = REDACT.turn(given.model_copy(update={"content": "my card is 5555 5555 5555 4444"}))
    assert turn_item_id("ana", taken) == turn_item_id("ana", other)
