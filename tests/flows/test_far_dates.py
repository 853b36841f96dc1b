"""Turns of the first and of the last day that a date can have: no stage and no command fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.ops.ingest.records import moved
from palimpsest.streams.fading import fades_at
from palimpsest.streams.memory_rows import is_said_later
from tests.flows.program import Program

FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
SAID = (
    "I drink tea every morning.",
    "I don't drink tea every morning anymore.",
    "I moved to Lisbon yesterday.",
    "I moved to Porto in three weeks.",
    "I am allergic to walnuts.",
    "I am allergic to walnuts.",
)


def test_turns_of_the_ends_of_the_calendar_become_memories(tmp_path: Path) -> None:
    turns = [
        {"turn_id": f"{at} {number}", "speaker": "Ana", "content": content, "occurred_at": at}
        for at in (FIRST, LAST, "2026-03-01T10:00:00Z")
        for number, content in enumerate(SAID)
    ]
    # The clocks of those who say it have no such time.
    turns += [
        {**turns[0], "turn_id": "before", "utc_offset_minutes": -840},
        {**turns[0], "turn_id": "after", "occurred_at": LAST, "utc_offset_minutes": 840},
    ]
    lines = "\n".join(map(json.dumps, turns)).encode()
    program = Program(tmp_path)
    program.ok("ingest", "-", stdin=lines)
    program.ok("run", "--once")
    assert json.loads(program.ok("dead-letters", "list", "--json"))["dead_letters"] == []
    again = program.ok("ingest", "-", stdin=lines)
    assert "0 new" in again
    for at in (FIRST, LAST):
        asked = ("what did Ana do last week?", "--asked-at", at, "--json")
        assert json.loads(program.ok("recall", *asked))["results"]
        assert json.loads(program.ok("context", *asked))["text"]


@pytest.mark.parametrize(
    "than", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)]
)
def test_comparing_far_dates_leaves_the_calendar_alone(than: datetime) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert not is_said_later(now - timedelta(days=1), now, than)
    assert not is_said_later(than, than, now)


def test_a_time_is_moved_to_the_end_of_the_calendar_at_most() -> None:
    last, first = (each.replace(tzinfo=UTC) for each in (datetime.max, datetime.min))
    assert moved(last, timedelta(hours=1)) == last
    assert moved(first, -timedelta(hours=1)) == first
    assert moved(first, timedelta(hours=1)) == first + timedelta(hours=1)


def test_what_would_fade_after_the_last_year_does_not() -> None:
    assert fades_at(1.0, 0.1, datetime.max.replace(tzinfo=UTC), None, 0.05) is None
