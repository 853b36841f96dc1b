"""The offset in which a turn's time was written reaches what resolves "yesterday"."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from palimpsest.ops.ingest.lines import Watch, turn_of
from palimpsest.ops.ingest.opening import open_source
from palimpsest.ops.ingest.parsers.base import ReadOptions
from palimpsest.ops.transport.turns import turn_records
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy
from palimpsest.streams.sensitive.settings import PiiSettings

NOW = datetime(2026, 3, 5, tzinfo=UTC)
TOKYO = ZoneInfo("Asia/Tokyo")


def said(outgoing: Any) -> tuple[str, int | None]:
    """The time in UTC, and the offset that the record keeps."""
    assert isinstance(outgoing, Outgoing), outgoing
    raw = json.loads(outgoing.value or b"")
    return raw["occurred_at"], raw["body"].get("utc_offset_minutes")


def line(at: object, zone: str = "UTC") -> tuple[str, int | None]:
    options = ReadOptions("ana", 1 << 20, NOW, zone=ZoneInfo(zone))
    raw = {"turn_id": "t", "content": "I ran yesterday.", "occurred_at": at}
    return said(turn_of(raw, "line 1", options, Watch()))


@pytest.mark.parametrize(
    ("at", "zone", "utc", "offset"),
    [
        ("2026-03-02T00:30:00+09:00", "UTC", "2026-03-01T15:30:00Z", 540),
        ("2026-03-01T23:30:00-05:00", "UTC", "2026-03-02T04:30:00Z", -300),
        ("2026-03-01T12:00:00Z", "UTC", "2026-03-01T12:00:00Z", None),
        ("2026-03-02T00:30:00", "Asia/Tokyo", "2026-03-01T15:30:00Z", 540),
        ("2026-03-01T15:30:00Z", "Asia/Tokyo", "2026-03-01T15:30:00Z", 540),
        ("2026-03-01T23:30:00-05:00", "Asia/Tokyo", "2026-03-02T04:30:00Z", -300),
        (
            datetime(2026, 3, 2, 0, 30, tzinfo=timezone(timedelta(hours=9))),
            "UTC",
            "2026-03-01T15:30:00Z",
            540,
        ),
    ],
)
def test_a_json_turn_keeps_its_offset(at: object, zone: str, utc: str, offset: int | None) -> None:
    assert line(at, zone) == (utc, offset)


def test_a_program_s_turn_keeps_its_offset() -> None:
    turn = {"content": "x", "occurred_at": "2026-03-02T00:30:00+09:00"}
    records, _ = turn_records(turn, "ana", 1 << 20, NOW, {}, Policy.of(PiiSettings()))
    assert said(records[0]) == ("2026-03-01T15:30:00Z", 540)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat.txt", "02.03.26, 00:30 - Ana: I ran yesterday.\n"),
        ("m.jsonl", '{"role": "user", "content": "x", "timestamp": "2026-03-02T00:30:00"}\n'),
        ("n.jsonl", '{"role": "user", "content": "x", "timestamp": 1772379000}\n'),
    ],
)
def test_the_chosen_zone_is_that_of_an_export(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    options = ReadOptions("ana", 1 << 20, NOW, zone=TOKYO)
    with open_source(str(tmp_path / name), options) as source:
        found = [each for each, _ in source.items if isinstance(each, Outgoing)]
    assert [said(each) for each in found] == [("2026-03-01T15:30:00Z", 540)]
