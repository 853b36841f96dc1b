"""apply-writes on turns: stored once, linked in order, counted where rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palimpsest.schemas.identity import entity_id, turn_item_id, turn_memory_id
from palimpsest.schemas.memory_texts import outline
from palimpsest.schemas.messages import (
    MemoryWrite,
    NormalizedTurn,
    RawTurnIntent,
    RejectedTurnIntent,
)
from palimpsest.schemas.rows.graph import MentionRow
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, OutcomeRow
from palimpsest.schemas.rows.sessions import SessionRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_CHANGES, TURNS_NORMALIZED
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.normalize import normalized
from palimpsest.streams.settings import ExtractionSettings, Flags
from palimpsest.streams.stage import Embed, Step
from palimpsest.streams.store_port import KeepVector
from tests.harness import pipeline_settings
from tests.messages import BEGIN, turn
from tests.unit.by_hand import Driven, Store, context, drive, memory, write_message

STAGE = apply_writes_stage(pipeline_settings())
T1 = turn_memory_id("ana", "t1")


def store_turn(content: str, store: Store | None = None, **fields: Any) -> Driven:
    intent = RawTurnIntent(turn=normalized("ana", turn(content, **fields)))
    return drive(STAGE.process(write_message(MemoryWrite(write=intent)), context()), store)


def test_a_turn_becomes_an_episodic_memory() -> None:
    driven = store_turn("I like  tea.", tags=("a",), metadata={"k": 1})
    [row] = driven.rows(MemoryRow)
    assert (row.memory_id, row.type, row.content, row.who) == (T1, "episodic", "I like tea.", "Ana")
    assert (row.importance, row.confidence, row.dedup_key) == (0.3, 1.0, None)
    assert (row.write_seq, row.version, row.metadata, row.tags) == (11, 1, '{"k": 1}', ("a",))
    assert (row.source_id, row.created_at) == ("t1", BEGIN)
    assert driven.ends() == [("created", "turn stored")]
    published = turn("I like  tea.", tags=("a",), metadata={"k": 1})
    assert driven.rows(OutcomeRow)[0].item_id == turn_item_id("ana", published)


def test_the_vector_is_made_of_day_speaker_and_text() -> None:
    driven = store_turn("I like tea.")
    [ask] = driven.of(Embed)
    assert ask.texts == ("1 March 2026. Ana: I like tea.",)
    [kept] = [write for write in driven.step.writes if isinstance(write, KeepVector)]
    assert kept.embedding_key == driven.rows(MemoryRow)[0].embedding_key


@pytest.mark.parametrize("role", ["assistant", "tool", "system"])
def test_the_vector_of_a_long_text_by_no_person_is_that_of_its_outline(role: str) -> None:
    content = "Feed it once a week, and keep it cold while you are away. " * 20
    driven = store_turn(content, role=role)
    [ask] = driven.of(Embed)
    assert ask.texts == (f"1 March 2026. Ana: {outline(content.strip())}",)
    [kept] = [write for write in driven.step.writes if isinstance(write, KeepVector)]
    [row] = driven.rows(MemoryRow)
    assert (row.content, row.embedding_key) == (content.strip(), kept.embedding_key)


def test_the_vector_of_a_persons_long_turn_is_that_of_all_of_it() -> None:
    content = "Feed it once a week, and keep it cold while you are away. " * 20
    [ask] = store_turn(content).of(Embed)
    assert ask.texts == (f"1 March 2026. Ana: {content.strip()}",)


def test_without_a_vector_the_turn_is_stored_all_the_same() -> None:
    driven = store_turn("I like tea.", Store(without_vectors=True))
    assert len(driven.rows(MemoryRow)) == 1
    assert not [write for write in driven.step.writes if isinstance(write, KeepVector)]


def test_the_same_turn_again_is_nothing() -> None:
    item = turn_item_id("ana", turn("I like tea."))
    stored = Store.of(memory(T1, "I like tea.", type="episodic"), settled=frozenset({item}))
    again = store_turn("I like tea.", stored)
    assert again.step == Step()


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("Something else.", {}),
        ("I like tea.", {"speaker": "Ben"}),
        ("I like tea.", {"role": "tool"}),
    ],
)
def test_another_turn_under_a_known_turn_id_is_refused_with_both_texts(
    content: str, fields: dict[str, Any]
) -> None:
    item = turn_item_id("ana", turn("I like tea."))
    known = memory(T1, "I like tea.", type="episodic", who="Ana")
    again = store_turn(content, Store.of(known, settled=frozenset({item})), **fields)
    assert (again.step.writes, again.step.emits) == ((), ())
    dead = again.step.dead
    assert dead is not None
    assert dead.reason.startswith("turn_id_conflict: ")
    assert "Ana: I like tea." in dead.reason
    assert f"{fields.get('speaker', 'Ana')}: {content}" in dead.reason


def test_under_the_id_of_an_erased_turn_nothing_is_kept() -> None:
    # A producer may send again what was erased: no row and no dead letter has it.
    again = store_turn(
        "I like tea.",
        Store.of(memory(T1, "", type="episodic", content_hash="", is_deleted=True)),
    )
    assert (again.step.dead, again.rows(MemoryRow)) == (None, [])
    [outcome] = again.rows(OutcomeRow)
    assert (outcome.event, outcome.item_kind) == ("rejected", "turn")
    assert outcome.reason is not None
    assert outcome.reason.startswith("turn_id_erased: ")
    assert "tea" not in repr(again.step)


def test_a_turn_of_an_older_store_again_is_counted_and_nothing_else() -> None:
    old = Store.of(memory(T1, "I like tea.", type="episodic"), settled=frozenset({T1}))
    again = store_turn("I like tea.", old)
    assert [row.item_id for row in again.rows(OutcomeRow)] == [
        turn_item_id("ana", turn("I like tea."))
    ]
    assert again.rows(MemoryRow) == []
    assert again.step.emits == ()
    assert store_turn("Something else.", old).step.dead is not None


# --- what goes on to extraction -----------------------------------------------------------------


def extracted(driven: Driven) -> list[NormalizedTurn]:
    return [body for body in driven.emitted(TURNS_NORMALIZED) if isinstance(body, NormalizedTurn)]


@pytest.mark.parametrize(
    ("role", "count"), [("user", 1), ("assistant", 0), ("tool", 0), ("system", 0)]
)
def test_only_some_roles_are_extracted_from(role: str, count: int) -> None:
    assert len(extracted(store_turn("I like tea.", role=role))) == count


def test_an_assistants_turn_is_shown_with_the_next_though_nothing_is_extracted_from_it() -> None:
    [row] = store_turn("So you live in Lisbon?", role="assistant").rows(SessionRow)
    assert row.extracted_turns == (T1,)


@pytest.mark.parametrize(
    ("default", "own", "count"),
    [(True, None, 1), (True, False, 0), (False, None, 0), (False, True, 1)],
)
def test_the_enabled_flag_of_the_scope_says_whether_a_turn_is_extracted_from(
    default: bool, own: bool | None, count: int
) -> None:
    stage = apply_writes_stage(pipeline_settings(Flags(enabled=default)))
    intent = RawTurnIntent(turn=normalized("ana", turn("I like tea.")))
    store = Store(flags=FlagsRow(scope="ana", enabled=own))
    message = write_message(MemoryWrite(write=intent))
    driven = drive(stage.process(message, context()), store)
    assert len(driven.rows(MemoryRow)) == 1
    assert len(extracted(driven)) == count
    [session_row] = driven.rows(SessionRow)
    assert len(session_row.extracted_turns) == count


def test_a_turn_goes_on_with_the_turns_before_it_but_not_forgotten_ones() -> None:
    before = [memory(f"m{n}", f"text {n}", type="episodic", who="Ben") for n in range(3)]
    gone = replace(before[1], is_deleted=True)
    known = replace(session(), extracted_turns=("m0", "m1", "m2"))
    extraction = ExtractionSettings(context_turns=2)
    stage = apply_writes_stage(pipeline_settings().model_copy(update={"extraction": extraction}))
    intent = RawTurnIntent(turn=normalized("ana", turn("I like tea.")))
    store = Store.of(before[0], gone, before[2], session=known)
    driven = drive(stage.process(write_message(MemoryWrite(write=intent)), context()), store)
    [body] = extracted(driven)
    assert [(t.speaker, t.content) for t in body.context or ()] == [("Ben", "text 2")]
    [row] = driven.rows(SessionRow)
    assert row.extracted_turns == ("m2", T1)


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
    mentions = {row.mention_text: row.name_id for row in driven.rows(MentionRow)}
    assert mentions == {"Ana": ids["ana"], "OSLO": ids["oslo"]}


def test_each_name_of_a_text_is_a_mention_of_that_text() -> None:
    ids = {name: entity_id("ana", name) for name in ("postgres", "postgresql")}
    driven = store_turn("we use PostgreSQL, I mean Postgres", Store(entities=ids))
    [stored] = driven.rows(MemoryRow)
    mentions = {(row.text_key, row.name_id): row.mention_text for row in driven.rows(MentionRow)}
    assert mentions == {
        (stored.embedding_key, ids["postgresql"]): "PostgreSQL",
        (stored.embedding_key, ids["postgres"]): "Postgres",
    }


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
