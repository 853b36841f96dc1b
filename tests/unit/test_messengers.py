"""Exports of Telegram, Discord and Zoom: who said what and when, what is no message, and the same
ids in every export."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note, Unreadable
from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published, Standing
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

NOW = [datetime(2026, 11, 1, tzinfo=UTC)]
"""The times of imports."""
Said = list[tuple[str, str, str]]


def found(path: Path, content: object = None, **choices: Any) -> tuple[list[dict[str, Any]], str]:
    """The turns of an export (with `at`), and what is told of the rest; it is written first if its
    content is given."""
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    turns: list[dict[str, Any]] = []
    told: list[str] = []
    for item in read(path, using(**choices))[1]:
        if isinstance(item, Outgoing):
            message = json.loads(item.value or b"")
            turns.append({**message["body"], "at": message["occurred_at"]})
        else:
            told.append(item.text if isinstance(item, Note) else f"BAD {item.place}: {item.reason}")
    return turns, "\n".join(told)


def heard(turns: list[dict[str, Any]]) -> Said:
    return [(each["at"][:19], each["speaker"], each["content"]) for each in turns]


def standings(published: Published, path: Path) -> list[Standing]:
    records = [item for item in read(path)[1] if isinstance(item, Outgoing)]
    NOW.append(NOW[-1] + timedelta(days=1))
    return [
        published.standing(each) for each in recognised(records, published, NOW[-1], lambda _: None)
    ]


# --- Telegram ---------------------------------------------------------------------------------


def message(number: int, text: object, **more: object) -> dict[str, object]:
    return {
        "id": number,
        "type": "message",
        "date": f"2024-03-05T11:00:{number:02}",
        "date_unixtime": str(1709632800 + number),
        "from": "Ana",
        "from_id": "user11",
        "text": text,
        "text_entities": [],
    } | more


def telegram(*messages: dict[str, object], **more: object) -> dict[str, object]:
    return {"name": "Ana", "type": "personal_chat", "id": 11, "messages": [*messages]} | more


WORDS = [
    ("Привет!", "Привет!"),
    (["See ", {"type": "bold", "text": "this"}, ": ", {"type": "text_link", "text": "a page",
      "href": "https://example.org"}], "See this: a page"),
    (["שלום ", {"type": "mention", "text": "@ben"}], "שלום @ben"),
    ([{"type": "pre", "text": "a = 1\nb = 2", "language": "python"}], "a = 1\nb = 2"),
    (["\u200f", {"type": "custom_emoji", "text": "😀", "document_id": "x"}], "\u200f😀"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_of_telegram(tmp_path: Path, text: object, words: str) -> None:
    [turn], told = found(tmp_path / "result.json", telegram(message(1, text)))
    assert (turn["content"], told) == (words, "")
    entities = [{"type": "plain", "text": each} if isinstance(each, str) else each
                for each in (text if isinstance(text, list) else [text])]  # fmt: skip
    newer = message(1, "", text_entities=entities)
    assert found(tmp_path / "result.json", telegram(newer))[0][0]["content"] == words


def test_a_chat_of_telegram(tmp_path: Path) -> None:
    chat = telegram(
        message(1, "Hello"),
        message(2, "Hi", **{"from": "Ben", "from_id": "user12"}, reply_to_message_id=1),
        message(3, "I moved to Rome", forwarded_from="Cleo", forwarded_from_id="user13"),
        message(4, "News", forwarded_from=None, forwarded_from_id="channel5"),
        message(5, "", **{"from": None}, media_type="voice_message", file="(not included)"),
        message(6, "The house", photo="(not included)", width=1),
        message(7, "", media_type="sticker", sticker_emoji="😀", file="x.webp"),
        message(8, "", location_information={"latitude": 1.0, "longitude": 2.0}),
        message(9, "", poll={"question": "Tea?", "answers": [{"text": "Yes"}, {"text": "No"}]}),
        message(10, "Gone", **{"from": None, "from_id": "user14"}),
        message(11, ""),
        {"id": 12, "type": "service", "action": "pin_message", "actor": "Ana", "text": "",
         "date": "2024-03-05T11:01:00"},
        {"id": 13, "type": "unsupported", "date": "2024-03-05T11:01:00"},
        message(14, "Later", date="2024-03-06T00:30:00", date_unixtime="1709681400"),
    )  # fmt: skip
    turns, told = found(tmp_path / "result.json", chat)
    assert heard(turns) == [
        ("2024-03-05T10:00:01", "Ana", "Hello"),
        ("2024-03-05T10:00:02", "Ben", "Hi"),
        ("2024-03-05T10:00:03", "Cleo", "I moved to Rome"),
        ("2024-03-05T10:00:04", "channel5", "News"),
        ("2024-03-05T10:00:06", "Ana", "The house"),
        ("2024-03-05T10:00:09", "Ana", "Tea?\n- Yes\n- No"),
        ("2024-03-05T10:00:10", "user14", "Gone"),
        ("2024-03-05T23:30:00", "Ana", "Later"),
    ]
    assert {each["session_id"] for each in turns} == {"Ana 2024-03-05"}
    assert turns[1]["metadata"]["reply_to_message_id"] == 1
    assert turns[2]["metadata"]["forwarded_by"] == "Ana"
    assert told.startswith("7 entries are left out:")
    for kind in ("1 voice message", "1 photo", "1 sticker", "1 place", "1 notice (pin_message)",
                 "1 message of type unsupported", "1 message without words"):  # fmt: skip
        assert kind in told


def test_an_account_of_telegram(tmp_path: Path) -> None:
    group = telegram(message(1, "Hello all"), name="Friends", type="private_supergroup", id=77)
    bot = telegram(
        message(1, "/start"), message(2, "I am a bot", **{"from": "Ana", "from_id": "user11"}),
        type="bot_chat",
    )  # fmt: skip
    bot["messages"][0]["from_id"] = "user1"  # type: ignore[index]
    saved = telegram(message(3, "Buy milk", **{"from": "Me", "from_id": "user1"}),
                     name=None, type="saved_messages", id=1)  # fmt: skip
    account = {
        "about": "Here is the data you requested.",
        "personal_information": {"user_id": 1, "first_name": "Me"},
        "contacts": {"list": []},
        "chats": {"about": "…", "list": [telegram(message(1, "Hi"), id=12), bot, saved, "damaged"]},
        "left_chats": {"list": [group, {"name": "x", "type": "private_group", "id": 5}]},
    }
    turns, told = found(tmp_path / "export" / "result.json", account)
    assert [(each["session_id"], each["role"], each["content"]) for each in turns] == [
        ("Ana 12 2024-03-05", "user", "Hi"),
        ("Ana 11 2024-03-05", "user", "/start"),
        ("Ana 11 2024-03-05", "tool", "I am a bot"),
        ("Saved Messages 2024-03-05", "user", "Buy milk"),
        ("Friends 2024-03-05", "user", "Hello all"),
    ]
    assert "chats.list[3]: not a JSON object" in told
    assert "left_chats.list[1]: a chat without a list `messages`" in told
    (tmp_path / "export" / "files").mkdir()
    (tmp_path / "export" / "files" / "other.json").write_text("{}")
    form, items = read(tmp_path / "export")
    assert form == "telegram"
    assert [each for each in items if isinstance(each, Note)][-1].text.endswith("files/other.json")
    [alone], _ = found(tmp_path / "one.json", group)
    assert alone["turn_id"] == turns[4]["turn_id"]


def test_a_second_export_of_telegram(tmp_path: Path) -> None:
    published, path = Published(None), tmp_path / "result.json"
    first = telegram(message(1, "I live in Graz"), message(2, "Tea?"))
    edited = message(
        1, "I live in Linz", edited="2024-03-05T12:00:00", edited_unixtime="1709636400"
    )
    renamed = {"from": "Ana Lopez"}
    second = telegram(edited | renamed, message(2, "Tea?", **renamed), message(3, "Yes", **renamed),
                      name="Ana Lopez")  # fmt: skip
    for content, expected in (
        (first, ["new", "new"]),
        (second, ["revised", "known", "new"]),
        (second, ["known", "known", "known"]),
        (first, ["known", "known"]),
    ):
        found(path, content)
        assert standings(published, path) == expected


@pytest.mark.parametrize("end", [-1, -30, 200])
def test_a_damaged_export_says_where(tmp_path: Path, end: int) -> None:
    whole = json.dumps(telegram(message(1, "Hello"), message(2, "Hi")), indent=1)
    with pytest.raises(Unreadable, match=r"damaged JSON: .+, at line \d+, column \d+"):
        found(tmp_path / "result.json", whole[:end])
    with pytest.raises(Unreadable, match=r"a web page \(HTML\); export .* as JSON"):
        found(tmp_path / "messages.html", "<!DOCTYPE html>\n<html><body>Ana</body></html>")


# --- Discord ----------------------------------------------------------------------------------


def posted(number: int, text: str, **more: object) -> dict[str, object]:
    return {
        "id": str(number),
        "type": "Default",
        "timestamp": f"2024-03-05T10:00:{number:02}.123+00:00",
        "timestampEdited": None,
        "content": text,
        "author": {"id": "5", "name": "ana_l", "nickname": "Ana", "isBot": False},
        "attachments": [],
        "embeds": [],
        "stickers": [],
    } | more


def discord(*messages: object, **more: object) -> dict[str, object]:
    return {
        "guild": {"id": "1", "name": "Home"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "general"},
        "dateRange": {"after": None, "before": None},
        "messages": [*messages],
        "messageCount": len(messages),
    } | more


def test_a_channel_of_discord(tmp_path: Path) -> None:
    bot = {"id": "6", "name": "helper", "nickname": "helper", "isBot": True}
    channel = discord(
        posted(1, "Hello"),
        posted(2, "Hi", type="Reply", reference={"messageId": "1"},
               author={"id": "7", "name": "ben", "nickname": None}),
        posted(3, "", author=bot, type="20",
               embeds=[{"title": "Build", "description": "It is green",
                        "fields": [{"name": "Time", "value": "5 s"}]}]),
        posted(4, "See https://example.org", embeds=[{"title": "A page"}]),
        posted(5, "", attachments=[{"fileName": "a.png"}]),
        posted(6, "Joined the server.", type="GuildMemberJoin"),
        posted(7, "", forwardedMessage={"content": "I moved to Rome", "timestamp": "x"}),
        posted(8, "Когда?", timestamp="soon"),
        "damaged",
    )  # fmt: skip
    turns, told = found(tmp_path / "general.json", channel)
    assert [(each["role"], *said) for each, said in zip(turns, heard(turns), strict=True)] == [
        ("user", "2024-03-05T10:00:01", "Ana", "Hello"),
        ("user", "2024-03-05T10:00:02", "ben", "Hi"),
        ("tool", "2024-03-05T10:00:03", "helper", "Build\nIt is green\nTime: 5 s"),
        ("user", "2024-03-05T10:00:04", "Ana", "See https://example.org"),
        ("tool", "2024-03-05T10:00:07", "Ana", "I moved to Rome"),
        ("user", "2024-03-05T10:00:07", "Ana", "Когда?"),
    ]
    assert turns[0]["session_id"] == "Home/general 2024-03-05"
    for kind in ("1 file", "1 embed", "1 notice (GuildMemberJoin)", "not a JSON object", "'soon'"):
        assert kind in told


def test_a_second_export_of_discord(tmp_path: Path) -> None:
    published = Published(None)
    edited = posted(1, "I live in Linz", timestampEdited="2024-03-05T11:00:00+00:00")
    parts = [discord(posted(1, "I live in Graz")), discord(edited, posted(2, "Tea?"))]
    for content, expected in zip(
        [*parts, *parts], (["new"], ["revised", "new"], ["known"], ["known", "known"]), strict=True
    ):
        found(tmp_path / "general [part 1].json", content)
        assert standings(published, tmp_path / "general [part 1].json") == expected
    found(tmp_path / "all" / "a.json", discord(posted(8, "A")))
    found(tmp_path / "all" / "deep" / "b.json", discord(posted(9, "B"), guild={"id": "0"}))
    (tmp_path / "all" / "cut.json").write_text('{"guild": {"id"')
    form, items = read(tmp_path / "all")
    assert form == "discord"
    assert sum(isinstance(item, Outgoing) for item in items) == 2
    (bad,) = [item for item in items if isinstance(item, Bad)]
    assert bad.place.endswith("cut.json")
    assert bad.reason.startswith("damaged JSON: it ends early")


OWNER = {"id": "5", "username": "ana_l", "global_name": "Ana"}
GENERAL = {"id": "100002", "type": "GUILD_TEXT", "name": "general", "guild": {"name": "Home"}}


def in_package(number: int, text: str, **more: object) -> dict[str, object]:
    """A message of a data package, whose times are in UTC and say nothing of that."""
    at = f"2024-03-05 10:00:{number:02}"
    return {"ID": number, "Timestamp": at, "Contents": text, "Attachments": ""} | more


def packaged(folder: Path, channels: dict[str, object], form: str = "Messages") -> None:
    """Writes a data package: by its channel's number the messages of each."""
    described = {
        "Account/user.json": OWNER,
        f"{form}/index.json": {"100003": "Direct Message with ben#0"},
        f"{form}/c100002/channel.json": GENERAL,
        f"{form}/c100003/channel.json": {"id": "100003", "type": "DM", "recipients": ["5", "7"]},
        "Activity/analytics/events.json": {"event_type": "app_opened"},
    }
    for number, rows in channels.items():
        described[f"{form}/c{number}/messages.json"] = rows
    for name, value in described.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))


@pytest.mark.parametrize("form", ["Messages", "messages"])
def test_a_data_package_of_discord(tmp_path: Path, form: str) -> None:
    general = [
        in_package(9, "<:wave:123456> Bye"),
        in_package(2, "", Attachments="https://a.example/1.png https://a.example/2.png"),
        in_package(1, "Hello"),
        in_package(4, "When?", Timestamp="soon"),
        in_package(5, " "),
        {"Timestamp": "2024-03-05 10:00:06", "Contents": "no id"},
        "damaged",
    ]
    channels: dict[str, object] = {"100002": general, "100003": [in_package(3, "Привет")]}
    packaged(tmp_path / "package", {**channels, "100004": {"no": "list"}}, form)
    turns, told = found(tmp_path / "package")
    assert heard(turns) == [
        ("2024-03-05T10:00:01", "Ana", "Hello"),
        ("2024-03-05T10:00:01", "Ana", "When?"),
        ("2024-03-05T10:00:09", "Ana", ":wave: Bye"),
        ("2024-03-05T10:00:03", "Ana", "Привет"),
    ]
    assert [each["session_id"] for each in turns[2:]] == [
        "Home/general 2024-03-05",
        "Direct Message with ben#0 2024-03-05",
    ]
    kinds = ("2 files", "1 message without words", "without an ID", "not a JSON object")
    for part in (*kinds, "no list of messages", "what its owner wrote", "events.json", "'soon'"):
        assert part in told
    assert "channel.json" not in told


def test_an_older_data_package_of_discord(tmp_path: Path) -> None:
    packaged(tmp_path, {})
    table = (
        'ID,Timestamp,Contents,Attachments\n2,2021-03-05 10:00:02.5+00:00,"I live, ""now"", in'
        '\nGraz",\n1,2021-03-05 10:00:01+00:00,Hello,\n'
    )
    (tmp_path / "Messages" / "c100002" / "messages.csv").write_text(table)
    turns, _ = found(tmp_path)
    assert heard(turns) == [
        ("2021-03-05T10:00:01", "Ana", "Hello"),
        ("2021-03-05T10:00:02", "Ana", 'I live, "now", in\nGraz'),
    ]


def test_a_data_package_and_a_channel_have_each_message_once(tmp_path: Path) -> None:
    published = Published(None)
    packaged(tmp_path / "package", {"100002": [in_package(1, "Hello"), in_package(2, "Bye")]})
    assert standings(published, tmp_path / "package") == ["new", "new"]
    found(tmp_path / "general.json", discord(posted(1, "Hello"), posted(3, "Tea?")))
    assert standings(published, tmp_path / "general.json") == ["known", "new"]
    # There its owner may have another name.
    other = posted(2, "Bye", author={"id": "5", "name": "ana_l", "nickname": "Annie"})
    found(tmp_path / "general.json", discord(other))
    assert standings(published, tmp_path / "general.json") == ["known"]


def test_a_channel_of_a_data_package_asks_for_the_package(tmp_path: Path) -> None:
    packaged(tmp_path, {"100002": [in_package(1, "Hello")]})
    with pytest.raises(Unreadable, match="name the package"):
        found(tmp_path / "Messages" / "c100002" / "messages.json")


# --- Zoom -------------------------------------------------------------------------------------

ZOOM = {
    "a line": ["10:00:01 From  Ana  to  Everyone : Hello", "10:00:02 From Ben Ode : Hi: you"],
    "tabs": ["10:00:01\t From  Ana : Hello", "10:00:02\t From  Ben Ode : Hi: you"],
    "below": ["10:00:01 From Ana to Everyone:", "\tHello", "10:00:02 From Ben Ode to Everyone:",
              "\tHi: you"],
    "dates": ["2024-03-05 10:00:01 From Ana to Everyone:", "\tHello",
              "2024-03-05 10:00:02 From Ben Ode to Everyone:", "\tHi: you"],
    "German": ["10:00:01 Von Ana an Alle : Hello", "10:00:02 Von Ben Ode an Alle : Hi: you"],
    "French": ["10:00:01 De Ana à Tous : Hello", "10:00:02 De Ben Ode à Tous : Hi: you"],
    "Japanese": ["10:00:01 開始 Ana に 全員 : Hello", "10:00:02 開始 Ben Ode に 全員 : Hi: you"],
}  # fmt: skip
MEETING = "2024-03-05 09.58.12 Weekly"


@pytest.mark.parametrize("shape", ZOOM)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_chat_of_zoom(tmp_path: Path, shape: str, end: str) -> None:
    path = tmp_path / MEETING / "meeting_saved_chat.txt"
    turns, told = found(path, "\ufeff" + end.join(ZOOM[shape]) + end)
    assert heard(turns) == [
        ("2024-03-05T10:00:01", "Ana", "Hello"),
        ("2024-03-05T10:00:02", "Ben Ode", "Hi: you"),
    ]
    assert {each["session_id"] for each in turns} == {f"{MEETING} chat"}
    assert ("its date is taken as 2024-03-05" in told) is (shape != "dates")


def test_what_is_no_message_of_zoom(tmp_path: Path) -> None:
    lines = [
        "10:00:01 From Ana to Ben(Direct Message):", "\tOnly for you", "", "\tsecond part",
        "10:00:02 From Ben to Everyone:", '\tReplying to "Only for..."', "\t", "\tAn answer",
        "10:00:03 From Cleo to Everyone:", '\tReacted to "An answer" with 👍',
        '10:00:04 From Cleo to Everyone:', '\tRemoved a 👍 reaction from "An answer"',
    ]  # fmt: skip
    turns, told = found(tmp_path / "chat.txt", "\n".join(lines))
    assert [(each["speaker"], each["content"]) for each in turns] == [
        ("Ana", "Only for you\n\nsecond part"),
        ("Ben", "An answer"),
    ]
    assert "2 entries are left out: 2 reactions" in told
    assert turns[0]["metadata"] == {"private": True}


def test_a_chat_of_zooms_cloud(tmp_path: Path) -> None:
    text = "00:00:05\tAna:\tHello\n01:00:00\tBen Ode:\tHi\n"
    turns, told = found(tmp_path / "GMT20240305-090000_Recording.txt", text)
    assert heard(turns) == [
        ("2026-03-01T12:00:05", "Ana", "Hello"), ("2026-03-01T13:00:00", "Ben Ode", "Hi"),
    ]  # fmt: skip
    assert "it is taken to begin at 2026-03-01 12:00:00 UTC" in told
    published, path = Published(None), tmp_path / "GMT20240305-090000_Recording.txt"
    assert standings(published, path) == ["new", "new"]
    found(tmp_path / "renamed.txt", text + "01:00:01\tAna:\tBye\n")
    assert standings(published, tmp_path / "renamed.txt") == ["known", "known", "new"]


# --- archives and odd files -------------------------------------------------------------------


def test_chats_in_one_archive_keep_their_names(tmp_path: Path) -> None:
    line = "05.03.24, 10:00 - Ana: hello\n"
    for name, members, expected in (
        ("backup.zip", ["WhatsApp Chat with Ana.txt", "WhatsApp Chat with Ben.txt"], "Ana Ben"),
        ("phone.zip", ["chats/Ana/_chat.txt", "chats/Ben/_chat.txt"], "Ana Ben"),
        ("WhatsApp Chat - Cleo.zip", ["_chat.txt"], "Cleo"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member in members:
                archive.writestr(member, line)
        items = read(tmp_path / name)[1]
        sessions = [json.loads(each.value or b"")["body"]["session_id"]
                    for each in items if isinstance(each, Outgoing)]  # fmt: skip
        assert sessions == [f"{who} 2024-03-05" for who in expected.split()]
        notes = [each.text for each in items if isinstance(each, Note)]
        assert [each.startswith(member) for each, member in zip(notes, members, strict=True)] == (
            [True] * 2 if len(members) > 1 else [False]
        )


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("insta.json", {"participants": [], "messages": [{"sender_name": "Ana"}]}, "JSON, but no"),
        ("nested.json", {"data": {"conversations": []}}, "JSON, but no conversation"),
        ("cut.json", '[{"title": "x", "mapping": {"a"', "damaged JSON: it ends early, at line 1"),
        ("bad.json", '[\n {"title": "x" "mapping": 5}]', "damaged JSON: .*, at line 2"),
        ("page.html", "<html lang=en>", "a web page"),
        ("card.vcf", "BEGIN:VCARD\nFN:Ana\n", "no conversation that ingest knows"),
        ("a/x.vtt", "WEBVTT\n", r"name its files one by one \(x.vtt, …\)"),
    ],
)
def test_an_odd_file_is_told_what_it_is(
    tmp_path: Path, name: str, content: object, why: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(Unreadable, match=why):
        read(tmp_path / "a" if "/" in name else path)


TURN = {"turn_id": "t1", "content": "hello", "speaker": "Ana"}
WHOLE = {"schema": "conversation-turn/1", "scope": "ana", "occurred_at": "2026-03-01T09:30:00Z"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (TURN | {"content": " \n"}, "BAD x.jsonl:1: content: must not be blank"),
        (TURN | {"content": ""}, "BAD x.jsonl:1: content: must not be blank"),
        (TURN | {"turn_id": " "}, "BAD x.jsonl:1: turn_id: must not be blank"),
        (TURN | {"speaker": "\t"}, "BAD x.jsonl:1: speaker: must not be blank; leave it out"),
        (TURN | {"speaker": ""}, ""),
        ({"turn_id": "t1", "content": "x", "speeker": "Ana"}, "did you mean `speaker`? `speeker`"),
        (WHOLE | {"body": {"turn_id": "t1", "content": "x", "speeker": "Ana"}},
         "did you mean `speaker`? `speeker`"),
        (WHOLE | {"body": TURN}, ""),
    ],
)  # fmt: skip
def test_a_turn_without_words_or_with_a_misspelt_field(
    tmp_path: Path, line: dict[str, object], told: str
) -> None:
    _, found_there = found(
        tmp_path / "x.jsonl", json.dumps({"occurred_at": "2026-03-01T09:30:00Z"} | line)
    )
    assert told in found_there.replace(f"{tmp_path}/", "")
    assert bool(told) is ("BAD" in found_there or "did you mean" in found_there)
