"""Scores, reasons and remedies from counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.ops.health.domains import (
    DOMAINS,
    Counts,
    judged,
    judged_of_all,
    merged,
    score_of,
    status_of,
)

NAMES = {
    "queue": (
        *("accepted", "recent", "turns_of_day", "dead", "dead_of_day"),
        *("lag", "oldest_seconds"),
    ),
    "index": ("active", "missing", "extra", "wrong", "vectors"),
    "embeddings": ("active", "missing", "stale", "other_model"),
    "storage": ("stored", "tombstones", "file_bytes", "free_bytes"),
    "graph": (
        *("names", "relations", "mentions", "unnamed", "orphans", "dangling", "miscounted"),
        *("sampled", "unlinked", "enabled", "extraction_writes_enabled"),
    ),
    "providers": (
        *("providers", "calls", "failed", "waiting", "llm_calls", "llm_failed"),
        *("embedding_calls", "embedding_failed"),
    ),
    "duplicates": ("memories", "repeated"),
    "near_duplicates": ("memories", "same_words", "compared", "alike"),
    "stale": ("recalled", "stale", "old", "never", "stale_days"),
    "never_recalled": ("recalled", "stale", "old", "never", "stale_days"),
    "low_value": ("memories", "low_value", "stale_days"),
    "overlong": ("memories", "overlong"),
}
NUMBERS = st.integers(0, 10**9)


@st.composite
def counts(draw: st.DrawFn) -> tuple[str, Counts]:
    name = draw(st.sampled_from(sorted(NAMES)))
    return name, {each: draw(NUMBERS) for each in NAMES[name]}


def test_every_domain_is_tried() -> None:
    assert {*NAMES} == {*DOMAINS}


@given(counts())
def test_a_score_is_a_share_and_has_a_sentence(given_counts: tuple[str, Counts]) -> None:
    name, found = given_counts
    assert 0.0 <= score_of(name, found) <= 1.0
    domain = judged({name: {"0": found}})["domains"][name]
    assert domain["reason"]
    assert domain["status"] == status_of(domain["score"])
    if DOMAINS[name].is_due(found):
        assert domain["recommendation"] is not None


@given(counts(), st.integers(1, 4))
def test_workers_together_say_what_one_would(given_counts: tuple[str, Counts], parts: int) -> None:
    name, found = given_counts
    by_partition = {str(number): found for number in range(parts)}
    alone = judged({name: by_partition})
    each = [judged({name: {number: found}}) for number in by_partition]
    assert judged_of_all(each) == alone


@pytest.mark.parametrize(
    ("name", "found", "score"),
    [
        # 1 % of dead letters is just healthy; half of the turns is as bad as it gets.
        ("queue", {"accepted": 5000, "recent": 100, "dead": 10, "lag": 0}, 0.8),
        ("queue", {"accepted": 10, "recent": 10, "dead": 5, "lag": 0}, 0.0),
        # The same of the last day's, though the week had many more turns; at least 100 count.
        (
            "queue",
            {"accepted": 5000, "recent": 5000, "dead": 2, "turns_of_day": 200, "dead_of_day": 2},
            0.8,
        ),
        ("queue", {"accepted": 5000, "recent": 5000, "dead": 2, "dead_of_day": 1}, 0.8),
        ("queue", {"lag": 1, "oldest_seconds": 300}, 1.0),
        ("queue", {"lag": 1, "oldest_seconds": 3750}, 0.5),
        ("storage", {"stored": 100, "tombstones": 30, "free_bytes": 2**40}, 0.8),
        ("storage", {"stored": 100, "tombstones": 0, "free_bytes": 2**20 - 1}, 0.0),
        ("index", {"active": 100_000, "missing": 1}, 0.9999),
        ("graph", {"names": 100, "orphans": 1}, 0.8),
        ("graph", {"enabled": 1, "unnamed": 20}, 0.5),
        ("graph", {"enabled": 1, "unnamed": 19}, 1.0),
        ("graph", {"enabled": 1, "unnamed": 20, "names": 1}, 1.0),
        ("graph", {"enabled": 0, "unnamed": 20}, 1.0),
        ("providers", {"providers": 2, "llm_calls": 100, "llm_failed": 25}, 0.75),
        ("providers", {"providers": 2, "embedding_calls": 2, "embedding_failed": 1}, 0.9),
        ("low_value", {"memories": 10, "low_value": 4}, 0.8),
        ("never_recalled", {"recalled": 0, "old": 10, "never": 10}, 1.0),
        ("never_recalled", {"recalled": 1, "old": 10, "never": 10}, 0.5),
    ],
)
def test_scores_by_hand(name: str, found: Counts, score: float) -> None:
    assert score_of(name, {**dict.fromkeys(NAMES[name], 0), **found}) == score


def test_a_trend_is_that_of_the_worst_partition() -> None:
    found = {"queue": {"0": dict.fromkeys(NAMES["queue"], 0)}}
    recorded = [
        ("2026-03-02", {"queue": 0.5, "index": 1.0}),
        ("2026-03-01", {"queue": 1.0, "index": 1.0}),
        ("2026-03-02", {"queue": 0.9, "index": 0.0}),
        ("2026-03-03", {"index": 0.0}),
    ]
    days = {"2026-03-01": 1.0, "2026-03-02": 0.5}
    one = judged(found, recorded)
    assert (one["trend"], one["domains"]["queue"]["trend"]) == (days, days)
    both = {**found, "index": {"0": dict.fromkeys(NAMES["index"], 0)}}
    # Queue and index weigh the same.
    trend = {"2026-03-01": 1.0, "2026-03-02": 0.45, "2026-03-03": 0.0}
    assert judged(both, recorded)["trend"] == trend
    parts = [judged(both, [each]) for each in recorded]
    assert judged_of_all(parts)["trend"] == trend


def test_counts_of_partitions_are_added_but_for_what_is_oldest_or_least() -> None:
    one = {"lag": 1, "oldest_seconds": 5, "free_bytes": 9}
    other = {"lag": 2, "oldest_seconds": 3, "free_bytes": 7}
    assert merged([one, other]) == {"lag": 3, "oldest_seconds": 5, "free_bytes": 7}
