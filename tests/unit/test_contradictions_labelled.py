"""How often the rules decider is right, by pairs that were labelled before it was made.

`held-out` pairs were written after it was made and before they were run with it; no rule was made
for what is missed of them. Every pair goes through the whole decision, near in meaning. Pairs that
are `out_of_scope` contradict each other in a way that the rules do not read, with the reason.

`overwrites` and `real_contradictions` were written before the rules by slot; the half `held_out`
was not looked at while those were made.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from palimpsest.streams.claims.contradiction import same_fact
from tests.unit.by_hand import TURN, candidate, memory
from tests.unit.test_decide import decide, facts, finding, intent

DATA = Path(__file__).parents[1] / "data"
NEAR = 0.95


class Pair(NamedTuple):
    language: str
    kind: str
    known: str
    new: str
    contradicts: bool
    held_out: bool
    turn: str = ""


def _lines(name: str) -> list[dict[str, object]]:
    text = (DATA / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


PAIRS = [
    Pair(
        str(line["language"]),
        str(line["kind"]),
        str(line["known"]),
        str(line["new"]),
        line["contradicts"] is True and "out_of_scope" not in line,
        line.get("held-out") is True,
    )
    for line in _lines("contradictions.jsonl")
]


def action(known: str, new: str, turn: str = "") -> str:
    """What is decided of `new` where `known` stands."""
    store = finding(candidate(memory("m", known), NEAR))
    if turn:
        source = memory(TURN.memory_id, turn, type="episodic")
        store.memories = {**store.memories, source.memory_id: source}
    [proposal] = intent(decide(facts(new), store)).proposals
    return proposal.action


def test_the_set_is_large_and_varied_enough() -> None:
    mine = [pair for pair in PAIRS if not pair.held_out]
    assert Counter(pair.contradicts for pair in mine) == {True: 53, False: 188}
    assert Counter(pair.language for pair in mine) == {"en": 161, "de": 40, "ja": 40}
    assert Counter(pair.contradicts for pair in PAIRS if pair.held_out) == {True: 45, False: 124}
    assert len({(pair.known, pair.new) for pair in PAIRS}) == len(PAIRS)


def test_no_true_memory_is_overwritten() -> None:
    pairs = [pair for pair in PAIRS if not pair.contradicts]
    assert not [pair for pair in pairs if action(pair.known, pair.new) in ("UPDATE", "DELETE")]


@pytest.mark.parametrize(
    ("held_out", "language", "found", "of"),
    [
        (False, "en", 33, 41),
        (False, "de", 7, 7),
        (False, "ja", 5, 5),
        (True, "en", 27, 39),
        (True, "de", 3, 3),
        (True, "ja", 3, 3),
    ],
)
def test_as_many_contradictions_are_found(
    held_out: bool, language: str, found: int, of: int
) -> None:
    pairs = [
        pair
        for pair in PAIRS
        if pair.contradicts and (pair.held_out, pair.language) == (held_out, language)
    ]
    assert len(pairs) == of
    assert sum(action(pair.known, pair.new) == "UPDATE" for pair in pairs) >= found


def _halves(name: str, contradicts: bool) -> list[Pair]:
    return [
        Pair(
            str(line["language"]),
            str(line["kind"]),
            str(line["known"]),
            str(line["new"]),
            contradicts,
            line["half"] == "held_out",
            str(line["turn"]),
        )
        for line in _lines(name)
    ]


OVERWRITES = _halves("overwrites.jsonl", False)
REAL = _halves("real_contradictions.jsonl", True)


def test_what_contradicts_nothing_overwrites_nothing() -> None:
    assert not [pair for pair in OVERWRITES if action(pair.known, pair.new) != "ADD"]
    assert not [pair for pair in OVERWRITES if action(pair.known, pair.new, pair.turn) != "ADD"]


@pytest.mark.parametrize(("held_out", "found"), [(False, 40), (True, 33)])
def test_real_contradictions_are_found(held_out: bool, found: int) -> None:
    pairs = [pair for pair in REAL if pair.held_out == held_out]
    assert len(pairs) == 50
    hits = sum(action(pair.known, pair.new, pair.turn) == "UPDATE" for pair in pairs)
    assert hits >= found


@pytest.mark.parametrize(
    ("known", "new", "turn"),
    [
        ("Ana likes jazz.", "Ana does not like jazz.", "I don't like jazz, actually."),
        ("Ana likes jazz.", "Ana does not like jazz.", "To be honest, I don't like jazz."),
        (
            "Ana is allergic to nuts.",
            "Ana is not allergic to nuts.",
            "It turns out I'm not allergic to nuts.",
        ),
        (
            "Ana is allergic to nuts.",
            "Ana is not allergic to nuts.",
            "Turns out that I'm not allergic to nuts, after all.",
        ),
    ],
)
def test_a_retraction_may_be_introduced(known: str, new: str, turn: str) -> None:
    assert action(known, new, turn) == "UPDATE"


SAME = _lines("same_statements.jsonl")


def test_what_differs_in_meaning_is_not_one_statement() -> None:
    pairs = [(str(line["a"]), str(line["b"])) for line in SAME if not line["same"]]
    assert not [pair for pair in pairs if same_fact(*pair) or same_fact(*pair[::-1])]


def test_genuine_repeats_are_still_found() -> None:
    same = [line for line in SAME if line["same"]]
    missed = [str(n["b"]) for n in same if not same_fact(str(n["a"]), str(n["b"]))]
    assert (len(same), missed) == (44, ["Kofi now lives in Accra."])
    assert len(SAME) - len(same) == 46
