"""normalize: turns and commands become intents; nothing of a rejected turn's text goes on."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.messages import (
    CommandIntent,
    ForgetCommand,
    MemoryPatch,
    MemoryWrite,
    ModifyCommand,
    NormalizedTurn,
    RawTurnIntent,
    RejectedTurnIntent,
    RememberCommand,
)
from schemas.topics import MEMORY_WRITES, TURNS_NORMALIZED
from streams.normalize import normalize_stage
from streams.settings import ExtractionSettings
from streams.text import content_hash, normalized_content, storage_content
from tests.harness import commanded, published, turn
from tests.unit.by_hand import Driven, context, drive

STAGE = normalize_stage(True, ExtractionSettings())


def normalize(content: str, enabled: bool = True, **fields: Any) -> Driven:
    stage = normalize_stage(enabled, ExtractionSettings())
    return drive(stage.process(published(turn(content, **fields)), context()))


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
        ("  Ana\t likes\n\n tea.  ", "Ana likes tea.", "ana likes tea"),
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


def test_a_turn_goes_to_the_write_ahead_log_and_to_extraction() -> None:
    driven = normalize("Ana likes tea.", project="p", tags=("a",), metadata={"k": [1]})
    [normalized] = driven.emitted(TURNS_NORMALIZED)
    assert isinstance(normalized, NormalizedTurn)
    assert the_write(driven).turn == normalized
    assert (normalized.project, normalized.tags, normalized.metadata) == ("p", ("a",), {"k": [1]})
    assert driven.asks == []


def test_unknown_fields_are_kept() -> None:
    [normalized] = normalize("Ana likes tea.", mood="cheerful").emitted(TURNS_NORMALIZED)
    assert normalized.model_extra == {"mood": "cheerful"}


@pytest.mark.parametrize(
    ("role", "extracted"), [("user", 1), ("assistant", 1), ("tool", 0), ("system", 0)]
)
def test_only_some_roles_are_extracted_from(role: str, extracted: int) -> None:
    driven = normalize("Ana likes tea.", role=role)
    assert len(driven.emitted(TURNS_NORMALIZED)) == extracted
    assert isinstance(the_write(driven), RawTurnIntent)


def test_disabled_keeps_turns_raw() -> None:
    driven = normalize("Ana likes tea.", enabled=False)
    assert driven.emitted(TURNS_NORMALIZED) == []
    assert isinstance(the_write(driven), RawTurnIntent)


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
    assert driven.emitted(TURNS_NORMALIZED) == []
    assert "4711" not in repr(driven.step)


def test_a_remembered_text_is_normalized_whatever_its_producer_claims() -> None:
    intent = command(
        RememberCommand(content="  Ana  likes TEA! ", normalized_content="x", content_hash="y")
    )
    assert intent.error is None
    assert isinstance(intent.command, RememberCommand)
    assert intent.command.content == "Ana likes TEA!"
    assert intent.command.normalized_content == "ana likes tea"
    assert intent.command.content_hash == content_hash("Ana likes TEA!")


@pytest.mark.parametrize(
    "wrong",
    [
        RememberCommand(content=" \t"),
        RememberCommand(content="a fact", type="episodic"),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", pinned=True),)),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", content=" "),), reason="r"),
        ModifyCommand(patches=(MemoryPatch(memory_id="m", type="episodic"),), reason="r"),
        ModifyCommand(
            patches=(
                MemoryPatch(memory_id="m", pinned=True, reason="r"),
                MemoryPatch(memory_id="n", pinned=True),
            )
        ),
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
