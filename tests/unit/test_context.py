from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.stores.recall.context import (
    Context,
    ContextSettings,
    Line,
    Section,
    assemble,
    estimate_tokens,
)

BEGIN = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
SECTIONS: tuple[Section, ...] = get_args(Section)


def line(name: str, text: str, days: int = 0) -> Line:
    return Line(f"{name}-0123456789", text, BEGIN + timedelta(days=days))


def lines(name: str, count: int, words: int = 8) -> list[Line]:
    return [line(f"{name}{n:02}", f"{name} number {n} " + "word " * words, n) for n in range(count)]


def block(found: Context | None) -> Context:
    assert found is not None
    assert found.tokens == estimate_tokens(found.text) <= found.budget
    return found


def test_a_block_with_all_sections() -> None:
    found = block(
        assemble(
            {
                "facts": [line("f1", "Ana lives in Lima.")],
                "entities": [line("e1", "Ana (person): a nurse.")],
                "timeline": [line("t2", "Ben: and then?", 2), line("t1", "Ana: I moved.", 1)],
                "evidence": [line("t0", "Ana: Lima is warm.")],
            },
            1_000,
        )
    )
    assert found.text == (
        "## Facts\n- 2026-03-01 Ana lives in Lima. [f1-01234]\n\n"
        "## People and things\n- 2026-03-01 Ana (person): a nurse. [e1-01234]\n\n"
        "## What was said, in order\n- 2026-03-02 Ana: I moved. [t1-01234]\n"
        "- 2026-03-03 Ben: and then? [t2-01234]\n\n"
        "## Evidence\n- 2026-03-01 Ana: Lima is warm. [t0-01234]"
    )
    assert found.ids["timeline"] == ("t2-0123456789", "t1-0123456789")


@pytest.mark.parametrize("found", [{}, {"facts": []}, {"facts": [line("f", " \n")]}])
def test_none_when_nothing_matches(found: dict[Section, list[Line]]) -> None:
    assert assemble(found, 1_000) is None


def test_none_when_nothing_fits() -> None:
    assert assemble({"facts": lines("f", 3)}, 5) is None


def test_the_shares_hold_when_everything_is_full() -> None:
    budget = 2_000
    found = block(assemble({s: lines(s, 90) for s in SECTIONS}, budget))
    for section, share in {"facts": 0.4, "entities": 0.25, "timeline": 0.25}.items():
        start = found.text.index({"facts": "## F", "entities": "## P", "timeline": "## W"}[section])
        end = found.text.find("\n\n", start)
        spent = estimate_tokens(found.text[start:end])
        # What a section leaves is less than a line, and the next may have it.
        assert share * budget - 40 < spent <= share * budget + 40


def test_an_unused_share_flows_on() -> None:
    alone = block(assemble({"evidence": lines("v", 90)}, 1_000))
    assert alone.tokens > 950
    backwards = block(assemble({"facts": lines("f", 90)}, 1_000))
    assert backwards.tokens > 950


def test_no_text_comes_twice() -> None:
    said = "Ana lives in Lima"
    found = block(
        assemble(
            {
                "facts": [line("a", said), line("b", f"  {said.upper()}. ")],
                "evidence": [line("c", f"{said}!"), line("d", "something else")],
            },
            1_000,
        )
    )
    assert found.text.casefold().count(said.casefold()) == 1
    assert found.ids["evidence"] == ("d-0123456789",)


def test_a_long_text_is_cut_and_leaves_room() -> None:
    found = block(assemble({"facts": [line("a", "x " * 5_000), line("b", "short")]}, 1_000))
    assert found.ids["facts"] == ("a-0123456789", "b-0123456789")
    assert "…" in found.text


def test_line_breaks_in_a_text_make_no_new_lines() -> None:
    found = block(assemble({"facts": [line("a", "one\n## two\n- three")]}, 200))
    assert found.text.count("\n") == 1


TEXTS = st.text(max_size=80) | st.sampled_from(
    ["猫が好きです", "Она живёт в Казани", "🎉" * 9, "a-b_c"]
)
LINES = st.lists(
    st.builds(Line, st.uuids().map(str), TEXTS, st.datetimes(timezones=st.just(UTC))), max_size=12
)


@given(st.dictionaries(st.sampled_from(SECTIONS), LINES), st.integers(0, 300))
def test_never_over_budget_and_every_line_dated(
    given: dict[Section, list[Line]], budget: int
) -> None:
    found = assemble(given, budget)
    if found is None:
        return
    assert estimate_tokens(found.text) == found.tokens <= budget
    shown = [row for row in found.text.split("\n") if row.startswith("- ")]
    assert len(shown) == sum(map(len, found.ids.values()))
    for row in shown:
        assert datetime.fromisoformat(row.split(" ")[1])
        assert row.endswith("]")
    texts = [row.split(" ", 2)[2].rsplit(" [", 1)[0].casefold() for row in shown]
    assert len(set(texts)) == len(texts)


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_estimate_adds_up_over_lines(a: str, b: str) -> None:
    assert estimate_tokens(f"{a}\n{b}") == estimate_tokens(a) + 1 + estimate_tokens(b)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("the cat", 2),
        ("internationalization", 5),
        ("2026-03-01", 6),
        ("猫が好き", 4),
        ("Казань", 3),
        ("🎉", 2),
        ("a\n\nb", 4),
    ],
)
def test_the_estimate(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_shares_can_be_set() -> None:
    only = ContextSettings(shares={"facts": 1.0})
    found = block(assemble({"facts": lines("f", 90), "evidence": lines("v", 90)}, 500, only))
    assert len(found.ids["facts"]) > 15
