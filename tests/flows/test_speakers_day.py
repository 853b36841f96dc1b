"""The day of a turn is its speaker's own, whatever day it is in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.memories import Context, Get, List, Recall
from palimpsest.ops.operations.proposals import Proposals
from palimpsest.ops.operations.sessions import SessionMemory, SessionTimeline
from palimpsest.schemas.codec import encode
from palimpsest.schemas.topics import CONVERSATION_TURNS
from tests.harness import CAREFUL, FULL, Pipeline, pipeline_settings
from tests.messages import published, turn
from tests.sessions_by_hand import ask

SAID = "Yesterday the boiler broke, and tomorrow I visit Lea."


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path, settings=pipeline_settings(FULL)) as made:
        yield made


def say_at(pipeline: Pipeline, written: str, text: str = SAID, number: int = 1) -> None:
    """As a producer writes the time, with its offset."""
    message = published(turn(text, number), occurred_at=datetime.fromisoformat(written))
    utc = message.occurred_at.isoformat().replace("+00:00", "Z").encode()
    value = encode(message)
    assert utc in value
    pipeline.raw(CONVERSATION_TURNS, value.replace(utc, written.encode()))


def results(pipeline: Pipeline, text: str = "what broke?", **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(pipeline, Recall(text, "ana", **fields))["results"]
    return found


@pytest.mark.parametrize(
    ("written", "day", "before"),
    [
        ("2026-03-14T22:30:00-07:00", "14 March 2026", "13 March 2026"),
        ("2026-03-15T05:30:00+00:00", "15 March 2026", "14 March 2026"),
        ("2026-03-15T06:30:00+09:00", "15 March 2026", "14 March 2026"),
        ("2025-12-31T23:50:00-00:30", "31 December 2025", "30 December 2025"),
    ],
)
def test_headings_facts_and_results_have_the_day_of_the_speaker(
    pipeline: Pipeline, written: str, day: str, before: str
) -> None:
    say_at(pipeline, written)
    for _ in range(2):
        pipeline.run()
        text = ask(pipeline, Context("what broke?", "ana"))["text"]
        assert [line for line in text.split("\n") if line[:4] in ("## 1", "## 3")] == [f"## {day}"]
        facts = [each for each in pipeline.memories() if "boiler" in each and each != SAID]
        assert all(before in each for each in facts), facts
        for each in results(pipeline, group=False):
            at = datetime.fromisoformat(each["occurred_at"])
            assert at == datetime.fromisoformat(written)
            assert at.utcoffset() == datetime.fromisoformat(written).utcoffset()
        # The same from a loaded index.
        pipeline.reopen()


def test_a_turn_is_found_by_the_day_of_its_speaker(pipeline: Pipeline) -> None:
    """It was already the 15th in UTC when the first was said, and still the 14th at the second."""
    say_at(pipeline, "2026-03-14T22:30:00-07:00", "The boiler broke.", 1)
    say_at(pipeline, "2026-03-15T06:30:00+09:00", "The heating is warm.", 2)
    pipeline.run()
    for _ in range(2):
        for day, first in (("14", "The boiler broke."), ("15", "The heating is warm.")):
            found = results(pipeline, f"what was said on {day} March 2026?", types=["episodic"])
            assert found[0]["content"] == first
        pipeline.reopen()


def test_a_turn_may_say_its_offset_itself(pipeline: Pipeline) -> None:
    message = published(
        turn(SAID, utc_offset_minutes=-420),
        occurred_at=datetime.fromisoformat("2026-03-15T05:30:00+00:00"),
    )
    pipeline.publish(message)
    pipeline.run()
    assert "## 14 March 2026" in ask(pipeline, Context("what broke?", "ana"))["text"]


def test_each_day_has_one_heading_and_its_lines_are_in_order(pipeline: Pipeline) -> None:
    say_at(pipeline, "2026-03-14T22:30:00-07:00", "The boiler broke tonight.", 1)
    say_at(pipeline, "2026-03-15T05:40:00+00:00", "My boiler is fine.", 2)
    say_at(pipeline, "2026-03-14T22:50:00-07:00", "The boiler is loud now.", 3)
    pipeline.run()
    text = ask(pipeline, Context("how is the boiler?", "ana"))["text"]
    headings = [line for line in text.split("\n") if line.startswith("## 1")]
    assert headings == ["## 14 March 2026", "## 15 March 2026"]
    assert text.index("broke tonight") < text.index("loud now") < text.index("is fine")


def test_times_without_an_offset_stay_in_utc(pipeline: Pipeline) -> None:
    pipeline.say(SAID)
    pipeline.run()
    [offset] = {
        datetime.fromisoformat(each["occurred_at"]).utcoffset() for each in results(pipeline)
    }
    assert offset == timedelta()


def test_lists_and_sessions_have_the_clock_of_the_speaker(pipeline: Pipeline) -> None:
    """As results have it: the day in a list is that of the heading."""
    written = "2026-03-14T22:30:00-07:00"
    say_at(pipeline, written)
    pipeline.run()
    [memory_id] = pipeline.values("SELECT memory_id FROM memory_rows WHERE type = 'episodic'")
    listed = [each["occurred_at"] for each in ask(pipeline, List())["memories"]]
    [timed] = ask(pipeline, SessionTimeline("s1", "ana"))["turns"]
    [kept] = ask(pipeline, SessionMemory("s1", "ana"))["short_term"]["turns"]
    shown = ask(pipeline, Get(memory_id))["occurred_at"]
    assert {*listed, timed["occurred_at"], kept["occurred_at"], shown} == {written}


def test_what_waits_has_the_clock_of_the_speaker(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(CAREFUL)) as pipeline:
        say_at(pipeline, "2025-03-14T12:00:00-07:00", "I live in Graz.", 1)
        say_at(pipeline, "2026-03-14T22:30:00-07:00", "I live in Porto.", 2)
        say_at(pipeline, "2026-03-15T08:30:00+09:00", "I live in Linz.", 3)
        pipeline.run()
        listed = ask(pipeline, Proposals())["proposals"]
        assert [each["occurred_at"] for each in listed] == [
            "2026-03-15T08:30:00+09:00",
            "2026-03-14T22:30:00-07:00",
        ]
        # As from two workers: the moment counts, not how it is written.
        parts = [{"proposals": [each]} for each in reversed(listed)]
        assert Proposals().merge(parts) == {"proposals": listed}


def test_a_mark_has_the_day_of_the_newer_statement(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        say_at(pipeline, "2025-03-14T12:00:00-07:00", "I live in Graz.", 1)
        say_at(pipeline, "2026-03-14T22:30:00-07:00", "I live in Porto.", 2)
        pipeline.run()
        for _ in range(2):
            text = ask(pipeline, Context("where does Ana live?", "ana"))["text"]
            assert "since 2026-03-14" in text, text
            pipeline.reopen()


def test_what_is_said_again_has_the_clock_of_the_newest_statement(pipeline: Pipeline) -> None:
    written = "2025-03-14T22:30:00-07:00"
    say_at(pipeline, "2024-03-14T12:00:00+09:00", "I live in Graz.", 1)
    say_at(pipeline, written, "I live in Graz.", 2)
    say_at(pipeline, "2024-06-14T12:00:00+09:00", "I live in Graz.", 3)
    pipeline.run()
    [fact] = ask(pipeline, List(types=("fact",)))["memories"]
    assert fact["occurred_at"] == written


def test_pages_are_continued_by_the_moment_whatever_the_clock(pipeline: Pipeline) -> None:
    """The sign of an offset would be a space in an address."""
    times = ("2025-03-14T23:00:00+09:00", "2025-03-14T12:00:00-07:00", "2025-03-15T01:00:00+05:30")
    for number, written in enumerate(times):
        say_at(pipeline, written, f"Word {number}.", number)
    pipeline.run()
    seen, cursor = [], None
    for _ in times:
        page = ask(pipeline, List(limit=1, cursor=cursor))
        seen += [each["occurred_at"] for each in page["memories"]]
        cursor = page["next_cursor"]
        assert cursor is None or "+" not in cursor
    assert seen == [times[2], times[1], times[0]]
    assert cursor is None
