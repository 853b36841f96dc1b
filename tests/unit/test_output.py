"""From a step to records: deterministic identities, causation, dead letters that say it all."""

from __future__ import annotations

import base64

import pytest

from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import UNREADABLE_SCOPE, items_of, message_key, unreadable_item_id
from palimpsest.schemas.messages import DeadLetter
from palimpsest.schemas.topics import (
    CACHE_INVALIDATIONS,
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    MEMORY_HISTORY,
    TURNS_NORMALIZED,
)
from palimpsest.streams.logs.base import Outgoing, Record
from palimpsest.streams.normalize import normalized
from palimpsest.streams.runtime.output import dead_letter, emitted, outgoing
from palimpsest.streams.stage import Emit, Failure, Message
from tests.messages import BEGIN, published, turn

CAUSE = published(turn("I like tea"), correlation_id="trace")
BODY = normalized("ana", turn("I like tea"))


def one(emit: Emit, stage: str = "normalize", cause: Message = CAUSE) -> tuple[Outgoing, Message]:
    [out] = emitted(stage, cause, [emit])
    return out, decode(out.value, TURNS_NORMALIZED, None)


def test_an_emitted_message_knows_what_caused_it() -> None:
    out, message = one(Emit(TURNS_NORMALIZED, BODY, "extract"))
    assert message.id == derived_id("normalize", message_key(CAUSE), "extract")
    assert (message.causation_id, message.correlation_id) == (CAUSE.id, "trace")
    assert (message.scope, message.occurred_at, message.recorded_at) == ("ana", BEGIN, None)
    assert (out.topic, out.scope, out.key) == ("turns-normalized", "ana", b"ana")
    assert out.headers["content-type"] == b"application/json"


def test_ids_tell_stage_cause_and_index_apart() -> None:
    other = published(turn("I like tea", 2))
    given = [
        ("normalize", CAUSE, "extract"),
        ("normalize", CAUSE, 0),
        ("extract", CAUSE, "extract"),
        ("normalize", other, "extract"),
    ]
    ids = {one(Emit(TURNS_NORMALIZED, BODY, i), s, c)[1].id for s, c, i in given}
    assert len(ids) == len(given)
    assert one(Emit(TURNS_NORMALIZED, BODY, 0))[1].id in ids


def test_a_key_of_its_own() -> None:
    message = published(turn("x is y"))
    out = outgoing(MEMORY_HISTORY, message, key="event-1")
    assert (out.key, out.scope) == (b"event-1", "ana")


def dead_letter_in(out: Outgoing) -> tuple[Message, DeadLetter]:
    message = decode(out.value, DEAD_LETTERS, None)
    assert isinstance(message.body, DeadLetter)
    return message, message.body


def lying(value: bytes | None, key: bytes | None = b"ana", offset: int = 3) -> Record:
    return Record(CONVERSATION_TURNS.name, 2, offset, key, value, BEGIN, {"x": b"\xff"})


def test_a_dead_letter_holds_the_record_as_it_was() -> None:
    value = encode(CAUSE)
    out = dead_letter("extract", lying(value), CAUSE, Failure("no"), BEGIN)
    message, body = dead_letter_in(out)
    assert base64.b64decode(body.value_base64) == value
    assert (body.topic, body.partition, body.offset, body.key) == (
        "conversation-turns",
        2,
        3,
        "ana",
    )
    assert (body.stage, body.reason, body.failure) == ("extract", "no", "invalid")
    assert (body.item_kind, body.item_ids) == (
        "turn",
        items_of(CAUSE).item_ids,
    )
    assert (message.scope, message.correlation_id, message.causation_id) == (
        "ana",
        "trace",
        CAUSE.id,
    )
    # It stays in the partition where the record lay, whatever its scope.
    assert (out.partition, out.key, out.topic) == (2, b"ana", "dead-letters")


@pytest.mark.parametrize(
    ("key", "scope", "shown"),
    [
        (b"ana", "ana", "ana"),
        (None, UNREADABLE_SCOPE, None),
        (b"  ", UNREADABLE_SCOPE, "  "),
        (b"x" * 257, UNREADABLE_SCOPE, "x" * 257),
        (b"\xff\xfe", "\ufffd\ufffd", "\ufffd\ufffd"),
    ],
)
def test_an_unreadable_record_is_kept_under_its_key(
    key: bytes | None, scope: str, shown: str | None
) -> None:
    out = dead_letter("normalize", lying(b"\x00{", key), None, Failure("not JSON"), BEGIN)
    message, body = dead_letter_in(out)
    assert base64.b64decode(body.value_base64) == b"\x00{"
    assert (message.scope, body.key) == (scope, shown)
    place = unreadable_item_id("conversation-turns", 2, 3)
    assert (body.item_kind, body.item_ids) == ("turn", (place,))
    assert out.key == (key or scope.encode())


def test_a_record_without_a_value() -> None:
    _, body = dead_letter_in(dead_letter("normalize", lying(None), None, Failure("none"), BEGIN))
    assert body.value_base64 == ""


def test_the_same_failure_is_the_same_dead_letter() -> None:
    def dead_letter_id(stage: str, record: Record, message: Message | None) -> str:
        return dead_letter_in(dead_letter(stage, record, message, Failure("no"), BEGIN))[0].id

    value = encode(CAUSE)
    first = dead_letter_id("extract", lying(value), CAUSE)
    # A broker may hold the message twice: one dead letter, not two.
    assert dead_letter_id("extract", lying(value, offset=9), CAUSE) == first
    assert dead_letter_id("decide", lying(value), CAUSE) != first
    redriven = published(turn("I like tea"), message_id="again", redrive=1)
    assert dead_letter_id("extract", lying(value), redriven) != first
    unread = dead_letter_id("normalize", lying(b"{"), None)
    assert dead_letter_id("normalize", lying(b"{"), None) == unread
    assert dead_letter_id("normalize", lying(b"{", offset=9), None) != unread


def test_only_the_items_that_failed() -> None:
    failure = Failure("no", item_ids=("f1",))
    _, body = dead_letter_in(dead_letter("decide", lying(encode(CAUSE)), CAUSE, failure, BEGIN))
    assert body.item_ids == ("f1",)


def test_a_body_on_the_wrong_topic_is_refused() -> None:
    with pytest.raises(ValueError, match="declares"):
        emitted("normalize", CAUSE, [Emit(CACHE_INVALIDATIONS, BODY, 0)])
