"""What the views of a recall, of a memory and of a neighbourhood compute from answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.ops.console.explanations import bar, longest_bar, timeline, versions, word_changes
from palimpsest.ops.graphs.drawing import GAP, Edge, Node, drawn


def joined(changes: list[tuple[Any, str]], but: str) -> str:
    return "".join(text for kind, text in changes if kind != but)


@given(st.text("ab .\n<é", max_size=40), st.text("ab .\n<é", max_size=40))
def test_differences_join_to_both_texts(old: str, new: str) -> None:
    changes = word_changes(old, new)
    assert joined(changes, "added") == old
    assert joined(changes, "removed") == new


def test_differences_are_whole_words_and_keep_their_spaces() -> None:
    assert word_changes("Ana lives in Vienna.", "Ana moved to Graz.") == [
        ("same", "Ana "),
        ("removed", "lives in Vienna"),
        ("added", "moved to Graz"),
        ("same", "."),
    ]


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(-0.4, 1.0), min_size=1))
def test_a_bar_ends_at_the_score_and_stays_within(parts: dict[str, float]) -> None:
    result = {"explanation": {"parts": parts}}
    segments = bar(parts, longest_bar([result]))
    added = sum(each.value for each in segments if each.value > 0)
    end = sum(each.width for each in segments if each.colour)
    assert end == pytest.approx(1000 if added > 0 else 0, abs=len(parts) * 2)
    drawn_score = sum(each.width * (1 if each.colour else -1) for each in segments)
    longest = max(sum(v for v in parts.values() if v > 0), 1e-9)
    shown = sum(each.value for each in segments)
    if added > 0:
        assert drawn_score == pytest.approx(1000 * shown / longest, abs=len(parts))


def test_what_came_of_a_turn_stands_together_in_order() -> None:
    def at(second: int) -> str:
        return f"2026-05-01T10:00:{second:02}Z"

    turns = [
        {"id": name, "created_at": at(0), "occurred_at": f"2026-04-0{day}T10:00:00Z"}
        for day, name in ((2, "second"), (1, "first"))
    ]
    found = {
        "derived_from": turns,
        "extractions": [
            {"turn_memory_id": each, "recorded_at": at(1)} for each in ("second", "first")
        ],
        "decisions": [
            {"turn_memory_id": each, "recorded_at": at(2)} for each in ("second", "first")
        ],
        "history": [
            {"created_at": at(3), "old_content": None, "new_content": "a", "metadata": {}}
            | {"metadata": {"source_memory": "first"}, "event": "created"},
            {"created_at": at(3), "old_content": "a", "new_content": "b", "event": "updated"}
            | {"metadata": {"source_memory": "second"}},
            {"created_at": at(9), "old_content": "b", "new_content": "c", "event": "modified"}
            | {"metadata": {}},
        ],
        "memory": {"recalls": [{"asked_at": at(7), "question": "?"}]},
    }
    entries = timeline(found)
    chain = ["turn", "extraction", "decision", "change"]
    assert [each.kind for each in entries] == [*chain, *chain, "recall", "change"]
    assert [each.item.get("id") for each in entries if each.kind == "turn"] == ["first", "second"]
    assert entries[-1].changes == (("removed", "b"), ("added", "c"))
    assert entries[3].changes == ()


def test_each_version_differs_from_the_one_before() -> None:
    found = {
        "memory": {"content": "Ana lives in Graz.", "version": 2},
        "before": [{"content": "Ana lives in Vienna.", "version": 1}],
    }
    newest, oldest = versions(found)
    assert (newest["version"], oldest["version"], oldest["changes"]) == (2, 1, [])
    assert ("added", "Graz") in newest["changes"]


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(0, 299), st.integers(0, 299))))
def test_nodes_stand_apart_within_the_picture(count: int, pairs: list[tuple[int, int]]) -> None:
    nodes = [Node(str(n), f"node {n}", "/") for n in range(count)]
    edges = [Edge(str(a), str(b)) for a, b in pairs]
    picture = drawn(nodes, edges)
    places = {(each.x, each.y) for each in picture.nodes}
    assert len(places) == len(picture.nodes) == count
    left, top, width, height = picture.box
    assert all(left <= x <= left + width and top <= y <= top + height for x, y in places)
    assert len(picture.edges) == sum(a < count and b < count for a, b in pairs)
    assert picture == drawn(nodes, edges)


def test_a_chain_of_any_length_is_drawn_with_what_is_not_connected_beside_it() -> None:
    nodes = [Node(str(n), "", "") for n in range(5_000)]
    edges = [Edge(str(n), str(n + 1)) for n in range(4_999) if n != 4_000]
    placed = {each.node.id: math.hypot(each.x, each.y) for each in drawn(nodes, edges).nodes}
    rings = [round(placed[str(n)] / GAP) for n in range(5_000)]
    assert rings == [*range(4_001), *range(1, 1_000)]
