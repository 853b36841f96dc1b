"""What a record must be to be a message, what is kept of it, and how a refusal is told."""

from __future__ import annotations

import copy
import json
import typing
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from palimpsest.schemas import codec
from palimpsest.schemas.codec import UPCASTS, InvalidRecord, Upcast, decode, encode, upcast
from palimpsest.schemas.envelope import Envelope, Frozen, derived_id
from palimpsest.schemas.extraction import Fact
from palimpsest.schemas.messages import SCHEMAS, ConversationTurn, DeadLetter, ScoredCandidate
from palimpsest.schemas.topics import CONVERSATION_TURNS, DEAD_LETTERS, Topic
from tests.contract.message_examples import TOPIC_OF, Json, golden, json_values, to_bytes
from tests.examples import examples

RECORDED = datetime(2026, 3, 1, 9, 30, 1, tzinfo=UTC)


def turn(**changes: JsonValue) -> Json:
    return {**golden("conversation-turn/1"), **changes}


def turn_bytes(old: str, new: str) -> bytes:
    """A turn's JSON with one piece of its text changed."""
    text = (
        '{"id":"1","schema":"conversation-turn/1","scope":"s","occurred_at":"2026-03-01T09:30:00Z"'
    )
    text += ',"correlation_id":"1","body":{"turn_id":"t","content":"hello","metadata":{}}}'
    assert old in text
    return text.replace(old, new).encode()


def decode_turn(value: bytes) -> Envelope[Frozen]:
    return decode(value, CONVERSATION_TURNS, RECORDED)


# --- what is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
def test_unknown_fields_are_kept_and_passed_on(schema: str) -> None:
    unknown: JsonValue = {"list": [1, None, "語"], "deep": {"x": 1.5, "null": None}}
    raw = copy.deepcopy(golden(schema))
    raw["x_new"] = unknown
    body = raw["body"]
    assert isinstance(body, dict)
    body["x_new"] = unknown
    message = decode(to_bytes(raw), TOPIC_OF[schema], RECORDED)
    assert json.loads(encode(message)) == raw


def test_times_come_out_in_utc() -> None:
    message = decode_turn(to_bytes(turn(occurred_at="2026-03-01T18:30:00.5+09:00")))
    assert message.occurred_at == datetime(2026, 3, 1, 9, 30, 0, 500_000, tzinfo=UTC)
    assert json.loads(encode(message))["occurred_at"] == "2026-03-01T09:30:00.500000Z"


@pytest.mark.parametrize("sent", ["2001-01-01T00:00:00Z", 5, "nonsense", None])
@pytest.mark.parametrize("recorded", [RECORDED, None])
def test_the_append_time_is_the_logs_alone(sent: JsonValue, recorded: datetime | None) -> None:
    message = decode(to_bytes(turn(recorded_at=sent)), CONVERSATION_TURNS, recorded)
    assert message.recorded_at == recorded
    assert "recorded_at" not in json.loads(encode(message))


SOUND = {
    "NUL in a text": turn_bytes("hello", r"a\u0000b"),
    "control characters": turn_bytes("hello", r"\u0001\u001f\u007f"),
    "a surrogate pair": turn_bytes("hello", r"\ud83e\udd89"),
    "a key that stands twice": turn_bytes('"content":', '"content":"first","content":'),
    "schema twice, the last one right": turn_bytes('"schema":', '"schema":"x/9","schema":'),
    "NaN as a word": turn_bytes("hello", "NaN and Infinity"),
    "nested 64 deep": turn_bytes('"metadata":{}', '"metadata":{"a":' + "[" * 61 + "]" * 61 + "}"),
    "a scope of 256 characters": turn_bytes('"scope":"s"', '"scope":"' + "語" * 256 + '"'),
    "a big number": turn_bytes('"metadata":{}', '"metadata":{"n":' + "9" * 300 + "}"),
    "white space around": b" \n" + turn_bytes("hello", "hello") + b"\n\t ",
}


@pytest.mark.parametrize("value", SOUND.values(), ids=SOUND.keys())
def test_strange_but_sound(value: bytes) -> None:
    message = decode_turn(value)
    again = decode_turn(encode(message))
    assert again == message
    assert json.loads(encode(message))["body"]["content"] == json.loads(value)["body"]["content"]


# --- what is refused --------------------------------------------------------------------------

INVALID: dict[str, tuple[bytes | None, str]] = {
    "no value": (None, "no value"),
    "empty": (b"", "not JSON"),
    "no JSON": (b"hello", "not JSON"),
    "half a JSON": (turn_bytes("hello", "hello")[:-5], "not JSON"),
    "two values": (b"{} {}", "not JSON"),
    "not UTF-8": (turn_bytes("hello", "Z").replace(b"Z", b"\xff\xfe"), "not JSON in UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + turn_bytes("hello", "hello"), "not JSON"),
    "NaN": (turn_bytes('"metadata":{}', '"metadata":{"a":NaN}'), "not JSON"),
    "Infinity": (turn_bytes('"body"', '"x":-Infinity,"body"'), "not JSON"),
    "a lone surrogate": (turn_bytes("hello", r"\ud800"), "not JSON"),
    "a lone low surrogate": (turn_bytes("hello", r"\udc00!"), "not JSON"),
    "nested 65 deep": (
        turn_bytes('"metadata":{}', '"metadata":{"a":' + "[" * 62 + "]" * 62 + "}"),
        "nested deeper than 64 levels",
    ),
    "nested 100,000 deep": (b"[" * 100_000, "nested deeper than 64 levels"),
    "nested deep in a field": (
        turn_bytes('"body"', '"x":' + "[" * 9999 + ',"body"'),
        "nested deeper than 64 levels",
    ),
    "a number of 5,000 digits": (turn_bytes('"metadata":{}', f'"x":{"9" * 5000}'), "out of range"),
    "an array": (b"[]", "not a JSON object but an array"),
    "a string": (b'"text"', "not a JSON object but a string"),
    "null": (b"null", "not a JSON object but null"),
    "true": (b"true", "not a JSON object but true or false"),
    "a number": (b"1.5", "not a JSON object but a number"),
    "too large": (turn_bytes("hello", "x" * (1024 * 1024)), r"log\.max_record_bytes"),
    "no schema": (to_bytes({"id": "1"}), 'no "schema".*conversation-turn/1'),
    "schema no text": (to_bytes(turn(schema=1)), 'no "schema"'),
    "a foreign schema": (to_bytes(turn(schema="dead-letter/1")), "does not belong on conv"),
    "a newer version": (to_bytes(turn(schema="conversation-turn/2")), "newer program"),
    "version 0": (to_bytes(turn(schema="conversation-turn/0")), "does not belong"),
    "version 01": (to_bytes(turn(schema="conversation-turn/01")), "does not belong"),
    "version ²": (to_bytes(turn(schema="conversation-turn/²")), "does not belong"),
    "a long version": (to_bytes(turn(schema="conversation-turn/" + "9" * 9999)), "does not belong"),
    "no version": (to_bytes(turn(schema="conversation-turn")), "does not belong"),
    "schema twice": (turn_bytes('"scope"', '"schema":"dead-letter/1","scope"'), "does not belong"),
    "no id": (to_bytes(turn(id="")), "id: "),
    "an empty scope": (to_bytes(turn(scope="")), "scope: .*scope is empty; name the memory"),
    "a blank scope": (to_bytes(turn(scope=" \u3000\n")), "scope is empty"),
    "257 characters": (to_bytes(turn(scope="s" * 257)), "scope: .*at most 256"),
    "a naive time": (to_bytes(turn(occurred_at="2026-03-01T09:30:00")), "occurred_at: .*no zone"),
    "a date": (to_bytes(turn(occurred_at="2026-03-01")), "occurred_at: .*no zone"),
    "a Unix time": (to_bytes(turn(occurred_at=1772357400)), "occurred_at: .*RFC 3339"),
    "a Unix time as text": (to_bytes(turn(occurred_at="1772357400")), "occurred_at: .*RFC 3339"),
    "before the year 1": (to_bytes(turn(occurred_at="0001-01-01T00:00:00+14:00")), "years 1 to"),
    "after 9999": (to_bytes(turn(occurred_at="9999-12-31T23:59:59-14:00")), "years 1 to 9999"),
    "no body": (to_bytes(turn(body=None)), "body: "),
    "an unknown role": (turn_bytes('"content"', '"role":"bot","content"'), "body.role: "),
}


@pytest.mark.parametrize(("value", "reason"), INVALID.values(), ids=INVALID.keys())
def test_invalid_records_say_why(value: bytes | None, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason) as caught:
        decode(value, CONVERSATION_TURNS, RECORDED)
    assert len(str(caught.value)) < 500


def test_reasons_do_not_repeat_what_the_record_says() -> None:
    with pytest.raises(InvalidRecord) as caught:
        decode_turn(turn_bytes('"content":"hello"', '"content":["my secret"],"role":"my secret"'))
    assert "secret" not in str(caught.value)


def test_many_failures_are_summed_up() -> None:
    with pytest.raises(InvalidRecord, match=r"; and \d+ more$"):
        decode_turn(turn_bytes('"metadata":{}', '"tags":[1,2,3,4,5,6,7,8,9]'))


def test_the_size_limit_is_for_what_producers_send() -> None:
    large = to_bytes(golden("dead-letter/1"))
    assert isinstance(decode(large, DEAD_LETTERS, None, max_bytes=10).body, DeadLetter)
    with pytest.raises(InvalidRecord, match="more than the 10 allowed"):
        decode(to_bytes(turn()), CONVERSATION_TURNS, None, max_bytes=10)


@settings(max_examples=examples(37))
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_decode_or_are_invalid(value: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode_turn(value)


@settings(max_examples=examples(37))
@given(st.sampled_from(sorted(turn())), json_values)
def test_any_envelope_field_decodes_or_is_invalid(name: str, value: JsonValue) -> None:
    try:
        message = decode_turn(to_bytes(turn(**{name: value})))
    except InvalidRecord:
        return
    assert decode_turn(encode(message)) == message


# --- what the code itself must not say --------------------------------------------------------


def test_a_body_of_another_schema_is_not_encoded() -> None:
    # A turn's fields are a part of a normalized turn's: the rest would be lost silently.
    message = Envelope[Frozen](
        id="1",
        schema="turn-normalized/1",
        scope="s",
        occurred_at=RECORDED,
        correlation_id="1",
        body=ConversationTurn(turn_id="t", content="hello"),
    )
    with pytest.raises(ValueError, match="its body is a ConversationTurn"):
        encode(message)
    with pytest.raises(ValueError, match="conversation-turn/9"):
        encode(message.model_copy(update={"schema_": "conversation-turn/9"}))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_have_no_json_are_refused_where_they_arise(number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        ScoredCandidate(memory_id="m", version=1, type="fact", content="c", score=number)
    with pytest.raises(ValidationError):
        Fact(item_id="i", content="c", confidence=number)


# --- older versions ---------------------------------------------------------------------------


def one_to_two(raw: dict[str, object]) -> None:
    body = raw["body"]
    assert isinstance(body, dict)
    body["content"] = body.pop("text")


def two_to_three(raw: dict[str, object]) -> None:
    body = raw["body"]
    assert isinstance(body, dict)
    body["tags"] = [*body.get("tags", []), "lifted"]


REGISTRY: dict[tuple[str, int], Upcast] = {("note", 1): one_to_two, ("note", 2): two_to_three}


def test_upcasts_are_chained_one_version_at_a_time() -> None:
    raw: dict[str, object] = {"schema": "note/1", "body": {"text": "hello"}, "x": 1}
    assert upcast("note", 1, 3, raw, REGISTRY) == {
        "schema": "note/3",
        "body": {"content": "hello", "tags": ["lifted"]},
        "x": 1,
    }


@pytest.mark.parametrize(("version", "current"), [(0, 3), (1, 4), (4, 3), (3, 5)])
def test_no_path_no_lift(version: int, current: int) -> None:
    assert upcast("note", version, current, {"body": {"text": ""}}, REGISTRY) is None


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A topic whose schema is at version 3."""
    monkeypatch.setitem(SCHEMAS, "note/3", ConversationTurn)
    monkeypatch.setattr(codec, "_ADAPTERS", {})
    return Topic("notes", ("note/3",))


def test_decode_lifts_old_records(monkeypatch: pytest.MonkeyPatch, notes: Topic) -> None:
    for step, lift in REGISTRY.items():
        monkeypatch.setitem(UPCASTS, step, lift)
    old = turn(schema="note/1", body={"turn_id": "t", "text": "hello", "x": 1})
    message = decode(to_bytes(old), notes, RECORDED)
    assert isinstance(message.body, ConversationTurn)
    assert (message.schema_, message.body.content, message.body.tags) == (
        "note/3",
        "hello",
        ("lifted",),
    )
    assert message.body.model_extra == {"x": 1}


@pytest.mark.parametrize("body", [{}, None, [], "text", 5])
def test_old_records_that_trip_an_upcast_are_invalid(
    monkeypatch: pytest.MonkeyPatch, notes: Topic, body: JsonValue
) -> None:
    def strict(raw: dict[str, object]) -> None:
        typing.cast("dict[str, object]", raw["body"])["text"]

    monkeypatch.setitem(UPCASTS, ("note", 2), strict)
    with pytest.raises(InvalidRecord, match="note/2: it cannot be lifted to note/3"):
        decode(to_bytes(turn(schema="note/2", body=body)), notes, None)


# --- identities -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (
            ("normalize", "5f2c0a6e-8a1b-4c55-9d10-0d6f3f3b8a01", 0),
            "08582023-0d3f-594c-9a89-af4fa06c47c5",
        ),
        (
            ("extract", "5f2c0a6e-8a1b-4c55-9d10-0d6f3f3b8a01", 12),
            "5d5b37bc-a355-5f0a-89a8-f46ef02fe23f",
        ),
        (("日本語",), "11e689b1-9a20-571b-af7e-09bd0ae05993"),
        ((), "a6b4232d-8057-58b2-bb00-2e6d8f7ffe55"),
    ],
)
def test_derived_ids_never_change(parts: tuple[str | int, ...], wanted: str) -> None:
    assert derived_id(*parts) == wanted


@given(st.lists(st.text("ab\x1e\x1f", max_size=4)), st.lists(st.text("ab\x1e\x1f", max_size=4)))
def test_different_parts_give_different_ids(first: list[str], second: list[str]) -> None:
    if first and second:
        assert (derived_id(*first) == derived_id(*second)) == (first == second)
