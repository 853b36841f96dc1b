"""What is taken out of records, and what stays."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pydantic import ValidationError

from palimpsest.schemas.erasure.quotations import ERASED, Quotations, is_mark, mark_of, marks_of
from palimpsest.schemas.erasure.redaction import Redaction
from palimpsest.schemas.identity import fact_memory_id, turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.normal_forms import folded

SECRET = "Ana's pin is 4711"
GONE, KEPT = turn_memory_id("ana", "t1"), turn_memory_id("ana", "t2")


def redaction(*texts: str, kept: str = "Ana likes tea") -> Redaction:
    marks = marks_of({GONE: texts or (SECRET,)})
    return Redaction(
        "ana",
        frozenset({GONE}),
        marks,
        texts or (SECRET,),
        frozenset({KEPT}),
        frozenset({folded(kept)}),
    )


def redacted(body: dict[str, Any], **given: Any) -> Any:
    value = json.dumps({"scope": "ana", "body": body}).encode()
    return json.loads(redaction(**given).value(value))["body"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"it says '{SECRET}'.", f"it says '{ERASED}'."),
        (SECRET.upper(), ERASED),
        (json.dumps(SECRET), f'"{ERASED}"'),
        (f"{SECRET}2", f"{SECRET}2"),
        ("nothing of it", "nothing of it"),
        (f"{SECRET}, {SECRET}", f"{ERASED}, {ERASED}"),
        (f"it says {json.dumps('Ключ под мостом')}", f'it says "{ERASED}"'),
        ('it says "(4711) is the pin"', f'it says "{ERASED}"'),
    ],
)
def test_quotations(text: str, left: str) -> None:
    quotations = Quotations([SECRET, "Ключ под мостом", "(4711) is the pin"])
    assert quotations.left_out(text) == left


@pytest.mark.parametrize("text", ["İstanbul is her home", "ΟΔΟΣ ΣΑΣ", "Straße in Gießen"])
def test_a_quotation_in_any_language(text: str) -> None:
    said = f"she said: {text}, and so on"
    assert Quotations([text]).left_out(said) == f"she said: {ERASED}, and so on"


def test_a_long_text_is_known_by_its_beginning() -> None:
    text = "One fine day Ana told " + "much " * 300
    assert (
        Quotations([text]).left_out(f"she said: {text[:500]} [truncated]") == f"she said: {ERASED}"
    )


def test_each_text_of_a_memory_has_a_mark_and_equal_ones_are_told_by_one() -> None:
    marks = marks_of({"a": ("One.", "two"), "b": ("one", "three")})
    assert marks == {
        ("a", "one"): mark_of("a"),
        ("a", "two"): mark_of("a", 2),
        ("b", "one"): mark_of("b"),
        ("b", "three"): mark_of("b", 2),
    }
    assert all(map(is_mark, marks.values()))
    texts = Redaction("s", frozenset("ab"), marks).texts
    assert texts == {"one": mark_of("a"), "two": mark_of("a", 2), "three": mark_of("b", 2)}


def test_a_record_that_has_nothing_of_it_keeps_its_bytes() -> None:
    value = b'{"scope":"ana",  "body": {"content": "Ana likes tea", "reason": "likes"}}'
    assert redaction().value(value) is value
    other = json.dumps({"scope": "ben", "body": {"content": SECRET}}).encode()
    assert redaction().value(other) is other


def test_a_turn_keeps_what_it_is_counted_by() -> None:
    turn = {"turn_id": "t1", "session_id": "s", "content": SECRET, "speaker": "Ana", "mood": SECRET}
    gone = redacted(turn)
    assert gone["content"] == mark_of(GONE)
    assert "mood" not in gone
    assert gone["speaker"] == ""
    again = redacted(gone)
    assert again == gone


@pytest.mark.parametrize(
    "broken",
    [
        {"role": "nobody"},
        {"content": 5},
        {"content": [SECRET]},
        {"content": f"{SECRET} \ud800"},
        {"session_id": "s \ud800"},
        {"tags": SECRET},
    ],
)
def test_what_is_no_turn_loses_its_text_and_is_none_then_either(broken: dict[str, Any]) -> None:
    turn = {"turn_id": "t1", "session_id": "s", "content": SECRET, "role": "user"} | broken
    gone = redacted(turn)
    assert SECRET not in str(gone)
    assert "erased_item_id" not in gone
    with pytest.raises(ValidationError):
        ConversationTurn.model_validate(gone)
    assert redacted(gone) == gone


@pytest.mark.parametrize(
    "named",
    [
        {"event": ["x"]},
        {"triples": ["x", {"source": 1}, {}]},
        {"from_scope": "x", "lines": [{"kind": "memory"}, {"kind": "edge"}, {"kind": "state"}, 1]},
        {"command": "modify", "patches": [1, {"memory_id": GONE}], "memory_ids": [{}]},
    ],
)
def test_a_producer_names_its_fields_as_it_likes(named: dict[str, Any]) -> None:
    turn = {"turn_id": "t1", "session_id": "s", "content": SECRET, "metadata": named}
    assert redacted(turn)["metadata"] == {}
    left = redacted(turn | named)
    assert SECRET not in str(left)
    assert left["metadata"] == {}


@pytest.mark.parametrize("prefix", ["", "critical: ", "critical: [zqtag]: ", " [zqtag] : "])
def test_a_repeated_text_is_found_without_its_result(prefix: str) -> None:
    """A result is kept for a while, a command for as long as its topic is."""
    command = {"command": "remember", "content": prefix + SECRET.upper(), "metadata": {"zq": "zq"}}
    left = redacted({"command": command})["command"]
    assert left["content"] == mark_of(GONE)
    assert "zq" not in str(left)
    assert left.get("pinned", False) == ("critical" in prefix)
    assert left.get("importance") == (1.0 if "critical" in prefix else None)
    assert redacted({"command": left})["command"] == left
    known = {"command": "remember", "content": f"{prefix}Ana likes tea", "metadata": {"zq": "zq"}}
    assert redacted({"command": known})["command"] == known


def test_what_is_nested_too_deeply_is_looked_through_as_text() -> None:
    deep = json.dumps(SECRET)
    for _ in range(600):
        deep = f"[{deep}]"
    value = redaction().value(f'{{"scope": "ana", "body": {{"reason": {deep}}}}}'.encode())
    assert SECRET.encode() not in value


@pytest.mark.parametrize("name", ["turn_id", "item_id", "memory_id", "content", "reason"])
def test_half_a_character_is_looked_through_like_all_else(name: str) -> None:
    assert redacted({name: "\ud800", "facts": []}) == {name: "\ud800", "facts": []}
    gone = redacted({name: "\ud800", "session_id": "\ud800", "old_content": SECRET})
    assert gone == {name: "\ud800", "session_id": "\ud800", "old_content": mark_of(GONE)}


def test_what_was_drawn_from_it_goes_unless_it_is_kept() -> None:
    facts = [
        {"item_id": "f1", "content": "The pin of Ana is 4711"},
        {"item_id": "f2", "content": "Ana likes tea"},
    ]
    body = redacted({"turn": {"memory_id": GONE, "turn_id": "t1"}, "facts": facts})
    assert body["facts"][0]["content"] == mark_of(fact_memory_id("f1"))
    assert body["facts"][1]["content"] == "Ana likes tea"
    body = redacted({"turn": {"memory_id": KEPT, "turn_id": "t2"}, "facts": facts})
    assert body["facts"] == facts


def test_the_text_within_another_memorys_stays() -> None:
    assert redacted({"content": f"She told me: {SECRET}"}) == {"content": f"She told me: {SECRET}"}


def test_a_dead_letter_is_opened_and_closed_again() -> None:
    inner = {"scope": "ana", "body": {"turn_id": "t1", "content": SECRET}}
    dead_letter = {
        "value_base64": base64.b64encode(json.dumps(inner).encode()).decode(),
        "reason": f"turn_id_conflict: {SECRET} and more",
        "raw_output": "The pin",
        "item_ids": ["i"],
    }
    gone = redacted(dead_letter)
    assert SECRET.encode() not in base64.b64decode(gone["value_base64"])
    assert (gone["reason"], gone["raw_output"]) == (f"turn_id_conflict: {ERASED}", ERASED)
    broken = dead_letter | {"value_base64": base64.b64encode(f"no json {SECRET}".encode()).decode()}
    assert base64.b64decode(redacted(broken)["value_base64"]) == f"no json {ERASED}".encode()
