"""decide: bands, model, contradictions, dropped proposals, and what later facts see."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.extraction import FactsExtracted
from palimpsest.schemas.messages import MemoryWrite, ProposalsIntent, ScoredCandidate
from palimpsest.schemas.rows.pipeline import FlagsRow
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_WRITES
from palimpsest.streams.decide.decide import decide_stage
from palimpsest.streams.decide.proposal_policy import MAY_EXCLUDE, SAID_BEFORE
from palimpsest.streams.settings import Flags
from palimpsest.streams.stage import Embed, Generate, ModelUnavailable
from palimpsest.streams.store_port import Anticipated, FindCandidates
from tests.harness import CAREFUL, FULL, pipeline_settings
from tests.messages import BEGIN, envelope
from tests.unit.by_hand import (
    CALL,
    SCOPE,
    TURN,
    Driven,
    Store,
    candidate,
    context,
    drive,
    fact,
    memory,
)

TEA = memory("tea", "Ana likes green tea a lot")


def decide(
    body: FactsExtracted,
    store: Store | None = None,
    decider: str = "rules",
    flags: Flags = CAREFUL,
    semantic: bool = False,
    **fields: Any,
) -> Driven:
    settings = pipeline_settings(flags, decider, semantic_contradiction=semantic)
    stage = decide_stage(settings)
    message = envelope(body, FACTS_EXTRACTED, "x1", SCOPE, **fields)
    return drive(stage.process(message, context(offset=7)), store)


def facts(*contents: str, **fields: Any) -> FactsExtracted:
    given = tuple(fact(text, number) for number, text in enumerate(contents))
    return FactsExtracted.model_validate({"turn": TURN, "facts": given, "call": CALL, **fields})


def finding(*found: ScoredCandidate, **rest: Any) -> Store:
    rows = {c.memory_id: memory(c.memory_id, c.content, version=c.version) for c in found}
    return Store(memories=rows, candidates=lambda ask: found, **rest)


def intent(driven: Driven) -> ProposalsIntent:
    [body] = driven.emitted(MEMORY_WRITES)
    assert isinstance(body, MemoryWrite)
    assert isinstance(body.write, ProposalsIntent)
    return body.write


def said(action: str, target: str | None = None, reason: str = "so it is") -> str:
    return json.dumps({"action": action, "targetId": target, "confidence": 0.8, "reason": reason})


def test_nothing_similar_is_added_without_a_model() -> None:
    driven = decide(facts("Ana likes green tea"), decider="model")
    [proposal] = intent(driven).proposals
    assert (proposal.action, proposal.reason, proposal.target_id) == (
        "ADD",
        "no similar memory",
        None,
    )
    assert proposal.confidence == proposal.fact.confidence
    assert driven.of(Generate) == []


@pytest.mark.parametrize(
    ("content", "cosine", "action", "reason"),
    [
        ("Ana likes green tea a lot!", 0.1, "NONE", "duplicate_exact"),
        ("Ana also likes the green tea a lot", 0.98, "NONE", "duplicate_exact"),
        ("Ana likes green tea a little", 0.98, "ADD", "similar, yet not the same"),
        ("Ana likes green tea a little", 0.9799, "ADD", "similar, yet not the same"),
        ("Ana likes green tea a little", 0.70, "ADD", "similar, yet not the same"),
        ("Ana likes green tea a little", 0.6999, "ADD", "distinct"),
    ],
)
def test_bands(content: str, cosine: float, action: str, reason: str) -> None:
    store = finding(candidate(TEA, cosine, keyword=0.0))
    [proposal] = intent(decide(facts(content), store)).proposals
    assert (proposal.action, proposal.reason) == (action, reason)
    assert proposal.target_id == ("tea" if action == "NONE" else None)


def test_a_keyword_candidate_is_never_distinct_unasked() -> None:
    store = finding(candidate(TEA, 0.2, keyword=0.5), replies=[said("ADD")])
    driven = decide(facts("Ana grows green tea"), store, "model")
    assert len(driven.of(Generate)) == 1


def test_the_rules_see_contradictions() -> None:
    store = finding(candidate(memory("m", "The cache is enabled on the server", version=4)))
    [proposal] = intent(decide(facts("The cache is not enabled on the server"), store)).proposals
    assert (proposal.action, proposal.target_id, proposal.target_version) == ("UPDATE", "m", 4)
    assert proposal.contradiction_risk
    assert proposal.review_needed


def test_without_a_cosine_what_is_denied_in_the_same_words_is_near() -> None:
    known = memory("m", "The cache is enabled on the server")
    store = finding(candidate(known, cosine=None, keyword=0.9))
    [proposal] = intent(decide(facts("The cache is not enabled on the server"), store)).proposals
    assert (proposal.action, proposal.target_id) == ("UPDATE", "m")
    [proposal] = intent(decide(facts("The cache of the server is disabled"), store)).proposals
    assert (proposal.action, proposal.target_id) == ("ADD", None)


def test_what_was_told_earlier_ends_by_what_was_told_later() -> None:
    known = memory("m", "The cache is enabled on the server")
    later = candidate(known).model_copy(update={"occurred_at": BEGIN + timedelta(days=1)})
    body = facts("The cache is not enabled on the server")
    [proposal] = intent(decide(body, finding(later))).proposals
    assert (proposal.action, proposal.target_id, proposal.reason) == ("UPDATE", "m", SAID_BEFORE)
    assert not proposal.contradiction_risk
    [proposal] = intent(decide(body, finding(later), occurred_at=later.occurred_at)).proposals
    assert (proposal.action, proposal.target_id) == ("UPDATE", "m")
    assert proposal.contradiction_risk


def test_of_several_contradicted_the_first_candidate_is_updated() -> None:
    texts = {"b": "Ana lives in Lisbon.", "a": "Ana moved to Oslo."}
    found = [candidate(memory(name, text)) for name, text in texts.items()]
    for order in (found, found[::-1]):
        store = finding(*order)
        [proposal] = intent(decide(facts("Ana lives in Berlin."), store)).proposals
        assert (proposal.action, proposal.target_id) == ("UPDATE", order[0].memory_id)


def test_what_two_people_of_one_name_do_is_added() -> None:
    found = [candidate(memory(text, text)) for text in ("Sam lives in Leeds.", "Sam (Ana's uncle)")]
    for known, action in ((found[:1], "UPDATE"), (found, "ADD")):
        [proposal] = intent(decide(facts("Sam lives in York."), finding(*known))).proposals
        assert proposal.action == action


def test_a_fact_of_which_its_source_says_more_waits() -> None:
    said_in = {
        "I moved to Oslo.": "contradicts a known memory",
        "I moved to Oslo, in my head.": MAY_EXCLUDE,
    }
    for said, reason in said_in.items():
        store = finding(candidate(memory("m", "Ana lives in Lisbon.")))
        store.memories = {TURN.memory_id: memory(TURN.memory_id, said, type="episodic")}
        [proposal] = intent(decide(facts("Ana moved to Oslo."), store)).proposals
        assert (proposal.action, proposal.reason) == ("UPDATE", reason)


def test_a_repeat_is_found_behind_a_nearer_memory_that_says_something_else() -> None:
    other = candidate(memory("other", "Ana likes green tea a little"), 0.995)
    store = finding(other, candidate(TEA, 0.99))
    [proposal] = intent(decide(facts("Ana really likes green tea a lot"), store)).proposals
    assert (proposal.action, proposal.reason, proposal.target_id) == (
        "NONE",
        "duplicate_exact",
        "tea",
    )


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("Ana is married", "Ana was married"),
        ("Ana works for Acme", "Ana works with Acme"),
        ("The gate opens at loads >= 3", "The gate opens at loads < 3"),
        ("The offset is -5", "The offset is 5"),
        ("The parcel was sent by Ana to Ben", "The parcel was sent to Ana by Ben"),
    ],
)
def test_duplicate_exact_swallows_no_change(known: str, new: str) -> None:
    store = finding(candidate(memory("m", known), 0.999))
    [proposal] = intent(decide(facts(new), store)).proposals
    assert proposal.action == "ADD"


@pytest.mark.parametrize(
    ("action", "target"), [("ADD", None), ("UPDATE", "tea"), ("DELETE", "tea")]
)
def test_the_model_decides_in_between(action: str, target: str | None) -> None:
    store = finding(candidate(TEA, 0.8), replies=[said(action, target)])
    driven = decide(facts("Ana likes black tea"), store, "model")
    [proposal] = intent(driven).proposals
    assert (proposal.action, proposal.target_id, proposal.reason) == (action, target, "so it is")
    assert proposal.confidence == 0.8
    assert proposal.target_version == (None if target is None else 1)
    assert proposal.decider is not None
    assert proposal.dropped is None


@pytest.mark.parametrize(
    "wrong",
    [
        said("UPDATE", "somebody"),
        said("DELETE"),
        said("UPDATE", "tea", reason=" "),
        said("REPLACE", "tea"),
    ],
)
def test_a_proposal_that_names_nobody_is_dropped_on_record(wrong: str) -> None:
    store = finding(candidate(TEA, 0.8), replies=[wrong])
    driven = decide(facts("Ana likes black tea"), store, "model")
    [proposal] = intent(driven).proposals
    assert proposal.dropped
    assert driven.of(Anticipated) == []


def test_an_unreadable_decision_is_asked_again() -> None:
    store = finding(candidate(TEA, 0.8), replies=["{", "never", said("ADD")])
    [proposal] = intent(decide(facts("Ana likes black tea"), store, "model")).proposals
    assert proposal.decider is not None
    assert proposal.decider.attempts == 3


def test_one_undecided_fact_does_not_take_the_others_with_it() -> None:
    replies: list[str | Exception | None] = ["{", "{", "{", said("ADD")]
    store = finding(candidate(TEA, 0.8), replies=replies)
    driven = decide(facts("Ana likes black tea", "Ana likes white tea"), store, "model")
    assert [p.item_id for p in intent(driven).proposals] == ["f1"]
    dead = driven.step.dead
    assert dead is not None
    assert (dead.failure, dead.item_ids, dead.raw_output) == ("malformed-output", ("f0",), "{")


def test_a_model_that_refuses_for_good_leaves_the_fact_dead() -> None:
    store = finding(candidate(TEA, 0.8), replies=[ModelUnavailable("401: set a valid API key")])
    driven = decide(facts("Ana likes black tea"), store, "model")
    dead = driven.step.dead
    assert dead is not None
    assert (dead.failure, dead.item_ids) == ("invalid", ("f0",))
    assert "API key" in dead.reason
    assert driven.step.emits == ()


def test_contradiction_by_model_is_asked_only_where_words_do_not_tell() -> None:
    known = candidate(memory("m", "Ana lives in a flat in Oslo"), 0.8)
    update = said("UPDATE", "m")
    yes = '{"contradicts": true, "confidence": 0.9, "reason": "two places"}'
    for content, replies, risk in (
        ("Ana lives in a flat in Bergen", [update, yes], True),
        ("Ana lives in a flat in Bergen", [update, None], False),
        ("Ana lives in a flat in Bergen", [update, "{"], False),
        ("Ana never lives in a flat in Oslo", [update], True),
        ("Rita moved in Oslo", [update], False),
    ):
        store = finding(known, replies=list(replies))
        driven = decide(facts(content), store, "model", semantic=True)
        [proposal] = intent(driven).proposals
        assert (proposal.contradiction_risk, proposal.review_needed) == (risk, risk), content
        asks = driven.of(Generate)
        assert [ask.advisory for ask in asks] == [False, True][: len(asks)]
        assert store.replies == []


def test_later_facts_anticipate_what_earlier_ones_will_do() -> None:
    replies: list[str | Exception | None] = [
        said("ADD"),
        said("UPDATE", "tea"),
        said("DELETE", "tea"),
    ]
    store = finding(candidate(TEA, 0.8), replies=replies)
    contents = ("Ana likes black tea", "Ana likes white tea", "Ana likes no tea")
    driven = decide(facts(*contents), store, "model", FULL)
    added, updated, deleted = (ask.row for ask in driven.of(Anticipated))
    assert (added.content, added.version) == ("Ana likes black tea", 1)
    assert (updated.memory_id, updated.content, updated.version) == (
        "tea",
        "Ana likes white tea",
        2,
    )
    assert deleted.is_deleted
    kinds = [type(a) for a in driven.asks if isinstance(a, FindCandidates | Anticipated)]
    assert kinds == [FindCandidates, Anticipated] * 3


@pytest.mark.parametrize(
    ("target", "flags", "row"),
    [
        (TEA, CAREFUL, None),
        (memory("tea", TEA.content, pinned=True), FULL, None),
        (memory("tea", TEA.content, confirmed=True), FULL, None),
        (memory("tea", TEA.content, is_deleted=True), FULL, None),
        (TEA, FULL, FlagsRow(scope=SCOPE, shadow_mode=True)),
        (TEA, FULL, FlagsRow(scope=SCOPE, mutations_frozen=True)),
        (TEA, FULL, FlagsRow(scope=SCOPE, allow_update_delete=False)),
    ],
)
def test_what_will_not_be_done_is_not_anticipated(
    target: Any, flags: Flags, row: FlagsRow | None
) -> None:
    for action in ("UPDATE", "DELETE"):
        store = Store.of(target, flags=row, replies=[said(action, "tea")])
        store.candidates = lambda ask: (candidate(TEA, 0.8),)
        driven = decide(facts("Ana likes white tea"), store, "model", flags)
        assert intent(driven).proposals[0].action == action
        assert driven.of(Anticipated) == []


def test_nothing_is_anticipated_of_a_forgotten_turn_or_of_a_weak_fact() -> None:
    turn = memory(TURN.memory_id, "I like tea", type="episodic", is_deleted=True)
    assert decide(facts("Ana likes tea"), Store.of(turn)).of(Anticipated) == []
    weak = FactsExtracted(turn=TURN, facts=(fact("Ana likes tea", confidence=0.69),), call=CALL)
    assert decide(weak).of(Anticipated) == []
    fair = FactsExtracted(turn=TURN, facts=(fact("Ana likes tea", confidence=0.7),), call=CALL)
    assert len(decide(fair).of(Anticipated)) == 1


def test_the_proposal_says_what_was_seen_and_when() -> None:
    driven = decide(facts("Ana likes white tea"), finding(candidate(TEA, 0.75), write_seq=42))
    given = intent(driven)
    assert (given.as_of, given.decision_order, given.round) == (42, 7, 0)
    assert driven.step.writes == ()


def test_known_facts_of_a_repeated_turn_are_not_decided_again() -> None:
    triple = Triple(source="Ana", relationship="likes", target="tea")
    body = facts("Ana likes tea", "Ana likes cake", triples=(triple,))
    driven = decide(body, Store(proposed={("f0", 0)}))
    assert [p.item_id for p in intent(driven).proposals] == ["f1"]
    assert intent(driven).triples == ()
    driven = decide(body, Store(proposed={("f0", 0), ("f1", 0)}))
    assert driven.step.emits == ()


def test_what_a_crash_left_undecided_is_another_message() -> None:
    """Its first one was applied, and a message with the same id would be dropped as a repeat."""
    body = facts("Ana likes tea", "Ana likes cake")
    whole, rest = decide(body), decide(body, Store(proposed={("f0", 0)}))
    assert whole.step.emits[0].index != rest.step.emits[0].index


def test_a_redrive_decides_what_came_to_no_end_and_repeats_no_triples() -> None:
    triple = Triple(source="Ana", relationship="likes", target="tea")
    body = facts("Ana likes tea", "Ana likes cake", triples=(triple,))
    store = Store(
        known_facts={"f0": object(), "f1": object()},
        proposed={("f0", 0)},
        settled=frozenset({"f0"}),
    )
    driven = decide(body, store, redrive=1)
    assert [p.item_id for p in intent(driven).proposals] == ["f1"]
    assert intent(driven).triples == ()
    alone = facts("Ana likes tea", triples=(triple,))
    assert intent(decide(alone, Store(known_facts={"f0": object()}), redrive=1)).triples == ()
    fresh = decide(body, Store(), redrive=1)
    assert len(intent(fresh).proposals) == 2
    assert intent(fresh).triples == (triple,)


def test_a_reconsidered_fact_is_decided_anew_in_its_round() -> None:
    body = facts("Ana likes tea", round=2)
    assert intent(decide(body, Store(proposed={("f0", 0), ("f0", 1)}))).round == 2
    assert decide(body, Store(proposed={("f0", 2)})).step.emits == ()


def test_triples_without_facts_go_on() -> None:
    triple = Triple(source="Ana", relationship="likes", target="tea")
    driven = decide(facts(triples=(triple,)))
    assert (intent(driven).proposals, intent(driven).triples) == ((), (triple,))
    assert decide(facts()).step.emits == ()


def test_an_embedding_outage_is_waited_out() -> None:
    [ask] = decide(facts("Ana likes tea")).of(Embed)
    assert ask.required


def test_a_fact_that_is_decided_without_a_vector_says_so() -> None:
    for without, warnings in ((True, 1), (False, 0)):
        driven = decide(facts("Ana likes tea"), Store(without_vectors=without))
        assert len(intent(driven).proposals[0].warnings) == warnings


REMEMBERED = TURN.model_copy(update={"content_hash": "h"})


@pytest.mark.parametrize(
    ("action", "becomes", "target"),
    [
        ("ADD", "NONE", TURN.memory_id),
        ("NONE", "NONE", "tea"),
        ("UPDATE", "DELETE", "tea"),
        ("DELETE", "DELETE", "tea"),
    ],
)
def test_a_fact_of_a_remembered_text_makes_no_memory(
    action: str, becomes: str, target: str
) -> None:
    source = candidate(memory(TURN.memory_id, "I like black tea"), 0.9)
    store = finding(source, candidate(TEA), replies=[said(action, "tea")])
    [proposal] = intent(
        decide(facts("Ana likes black tea", turn=REMEMBERED), store, "model")
    ).proposals
    assert (proposal.action, proposal.target_id) == (becomes, target)
    assert [c.memory_id for c in proposal.candidates] == ["tea"]


def test_the_text_itself_does_not_hide_what_it_contradicts() -> None:
    source = candidate(memory(TURN.memory_id, "The cache is not enabled on the server"), 1.0)
    old = candidate(memory("m", "The cache is enabled on the server"))
    body = facts("The cache is not enabled on the server", turn=REMEMBERED)
    [proposal] = intent(decide(body, finding(source, old))).proposals
    assert (proposal.action, proposal.target_id) == ("DELETE", "m")
