"""apply-writes on proposals: modes, gates in order, guarded paths, sending back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from palimpsest.schemas.erasure.quotations import ERASED, is_mark
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.messages import CacheInvalidation, MemoryWrite, Proposal
from palimpsest.schemas.rows.memories import ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FactRow, ProposalRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, FACTS_EXTRACTED
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.settings import Flags
from palimpsest.streams.store_port import KeepVector, NearDuplicates
from tests.harness import CAREFUL, FULL, pipeline_settings
from tests.messages import BEGIN
from tests.unit.by_hand import (
    SCOPE,
    TURN,
    Store,
    context,
    drive,
    fact,
    memory,
    proposal,
    proposals,
    write_message,
)
from tests.unit.proposals_by_hand import (
    ADD,
    DELETE,
    FORGOTTEN,
    NEAR,
    NONE,
    SAME,
    TEA,
    UPDATE,
    apply,
    settled,
    weak,
)

# --- ADD --------------------------------------------------------------------------------------


def test_an_add_creates_a_memory_that_says_where_it_is_from() -> None:
    driven = apply(proposals(ADD))
    [row] = driven.rows(MemoryRow)
    assert (row.memory_id, row.content, row.who, row.why) == (
        "m-f0",
        "Ana likes black tea",
        "pipeline",
        "extracted-fact",
    )
    assert (row.importance, row.confidence, row.extraction_model) == (0.9, 0.9, "scripted-1")
    assert (row.write_seq, row.version) == (11, 1)
    [edge] = driven.rows(EdgeRow)
    assert (edge.source_id, edge.target_id, edge.relation_type) == (
        "m-f0",
        TURN.memory_id,
        "derived_from",
    )
    assert driven.ends() == [("created", "because")]
    assert settled(driven) == [("f0", "created")]
    [invalidation] = driven.emitted(CACHE_INVALIDATIONS)
    assert isinstance(invalidation, CacheInvalidation)
    assert invalidation.memory_ids == ("m-f0",)
    assert [w for w in driven.step.writes if isinstance(w, KeepVector)]


def test_without_a_vector_the_memory_is_written_all_the_same() -> None:
    driven = apply(proposals(ADD), Store(without_vectors=True))
    assert len(driven.rows(MemoryRow)) == 1
    assert not [w for w in driven.step.writes if isinstance(w, KeepVector)]


@pytest.mark.parametrize(
    ("given", "store", "end"),
    [
        # Each passes one gate more than the one before it, and would stop at all later ones.
        (weak("!!"), Store.of(SAME, FORGOTTEN, near=[NEAR]), ("skipped", "low_fact_confidence")),
        (proposal("!!"), Store.of(SAME, FORGOTTEN, near=[NEAR]), ("skipped", "empty_fact_content")),
        (ADD, Store.of(SAME, FORGOTTEN, near=[NEAR]), ("deduped", "same content")),
        (ADD, Store.of(FORGOTTEN, near=[NEAR]), ("skipped", "source_forgotten")),
        (
            ADD,
            Store.of(near=[NEAR]),
            ("reconsidered", "decided on what has changed since"),
        ),
        (ADD, Store(), ("created", "because")),
    ],
)
def test_the_gates_of_an_add_in_order(given: Proposal, store: Store, end: tuple[str, str]) -> None:
    driven = apply(proposals(given), store)
    assert driven.ends() == [end]
    assert len(driven.rows(MemoryRow)) == (1 if end[0] == "created" else 0)


def test_a_deduped_fact_names_the_existing_memory() -> None:
    [outcome] = apply(proposals(ADD), Store.of(SAME)).outcomes()
    assert outcome.memory_id == "same"


def test_exactly_the_least_confidence_is_enough() -> None:
    enough = proposal("Ana likes tea", fact_confidence=0.7)
    assert apply(proposals(enough)).ends()[0][0] == "created"


def test_two_facts_of_one_content_make_one_memory() -> None:
    driven = apply(proposals(ADD, proposal("ANA likes black tea.", number=1)))
    assert [event for event, _ in driven.ends()] == ["created", "deduped"]
    assert driven.outcomes()[1].memory_id == "m-f0"


def test_a_content_is_free_again_once_its_memory_says_something_else() -> None:
    again = proposal(TEA.content, number=1)
    for first in (UPDATE, DELETE):
        driven = apply(proposals(first, again), Store.of(TEA))
        assert [event for event, _ in driven.ends()][1] == "created"
        assert driven.rows(MemoryRow)[-1].memory_id == "m-f1"


# --- stale decisions --------------------------------------------------------------------------


def test_what_the_decider_had_seen_is_no_newcomer() -> None:
    seen = ADD.model_copy(update={"candidates": (NEAR,)})
    assert apply(proposals(seen), Store(near=[NEAR])).ends()[0][0] == "created"


def test_a_stale_fact_goes_back_to_decide_with_the_next_round() -> None:
    other = proposal("Ana has a cat", number=1)
    store = Store(near=[NEAR])
    driven = apply(proposals(ADD, other, round=1), store)
    [again] = driven.emitted(FACTS_EXTRACTED)
    assert isinstance(again, FactsExtracted)
    assert ([f.item_id for f in again.facts], again.round, again.triples) == (["f0", "f1"], 2, ())
    assert settled(driven) == []
    assert [o.memory_id for o in driven.outcomes()] == ["near", "near"]


def test_a_fact_is_stored_once_and_a_proposal_in_every_round() -> None:
    given = proposals(ADD.model_copy(update={"candidates": (NEAR,)}), as_of=9)
    driven = apply(given)
    [stated] = driven.rows(FactRow)
    assert (stated.item_id, stated.content, stated.turn_memory_id, stated.model) == (
        *("f0", "Ana likes black tea"),
        *(TURN.memory_id, "scripted-1"),
    )
    [row] = driven.rows(ProposalRow)
    assert (row.item_id, row.round, row.action, row.as_of) == ("f0", 0, "ADD", 9)
    assert json.loads(row.candidates) == [
        {"memory_id": "near", "version": 1, "score": 0.6, "cosine": 0.8, "keyword": 0.5}
    ]
    again = apply(given.model_copy(update={"round": 1}))
    assert (again.rows(FactRow), [row.round for row in again.rows(ProposalRow)]) == ([], [1])
    repeated = apply(given, Store(settled=frozenset({"f0"})))
    assert repeated.step.writes == ()


def test_what_is_stored_of_an_erased_turns_fact_has_no_text() -> None:
    erased = replace(FORGOTTEN, content="", content_hash="")
    driven = apply(proposals(ADD), Store.of(erased))
    [stated], [row] = driven.rows(FactRow), driven.rows(ProposalRow)
    assert is_mark(stated.content)
    assert row.reason == ERASED


def test_after_three_rounds_a_fact_is_applied_as_decided() -> None:
    driven = apply(proposals(ADD, round=3), Store(near=[NEAR]))
    assert driven.ends() == [("created", "because")]
    assert driven.of(NearDuplicates) == []


def test_the_near_duplicate_check_knows_what_was_decided_before() -> None:
    [first, second] = apply(
        proposals(ADD, proposal("Ana has a cat", number=1), decision_order=3, as_of=9)
    ).of(NearDuplicates)
    assert (first.as_of, first.scope, first.cosine) == (9, SCOPE, 0.70)
    assert second.decision_order == first.decision_order + 1


# --- UPDATE and DELETE ------------------------------------------------------------------------


def test_an_update_archives_first_and_leaves_a_trace() -> None:
    driven = apply(proposals(UPDATE), Store.of(TEA))
    [old] = driven.rows(ArchiveRow)
    assert (old.memory_id, old.version, old.content) == ("tea", 3, TEA.content)
    assert json.loads(old.state)["content_hash"] == TEA.content_hash
    [row] = driven.rows(MemoryRow)
    assert (row.memory_id, row.version, row.content) == ("tea", 4, "Ana likes black tea")
    assert row.content_hash != TEA.content_hash
    assert row.embedding_key != TEA.embedding_key
    edges = {(e.relation_type, e.target_id) for e in driven.rows(EdgeRow)}
    assert edges == {("supersedes", "tea@3"), ("derived_from", TURN.memory_id)}
    [outcome] = driven.outcomes()
    assert (outcome.event, outcome.old_content, outcome.new_content, outcome.version) == (
        "modified",
        TEA.content,
        "Ana likes black tea",
        4,
    )


def test_a_delete_archives_first_and_frees_the_content() -> None:
    driven = apply(proposals(DELETE), Store.of(TEA))
    assert [row.version for row in driven.rows(ArchiveRow)] == [3]
    [row] = driven.rows(MemoryRow)
    assert (row.is_deleted, row.version, row.dedup_key, row.content) == (
        True,
        4,
        None,
        TEA.content,
    )
    assert driven.ends() == [("deleted", "because")]


@pytest.mark.parametrize("given", [UPDATE, DELETE], ids=["update", "delete"])
@pytest.mark.parametrize(
    ("target", "end"),
    [
        (None, ("reconsidered", "decided on what has changed since")),
        (replace(TEA, is_deleted=True), ("reconsidered", "decided on what has changed since")),
        (replace(TEA, type="episodic"), ("reconsidered", "decided on what has changed since")),
        (replace(TEA, scope="ben"), ("reconsidered", "decided on what has changed since")),
        (replace(TEA, pinned=True), ("blocked", "pinned")),
        (replace(TEA, decay_rate=0.0), ("blocked", "pinned")),
        (replace(TEA, pinned=True, version=9), ("blocked", "pinned")),
        (replace(TEA, version=4), ("reconsidered", "decided on what has changed since")),
    ],
    ids=[
        "gone",
        "deleted",
        "turn",
        "foreign",
        "pinned",
        "confirmed",
        "pinned-and-changed",
        "changed",
    ],
)
def test_what_guards_a_target(
    given: Proposal, target: MemoryRow | None, end: tuple[str, str]
) -> None:
    store = Store() if target is None else Store.of(target)
    driven = apply(proposals(given), store)
    assert driven.ends() == [end]
    assert driven.rows(MemoryRow) == []
    assert driven.rows(ArchiveRow) == []


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        (replace(TEA, version=4), "version_conflict"),
        (replace(TEA, is_deleted=True), "target_gone"),
        (None, "target_gone"),
    ],
    ids=["changed", "deleted", "gone"],
)
def test_after_three_rounds_no_fact_is_lost_with_its_target(
    target: MemoryRow | None, cause: str
) -> None:
    store = Store() if target is None else Store.of(target)
    seen = NONE.model_copy(update={"target_version": 3, "fact": UPDATE.fact})
    for given in (UPDATE, seen):
        driven = apply(proposals(given, round=3), store)
        assert driven.ends() == [("created", f"{cause}: kept as a memory of its own")]
        [row] = driven.rows(MemoryRow)
        assert (row.memory_id, row.content) == ("m-f0", "Ana likes black tea")
    # A DELETE would not have kept its fact either.
    assert apply(proposals(DELETE, round=3), store).ends() == [("skipped", cause)]


@pytest.mark.parametrize(
    ("target", "end"),
    [
        (TEA, ("none", "duplicate_exact")),
        (replace(TEA, pinned=True), ("none", "duplicate_exact")),
        (
            replace(TEA, content_hash="1" * 64, version=4),
            ("reconsidered", "decided on what has changed since"),
        ),
        (replace(TEA, is_deleted=True), ("reconsidered", "decided on what has changed since")),
        (None, ("reconsidered", "decided on what has changed since")),
    ],
    ids=["as-seen", "pinned", "changed", "forgotten", "never-came-to-be"],
)
def test_a_fact_that_is_known_is_looked_at_again(
    target: MemoryRow | None, end: tuple[str, str]
) -> None:
    seen = NONE.model_copy(update={"target_version": 3})
    for flags in (FULL, CAREFUL):
        store = Store() if target is None else Store.of(target)
        driven = apply(proposals(seen), store, flags)
        assert driven.ends() == [end]
        again = [f for b in driven.emitted(FACTS_EXTRACTED) for f in b.facts]  # type: ignore[attr-defined]
        assert [f.item_id for f in again] == (["f0"] if end[0] == "reconsidered" else [])
        assert settled(driven) == ([] if end[0] == "reconsidered" else [("f0", "none")])


def test_a_known_fact_that_another_memory_tells_by_now_is_not_decided_anew() -> None:
    seen = NONE.model_copy(update={"target_version": 3})
    driven = apply(proposals(seen), Store.of(memory("same", "ana likes GREEN tea")))
    assert driven.ends() == [("none", "duplicate_exact")]
    assert driven.outcomes()[0].memory_id == "same"


def test_a_known_fact_of_a_message_without_a_version_holds_while_its_target_is_there() -> None:
    assert NONE.target_version is None
    changed = replace(TEA, content_hash="1" * 64, version=9)
    assert apply(proposals(NONE), Store.of(changed)).ends() == [("none", "duplicate_exact")]
    nobody = NONE.model_copy(update={"target_id": None})
    assert apply(proposals(nobody)).ends() == [("none", "duplicate_exact")]


def test_nothing_of_a_forgotten_turn_is_decided_anew() -> None:
    seen = NONE.model_copy(update={"target_version": 3})
    assert apply(proposals(seen), Store.of(FORGOTTEN)).ends() == [("skipped", "source_forgotten")]


def test_what_would_be_held_back_for_a_forgotten_memory_is_decided_anew() -> None:
    for given in (UPDATE, DELETE):
        driven = apply(proposals(given), Store.of(replace(TEA, is_deleted=True)), CAREFUL)
        assert [event for event, _ in driven.ends()] == ["reconsidered"]


@pytest.mark.parametrize("flags", [FULL, CAREFUL])
@pytest.mark.parametrize(
    ("given", "end"),
    [
        (proposal("....!!!!....", "UPDATE"), ("skipped", "empty_fact_content")),
        (proposal("Ana is off tea", "UPDATE", fact_confidence=0.69), "low"),
        (proposal("Ana is off tea", "DELETE", fact_confidence=0.69), "low"),
    ],
    ids=["empty-update", "weak-update", "weak-delete"],
)
def test_the_gates_of_an_add_hold_for_a_change_too(given: Proposal, end: Any, flags: Flags) -> None:
    seen = given.model_copy(update={"target_id": "tea", "target_version": 3})
    driven = apply(proposals(seen), Store.of(TEA), flags)
    assert driven.ends() == [("skipped", "low_fact_confidence") if end == "low" else end]
    assert driven.rows(MemoryRow) == []


def test_an_update_takes_all_of_the_new_statement_and_keeps_the_first_date() -> None:
    told = BEGIN + timedelta(days=3)
    ends = BEGIN + timedelta(days=30)
    old = replace(
        TEA, type="fact", confidence=0.75, categories=("food",), tags=("mine",), importance=0.4
    )
    said = fact(
        "Ana likes black tea",
        confidence=0.95,
        type="preference",
        temporal_kind="temporal",
        valid_until=ends,
        categories=("drinks",),
    )
    given = UPDATE.model_copy(update={"fact": said})

    def updated(given: Proposal, old: MemoryRow, at: datetime) -> MemoryRow:
        message = write_message(MemoryWrite(write=proposals(given)), occurred_at=at)
        stage = apply_writes_stage(pipeline_settings(FULL))
        [row] = drive(stage.process(message, context()), Store.of(old)).rows(MemoryRow)
        assert isinstance(row, MemoryRow)
        return row

    row = updated(given, old, told)
    assert (row.type, row.confidence, row.categories) == ("preference", 0.95, ("drinks",))
    assert (row.temporal_kind, row.valid_until) == ("temporal", ends)
    assert (row.occurred_at, row.first_occurred_at) == (told, BEGIN)
    assert row.extraction_model == "scripted-1"
    # What is the memory's and not the statement's.
    assert (row.tags, row.importance, row.created_at) == (("mine",), 0.4, BEGIN)
    rated = given.model_copy(update={"fact": said.model_copy(update={"importance": 0.6})})
    assert updated(rated, old, told).importance == 0.6
    # The first date stays the first, however often and in whatever order it was told.
    again = UPDATE.model_copy(update={"target_version": 4})
    assert updated(again, row, told + timedelta(days=1)).first_occurred_at == BEGIN
    early = updated(again, row, BEGIN - timedelta(days=1))
    assert (early.occurred_at, early.first_occurred_at) == (BEGIN - timedelta(days=1),) * 2


def test_an_update_to_what_another_memory_says_is_deduped() -> None:
    driven = apply(proposals(UPDATE), Store.of(TEA, SAME))
    assert driven.ends() == [("deduped", "same content")]
    assert driven.outcomes()[0].memory_id == "same"
    assert driven.rows(MemoryRow) == []


def test_an_update_that_only_changes_the_spelling_is_one() -> None:
    spelled = proposal("ANA likes green tea!", "UPDATE", target_id="tea", target_version=3)
    driven = apply(proposals(spelled), Store.of(TEA))
    assert driven.ends() == [("modified", "because")]


@pytest.mark.parametrize("given", [UPDATE, DELETE])
def test_nothing_drawn_from_a_forgotten_turn_is_carried_out(given: Proposal) -> None:
    assert apply(proposals(given), Store.of(TEA, FORGOTTEN)).ends() == [
        ("skipped", "source_forgotten")
    ]


def test_changes_of_one_intent_build_on_each_other() -> None:
    second = proposal("Ana is off tea", "DELETE", number=1, target_id="tea", target_version=4)
    driven = apply(proposals(UPDATE, second), Store.of(TEA))
    assert [event for event, _ in driven.ends()] == ["modified", "deleted"]
    assert [row.version for row in driven.rows(ArchiveRow)] == [3, 4]
    assert [row.write_seq for row in driven.rows(MemoryRow)] == [11, 12]
