"""apply-writes on turns: stored once, linked in order, counted where rejected."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.identity import entity_id, turn_memory_id
from schemas.messages import MemoryWrite, RawTurnIntent, RejectedTurnIntent
from schemas.rows import EdgeRow, MemoryRow, MentionRow, OutcomeRow, SessionRow
from schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES
from streams.apply_writes import apply_writes_stage
from streams.normalize import normalized
from streams.settings import ApplySettings
from streams.stage import Embed, KeepVector
from tests.harness import BEGIN, turn
from tests.unit.by_hand import Driven, Store, context, drive, memory, write_message

STAGE = apply_writes_stage(ApplySettings())
T1 = turn_memory_id("ana", "t1")


def store_turn(content: str, store: Store | None = None, **fields: Any) -> Driven:
    intent = RawTurnIntent(turn=normalized(turn(content, **fields)))
    return drive(STAGE.process(write_message(MemoryWrite(write=intent)), context()), store)


def test_a_turn_becomes_an_episodic_memory() -> None:
    driven = store_turn("I like  tea.", tags=("a",), metadata={"k": 1})
    [row] = driven.rows(MemoryRow)
    assert (row.memory_id, row.type, row.content, row.who) == (T1, "episodic", "I like tea.", "Ana")
    assert (row.importance, row.confidence, row.dedup_key) == (0.3, 1.0, None)
    assert (row.write_seq, row.version, row.metadata, row.tags) == (11, 1, '{"k": 1}', ("a",))
    assert (row.source_id, row.created_at) == ("t1", BEGIN)
    assert driven.ends() == [("created", "turn stored")]
    assert driven.rows(OutcomeRow)[0].item_id == T1


def test_the_vector_is_made_of_speaker_and_text() -> None:
    driven = store_turn("I like tea.")
    [ask] = driven.of(Embed)
    assert ask.texts == ("Ana: I like tea.",)
    [kept] = [write for write in driven.step.writes if isinstance(write, KeepVector)]
    assert kept.embedding_key == driven.rows(MemoryRow)[0].embedding_key


def test_without_a_vector_the_turn_is_stored_all_the_same() -> None:
    driven = store_turn("I like tea.", Store(without_vectors=True))
    assert len(driven.rows(MemoryRow)) == 1
    assert not [write for write in driven.step.writes if isinstance(write, KeepVector)]


def test_the_same_turn_again_is_nothing() -> None:
    again = store_turn("something else", Store.of(memory(T1, "I like tea.", type="episodic")))
    assert again.step.writes == ()
    assert again.step.emits == ()


def session(turns: int = 2) -> SessionRow:
    return SessionRow(
        scope="ana", session_id="s1", last_turn="t0", turns=turns, first_at=BEGIN, last_at=BEGIN
    )


def test_turns_of_a_session_are_chained() -> None:
    driven = store_turn("I like tea.", Store(session=session()))
    [edge] = driven.rows(EdgeRow)
    assert (edge.source_id, edge.target_id, edge.relation_type) == ("t0", T1, "temporal")
    [row] = driven.rows(SessionRow)
    assert (row.last_turn, row.turns) == (T1, 3)


def test_the_first_turn_of_a_session_has_no_edge() -> None:
    driven = store_turn("I like tea.")
    assert driven.rows(EdgeRow) == []
    assert driven.rows(SessionRow)[0].turns == 1


def test_turns_without_a_session_are_not_chained() -> None:
    driven = store_turn("I like tea.", Store(session=session()), session_id="")
    assert driven.rows(EdgeRow) == []


def test_known_names_are_linked_the_speaker_too() -> None:
    ids = {name: entity_id("ana", name) for name in ("ana", "oslo", "bergen")}
    driven = store_turn("I moved to OSLO.", Store(entities=ids))
    mentions = {row.mention_text: row.entity_id for row in driven.rows(MentionRow)}
    assert mentions == {"Ana": ids["ana"], "OSLO": ids["oslo"]}


@pytest.mark.parametrize("names", [("postgres", "postgresql"), ("postgresql", "postgres")])
def test_of_several_names_the_least_is_kept(names: tuple[str, str]) -> None:
    known = entity_id("ana", "postgresql")
    store = Store(entities=dict.fromkeys(names, known))
    [row] = store_turn("we use PostgreSQL, I mean Postgres", store).rows(MentionRow)
    assert row.mention_text == "PostgreSQL"


def test_a_turn_changes_no_long_term_memory() -> None:
    driven = store_turn("I like tea.")
    assert len(driven.emitted(MEMORY_CHANGES)) == 1
    assert driven.emitted(CACHE_INVALIDATIONS) == []


def test_a_rejected_turn_is_counted() -> None:
    intent = RejectedTurnIntent(turn_id="t1", session_id="s1", reason="privacy_full")
    driven = drive(STAGE.process(write_message(MemoryWrite(write=intent)), context()))
    [row] = driven.rows(OutcomeRow)
    assert (row.item_kind, row.item_id, row.event, row.reason) == (
        "turn",
        T1,
        "rejected",
        "privacy_full",
    )
    assert driven.rows(MemoryRow) == []
    assert driven.ends() == [("rejected", "privacy_full")]
