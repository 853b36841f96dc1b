"""The pure parts of the console: URLs, texts in HTML, the balance, charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.ops.console import showing
from palimpsest.ops.console.operating import HEIGHT, WIDTH, changes, chart, equation
from palimpsest.ops.console.page import rendered
from palimpsest.ops.console.showing import (
    age,
    count,
    number,
    own_path,
    pretty,
    state,
    time,
    url,
    whole,
)
from palimpsest.ops.graphs.drawing import CHARACTER, MOST_LINES, Edge, Node, drawn


@given(st.text(), st.text(min_size=1))
def test_a_url_has_no_character_that_ends_an_attribute(path: str, value: str) -> None:
    made = url(f"/sessions/{path}", scope=value, cursor=None)
    assert not {'"', "'", "<", ">", " ", "\n"} & {*made}
    assert "cursor" not in made


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/recall?query=x", "/recall?query=x"),
        ("//example.com", "/"),
        ("/\\example.com", "/"),
        ("https://example.com", "/"),
        ("/\tx", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_nowhere_else(target: str, path: str) -> None:
    assert own_path(target) == path


def test_values_are_shown_as_text() -> None:
    assert "<b>" not in str(state("<b>"))
    assert "<b>" not in str(time("<b>"))
    assert "2026-03-01 09:30" in str(time("2026-03-01T10:30:00+01:00"))
    assert (number(1234567), number(None)) == ("1\u202f234\u202f567", "–")
    assert (count(1, "turn"), count(2, "memory", "memories")) == ("1 turn", "2 memories")
    assert pretty('{"a":1}') == '{\n  "a": 1\n}'
    assert pretty("{") == "{"


def test_a_problem_is_shown_as_text() -> None:
    shown = rendered("error.html", title="<i>", status=400, detail="<script>", back="/")
    assert "<script>" not in shown
    assert "<i>" not in shown


def test_the_equation_leaves_out_what_is_mostly_zero() -> None:
    counts = {"extracted": 3, "created": 2, "updated": 0, "skipped": 0, "blocked": 1, "lost": 0}
    shown = equation(counts)
    assert (shown["whole"], shown["total"], shown["holds"]) == ("extracted", 3, True)
    assert shown["terms"] == [("created", 2), ("updated", 0), ("blocked", 1)]
    assert equation({**counts, "lost": 1, "blocked": 0})["holds"] is False


Values = st.lists(
    st.tuples(
        st.one_of(st.text(), st.integers(-(10**9), 10**9)), st.floats(-1e9, 1e9) | st.integers(0, 9)
    ),
    max_size=20,
)


@given(st.sampled_from(["bar", "line", "scatter"]), Values)
def test_a_chart_stays_in_its_frame(form: str, pairs: list[tuple[Any, Any]]) -> None:
    drawn = chart(form, pairs)
    if not pairs:
        assert drawn is None
        return
    assert drawn is not None
    assert len(drawn.points) == len(pairs)
    for point in drawn.points:
        assert 0 <= point.x <= WIDTH
        assert 0 <= point.y <= HEIGHT


def test_there_is_no_chart_of_texts() -> None:
    assert chart("bar", [("a", "b"), ("c", True)]) is None


def test_numbers_of_a_url_are_bounded() -> None:
    assert [whole(each, 7) for each in ("12", "", "-1", "1e3", "9" * 5_000)] == [12, 7, 7, 7, 7]


def test_an_age_is_in_its_largest_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    # A busy machine must not make what is compared a second older.
    stopped = SimpleNamespace(now=lambda zone: now, fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(showing, "datetime", stopped)
    for seconds, shown in ((5, "5 s"), (125, "2 min"), (7_300, "2 h"), (200_000, "2 d")):
        assert f">{shown}<" in age((now - timedelta(seconds=seconds)).isoformat())
    assert age(None) == "–"


def test_a_label_in_the_middle_lies_within_the_drawing() -> None:
    found = drawn([Node("a", "a label of some length", ""), Node("b", "b", "")], [Edge("a", "b")])
    half = len("a label of some length") * CHARACTER / 2
    assert found.box[0] < -half
    assert found.box[0] + found.box[2] > half


def test_of_many_lines_the_first_are_drawn_and_those_that_place_a_node() -> None:
    nodes = [Node(str(number), str(number), "") for number in range(MOST_LINES)]
    pairs = [(one, other) for one in nodes[:40] for other in nodes[:40] if one.id < other.id]
    pairs += [(nodes[39], other) for other in nodes[40:]]
    found = drawn(nodes, [Edge(one.id, other.id) for one, other in pairs])
    lines = [(each.edge.source, each.edge.target) for each in found.edges]
    assert lines[:MOST_LINES] == [(one.id, other.id) for one, other in pairs[:MOST_LINES]]
    assert {each for line in lines for each in line} == {node.id for node in nodes}
    assert found.left_out == len(pairs) - len(lines) == 40 * 39 // 2 - MOST_LINES


def test_a_preview_and_what_was_done_have_the_same_words() -> None:
    def told(*counts: str) -> list[tuple[str, int]]:
        scope = {"counts": dict(zip(counts, (2, 1), strict=True))}
        return changes({"kind": "promote", "result": {"scopes": [scope]}})

    assert told("gain", "keep") == told("gained", "kept") == [("gained", 2), ("kept", 1)]


def test_the_lines_of_a_chart_stand_at_round_numbers() -> None:
    for values, expected in (
        ([81, 15, 4, 1], ["0", "20", "40", "60", "80"]),
        ([0.3, -0.1], ["-0.1", "0", "0.1", "0.2", "0.3"]),
        ([7], ["0", "2", "4", "6"]),
    ):
        drawn = chart("bar", [*enumerate(values)])
        assert drawn is not None
        assert [each.text for each in drawn.ticks] == expected
    assert chart("line", [(1, float("inf")), (2, float("nan"))]) is None
