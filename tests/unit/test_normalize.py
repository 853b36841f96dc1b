"""normalize: turns and commands become intents; nothing of a rejected turn's text goes on."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.commands import (
    ChangeEmbeddingCommand,
    EmbeddingChoice,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
)
from palimpsest.schemas.echoes import marked
from palimpsest.schemas.identity import turn_item_id
from palimpsest.schemas.messages import (
    CommandIntent,
    ConversationTurn,
    MemoryWrite,
    NormalizedTurn,
    RawTurnIntent,
    RejectedTurnIntent,
)
from palimpsest.schemas.normal_forms import content_hash, normalized_content, storage_content
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.streams.logs.base import Record
from palimpsest.streams.normalize import normalize_stage, normalized
from palimpsest.streams.stage import Context
from tests.messages import BEGIN, commanded, published, turn
from tests.unit.by_hand import Driven, context, drive, record

STAGE = normalize_stage()
MODEL = EmbeddingChoice(provider="hashing", model="m", space="m", dimensions=8)


def normalize(content: str, **fields: Any) -> Driven:
    return drive(STAGE.process(published(turn(content, **fields)), context()))


def the_write(driven: Driven) -> Any:
    [body] = driven.emitted(MEMORY_WRITES)
    assert isinstance(body, MemoryWrite)
    return body.write


def command(given_command: Any) -> CommandIntent:
    intent = the_write(drive(STAGE.process(commanded(given_command, 1), context())))
    assert isinstance(intent, CommandIntent)
    return intent


@pytest.mark.parametrize(
    ("given_text", "stored", "normalized"),
    [
        ("  Ana\t likes\n\n tea.  ", "Ana\t likes\n\n tea.", "ana likes tea"),
        ("  Ana\t likes   tea.  ", "Ana likes tea.", "ana likes tea"),
        ("WHAT?!;:., ", "WHAT?!;:.,", "what"),
        ("e\u0301te\u0301", "été", "été"),
        ("a\u00a0b\u3000c", "a b c", "a b c"),
        ("...", "...", ""),
        ("wait . .", "wait . .", "wait ."),
        ("a\0b", "ab", "ab"),
        ("שלום, עולם!", "שלום, עולם!", "שלום, עולם"),
        ("👩🏽‍💻 ships it!", "👩🏽‍💻 ships it!", "👩🏽‍💻 ships it"),
    ],
)
def test_what_is_stored_and_what_is_indexed(given_text: str, stored: str, normalized: str) -> None:
    intent = the_write(normalize(given_text))
    assert isinstance(intent, RawTurnIntent)
    assert (intent.turn.content, intent.turn.normalized_content) == (stored, normalized)
    hashed_text = normalized or stored.lower()
    assert intent.turn.content_hash == hashlib.sha256(hashed_text.encode()).hexdigest()


@given(st.text(st.characters(blacklist_categories=("Cs",))))
def test_normal_forms_are_stable(text: str) -> None:
    stored = storage_content(text)
    assert storage_content(stored) == stored
    assert unicodedata.is_normalized("NFC", stored)
    assert stored == stored.strip()
    assert content_hash(stored) == content_hash(storage_content(stored))
    assert not normalized_content(stored).endswith((".", ",", "!", "?", ";", ":", " "))


def normalized_turn(content: str, **fields: Any) -> NormalizedTurn:
    intent = the_write(normalize(content, **fields))
    assert isinstance(intent, RawTurnIntent)
    return intent.turn


def test_a_turn_goes_to_the_write_ahead_log() -> None:
    stored = normalized_turn("Ana likes tea.", project="p", tags=("a",), metadata={"k": [1]})
    assert (stored.project, stored.tags, stored.metadata) == ("p", ("a",), {"k": [1]})
    assert stored.item_id == turn_item_id(
        "ana", turn("Ana likes tea.", project="p", tags=("a",), metadata={"k": [1]})
    )
    assert stored.published_content is None


def test_unknown_fields_are_kept() -> None:
    assert normalized_turn("Ana likes tea.", mood="cheerful").extensions == {"mood": "cheerful"}


@pytest.mark.parametrize(
    "name", sorted(set(NormalizedTurn.model_fields) - set(ConversationTurn.model_fields))
)
def test_a_producers_unknown_fields_never_meet_our_own(name: str) -> None:
    plain = normalized_turn("Ana likes tea.")
    for sent in (17, True, "x" * 64, ["a"], {"a": 1}):
        taken = normalized_turn("Ana likes tea.", **{name: sent})
        assert taken.extensions == {name: sent}
        assert taken.model_copy(update={"extensions": None}) == plain


CODE = 'def tea(cups):\n    return [\n        "milk"\n    ] * cups'


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("Buy:\n- tea\n- milk\n", "Buy:\n- tea\n- milk"),
        (f"\n{CODE}\n\n", CODE),
        (CODE.replace("\n", "\r\n"), CODE),
        ("| a   | b |\n|-----|---|\n| tea | 2 |", "| a   | b |\n|-----|---|\n| tea | 2 |"),
        ("Tea\u2028and\nmilk", "Tea\nand\nmilk"),
        ("Tea  \t and\u2028milk", "Tea and milk"),
    ],
)
def test_a_text_of_several_lines_keeps_its_form(given_text: str, stored: str) -> None:
    """And is the same as on one line."""
    taken, on_one_line = normalized_turn(given_text), normalized_turn(" ".join(given_text.split()))
    assert taken.content == stored
    assert taken.published_content is None
    assert taken.normalized_content == on_one_line.normalized_content
    assert taken.content_hash == on_one_line.content_hash


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("2026-03-02T01:00:00+09:00", 540),
        ("2026-03-02T01:00:00.25-0330", -210),
        ("2026-03-02T01:00:00Z", 0),
        ("2026-03-02T01:00:00+00:00", 0),
        ("2026-03-02 01:00:00+01:00", 60),
    ],
)
def test_the_zone_that_the_time_was_written_in_is_kept(written: str, minutes: int) -> None:
    raw = json.loads(encode(published(turn("I went there yesterday."))))
    raw["body"]["metadata"] = {"occurred_at": "2020-01-01T00:00:00+05:00"}
    raw["occurred_at"] = written
    value = json.dumps(raw).encode()
    message = decode(value, CONVERSATION_TURNS, BEGIN)
    driven = drive(STAGE.process(message, Context(record(0, CONVERSATION_TURNS.name, value))))
    assert (the_write(driven).turn.utc_offset_minutes or 0) == minutes


def test_the_zone_that_a_turn_tells_comes_before_that_of_its_time() -> None:
    told = normalized("ana", turn("I went there yesterday.", utc_offset_minutes=540), 60)
    assert told.utc_offset_minutes == 540


def test_an_unreadable_command_has_a_result_under_its_id() -> None:
    assert STAGE.on_invalid is not None
    bad = record(3, MEMORY_COMMANDS.name, b'{"id": "c1", "scope": "ana", "body": {"command": 5}}')
    salvaged = STAGE.on_invalid(bad, "body: Field required")
    assert salvaged is not None
    assert salvaged.message is not None
    assert (salvaged.message.id, salvaged.message.scope) == ("c1", "ana")
    [emit] = salvaged.step.emits
    assert emit.body.write.error == "invalid_request: body: Field required"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "value",
    [b"{", b"[]", b'{"scope": "ana"}', b'{"id": "c1"}', b'{"id": "c1", "scope": " "}', None],
)
def test_a_command_that_nobody_can_wait_for_is_a_dead_letter(value: bytes | None) -> None:
    assert STAGE.on_invalid is not None
    assert STAGE.on_invalid(Record(MEMORY_COMMANDS.name, 0, 0, b"ana", value, BEGIN), "no") is None


@pytest.mark.parametrize(
    ("content", "fields", "reason"),
    [
        (" \n\0 ", {}, "empty_content"),
        ("my secret is 4711", {"privacy": "full"}, "privacy_full"),
    ],
)
def test_a_rejected_turn_is_counted_without_its_text(
    content: str, fields: dict[str, Any], reason: str
) -> None:
    driven = normalize(content, **fields)
    intent = the_write(driven)
    assert isinstance(intent, RejectedTurnIntent)
    assert (intent.turn_id, intent.session_id, intent.reason) == ("t1", "s1", reason)
    assert "4711" not in repr(driven.step)


def test_a_remembered_text_is_normalized_whatever_its_producer_claims() -> None:
    intent = command(
        RememberCommand.model_validate(
            {"content": "  Ana  likes TEA! ", "normalized_content": "x", "content_hash": "y"}
        )
    )
    assert intent.error is None
    assert isinstance(intent.command, RememberCommand)
    assert intent.command.content == "Ana likes TEA!"


@pytest.mark.parametrize(
    "wrong",
    [
        RememberCommand(content=" \t"),
        RememberCommand(content="a fact", type="episodic"),
        ForgetCommand(memory_ids=("m",), reason=""),
        ForgetCommand(memory_ids=("m",), reason=" \t"),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True, reason=" "),), reason=" "),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True),)),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", content=" "),), reason="r"),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", type="episodic"),), reason="r"),
        ModifyCommand(
            patches=(
                MemoryPatch(memory_id="m", pinned=True, reason="r"),
                MemoryPatch(memory_id="n", pinned=True),
            )
        ),
        ChangeEmbeddingCommand(action="drop", live=MODEL, to=MODEL),
    ],
)
def test_an_invalid_command_yields_a_result_not_a_dead_letter(wrong: Any) -> None:
    intent = command(wrong)
    assert intent.error is not None
    assert intent.error.startswith("invalid_request: ")


@pytest.mark.parametrize(
    "right",
    [
        ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True),), reason="for all"),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True, reason="own"),)),
        ForgetCommand(memory_ids=("m",), reason="wrong"),
    ],
)
def test_a_valid_command_passes_as_it_is(right: Any) -> None:
    intent = command(right)
    assert (intent.error, intent.command) == (None, right)


@pytest.mark.parametrize(
    ("given", "hides"),
    [
        (ForgetCommand(memory_ids=("m",), reason="wrong"), True),
        (RecoverCommand(memory_id="m"), True),
        (ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True, reason="own"),)), None),
    ],
)
def test_what_hides_statements_is_told_from_records_of_earlier_releases(
    given: Any, hides: bool | None
) -> None:
    assert command(given).hides is hides


def test_what_is_echoed_is_no_request_to_remember() -> None:
    asked = "Remember that I live in Graz."
    block = marked(f"## Profile\n- Ana: {asked}")
    for text, intent in ((block, False), (f"{block}\n{asked}", True), (asked, True)):
        turn = the_write(normalize(text)).turn
        assert turn.explicit_long_term_memory_intent is intent
        assert turn.content == storage_content(text)
