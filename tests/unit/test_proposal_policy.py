"""One verdict: what decide anticipates of a proposal is what apply-writes makes of it."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.extraction import Fact, FactsExtracted, TurnReference
from palimpsest.schemas.messages import MemoryWrite, ProposalsIntent
from palimpsest.schemas.normal_forms import content_hash
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import FlagsRow, OutcomeRow
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_WRITES
from palimpsest.streams.apply.apply_writes import apply_writes_stage
from palimpsest.streams.decide.decide import decide_stage
from palimpsest.streams.memory_rows import STATEMENT
from palimpsest.streams.settings import Flags
from palimpsest.streams.store_port import Anticipated
from tests.harness import pipeline_settings
from tests.messages import envelope
from tests.unit.by_hand import (
    CALL,
    SCOPE,
    TURN,
    Driven,
    Store,
    candidate,
    context,
    drive,
    memory,
    write_message,
)

KNOWN = "Ana likes green tea a lot"
CONTENTS = (KNOWN, "Ana likes black tea", "ana likes BLACK tea!", "Ana likes white tea", "....!")
ACTIONS = ("ADD", "UPDATE", "DELETE", "NONE")


class Seeing(Store):
    """What is anticipated is found by what is asked later, as in a unit of work."""

    def anticipate(self, memory: Anticipated) -> None:
        self.memories = {**self.memories, memory.row.memory_id: memory.row}


flags = st.builds(Flags, **dict.fromkeys(Flags.model_fields, st.booleans()))
scope_flags = st.none() | st.builds(
    FlagsRow,
    scope=st.just(SCOPE),
    enabled=st.none() | st.booleans(),
    shadow_mode=st.none() | st.booleans(),
    allow_update_delete=st.none() | st.booleans(),
    mutations_frozen=st.none() | st.booleans(),
)
REMEMBERED = TURN.model_copy(update={"content_hash": content_hash("I like tea")})
turns = st.sampled_from((TURN, REMEMBERED))
sources = st.none() | st.builds(
    lambda gone, kind, content: memory(TURN.memory_id, content, type=kind, is_deleted=gone),
    st.booleans(),
    st.sampled_from(("episodic", "fact")),
    st.sampled_from(("I like tea", "I like cake")),
)
targets = st.none() | st.builds(
    lambda pinned, confirmed, gone, version, kind: memory(
        "tea",
        KNOWN,
        pinned=pinned,
        confirmed=confirmed,
        is_deleted=gone,
        version=version,
        type=kind,
        importance=0.3,
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from(("fact", "preference", "episodic")),
)
others = st.none() | st.just(memory("other", "Ana likes black tea"))
stated = st.lists(
    st.tuples(
        st.sampled_from(ACTIONS),
        st.sampled_from(("tea", "other", "m-f0")),
        st.sampled_from(CONTENTS),
        st.sampled_from((0.5, 0.7, 0.9)),
        st.none() | st.just(0.8),
    ),
    min_size=1,
    max_size=3,
)


def anticipated_and_applied(
    store: Seeing, facts: tuple[Fact, ...], defaults: Flags, round_: int, turn: TurnReference
) -> tuple[list[MemoryRow], list[MemoryRow], Driven]:
    """The rows that decide anticipates for the facts, and those that apply-writes then writes."""
    before = store.memories
    body = FactsExtracted(turn=turn, facts=facts, call=CALL, round=round_)
    settings = pipeline_settings(defaults, "model")
    decide = decide_stage(settings)
    decided = drive(
        decide.process(envelope(body, FACTS_EXTRACTED, "x1", SCOPE), context(offset=7)), store
    )
    [written] = decided.emitted(MEMORY_WRITES)
    assert isinstance(written, MemoryWrite)
    assert isinstance(written.write, ProposalsIntent)
    store.memories = before
    apply = apply_writes_stage(settings)
    applied = drive(apply.process(write_message(written), context()), store)
    return [ask.row for ask in decided.of(Anticipated)], applied.rows(MemoryRow), applied


@given(flags, scope_flags, turns, sources, targets, others, stated, st.integers(0, 4))
def test_what_is_anticipated_is_what_is_applied(
    defaults: Flags,
    own: FlagsRow | None,
    turn: TurnReference,
    source: MemoryRow | None,
    target: MemoryRow | None,
    other: MemoryRow | None,
    said: list[tuple[str, str, str, float, float | None]],
    round_: int,
) -> None:
    rows = [row for row in (source, target, other) if row is not None]
    store = Seeing(memories={row.memory_id: row for row in rows}, flags=own)
    shown = [
        # Whatever the search showed: the target may have gone, or changed since.
        candidate(memory("tea", "Ana drinks tea", version=2), 0.8),
        candidate(memory("other", "Ana drinks black tea"), 0.8),
        candidate(memory("m-f0", "Ana drinks white tea"), 0.8),
    ]
    store.candidates = lambda ask: shown
    store.replies = [
        json.dumps(
            {"action": action, "targetId": None if action == "ADD" else target_id}
            | {"confidence": 0.8, "reason": "so it is"}
        )
        for action, target_id, *_ in said
    ]
    facts = tuple(
        Fact(
            item_id=f"f{number}",
            content=content,
            confidence=confidence,
            importance=importance,
            type="preference",
            categories=("drinks",),
        )
        for number, (_, _, content, confidence, importance) in enumerate(said)
    )
    anticipated, applied, driven = anticipated_and_applied(store, facts, defaults, round_, turn)
    assert [replace(row, write_seq=0) for row in anticipated] == [
        replace(row, write_seq=0) for row in applied
    ]
    if turn.is_remembered:
        assert all(row.is_deleted for row in applied)
    # Every fact has an end, or is decided anew.
    again = [f for body in driven.emitted(FACTS_EXTRACTED) for f in getattr(body, "facts", ())]
    ended = [row.item_id for row in driven.rows(OutcomeRow)]
    assert sorted([*ended, *(f.item_id for f in again)]) == [f.item_id for f in facts]
    if round_ >= pipeline_settings().pipeline.max_reconsiderations:
        assert again == []


def test_a_statement_is_all_that_a_fact_gives_a_memory() -> None:
    """A column that is new must be put on one side or the other."""
    stays = {
        *("memory_id", "scope", "importance", "decay_rate", "pinned", "tags", "who", "role"),
        *("why", "project", "session_id", "source_type", "source_id", "first_occurred_at"),
        *("created_at", "updated_at", "updated_by", "last_accessed", "access_count", "version"),
        *("is_deleted", "deleted_at", "metadata", "write_seq", "decision_order", "decayed_at"),
        "utc_offset_minutes",
        "revised_at",
    }
    names = {field.name for field in fields(MemoryRow)}
    assert names == stays | set(STATEMENT)
