"""What is so only until some time: read from a sentence, stored, listed, recalled, told as over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.memories import Context, List, Recall
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.rules.model import RulesLanguageModel
from palimpsest.streams.runtime.output import outgoing
from tests.harness import Pipeline
from tests.messages import BEGIN, published, turn
from tests.sessions_by_hand import ask

STAY = "I live in Porto until Friday."
LAST = datetime(2026, 3, 6, 23, 59, 59, tzinfo=UTC)
"""BEGIN is a Sunday."""
QUESTION = "how long does Ana live in Porto?"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        made.say(STAY, "I work at the bakery in Ghent.", speaker="Ana")
        yield made.run()


def listed(pipeline: Pipeline, **given: Any) -> list[str]:
    page = ask(pipeline, List("ana", types=("fact", "decision", "procedural"), **given))
    return sorted(row["content"] for row in page["memories"])


def recalled(pipeline: Pipeline, **given: Any) -> dict[str, Any]:
    answer = ask(pipeline, Recall(QUESTION, "ana", group=False, **given))
    return {each["content"]: each for each in answer["results"] if each["type"] != "episodic"}


def fact_of(pipeline: Pipeline) -> dict[str, Any]:
    [row] = pipeline.rows("SELECT * FROM memory_rows WHERE temporal_kind = 'temporal'")
    return row


def test_the_end_is_stored_with_the_memory(pipeline: Pipeline) -> None:
    assert fact_of(pipeline)["valid_until"] == LAST
    [seen] = pipeline.rows(
        "SELECT temporal_kind, valid_until FROM memories WHERE temporal_kind = 'temporal'"
    )
    assert seen == {"temporal_kind": "temporal", "valid_until": LAST}


def test_friday_is_the_speaker_s_own(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as made:
        record = json.loads(outgoing(CONVERSATION_TURNS, published(turn(STAY))).value or b"")
        record["occurred_at"] = "2026-03-06T01:00:00+09:00"
        made.raw(CONVERSATION_TURNS, json.dumps(record).encode())
        made.run()
        # There it is Friday: the next one is meant.
        assert fact_of(made)["valid_until"] == datetime(2026, 3, 13, 14, 59, 59, tzinfo=UTC)


def test_lists_are_narrowed(pipeline: Pipeline) -> None:
    stay, bakery = fact_of(pipeline)["content"], "Ana works at the bakery in Ghent."
    assert listed(pipeline) == sorted([stay, bakery])
    assert listed(pipeline, temporal=True) == [stay]
    assert listed(pipeline, temporal=False) == [bakery]
    assert listed(pipeline, categories=("work", "nothing")) == [bakery]
    assert listed(pipeline, categories=("nothing",)) == []
    assert listed(pipeline, valid_at=LAST) == [bakery]
    assert listed(pipeline, valid_at=LAST - timedelta(seconds=1)) == sorted([stay, bakery])


def test_what_is_over_is_told_so_ranked_lower_or_left_out(pipeline: Pipeline) -> None:
    content = fact_of(pipeline)["content"]
    before = recalled(pipeline, as_of=BEGIN)[content]
    after = recalled(pipeline, as_of=LAST)[content]
    assert (before["expired"], after["expired"]) == (False, True)
    assert before["valid_until"] == after["valid_until"] == "2026-03-06T23:59:59Z"
    assert after["score"] < before["score"]
    assert content not in recalled(pipeline, valid_at=LAST)
    assert content in recalled(pipeline, valid_at=BEGIN)
    block = ask(pipeline, Context(QUESTION, "ana"))["text"]
    over = datetime.now(UTC) > LAST
    assert ("(until 2026-03-06; over now" in block) == over


def test_rules_and_their_look_alikes_agree_with_the_words(pipeline: Pipeline) -> None:
    pipeline.say("My friend May plays the piano every Friday until Sunday.", first=3)
    pipeline.run()
    assert isinstance(pipeline.language, RulesLanguageModel)
    fact_of(pipeline)  # still the only one
