"""The formulas of fading, over any values."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.streams.fading import faded, fades_at, reinforced, shown_importance
from tests.memory_rows import memory

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
shares = st.floats(0.01, 1.0)
rates = st.floats(0.001, 2.0)
spans = st.lists(st.floats(0.01, 200.0), min_size=1, max_size=8)


def row(confidence: float = 0.9, rate: float = 0.1) -> MemoryRow:
    return replace(
        memory("f1", "Ana likes tea"), confidence=confidence, decay_rate=rate, created_at=BEGIN
    )


@given(shares, rates, spans)
def test_any_nights_come_to_the_curve(confidence: float, rate: float, days: list[float]) -> None:
    known, at = row(confidence, rate), BEGIN
    for each in days:
        at += timedelta(days=each)
        known = faded(known, at)
        assert known.decayed_at == at
    passed = (at - BEGIN) / timedelta(days=1)
    curve = confidence * math.exp(-rate * passed**0.8)
    assert math.isclose(known.confidence, curve, rel_tol=1e-9, abs_tol=1e-300)
    assert faded(known, at) is known
    assert faded(known, BEGIN) is known


@given(shares, rates, st.floats(0.0, 100.0), st.floats(0.01, 100.0))
def test_an_access_begins_the_curve_again(
    confidence: float, rate: float, before: float, after: float
) -> None:
    accessed = BEGIN + timedelta(days=before)
    known = reinforced(faded(row(confidence, rate), accessed), 1, accessed)
    assert (known.access_count, known.last_accessed) == (1, accessed)
    later = faded(known, accessed + timedelta(days=after))
    curve = known.confidence * math.exp(-rate * after**0.8)
    assert math.isclose(later.confidence, curve, rel_tol=1e-6, abs_tol=1e-12)


@given(shares, st.floats(0.001, 0.3), spans, st.floats(0.01, 100.0))
def test_an_access_never_weakens_a_memory(
    confidence: float, rate: float, accesses: list[float], after: float
) -> None:
    """However often it is returned, it is at least as strong as one that never was."""
    never = often = row(confidence, rate)
    at = BEGIN
    for each in accesses:
        at += timedelta(days=each)
        never, often = faded(never, at), reinforced(faded(often, at), 1, at)
    at += timedelta(days=after)
    assert faded(often, at).confidence >= faded(never, at).confidence * (1 - 1e-9)


@given(shares, st.integers(1, 40), st.integers(1, 40))
def test_accesses_add_up_whatever_their_batches(confidence: float, first: int, second: int) -> None:
    whole = reinforced(row(confidence), first + second, BEGIN)
    parts = reinforced(reinforced(row(confidence), first, BEGIN), second, BEGIN)
    assert whole == parts
    more = sum(0.05 * math.log(1 + n / 20) for n in range(1, first + second + 1))
    assert math.isclose(whole.confidence, min(1.0, confidence + more), abs_tol=1e-9)


def test_an_earlier_access_is_counted_and_the_last_one_stays() -> None:
    known = reinforced(row(), 1, BEGIN + timedelta(days=2))
    again = reinforced(known, 1, BEGIN)
    assert (again.access_count, again.last_accessed) == (2, known.last_accessed)


@given(shares, rates, st.floats(0.0, 50.0))
def test_the_night_on_which_a_memory_goes(confidence: float, rate: float, days: float) -> None:
    at = BEGIN + timedelta(days=days)
    known = faded(row(confidence, rate), at)
    gone = fades_at(known.confidence, rate, BEGIN, known.decayed_at, 0.05)
    if gone is None:
        return
    assert gone >= at
    if known.confidence > 0.05 and gone - at > timedelta(seconds=2):
        assert faded(known, gone - timedelta(seconds=1)).confidence >= 0.05
        assert faded(known, gone + timedelta(seconds=1)).confidence <= 0.05


def test_a_confirmed_memory_goes_on_no_night() -> None:
    assert fades_at(1.0, 0.0, BEGIN, None, 0.05) is None
    assert fades_at(1.0, 1e-9, BEGIN, None, 0.05) is None
    assert fades_at(1.0, 0.1, BEGIN, None, 0.0) is None


def test_shown_importance() -> None:
    assert shown_importance(0.8, 0.95, False, 0.0) == 0.8
    assert math.isclose(shown_importance(0.8, 0.95, False, 10.0), 0.8 * 0.5987369392383787)
    assert shown_importance(0.8, 0.95, True, 1_000.0) == 1.0
    assert shown_importance(0.8, 0.95, False, -3.0) == 0.8  # another clock is ahead
