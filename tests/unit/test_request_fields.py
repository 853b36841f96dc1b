"""Times and other values of requests, as they are checked on every surface."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.changing import ModifyMany, Remember
from palimpsest.ops.operations.checking import Patch, built, checked, model_of
from palimpsest.ops.operations.graph import ShowGraph
from palimpsest.ops.operations.memories import Get, Recall
from palimpsest.ops.operations.operation import Operation
from palimpsest.ops.operations.shared import time_of_word
from palimpsest.ops.terminal.common import parse_time

NOW = datetime(2026, 3, 31, 15, 20, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "time"),
    [
        ("today", datetime(2026, 3, 31, tzinfo=UTC)),
        (" Yesterday ", datetime(2026, 3, 30, tzinfo=UTC)),
        ("last_week", NOW - timedelta(days=7)),
        ("last_month", datetime(2026, 2, 28, 15, 20, 7, tzinfo=UTC)),
        ("last week", None),
        ("last_year", None),
        ("2026-03-01", None),
        ("", None),
    ],
)
def test_what_a_word_stands_for(word: str, time: datetime | None) -> None:
    assert time_of_word(word, NOW) == time


def test_a_word_is_accepted_as_a_time_is() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    request = checked(Recall, {"query": "tea", "since": "last_week", "until": "2026-03-01"})
    after = datetime.now(UTC)
    assert request.since is not None
    assert before <= request.since + timedelta(days=7) <= after
    assert request.until == datetime(2026, 3, 1, tzinfo=UTC)
    assert before <= parse_time("last_week") + timedelta(days=7) <= datetime.now(UTC)
    with pytest.raises(RequestError, match="since"):
        checked(Recall, {"query": "tea", "since": "last year"})
    with pytest.raises(typer.BadParameter, match="or last_week"):
        parse_time("last year")


def test_other_spellings_of_fields() -> None:
    model = model_of(Recall, (), "http")
    asked = built(
        Recall, model.model_validate({"query": "x", "type": "fact", "importance_min": 0.5})
    )
    assert (asked.types, asked.min_importance) == (("fact",), 0.5)
    for both in ({"type": "fact", "types": "rule"}, {"kind": "fact"}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            model.model_validate({"query": "x", **both})
    shown = model.model_json_schema()
    assert shown["properties"]["importance_min"]["description"] == (
        "another spelling of `min_importance`"
    )
    assert {"not": {"required": ["types", "type"]}} in shown["allOf"]
    assert "type" not in model_of(Remember).spellings


def test_a_patch_names_its_memory_in_either_spelling() -> None:
    patches = [{"id": "1f0c9a52", "tags": ["a"]}, {"memory_id": "2f0c9a52", "tags": ["b"]}]
    asked = checked(ModifyMany, {"patches": patches, "reason": "tried"})
    assert [each["memory_id"] for each in asked.patches] == ["1f0c9a52", "2f0c9a52"]
    both = {"id": "1f0c9a52", "memory_id": "1f0c9a52", "tags": ["a"]}
    for wrong in (both, {"tags": ["a"]}):
        with pytest.raises(RequestError):
            checked(ModifyMany, {"patches": [wrong], "reason": "tried"})
    shown = Patch.model_json_schema()
    assert "memory_id" not in shown.get("required", ())
    assert shown["allOf"] == [{"oneOf": [{"required": ["memory_id"]}, {"required": ["id"]}]}]


def refused(kind: type[Operation[Any]], **values: object) -> str:
    with pytest.raises(RequestError) as error:
        checked(kind, values)
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Get, {"memory_id": "a\ud800"}),
        (ShowGraph, {"name": "a\ud800"}),
        (Recall, {"query": "x", "types": ["a\ud800"]}),
        (Remember, {"content": "x", "metadata": {"a": ["\ud800"]}}),
        (Remember, {"content": "x", "metadata": {"\ud800": 1}}),
    ],
)
def test_half_an_emoji_is_refused_in_every_field(
    kind: type[Operation[Any]], values: dict[str, object]
) -> None:
    assert "half an emoji" in refused(kind, **values)


def test_a_time_that_utc_does_not_have_is_refused() -> None:
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert refused(Recall, query="x", as_of=time).startswith("as_of: the time lies outside")


def test_numbers_are_neither_true_nor_false() -> None:
    for number in (0, 1, 1.0):
        assert "true or false" in refused(Recall, query="x", pinned=number)
    assert "number" in refused(Recall, query="x", limit=True)
    assert checked(Recall, {"query": "x", "pinned": "true"}).pinned is True


@pytest.mark.parametrize("blank", ["  ", "\u00a0\n", "\u200b", "\ufeff\u2060", "\0"])
def test_what_is_kept_or_asked_for_is_not_blank(blank: str) -> None:
    for name in ("content", "type", "who", "project", "session_id", "source_type", "key"):
        assert "must not be blank" in refused(Remember, **{"content": "x", name: blank}), name
    for item in (blank, ""):
        assert "tags.1" in refused(Remember, content="x", tags=["a", item])
        assert "types.1" in refused(Recall, query="x", types=["a", item])


def test_the_length_of_an_id_is_told_in_characters() -> None:
    assert refused(Get, memory_id="a" * 65) == (
        "memory_id: Input should have at most 64 characters"
    )
