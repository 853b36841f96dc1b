"""A text that is said again later is another message; the same one, told again, is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Named, Published, Standing
from palimpsest.schemas.erasure.quotations import mark_of
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MONDAY = datetime(2026, 10, 5, 9, tzinfo=UTC)
NEXT_MONDAY = MONDAY + timedelta(days=7)


def records_of(path: Path, **chosen: object) -> list[Named]:
    options = replace(using(), **{"since": None, **chosen})  # type: ignore[arg-type]
    return [item for item in read(path, options)[1] if isinstance(item, Named)]


def taken(published: Published, path: Path, **chosen: object) -> list[Standing]:
    found = recognised(records_of(path, **chosen), published, NOW, lambda _: None)
    return [published.standing(each) for each in found]


def taken_without_times(published: Published, path: Path, **changed: object) -> None:
    """Publishes a file as it was when keys had no times."""
    for each in records_of(path):
        naming = each.naming
        raw = json.loads(each.value or b"")
        if naming.untimed_as is not None:
            raw["body"]["turn_id"] = naming.untimed_as(naming.name, naming.number)
        raw |= changed
        value = json.dumps(raw).encode()
        assert published.standing(Outgoing(each.topic, each.scope, each.key, value)) == "new"


def erased(published: Published, path: Path, number: int) -> None:
    """Publishes the turn of that number of a file, as of keys without times, as erased."""
    each = records_of(path)[number]
    assert each.naming.untimed_as is not None
    raw = json.loads(each.value or b"")
    turn_id = each.naming.untimed_as(each.naming.name, each.naming.number)
    mark = mark_of(turn_memory_id(each.scope, turn_id))
    raw["body"] |= {"turn_id": turn_id, "content": mark, "speaker": ""}
    for gone in ("source_type", "source_id", "metadata"):
        raw["body"].pop(gone, None)
    published.standing(Outgoing(each.topic, each.scope, each.key, json.dumps(raw).encode()))


def log(path: Path, texts: Sequence[tuple[str, object]], **fields: object) -> Path:
    said = [{"role": "user", "content": text, "timestamp": at, **fields} for text, at in texts]
    path.write_text("\n".join(map(json.dumps, said)))
    return path


def day(number: int) -> str:
    return f"2024-11-{number}T20:45:00Z"


@pytest.mark.parametrize("fields", [{}, {"session_id": "chat-1"}], ids=["of the file", "own"])
def test_a_text_of_another_day_is_another_message(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    for number in (17, 24):
        log(path, [("I had pizza", day(number))], **fields)
        assert taken(published, path) == ["new"]
        assert taken(published, path) == ["known"]


def test_a_file_that_is_written_anew_each_week(tmp_path: Path) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    taken(published, log(path, [("ok", day(17)), ("ok", day(18))]))
    assert taken(published, log(path, [("ok", day(18)), ("ok", day(24))])) == ["known", "new"]
    assert taken(published, log(path, [("ok", day(24)), ("ok", day(24))])) == ["known", "new"]


NOTATIONS = [
    "2024-11-17T20:45:00+00:00",
    "2024-11-17 20:45:00Z",
    "2024-11-17T21:45:00+01:00",
    "2024-11-17T20:45:00.250Z",
    1731876300,
    1731876300000,
    "1731876300",
]


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_time_in_another_notation_is_the_same(tmp_path: Path, notation: object) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    taken(published, log(path, [("I had pizza", day(17))]))
    assert taken(published, log(path, [("I had pizza", notation)])) == ["known"]


def test_a_time_without_a_zone_is_the_same_in_any_zone(tmp_path: Path) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    log(path, [("I had pizza", "2024-11-17T20:45:00")])
    taken(published, path)
    assert taken(published, path, zone=ZoneInfo("Europe/Lisbon")) == ["known"]
    assert taken(published, path, zone=ZoneInfo("Asia/Tokyo")) == ["known"]
    published = Published(None)
    taken(published, path, zone=ZoneInfo("Asia/Tokyo"))
    assert taken(published, log(path, [("I had pizza", "2024-11-17T11:45:00Z")])) == ["known"]


@pytest.mark.parametrize("fields", [{}, {"session_id": "chat-1"}], ids=["of the file", "own"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_what_was_published_without_times_in_its_ids_is_known(
    tmp_path: Path, fields: dict[str, object], zone: str
) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    texts = [("ok", "2024-11-17T20:45:00"), ("Tea?", "2024-11-17T20:46:00")]
    log(path, [*texts, ("ok", "2024-11-18T20:45:00")], **fields)
    taken_without_times(published, path)
    assert taken(published, path, zone=ZoneInfo(zone)) == ["known"] * 3
    # A later one begins with the end of it.
    log(path, [("ok", "2024-11-18T20:45:00"), ("ok", "2024-11-24T20:45:00")], **fields)
    assert taken(published, path) == ["known", "new"]
    assert taken(published, path) == ["known", "known"]


def test_a_renamed_file_that_was_published_without_times_in_its_ids(tmp_path: Path) -> None:
    published = Published(None)
    texts: list[tuple[str, object]] = [("ok", day(17)), ("Tea?", day(18)), ("ok", day(19))]
    taken_without_times(published, log(tmp_path / "log.jsonl", texts))
    longer = log(tmp_path / "log (1).jsonl", [*texts, ("ok", day(20))])
    assert taken(published, longer) == ["known", "known", "known", "new"]
    assert taken(published, longer) == ["known"] * 4


def test_what_was_erased_stays_erased_with_a_time_in_its_id(tmp_path: Path) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"
    log(path, [("ok", day(17)), ("ok", day(18))])
    erased(published, path, 1)
    assert taken(published, path) == ["new", "erased"]
    assert taken(published, log(path, [("ok", day(18)), ("ok", day(19))])) == ["erased", "new"]


def test_what_got_the_time_of_its_file_is_known_when_its_time_is_read(tmp_path: Path) -> None:
    published, path = Published(None), tmp_path / "log.jsonl"

    def written(number: int) -> Path:
        said = {"role": "user", "content": "ok", "createdAt": day(number)}
        path.write_text(json.dumps(said))
        return path

    taken_without_times(published, written(17), occurred_at="2024-11-20T10:00:00Z")
    assert taken(published, written(17)) == ["known"]
    assert taken(published, written(24)) == ["new"]


# --- times that count from a beginning --------------------------------------------------------

STANDUP = ["Good morning everyone.", "I fixed the login.", "I will be away on Friday."]
OTHER = ["Good morning everyone.", "The build is green.", "I am back."]


def transcript(path: Path, texts: Sequence[str]) -> Path:
    cues = [
        f"00:00:0{number}.000 --> 00:00:0{number}.900\nAna: {text}\n"
        for number, text in enumerate(texts)
    ]
    path.write_text("WEBVTT\n\n" + "\n".join(cues))
    return path


def saved_chat(path: Path, texts: Sequence[str]) -> Path:
    path.write_text(
        "".join(
            f"09:00:0{number}\t From Ana to Everyone:\n\t{text}\n"
            for number, text in enumerate(texts)
        )
    )
    return path


Write = Callable[[Path, Sequence[str]], Path]
FORMS = pytest.mark.parametrize(
    ("write", "file"),
    [(transcript, "standup.vtt"), (saved_chat, "meeting_saved_chat.txt")],
    ids=["a transcript", "a chat of Zoom"],
)


@FORMS
@pytest.mark.parametrize("session", [None, "standup"])
def test_a_meeting_of_another_week_in_a_file_of_that_name(
    tmp_path: Path, write: Write, file: str, session: str | None
) -> None:
    published, path = Published(None), tmp_path / file
    first: dict[str, object] = {"since": MONDAY, "session": session}
    second: dict[str, object] = {"since": NEXT_MONDAY, "session": session}
    assert taken(published, write(path, STANDUP), **first) == ["new"] * 3
    assert taken(published, write(path, OTHER), **second) == ["new"] * 3
    assert taken(published, write(path, STANDUP), **first) == ["known"] * 3
    assert taken(published, write(path, [*OTHER, "Bye."]), **second) == ["known"] * 3 + ["new"]


@FORMS
def test_a_meeting_whose_beginning_is_told_otherwise_is_the_same(
    tmp_path: Path, write: Write, file: str
) -> None:
    path = write(tmp_path / file, STANDUP)
    times: list[dict[str, object]] = [{}, {"since": MONDAY}, {"since": NEXT_MONDAY}]
    for first in times:
        published = Published(None)
        assert taken(published, path, **first) == ["new"] * 3
        for then in times:
            assert taken(published, path, **then) == ["known"] * 3
