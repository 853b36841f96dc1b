"""Sentences that say until when something is so, and sentences that only look like it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from palimpsest.streams.text.dates import stated_end

LABELLED = Path(__file__).parents[1] / "data" / "stated_ends.jsonl"
SENTENCES = [json.loads(line) for line in LABELLED.read_text("utf-8").splitlines()]
BERLIN = timezone(timedelta(hours=1))
SAID_AT = datetime(2024, 3, 12, 9, 30, tzinfo=BERLIN)
"""A Tuesday."""


def test_labelled_sentences() -> None:
    found = {each["text"]: stated_end(each["text"], SAID_AT) for each in SENTENCES}
    assert found == {
        each["text"]: each["end"] and datetime.fromisoformat(f"{each['end']}T23:59:59+01:00")
        for each in SENTENCES
    }


def test_there_are_sentences_of_both_sorts() -> None:
    telling = [each for each in SENTENCES if each["end"]]
    assert min(len(telling), len(SENTENCES) - len(telling)) >= 30


def test_what_was_over_when_it_was_said_has_no_end() -> None:
    assert stated_end("The offer is valid until 2023-05-01.", SAID_AT) is None
    assert stated_end("The offer is valid until 2024-03-12.", SAID_AT) is not None


def test_the_last_years_raise_nothing() -> None:
    for year in (1, 9999):
        at = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert stated_end("valid until tomorrow and until 来月まで", at) is None or year == 1
