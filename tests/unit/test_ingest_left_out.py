"""Importers take all that was said, or count and name what they do not take."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note, Unreadable
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using


def imported(path: Path) -> tuple[list[tuple[str, str]], str, list[str]]:
    """Speaker (or role) and text of each turn in order of time, all notes as one text, and what
    was bad."""
    items = read(path, using())[1]
    turns = [json.loads(item.value or b"") for item in items if isinstance(item, Outgoing)]
    turns.sort(key=lambda turn: datetime.fromisoformat(turn["occurred_at"]))
    said = [
        (turn["body"].get("speaker") or turn["body"].get("role", "user"), turn["body"]["content"])
        for turn in turns
    ]
    notes = "\n".join(item.text for item in items if isinstance(item, Note))
    return said, notes, [item.reason for item in items if isinstance(item, Bad)]


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


# --- transcripts ------------------------------------------------------------------------------


def test_a_paragraph_after_a_blank_line_belongs_to_the_cue_before_it(tmp_path: Path) -> None:
    said, notes, bad = imported(
        written(
            tmp_path / "talk.srt",
            "1\n00:00:01,000 --> 00:00:03,000\nAna: I found a flat.\n\nIt is in Ghent.\n\n"
            "Ben: Great.\n\n2\n00:00:06,000 --> 00:00:07,000\nBen: When?\n",
        )
    )
    assert said == [
        ("Ana", "I found a flat. It is in Ghent."),
        ("Ben", "Great."),
        ("Ben", "When?"),
    ]
    assert not bad
    assert "left out" not in notes


def test_minutes_in_paragraphs_are_taken_whole(tmp_path: Path) -> None:
    said, notes, bad = imported(
        written(
            tmp_path / "minutes.txt",
            "[00:00:05] Ana: We ship on Friday.\n\nNobody objects: good.\n\n"
            "[00:01:00] On Monday we rest.\n[00:01:10] Ben: Fine.\n",
        )
    )
    assert said == [
        ("Ana", "We ship on Friday. Nobody objects: good."),
        ("Ana", "On Monday we rest."),
        ("Ben", "Fine."),
    ]
    assert not bad
    assert "left out" not in notes


def test_each_voice_in_a_cue_is_its_own(tmp_path: Path) -> None:
    cue = "00:01.000 --> 00:03.000\n<v Ana>Tea?</v>\n<v Ben>Coffee.</v>\n"
    said, _, _ = imported(written(tmp_path / "a.vtt", f"WEBVTT\n\n{cue}"))
    assert said == [("Ana", "Tea?"), ("Ben", "Coffee.")]


def test_what_is_no_cue_is_counted_and_a_time_that_cannot_be_read_is_bad(tmp_path: Path) -> None:
    said, notes, bad = imported(
        written(
            tmp_path / "a.vtt",
            "WEBVTT - a title\nKind: captions\n\nNOTE one\ntwo\n\nSTYLE\n::cue {}\n\nid 1\n"
            "00:01.000 --> 00:03.000\nHello.\n\n00:0x.000 --> 00:05.000\nYes.\n\n"
            "00:06.000 --> 00:07.000\n<i></i>\n",
        )
    )
    assert said == [("user", "Hello."), ("user", "Yes.")]
    assert bad == ["a time that cannot be read: 00:0x.000 --> 00:05.000"]
    assert "6 entries are left out: 5 lines of notes and styles, 1 cue without words" in notes
    said, notes, _ = imported(
        written(tmp_path / "b.srt", "Our meeting\n\n1\n00:00:01,000 --> 00:00:03,000\nHello.\n")
    )
    assert said == [("user", "Hello.")]
    assert "1 line before the first time" in notes


# --- times ------------------------------------------------------------------------------------


def test_an_unreadable_time_is_told_apart_from_none(tmp_path: Path) -> None:
    said, notes, _ = imported(
        written(
            tmp_path / "a.json",
            [
                {"role": "user", "content": "one", "timestamp": "2024-03-02T09:00:00Z"},
                {"role": "user", "content": "two", "timestamp": "the 2nd of March"},
                {"role": "user", "content": "three"},
                {"role": "user", "content": "four", "timestamp": "2024-03-02T09:00:00.001Z"},
            ],
        )
    )
    assert [text for _, text in said] == ["one", "two", "three", "four"]
    assert "1 time cannot be read (the first at" in notes
    assert "'the 2nd of March'" in notes


def chatgpt(
    messages: list[tuple[str, str, float | str | None]], **more: object
) -> dict[str, object]:
    nodes: dict[str, object] = {}
    for number, (role, text, at) in enumerate(messages):
        nodes[f"n{number}"] = {
            "id": f"n{number}",
            "parent": f"n{number - 1}" if number else None,
            "children": [f"n{number + 1}"] if number + 1 < len(messages) else [],
            "message": {
                "id": f"m{number}",
                "author": {"role": role},
                "create_time": at,
                "content": {"content_type": "text", "parts": [text]},
            },
        }
    return {"title": "T", "conversation_id": "c", "mapping": nodes, **more}


def claude(messages: list[tuple[str, str, str | None]]) -> dict[str, object]:
    listed = [
        {"uuid": f"m{number}", "sender": role, "text": text, "created_at": at}
        for number, (role, text, at) in enumerate(messages)
    ]
    return {"uuid": "c", "name": "T", "chat_messages": listed}


def test_untimed_messages_lie_between_their_neighbours(tmp_path: Path) -> None:
    times = [None, None, 1709370000.0, None, None, 1709370000.001, 1709370000.001, None]
    words = list("abcdefgh")
    export = chatgpt([("user", w, at) for w, at in zip(words, times, strict=True)])
    items = read(written(tmp_path / "a.json", [export]), using())[1]
    said = [json.loads(item.value or b"") for item in items if isinstance(item, Outgoing)]
    moments = [datetime.fromisoformat(turn["occurred_at"]) for turn in said]
    assert [turn["body"]["content"] for turn in said] == words
    assert moments == sorted(moments)
    assert len(set(moments)) == 7  # two have the same time in the export
    assert moments[0] == moments[2] - timedelta(milliseconds=2)
    other = claude([("human", "a", None), ("human", "b", "2024-03-02T09:00:00Z")])
    assert [w for _, w in imported(written(tmp_path / "b.json", [other]))[0]] == ["a", "b"]


def test_a_conversation_without_times_begins_when_it_was_made(tmp_path: Path) -> None:
    export = chatgpt([("user", "a", None), ("assistant", "b", None)], create_time=1709370000)
    items = read(written(tmp_path / "a.json", [export]), using())[1]
    said = [json.loads(item.value or b"") for item in items if isinstance(item, Outgoing)]
    assert [turn["occurred_at"] for turn in said] == [
        "2024-03-02T09:00:00Z",
        "2024-03-02T09:00:00.001000Z",
    ]


# --- ChatGPT ----------------------------------------------------------------------------------


@pytest.mark.parametrize("current", [None, "n1", "gone"])
def test_the_messages_of_a_circle_are_taken_once(tmp_path: Path, current: str | None) -> None:
    export = chatgpt([("user", "a", 1709370000.0), ("assistant", "b", 1709370001.0)])
    export["mapping"]["n0"]["parent"] = "n1"  # type: ignore[index]
    export["mapping"]["n1"]["children"] = ["n0"]  # type: ignore[index]
    said, _, bad = imported(written(tmp_path / "a.json", [{**export, "current_node": current}]))
    assert said == [("user", "a"), ("assistant", "b")]
    assert bad == ["what was said before it is not in the export"]


def test_a_node_is_found_by_its_parents_list_of_children(tmp_path: Path) -> None:
    export = chatgpt([("user", "a", 1709370000.0), ("assistant", "b", 1709370001.0)])
    export["mapping"]["n1"]["parent"] = "lost"  # type: ignore[index]
    said, _, bad = imported(written(tmp_path / "a.json", [export]))
    assert said == [("user", "a"), ("assistant", "b")]
    assert not bad


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Take tram 28 \ue200cite\ue202turn0search1\ue202turn0news2\ue201.", "Take tram 28."),
        ("Take tram 28.\ue200filecite\ue202turn0file0\ue202L1-L4\ue201", "Take tram 28."),
        ('In \ue200entity\ue202["city","Ghent","Belgium"]\ue201 it rains.', "In Ghent it rains."),
        ("See \ue200url\ue202the map\ue202turn0view0\ue201.", "See the map."),
        ("\ue203Tram 28\ue204 is old.", "Tram 28 is old."),
        ("It is cut \ue200cite\ue202turn0", "It is cut"),
        ("As written【12†source】 and【4:0†L1-L9】.", "As written and."),
    ],
)
def test_marks_of_sources_are_no_words(tmp_path: Path, text: str, shown: str) -> None:
    export = chatgpt([("assistant", text, 1709370000.0)])
    assert imported(written(tmp_path / "a.json", [export]))[0] == [("assistant", shown)]


# --- archives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", ["", "[]", "[{", "\udcff"])
@pytest.mark.parametrize("program", ["chatgpt", "claude"])
def test_a_damaged_part_of_an_export_hides_no_other(
    tmp_path: Path, damaged: str, program: str
) -> None:
    good: dict[str, Callable[[], object]] = {
        "chatgpt": lambda: chatgpt([("user", "hello", 1709370000.0)]),
        "claude": lambda: claude([("human", "hello", "2024-03-02T09:00:00Z")]),
    }
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations-000.json", damaged.encode("utf-8", "surrogateescape"))
        archive.writestr("conversations-001.json", json.dumps([good[program]()]))
        archive.writestr("users.json", "[]")
    said, notes, bad = imported(tmp_path / "export.zip")
    assert said == [("user", "hello")]
    assert bad or "conversations-000.json has no conversation" in notes
    assert "1 other file in it is not read: users.json" in notes


def test_a_chat_is_found_beside_other_texts(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "chat.zip", "w") as archive:
        archive.writestr("README.txt", "Dear diary")
        archive.writestr("_chat.txt", "[02/03/2026, 21:01:10] Ana: hello\n")
        archive.writestr("a.opus", b"OggS")
    said, notes, bad = imported(tmp_path / "chat.zip")
    assert said == [("Ana", "hello")]
    assert len(bad) == 1
    assert "1 other file in it is not read: a.opus" in notes
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("conversations.json", "[{")
    with pytest.raises(Unreadable, match=r"conversations.json: damaged JSON: it ends early"):
        imported(tmp_path / "all.zip")


# --- Claude -----------------------------------------------------------------------------------


def test_attached_texts_are_read_and_other_parts_counted(tmp_path: Path) -> None:
    export = claude([("human", "Sum it up.", "2024-03-02T09:00:00Z")])
    message = export["chat_messages"][0]  # type: ignore[index]
    message["attachments"] = [
        {"file_name": "plan.txt", "extracted_content": "We move to Ghent in May."},
        {"file_name": "photo.bin", "extracted_content": ""},
    ]
    message["files"] = [{"file_name": "photo.png"}]
    path = written(tmp_path / "a.json", [export])
    said, notes, bad = imported(path)
    assert said == [("tool", "We move to Ghent in May."), ("user", "Sum it up.")]
    assert not bad
    assert "2 entries are left out: 1 attached file without a text, 1 file" in notes


@pytest.mark.parametrize("leaf", [None, "m3", "gone"])
def test_only_the_current_branch_is_taken(tmp_path: Path, leaf: str | None) -> None:
    export = claude(
        [
            ("human", "Where?", "2024-03-02T09:00:00Z"),
            ("assistant", "Here.", "2024-03-02T09:00:01Z"),
            ("human", "When?", "2024-03-02T09:05:00Z"),
            ("assistant", "Now.", "2024-03-02T09:05:01Z"),
            ("assistant", "There.", "2024-03-02T09:00:02Z"),
        ]
    )
    parents = ["00000000-0000-4000-8000-000000000000", "m0", "m1", "m2", "m0"]
    for message, parent in zip(export["chat_messages"], parents, strict=True):  # type: ignore[call-overload]
        message["parent_message_uuid"] = parent
    export["current_leaf_message_uuid"] = leaf
    said, notes, _ = imported(written(tmp_path / "a.json", [export]))
    assert [text for _, text in said] == ["Where?", "Here.", "When?", "Now."]
    assert "1 message of other branches" in notes
    export["current_leaf_message_uuid"] = "m4"
    said, notes, _ = imported(written(tmp_path / "a.json", [export]))
    assert [text for _, text in said] == ["Where?", "There."]
    assert "3 messages of other branches" in notes


# --- Slack ------------------------------------------------------------------------------------


def slack(tmp_path: Path, **days: list[dict[str, object]]) -> Path:
    for day, messages in days.items():
        listed = [{"type": "message", **message} for message in messages]
        written(tmp_path / "export" / "general" / f"{day[1:].replace('_', '-')}.json", listed)
    written(tmp_path / "export" / "users.json", [{"id": "U1", "name": "ana"}])
    return tmp_path / "export"


RICH = {
    "type": "rich_text",
    "elements": [
        {
            "type": "rich_text_section",
            "elements": [
                {"type": "user", "user_id": "U1"},
                {"type": "text", "text": " we <move> "},
                {"type": "link", "url": "https://example.org", "text": "here"},
            ],
        },
        {
            "type": "rich_text_list",
            "elements": [
                {"type": "rich_text_section", "elements": [{"type": "text", "text": "in May"}]}
            ],
        },
    ],
}


def test_the_words_of_blocks_and_attachments_are_read(tmp_path: Path) -> None:
    said, notes, bad = imported(
        slack(
            tmp_path,
            _2026_03_02=[
                {"user": "U1", "text": "", "blocks": [RICH], "ts": "1772442000.1"},
                {
                    "subtype": "bot_message",
                    "username": "builds",
                    "ts": "1772442001.1",
                    "attachments": [{"title": "Build 7", "text": "passed", "fallback": "x"}],
                },
                {
                    "user": "U1",
                    "ts": "1772442002.1",
                    "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "Lunch?"}}],
                },
                {
                    "user": "U1",
                    "ts": "1772442003.1",
                    "attachments": [{"fallback": "a poll"}],
                },
                {"user": "U1", "ts": "1772442004.1", "text": "", "files": [{"id": "F1"}]},
                {
                    "user": "U1",
                    "ts": "1772442005.1",
                    "text": "Look",
                    "attachments": [{"text": "y"}],
                },
            ],
        )
    )
    assert said == [
        ("ana", "@ana we <move> here\nin May"),
        ("builds", "Build 7\npassed"),
        ("ana", "Lunch?"),
        ("ana", "a poll"),
        ("ana", "Look"),
    ]
    assert not bad
    assert "2 entries are left out: 1 file, 1 attachment" in notes


def test_an_edited_message_has_its_last_text_and_a_deleted_one_none(tmp_path: Path) -> None:
    def edit(ts: str, text: str, at: str) -> dict[str, object]:
        return {
            "subtype": "message_changed",
            "ts": at,
            "message": {"type": "message", "user": "U1", "text": text, "ts": ts},
        }

    said, notes, bad = imported(
        slack(
            tmp_path,
            _2026_03_02=[
                {"user": "U1", "text": "We meet on Monday", "ts": "1772442000.1"},
                {"user": "U1", "text": "secret", "ts": "1772442001.1"},
                edit("1772442000.1", "We meet on Tuesday", "1772442005.1"),
            ],
            _2026_03_03=[
                edit("1772442000.1", "We meet on Friday", "1772528460.1"),
                edit("1772355600.1", "From the day before", "1772528461.1"),
                {"subtype": "message_deleted", "deleted_ts": "1772442001.1", "ts": "1772528462.1"},
            ],
        )
    )
    assert said == [("ana", "From the day before"), ("ana", "We meet on Friday")]
    assert not bad
    assert "2 earlier texts of edited messages" in notes
    assert "1 deleted message" in notes


def test_a_reply_is_in_the_session_of_its_thread(tmp_path: Path) -> None:
    path = slack(
        tmp_path,
        _2026_03_02=[{"user": "U1", "text": "Where?", "ts": "1772442000.1"}],
        _2026_03_09=[
            {"user": "U1", "text": "Here.", "ts": "1773046800.1", "thread_ts": "1772442000.1"},
            {"user": "U1", "text": "Other.", "ts": "1773046801.1", "thread_ts": "1709370000.1"},
        ],
    )
    items = read(path, using())[1]
    said = [json.loads(item.value or b"")["body"] for item in items if isinstance(item, Outgoing)]
    assert [turn["session_id"] for turn in said] == [
        "general 2026-03-02",
        "general 2026-03-02",
        "general 2024-03-02",
    ]


PROJECTS = [{"uuid": "p1", "name": "Move", "prompt_template": "Be brief.", "docs": []}]
CHANNEL = {
    "guild": {"id": "0"},
    "channel": {"id": "1", "name": "ana"},
    "messages": [
        {
            "id": "1",
            "type": "Default",
            "timestamp": "2024-03-02T09:00:00Z",
            "content": "hello",
            "author": {"name": "Ana"},
        }
    ],
}
CHAT = {
    "name": "Ana",
    "type": "personal_chat",
    "id": 1,
    "messages": [
        {"id": 1, "type": "message", "date": "2024-03-02T09:00:00", "from": "Ana", "text": "hello"}
    ],
}


@pytest.mark.parametrize(
    ("sound", "damaged", "content"),
    [
        (("projects.json", PROJECTS), "conversations.json", '[{"uuid": "c1", "na'),
        (("projects.json", PROJECTS), "memories.json", ""),
        (("conversations.json", None), "projects.json", '[{"uuid": "p1"'),
        (("conversations.json", None), "memories.json", ""),
        (("a.json", CHANNEL), "b.json", '{"guild":{"id"'),
        (("x/result.json", CHAT), "y/result.json", '{"name": "Be'),
        (("x/a.json", CHAT), "y/b.json", '{\n "name": "Ben",\n "type": "personal_chat",\n "id'),
    ],
)
def test_a_damaged_file_of_an_export_is_bad_and_the_sound_ones_are_taken(
    tmp_path: Path, sound: tuple[str, object], damaged: str, content: str
) -> None:
    name, value = sound
    value = value or [claude([("human", "hello", "2024-03-02T09:00:00Z")])]
    for file, text in ((name, json.dumps(value)), (damaged, content)):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "other.json").write_text('{"a"')
    said, notes, bad = imported(tmp_path)
    assert len(said) == 1
    assert bad == ["empty: there is nothing to publish"] or (
        len(bad) == 1 and bad[0].startswith("damaged JSON: ")
    )
    assert "1 other file in it is not read: other.json" in notes


def test_no_number_is_null(tmp_path: Path) -> None:
    conversation = chatgpt([("user", "hello", 1709370000.0)])
    conversation["update_time"] = float("nan")
    (tmp_path / "conversations.json").write_text(json.dumps([conversation]))
    assert imported(tmp_path / "conversations.json")[0] == [("user", "hello")]
    message = {"role": "user", "content": "hello", "timestamp": float("nan")}
    (tmp_path / "log.jsonl").write_text(json.dumps(message))
    said, notes, bad = imported(tmp_path / "log.jsonl")
    assert (said, bad) == ([("user", "hello")], [])
    assert "cannot be read" not in notes


def test_a_few_nul_bytes_are_removed(tmp_path: Path) -> None:
    text = "[02/03/2026, 21:01:10] Ana: hel\0lo\n[02/03/2026, 21:02:10] Ben: hi\n"
    said, _, bad = imported(written(tmp_path / "_chat.txt", text))
    assert (said, bad) == ([("Ana", "hello"), ("Ben", "hi")], [])


@pytest.mark.parametrize("name", ["createdAt", "sent_at", "datetime"])
def test_further_names_of_times_are_read(tmp_path: Path, name: str) -> None:
    message = {"role": "user", "content": "hello", name: "2024-03-02T09:00:00Z"}
    path = written(tmp_path / "a.json", [message])
    (record,) = [item for item in read(path)[1] if isinstance(item, Outgoing)]
    assert json.loads(record.value or b"")["occurred_at"] == "2024-03-02T09:00:00Z"
    assert "tell no time" not in imported(path)[1]


def test_lines_may_end_with_cr_alone(tmp_path: Path) -> None:
    lines = ["[02/03/2026, 21:01:10] Ana: hello", "[02/03/2026, 21:02:10] Ben: hi"]
    (tmp_path / "_chat.txt").write_bytes("\r".join(lines).encode())
    assert imported(tmp_path / "_chat.txt")[0] == [("Ana", "hello"), ("Ben", "hi")]


def test_folders_in_an_archive_may_be_parted_by_backslashes(tmp_path: Path) -> None:
    day = [{"type": "message", "user": "U1", "text": "hello", "ts": "1772442061.000200"}]
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("users.json", "[]")
        archive.writestr("general\\2026-03-02.json", json.dumps(day))
    assert [text for _, text in imported(tmp_path / "export.zip")[0]] == ["hello"]
