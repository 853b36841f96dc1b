"""What was held back is applied or dismissed by a person, and by nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from palimpsest.schemas.commands import ApplyProposalsCommand, Command, DismissProposalsCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.messages import CommandIntent, MemoryWrite, Proposal
from palimpsest.schemas.rows.memories import ArchiveRow, EdgeRow, MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, OutcomeRow, PendingProposalRow
from palimpsest.schemas.topics import CACHE_INVALIDATIONS
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.store_port import KeepVector
from tests.harness import CAREFUL, pipeline_settings
from tests.messages import BEGIN
from tests.unit.by_hand import (
    SCOPE,
    TURN,
    Driven,
    Store,
    context,
    drive,
    memory,
    proposal,
    proposals,
    write_message,
)
from tests.unit.commands_by_hand import AGENT, HUMAN, error, result
from tests.unit.proposals_by_hand import DELETE, FORGOTTEN, SAME, TEA, UPDATE, apply

DAY = timedelta(days=1)


def held(given: Proposal = UPDATE) -> PendingProposalRow:
    """What apply-writes keeps of a proposal that the flags do not allow."""
    driven = apply(proposals(given), Store.of(TEA), CAREFUL)
    assert [row.event for row in driven.rows(OutcomeRow)] == ["blocked"]
    [row] = driven.rows(PendingProposalRow)
    assert isinstance(row, PendingProposalRow)
    return row


def execute(
    command: Command,
    *rows: MemoryRow,
    given: tuple[PendingProposalRow, ...],
    actor: Actor = HUMAN,
    edition: int | None = None,
    **rest: Any,
) -> Driven:
    store = Store.of(*rows, held={row.item_id: row for row in given}, **rest)
    stage = apply_writes_stage(pipeline_settings(CAREFUL))
    intent = CommandIntent(command=command, actor=actor)
    message = write_message(MemoryWrite(write=intent, edition=edition), causation_id="c1")
    return drive(stage.process(message, context()), store)


APPLY = ApplyProposalsCommand(item_ids=("f0",), reason="she said so")
DISMISS = DismissProposalsCommand(item_ids=("f0",), reason="it was a joke")


def settled(driven: Driven) -> list[tuple[str, str, str]]:
    return [(row.item_id, row.event, row.reason) for row in driven.rows(OutcomeRow)]


def test_what_is_held_back_is_kept_with_its_vector_and_all_it_needs() -> None:
    row = held()
    assert (row.action, row.target_id, row.target_version) == ("UPDATE", "tea", 3)
    assert (row.content, row.type, row.model) == ("Ana likes black tea", "fact", "scripted-1")
    assert (row.turn_memory_id, row.occurred_at) == (TURN.memory_id, BEGIN)
    driven = apply(proposals(UPDATE), Store.of(TEA), CAREFUL)
    assert [write for write in driven.step.writes if isinstance(write, KeepVector)]
    assert driven.rows(MemoryRow) == []


def test_a_person_lets_an_update_happen_that_the_flags_do_not_allow() -> None:
    driven = execute(APPLY, TEA, given=(held(),))
    [row] = driven.rows(MemoryRow)
    assert (row.memory_id, row.content, row.version) == ("tea", "Ana likes black tea", 4)
    assert (row.updated_by, row.decision_order, row.write_seq) == ("ana", None, 11)
    assert [old.version for old in driven.rows(ArchiveRow)] == [3]
    edges = {(e.relation_type, e.target_id) for e in driven.rows(EdgeRow)}
    assert edges == {("supersedes", "tea@3"), ("derived_from", TURN.memory_id)}
    assert result(driven) == [{"id": "f0", "memory_id": "tea", "status": "updated", "version": 4}]
    assert settled(driven) == [("f0", "modified", "because")]
    [outcome] = driven.outcomes()
    assert (outcome.event, outcome.changed_by, outcome.actor_type, outcome.reason) == (
        "modified",
        "ana",
        "human",
        "she said so",
    )
    assert (outcome.old_content, outcome.new_content) == (TEA.content, "Ana likes black tea")
    assert (outcome.metadata["was"], outcome.metadata["decision_reason"]) == ("blocked", "because")
    assert len(driven.emitted(CACHE_INVALIDATIONS)) == 1


def test_a_person_lets_a_delete_happen() -> None:
    driven = execute(APPLY, TEA, given=(held(DELETE),))
    [row] = driven.rows(MemoryRow)
    assert (row.is_deleted, row.content, row.version) == (True, TEA.content, 4)
    assert settled(driven) == [("f0", "deleted", "because")]
    assert result(driven)[0]["status"] == "deleted"


def test_what_is_dismissed_is_settled_as_skipped_and_changes_nothing() -> None:
    driven = execute(DISMISS, TEA, given=(held(),))
    assert driven.rows(MemoryRow) == []
    assert settled(driven) == [("f0", "skipped", "dismissed")]
    assert driven.ends() == [("skipped", "it was a joke")]
    assert driven.outcomes()[0].metadata["skipped_reason"] == "dismissed"
    assert result(driven) == [{"id": "f0", "memory_id": "tea", "status": "dismissed"}]


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ((replace(TEA, version=4),), "version_conflict"),
        ((replace(TEA, is_deleted=True),), "target_gone"),
        ((), "target_gone"),
        ((replace(TEA, pinned=True),), "pinned"),
        ((TEA, FORGOTTEN), "source_forgotten"),
        ((replace(TEA, scope="ben"),), "target_gone"),
    ],
    ids=["changed", "forgotten", "gone", "pinned", "source-forgotten", "foreign"],
)
def test_what_cannot_be_applied_now_stays_held_back(
    rows: tuple[MemoryRow, ...], status: str
) -> None:
    driven = execute(APPLY, *rows, given=(held(),))
    assert result(driven)[0]["status"] == status
    assert driven.rows(MemoryRow) == []
    assert settled(driven) == []


def test_a_confirmed_memory_needs_a_person_and_a_pinned_one_force() -> None:
    confirmed = memory("tea", TEA.content, confirmed=True, version=3)
    assert result(execute(APPLY, confirmed, given=(held(),)))[0]["status"] == "updated"
    pinned = replace(TEA, pinned=True)
    forced = APPLY.model_copy(update={"force": True})
    driven = execute(forced, pinned, given=(held(),))
    assert result(driven)[0]["status"] == "updated"
    assert driven.rows(MemoryRow)[0].pinned


def test_a_change_to_what_another_memory_says_is_deduped() -> None:
    driven = execute(APPLY, TEA, SAME, given=(held(),))
    assert result(driven) == [{"id": "f0", "memory_id": "same", "status": "deduped"}]
    assert settled(driven) == [("f0", "deduped", "same content")]


def test_changes_of_one_memory_follow_one_another_in_one_command() -> None:
    other = held(proposal("Ana likes no tea", "UPDATE", 1, target_id="tea", target_version=3))
    both = APPLY.model_copy(update={"item_ids": ("f0", "f1", "f0", "f2")})
    driven = execute(both, TEA, given=(held(), other))
    assert [(each["id"], each["status"], each.get("version")) for each in result(driven)] == [
        ("f0", "updated", 4),
        ("f1", "updated", 5),
        ("f2", "not_held", None),
    ]
    assert [row.content for row in driven.rows(MemoryRow)] == [
        "Ana likes black tea",
        "Ana likes no tea",
    ]
    # What someone else changed since is no step of the same.
    moved = replace(TEA, version=4)
    assert [each["status"] for each in result(execute(both, moved, given=(held(), other)))] == [
        "version_conflict",
        "version_conflict",
        "not_held",
    ]


@pytest.mark.parametrize(("edition", "status"), [(5, "version_conflict"), (6, "updated")])
def test_what_becomes_past_leaves_its_memory_as_it_was(edition: int, status: str) -> None:
    """A record of an earlier edition is carried out as it was then."""
    older = replace(held(), occurred_at=BEGIN - DAY)
    later = held(proposal("Ana likes no tea", "UPDATE", 1, target_id="tea", target_version=3))
    both = APPLY.model_copy(update={"item_ids": ("f0", "f1")})
    driven = execute(both, TEA, given=(older, later), edition=edition)
    assert [each["status"] for each in result(driven)] == ["said_before", status]


@pytest.mark.parametrize("command", [APPLY, DISMISS])
def test_no_machine_decides_on_what_was_held_back(command: Command) -> None:
    for actor in (AGENT, Actor(type="pipeline"), Actor(type="system")):
        assert error(execute(command, TEA, given=(held(),), actor=actor)) == "forbidden"
    frozen = FlagsRow(scope=SCOPE, mutations_frozen=True)
    assert error(execute(command, TEA, given=(held(),), flags=frozen)) == "frozen"


@pytest.mark.parametrize("kind", [ApplyProposalsCommand, DismissProposalsCommand])
def test_a_reason_is_required(kind: Any) -> None:
    for wrong in ({"reason": ""}, {"reason": " \n"}, {}):
        with pytest.raises(ValidationError):
            kind(item_ids=("f0",), **wrong)


@pytest.mark.parametrize(
    "again", ["Ana likes black tea", "ana likes black tea!", "Ana likes the black tea."]
)
def test_the_same_change_stated_twice_is_one_proposal(again: str) -> None:
    row = replace(held(), occurred_at=BEGIN - DAY)
    second = proposal(again, "UPDATE", 9, target_id="tea", target_version=3)
    store = Store.of(TEA, held={row.item_id: row})
    driven = apply(proposals(second, held_once=True), store, CAREFUL)
    assert [each.event for each in driven.rows(OutcomeRow)] == ["deduped"]
    [left] = driven.rows(PendingProposalRow)
    assert (left.item_id, left.occurred_at) == (row.item_id, BEGIN)


def test_the_same_change_twice_in_one_turn_is_one_proposal() -> None:
    second = UPDATE.model_copy(update={"item_id": "f9", "memory_id": "m-f9"})
    driven = apply(proposals(UPDATE, second, held_once=True), Store.of(TEA), CAREFUL)
    assert [each.event for each in driven.rows(OutcomeRow)] == ["blocked", "deduped"]
    assert len(driven.rows(PendingProposalRow)) == 1


def test_another_change_of_the_memory_is_another_proposal() -> None:
    row = held()
    for other in (
        proposal("Ana likes white tea", "UPDATE", 9, target_id="tea", target_version=3),
        proposal("Ana likes black tea", "DELETE", 9, target_id="tea", target_version=3),
    ):
        store = Store.of(TEA, held={row.item_id: row})
        driven = apply(proposals(other, held_once=True), store, CAREFUL)
        assert [each.event for each in driven.rows(OutcomeRow)] == ["blocked"]


def test_a_change_of_an_older_record_is_held_as_it_was() -> None:
    row = held()
    second = proposal("Ana likes black tea", "UPDATE", 9, target_id="tea", target_version=3)
    driven = apply(proposals(second), Store.of(TEA, held={row.item_id: row}), CAREFUL)
    assert [each.event for each in driven.rows(OutcomeRow)] == ["blocked"]
