"""Every format that ingest takes: what it is recognised as and what is read from it.

The examples lie in tests/golden/ingest; beside each stands what is expected of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.ops.ingest.formats import FORMATS, PARSERS, format_of_text
from palimpsest.ops.ingest.lines import Watch, near_miss, turn_of
from palimpsest.ops.ingest.opening import open_source
from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Note,
    ReadOptions,
    Unreadable,
    Utterance,
)
from palimpsest.ops.ingest.parsers.slack import read_slack
from palimpsest.ops.ingest.records import record_of
from palimpsest.streams.logs.base import Outgoing
from tests.examples import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "ingest"
SINCE = datetime(2026, 3, 1, 12, tzinfo=UTC)
EXAMPLES = sorted(
    path.relative_to(GOLDEN).as_posix().removesuffix(".expected")
    for path in GOLDEN.rglob("*.expected")
)


def using(form: str | None = None, **choices: object) -> ReadOptions:
    return ReadOptions(None, 1_000_000, SINCE, form=form, since=SINCE, **choices)  # type: ignore[arg-type]


def read(path: Path, chosen: ReadOptions | None = None) -> tuple[str, list[Outgoing | Bad | Note]]:
    with open_source(str(path), chosen or using()) as source:
        return source.format, [item for item, _ in source.items]


def rendered(path: Path, chosen: ReadOptions | None = None) -> str:
    """What was read, a line each, without the folder's name."""
    form, items = read(path, chosen)
    lines = [f"taken for {FORMATS[form]}"]
    for item in items:
        if isinstance(item, Bad):
            lines.append(f"BAD {item.place}: {item.reason}")
        elif isinstance(item, Note):
            lines.append(f"NOTE {item.text}")
        else:
            message = json.loads(item.value or b"")
            body = message["body"]
            lines.append(
                f"{message['occurred_at']} | {message['scope']} | {body.get('session_id')}"
                f" | {body.get('role')} {body.get('speaker') or '-'}"
                f" | {body['turn_id']} | {body['content']!r}"
            )
    return "\n".join(lines).replace(f"{path.parent}/", "") + "\n"


def turns(path: Path, chosen: ReadOptions | None = None) -> list[dict[str, object]]:
    items = read(path, chosen)[1]
    return [json.loads(item.value or b"")["body"] for item in items if isinstance(item, Outgoing)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_recognised_and_read_as_expected(name: str) -> None:
    expected = (GOLDEN / f"{name}.expected").read_text(encoding="utf-8")
    assert rendered(GOLDEN / name) == expected


# --- recognising ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("empty.jsonl", b"", "empty"),
        ("blank.jsonl", b"\n \n", "empty"),
        ("talk.csv", b'speaker,text\nAna,hello\nBen,"hi, there"\n', "table (CSV)"),
        ("talk.gz", b"\x1f\x8b\x08\x00", "gzip"),
        ("talk.pdf", b"%PDF-1.7", "PDF"),
        ("talk.db", b"SQLite format 3\0", "SQLite"),
        ("talk.bin", b"\x01\x00\x02" * 10, "binary"),
        ("talk.zip", b"PK\x03\x04 damaged", "damaged zip"),
        ("prose.txt", b"Dear diary,\ntoday it rained.\n", "no conversation"),
        ("other.json", b'{\n "a": 1\n}', "JSON, but no conversation"),
        ("list.json", b'[{"a": 1, "b": 2}, {"a": 3, "b": 4}]', "JSON, but no conversation"),
        ("latin.txt", "Ana: se\xf1or\n".encode("latin-1"), "UTF-8"),
        ("deep.json", b"[" * 100_000, "no conversation"),
    ],
)
def test_what_is_no_conversation_is_named(
    tmp_path: Path, name: str, data: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unreadable, match=re.escape(told)):
        read(tmp_path / name)


def test_a_folder_without_an_export_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(Unreadable, match=r"one by one \(a.jsonl"):
        read(tmp_path)


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_json", ".json"), data)
        archive.writestr("__MACOSX/._x", b"\0")
    return path


def test_exports_are_found_in_their_archives(tmp_path: Path) -> None:
    chatgpt = zipped(
        tmp_path / "export.zip",
        conversations_json=(GOLDEN / "chatgpt.json").read_bytes(),
        user_json=b"{}",
    )
    assert turns(chatgpt) == turns(GOLDEN / "chatgpt.json")
    claude = zipped(
        tmp_path / "data.zip", data__conversations_json=(GOLDEN / "claude.json").read_bytes()
    )
    assert turns(claude) == turns(GOLDEN / "claude.json")
    slack = shutil.make_archive(str(tmp_path / "slack"), "zip", GOLDEN / "slack")
    assert turns(Path(slack)) == turns(GOLDEN / "slack")
    whatsapp = tmp_path / "WhatsApp Chat - Ana (1).zip"
    with zipfile.ZipFile(whatsapp, "w") as archive:
        archive.writestr("_chat.txt", (GOLDEN / "whatsapp_ios.txt").read_bytes())
    found = turns(whatsapp)
    assert [t["turn_id"] for t in found] == [
        t["turn_id"] for t in turns(GOLDEN / "whatsapp_ios.txt")
    ]
    assert found[0]["session_id"] == "Ana 2026-03-02"
    with pytest.raises(Unreadable, match="no export of ChatGPT"):
        read(zipped(tmp_path / "other.zip", notes=b"x"))


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no WhatsApp chat"):
        read(GOLDEN / "talk.srt", using("whatsapp"))
    with pytest.raises(Unreadable, match="a ChatGPT export in it, not a Slack export"):
        read(
            zipped(tmp_path / "e.zip", conversations_json=(GOLDEN / "chatgpt.json").read_bytes()),
            using("slack"),
        )


def test_an_export_in_one_line_and_one_over_many_are_the_same(tmp_path: Path) -> None:
    value = json.loads((GOLDEN / "claude.json").read_text(encoding="utf-8"))
    (tmp_path / "claude.json").write_text(json.dumps(value))
    assert turns(tmp_path / "claude.json") == turns(GOLDEN / "claude.json")


def test_a_file_in_utf_16_or_with_a_mark_is_read(tmp_path: Path) -> None:
    text = (GOLDEN / "whatsapp_us.txt").read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "whatsapp_us.txt").write_text(text, encoding=encoding)
        assert turns(tmp_path / "whatsapp_us.txt") == turns(GOLDEN / "whatsapp_us.txt")
    line = (GOLDEN / "turns.json").read_text(encoding="utf-8").strip()[1:].partition(", 4]")[0]
    (tmp_path / "marked.jsonl").write_text(line, encoding="utf-8-sig")
    assert [turn["turn_id"] for turn in turns(tmp_path / "marked.jsonl")] == ["1"]


# --- the same again ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["whatsapp_us.txt", "messages.jsonl", "slack/general/2026-03-02.json"]
)
def test_a_longer_export_keeps_the_ids_of_what_was_there(tmp_path: Path, name: str) -> None:
    copy = tmp_path / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    whole = (GOLDEN / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        value = json.loads(whole)
        copy.write_text(json.dumps(value[:3]))
    else:
        copy.write_text(whole[: whole.rindex("\n", 0, len(whole) // 2)], encoding="utf-8")
    before = [turn["turn_id"] for turn in turns(copy)]
    assert before
    assert [turn["turn_id"] for turn in turns(GOLDEN / name)][: len(before)] == before


def test_an_id_does_not_depend_on_names_times_or_zones_given(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "messages.jsonl", tmp_path / "messages.jsonl")
    plain = [turn["turn_id"] for turn in turns(GOLDEN / "messages.jsonl")]
    assert [t["turn_id"] for t in turns(tmp_path / "messages.jsonl", using(me="Ana"))] == plain
    us = GOLDEN / "whatsapp_us.txt"
    elsewhere = turns(us, using(zone=ZoneInfo("Asia/Tokyo")))
    assert [turn["turn_id"] for turn in elsewhere] == [turn["turn_id"] for turn in turns(us)]


def test_the_same_words_in_two_conversations_are_two_turns() -> None:
    ids = [turn["turn_id"] for turn in turns(GOLDEN / "conversations.jsonl")]
    assert len(set(ids)) == 4


# --- choices ----------------------------------------------------------------------------------


def test_the_person_whose_export_it_is_can_be_named() -> None:
    for name in ("chatgpt.json", "claude.json"):
        speakers = {(t["role"], t.get("speaker")) for t in turns(GOLDEN / name, using(me="Ana"))}
        assert speakers <= {("user", "Ana"), ("assistant", None), ("assistant", "")}


def dated(name: str, chosen: ReadOptions) -> list[str]:
    items = read(GOLDEN / name, chosen)[1]
    return [json.loads(i.value or b"")["occurred_at"] for i in items if isinstance(i, Outgoing)]


def test_times_without_a_zone_are_those_of_the_zone_given() -> None:
    said = dated("whatsapp_us.txt", using(zone=ZoneInfo("America/New_York")))
    assert said[0] == "2026-03-03T02:01:00Z"
    assert said[-1] == "2026-03-14T04:06:00Z"  # summer time began in between


def test_the_order_of_day_and_month_can_be_told() -> None:
    assert dated("whatsapp_assumed.txt", using(date_order="mdy"))[0] == "2026-02-03T09:00:00Z"


@pytest.mark.parametrize(
    ("lines", "first", "why"),
    [
        ("13/2/26, 09:00 - A: x|1/3/26, 09:00 - A: y", "2026-02-13", "no other order gives dates"),
        ("11/2/26, 09:00 - A: x|2/3/26, 09:00 - A: y", "2026-02-11", "time would run back"),
        ("1.2.26, 09:00 - A: x", "2026-02-01", "points or dashes"),
        ("1/2/26, 9:00 PM - A: x", "2026-01-02", "12-hour clock"),
        ("1/2/26, 9:00 pm - A: x", "2026-02-01", "assumed"),
        ("1/2/26, 9:00 μ.μ. - A: x", "2026-02-01", "assumed"),
        ("01/02/26, 09:00 - A: x|02/02/26, 09:00 - A: x", "2026-02-01", "the shorter"),
        ("2026/02/01, 9:00 - A: x", "2026-02-01", "no other order"),
    ],
)
def test_the_order_of_day_and_month_is_found_over_the_whole_file(
    lines: str, first: str, why: str
) -> None:
    document = Document("chat.txt", "chat", lines.replace("|", "\n"))
    items = list(PARSERS["whatsapp"](document, ReadOptions(None, 1_000_000, SINCE)))
    assert isinstance(items[0], Note)
    assert why in items[0].text
    said = next(item for item in items if isinstance(item, Utterance))
    assert said.at is not None
    assert said.at.date().isoformat() == first


def test_a_file_that_tells_no_time_is_dated_by_the_file_and_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"role": "user", "content": "a"}\n{"role": "user", "content": "b"}\n')
    os.utime(path, (1_772_442_000, 1_772_442_000))
    _, items = read(path, ReadOptions(None, 1_000_000, SINCE))
    said = [json.loads(i.value or b"")["occurred_at"] for i in items if isinstance(i, Outgoing)]
    assert said == ["2026-03-02T09:00:00Z", "2026-03-02T09:00:00.001000Z"]
    notes = [item.text for item in items if isinstance(item, Note)]
    assert any("2 turns tell no time" in note and "the file's own time" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ocurred_at", "occurred_at"),
        ("occuredAt", "occurred_at"),
        ("sessionId", "session_id"),
        ("Speaker", "speaker"),
        ("timestamp", "occurred_at"),
        ("mood", None),
        ("topics", None),
    ],
)
def test_a_field_that_is_nearly_one_of_ours_is_noticed(name: str, meant: str | None) -> None:
    assert near_miss(name, ("turn_id", "content")) == meant
    assert near_miss(name, ("occurred_at", "session_id", "speaker")) is None


# --- whatever comes ---------------------------------------------------------------------------

NAMES = (
    "mapping current_node message author role content content_type parts create_time parent"
    " children chat_messages sender text created_at uuid type ts user subtype messages name id"
    " metadata recipient profile real_name conversation session_1 turn_id body"
).split()
WORDS = ("user", "assistant", "human", "text", "message", "multimodal_text", "1772442000.1", "a")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=25,
)
LINES = st.lists(
    st.sampled_from(
        (
            "WEBVTT", "00:00:01.000 --> 00:00:03.500", "9999:59:59,9 --> 1:1:1", "[00:01] Ana: hi",
            "<v Ana>Hello", "Ana: hi", "1", "", "31/12/9999, 23:59 - A: b", "0/0/0, 0:00 - A: b",
            "01/01/0001, 00:00 - A: b", "[1.1.26, 99:99] A: b", "[5/6/7, 1:00 pm] A: b", "{", "[",
        )
    )
    | st.text(max_size=20),
    max_size=8,
)  # fmt: skip
CHOICES = st.builds(
    ReadOptions,
    st.none(),
    st.just(1_000_000),
    st.sampled_from((SINCE, datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))),
    zone=st.sampled_from((ZoneInfo("UTC"), ZoneInfo("Asia/Tokyo"), ZoneInfo("America/New_York"))),
)


@settings(max_examples=examples(37))
@given(form=st.sampled_from(sorted(PARSERS)), value=VALUES, choices=CHOICES)
def test_no_reader_raises_for_any_json(form: str, value: object, choices: ReadOptions) -> None:
    wrapped = {
        "chatgpt": [{"mapping": value}, {"mapping": {"a": value}}],
        "claude": [{"chat_messages": [value]}],
    }
    for each in (value, wrapped.get(form, {"messages": [value]})):
        survives(form, json.dumps(each), choices)


@settings(max_examples=examples(37))
@given(form=st.sampled_from(sorted(PARSERS)), lines=LINES, choices=CHOICES)
def test_no_reader_raises_for_any_text(form: str, lines: list[str], choices: ReadOptions) -> None:
    survives(form, "\n".join(lines), choices)
    with contextlib.suppress(Unreadable):
        format_of_text(b"", lambda: "\n".join(lines).encode("utf-8", "surrogatepass"))


def survives(form: str, text: str, choices: ReadOptions) -> None:
    with contextlib.suppress(Unreadable):
        for item in PARSERS[form](Document("x", "x", text), choices):
            if isinstance(item, Utterance):
                made = record_of(item, item.at or SINCE, form, ReadOptions(None, 1_000_000, SINCE))
                assert isinstance(made, Bad | Outgoing)


@settings(max_examples=examples(25))
@given(value=VALUES, users=VALUES)
def test_the_slack_reader_raises_for_nothing(value: object, users: object) -> None:
    for day in (value, [value], [{"type": "message", "ts": "1772442000.1", "text": value}]):
        data = json.dumps(day).encode()
        with contextlib.suppress(Unreadable):
            list(
                read_slack(
                    "x", [("x", "c")], json.dumps(users).encode(), lambda _, data=data: data,
                )
            )  # fmt: skip


@settings(max_examples=examples(25))
@given(value=VALUES)
def test_a_line_of_any_json_is_a_turn_or_bad(value: object) -> None:
    options = ReadOptions(None, 1_000_000, SINCE)
    assert isinstance(turn_of(value, "x:1", options, Watch()), Bad | Outgoing)
