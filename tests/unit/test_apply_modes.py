"""apply-writes on proposals: modes, what reaches the graph, what is on record."""

from __future__ import annotations

from typing import Any

import pytest

from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.messages import MemoryChange, Proposal
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.streams.settings import Flags
from tests.harness import CAREFUL, FULL
from tests.unit.by_hand import (
    SCOPE,
    TURN,
    Driven,
    Store,
    proposal,
    proposals,
)
from tests.unit.proposals_by_hand import (
    ADD,
    DELETE,
    FORGOTTEN,
    NEAR,
    NONE,
    TEA,
    UPDATE,
    apply,
    settled,
    weak,
)

# --- modes ------------------------------------------------------------------------------------

ALL = (
    ADD,
    *(p.model_copy(update={"item_id": f"f{n}"}) for n, p in enumerate((UPDATE, NONE), 1)),
    DELETE.model_copy(update={"item_id": "f3", "target_version": 4}),
)


@pytest.mark.parametrize(
    ("flags", "events"),
    [
        (FULL, ["created", "modified", "none", "deleted"]),
        (CAREFUL, ["created", "blocked", "none", "blocked"]),
        (Flags(shadow_mode=True, allow_update_delete=True), ["shadowed"] * 4),
        (Flags(mutations_frozen=True, allow_update_delete=True), ["shadowed"] * 4),
        (Flags(enabled=False, allow_update_delete=True), ["skipped"] * 4),
        (Flags(autonomous_frozen=True), ["created", "blocked", "none", "blocked"]),
    ],
)
def test_modes(flags: Flags, events: list[str]) -> None:
    white = proposal("Ana likes white tea", number=0)
    driven = apply(proposals(white, *ALL[1:]), Store.of(TEA), flags)
    assert [event for event, _ in driven.ends()] == events
    assert [event for _, event in settled(driven)] == events
    if "created" not in events:
        assert driven.rows(MemoryRow) == []


def test_flags_of_the_scope_go_before_the_settings() -> None:
    row = FlagsRow(scope=SCOPE, shadow_mode=True)
    driven = apply(proposals(ADD), Store(flags=row))
    [outcome] = driven.outcomes()
    assert (outcome.event, outcome.reason, outcome.changed_by) == (
        "shadowed",
        "shadow_mode",
        "pipeline-shadow",
    )
    row = FlagsRow(scope=SCOPE, allow_update_delete=True)
    assert apply(proposals(UPDATE), Store.of(TEA, flags=row), CAREFUL).ends()[0][0] == "modified"


@pytest.mark.parametrize(
    ("given", "store", "flags", "key", "value"),
    [
        (UPDATE, Store.of(TEA), CAREFUL, "blocked_reason", "update_delete_not_allowed"),
        (weak("Ana sleeps"), Store(), FULL, "skipped_reason", "low_fact_confidence"),
    ],
)
def test_the_reason_stands_in_the_metadata(
    given: Proposal, store: Store, flags: Flags, key: str, value: str
) -> None:
    [outcome] = apply(proposals(given), store, flags).outcomes()
    assert outcome.metadata[key] == value


def test_a_dropped_proposal_is_recorded_in_every_mode() -> None:
    odd = ADD.model_copy(update={"dropped": "UPDATE names nobody"})
    for flags in (FULL, CAREFUL, Flags(shadow_mode=True), Flags(enabled=False)):
        assert apply(proposals(odd), flags=flags).ends() == [("dropped", "UPDATE names nobody")]


def test_settled_items_are_passed_over() -> None:
    other = proposal("Ana has a cat", number=1)
    driven = apply(proposals(ADD, other), Store(settled=frozenset({"f0"})))
    assert [outcome.item_id for outcome in driven.outcomes()] == ["f1"]
    nothing = apply(proposals(ADD), Store(settled=frozenset({"f0"})))
    assert nothing.step.writes == ()
    assert nothing.step.emits == ()


# --- what goes on -----------------------------------------------------------------------------

TRIPLE = Triple(source="Ana", relationship="likes", target="tea")


def graph_of(driven: Driven) -> Any:
    [change] = driven.emitted(MEMORY_CHANGES)
    assert isinstance(change, MemoryChange)
    return change.graph


def test_the_graph_gets_the_triples_with_turn_and_new_memories() -> None:
    graph = graph_of(apply(proposals(ADD, weak("Ana sleeps"), triples=(TRIPLE,))))
    assert graph.memory_ids == (TURN.memory_id, "m-f0")
    assert graph.triples == (TRIPLE,)


@pytest.mark.parametrize(
    ("flags", "store"),
    [
        (Flags(shadow_mode=True), Store()),
        (Flags(mutations_frozen=True), Store()),
        (Flags(enabled=False), Store()),
        (FULL, Store.of(FORGOTTEN)),
    ],
)
def test_the_graph_gets_nothing_where_nothing_may_be_written(flags: Flags, store: Store) -> None:
    assert graph_of(apply(proposals(ADD, triples=(TRIPLE,)), store, flags)) is None


def test_all_that_led_to_an_outcome_is_on_record() -> None:
    rich = ADD.model_copy(update={"candidates": (NEAR,), "warnings": ("odd",)})
    [outcome] = apply(proposals(rich, triples=(TRIPLE,))).outcomes()
    assert outcome.metadata | {} == {
        "proposed_action": "ADD",
        "target_id": None,
        "fact": "Ana likes black tea",
        "fact_type": "fact",
        "confidence": 0.9,
        "decision_reason": "because",
        "candidates": [
            {"memory_id": "near", "version": 1, "score": 0.6, "cosine": 0.8, "keyword": 0.5}
        ],
        "source_memory": TURN.memory_id,
        "extraction_model": "scripted-1",
        "prompt_version": "p1",
        "decision_model": None,
        "fact_count": 1,
        "entity_count": 1,
        "contradiction_risk": False,
        "review_needed": False,
        "round": 0,
        "warnings": ["odd"],
    }
