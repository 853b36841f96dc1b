"""A renamed file, channel or contact doubles no message."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published, Standing, words_of
from palimpsest.schemas.erasure.quotations import mark_of
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

NOW = datetime(2026, 11, 1, tzinfo=UTC)
NOTES: list[str] = []
OLD = [("10:00", "Ana", "Tea?"), ("10:01", "Me", "Yes"), ("10:01", "Ana", "Good")]
NEW = [*OLD, ("10:05", "Ana", "Now")]


def chat(folder: Path, name: str, lines: Sequence[tuple[str, str, str]], **names: str) -> Path:
    text = "".join(
        f"[02.03.26, {at}:00] {names.get(who, who)}: {words}\n" for at, who, words in lines
    )
    (folder / name).write_text(text)
    return folder / name


def taken(published: Published, path: Path) -> tuple[list[Standing], list[tuple[str, str]]]:
    """How the turns of a source relate to what was published, and their speakers and sessions."""
    records = [item for item in read(path, using())[1] if isinstance(item, Outgoing)]
    found = list(recognised(records, published, NOW, NOTES.append))
    bodies = [json.loads(each.value or b"")["body"] for each in found]
    names = [(body["speaker"], body["session_id"]) for body in bodies]
    return [published.standing(each) for each in found], names


AGAIN = ["known", "known", "known", "new"]


@pytest.mark.parametrize(
    "name", ["WhatsApp Chat with Ana (1).txt", "WhatsApp Chat with Ana Lopez.txt"]
)
def test_a_renamed_file_of_a_chat(tmp_path: Path, name: str) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "WhatsApp Chat with Ana.txt", OLD))
    standings, names = taken(published, chat(tmp_path, name, NEW))
    assert standings == AGAIN
    assert {session for _, session in names[:3]} == {"Ana 2026-03-02"}


@pytest.mark.parametrize("name", ["WhatsApp Chat with Ana.txt", "WhatsApp Chat with Ana Lopez.txt"])
def test_a_renamed_contact(tmp_path: Path, name: str) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "WhatsApp Chat with Ana.txt", OLD))
    for standing in ("new", "known"):
        standings, names = taken(published, chat(tmp_path, name, NEW, Ana="Ana Lopez"))
        assert standings == [*AGAIN[:3], standing]
        assert [who for who, _ in names] == ["Ana", "Me", "Ana", "Ana Lopez"]
        assert NOTES.pop().startswith('"Ana Lopez" was "Ana" before')


def test_both_contacts_were_renamed(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "Ana.txt", OLD))
    renamed = chat(tmp_path, "Ana.txt", NEW, Ana="Ana Lopez", Me="Ben")
    assert taken(published, renamed)[0] == AGAIN


TALK = [
    (f"{10 + number // 20}:{3 * number % 60:02}", ("Ana", "Me")[number % 2], f"Word {number}")
    for number in range(30)
]


@pytest.mark.parametrize("more", [[], [("12:05", "Ana", "Now"), ("12:06", "Me", "Fine")]])
@pytest.mark.parametrize("names", [{"Ana": "Ana Lopez", "Me": "Ben"}, {"Ana": "Me", "Me": "Ben"}])
def test_both_contacts_and_the_file_were_renamed(
    tmp_path: Path, more: list[tuple[str, str, str]], names: dict[str, str]
) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "WhatsApp Chat with Ana.txt", TALK))
    renamed = chat(tmp_path, "WhatsApp Chat with Lopez.txt", [*TALK, *more], **names)
    standings, found = taken(published, renamed)
    assert standings == ["known"] * len(TALK) + ["new"] * len(more)
    assert {session for _, session in found[: len(TALK)]} == {"Ana 2026-03-02"}
    assert set(taken(published, renamed)[0]) == {"known"}


def test_two_chats_that_have_messages_in_common_are_two(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "Family.txt", TALK))
    others: list[list[tuple[str, str, str]]] = [
        # What one sends to several at once, and what others say to that.
        [(at, "Cem", words) for at, who, words in TALK if who == "Me"],
        [(at, who, words if who == "Me" else f"{words}!") for at, who, words in TALK],
        # Few of many.
        [(at, who, words if at < "10:20" else f"{words}?") for at, who, words in TALK],
        # The same words at other times, and by people who are not those of the other chat.
        [(f"2{at[1:]}", who, words) for at, who, words in TALK],
        [(at, ("Cem", "Dora", "Eva")[number % 3], words)
         for number, (at, _, words) in enumerate(TALK)],
        TALK[:4],
    ]  # fmt: skip
    for number, each in enumerate(others):
        other = chat(tmp_path, f"Work {number}.txt", each, Ana="Cem", Me="Dora")
        assert set(taken(Published(None), other)[0]) == {"new"}
        published = Published(None)
        taken(published, chat(tmp_path, "Family.txt", TALK))
        assert set(taken(published, other)[0]) == {"new"}, number


def test_another_person_who_says_the_same_is_another(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, chat(tmp_path, "Family.txt", OLD))
    # In another chat, at the same time.
    standings, _ = taken(published, chat(tmp_path, "Work.txt", OLD, Ana="Cem", Me="Dora"))
    assert standings == ["new", "new", "new"]
    # In the same chat, beside the one who said it before.
    more = [*OLD, ("10:00", "Eva", "Tea?")]
    assert taken(published, chat(tmp_path, "Family.txt", more))[0] == AGAIN


def test_what_was_erased_stays_erased_under_another_name(tmp_path: Path) -> None:
    published = Published(None)
    path = chat(tmp_path, "Ana.txt", OLD)
    first, *others = [item for item in read(path)[1] if isinstance(item, Outgoing)]
    for each in others:
        published.standing(each)
    raw = json.loads(first.value or b"")
    mark = mark_of(turn_memory_id(first.scope, raw["body"]["turn_id"]))
    raw["body"] |= {"content": mark, "speaker": ""}
    for gone in ("source_type", "source_id", "metadata"):
        raw["body"].pop(gone, None)
    published.standing(Outgoing(first.topic, first.scope, first.key, json.dumps(raw).encode()))
    standings, _ = taken(published, chat(tmp_path, "Ana.txt", NEW, Ana="Ana Lopez"))
    assert standings == ["erased", "known", "known", "new"]


@pytest.mark.parametrize("name", ["WhatsApp Chat with Ana.txt", "WhatsApp Chat with Ana Lopez.txt"])
def test_a_renamed_contact_all_of_whose_messages_were_erased(tmp_path: Path, name: str) -> None:
    published = Published(None)
    path = chat(tmp_path, "WhatsApp Chat with Ana.txt", OLD)
    for each in [item for item in read(path)[1] if isinstance(item, Outgoing)]:
        raw = json.loads(each.value or b"")
        if raw["body"]["speaker"] == "Ana":
            mark = mark_of(turn_memory_id(each.scope, raw["body"]["turn_id"]))
            raw["body"] |= {"content": mark, "speaker": ""}
            for gone in ("source_type", "source_id", "metadata"):
                raw["body"].pop(gone, None)
        published.standing(Outgoing(each.topic, each.scope, each.key, json.dumps(raw).encode()))
    standings, names = taken(published, chat(tmp_path, name, NEW, Ana="Ana Lopez"))
    assert standings == ["erased", "known", "erased", "new"]
    assert names[3][0] == "Ana Lopez"


def workspace(
    path: Path, channel: str, texts: Sequence[str], lists: object = None, notice: str = ""
) -> Path:
    messages: list[dict[str, object]] = [
        {"type": "message", "user": "U1", "text": text, "ts": f"177244206{number}.000200"}
        for number, text in enumerate(texts)
    ]
    if notice:
        renamed = {"subtype": "channel_name", "old_name": notice, "name": channel}
        messages.append(
            {"type": "message", "ts": "1772442069.000100", "text": "renamed", **renamed}
        )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("users.json", "[]")
        archive.writestr(f"{channel}/2026-03-02.json", json.dumps(messages))
        if lists is not None:
            archive.writestr("channels.json", json.dumps(lists))
    return path


def test_a_renamed_channel(tmp_path: Path) -> None:
    def of(name: str) -> list[dict[str, object]]:
        return [{"id": "C1", "name": name}, {"id": "C2", "name": f"not-{name}"}]

    published = Published(None)
    taken(published, workspace(tmp_path / "a.zip", "general", ["one", "two"], of("general")))
    everyone = workspace(tmp_path / "b.zip", "everyone", ["one", "two", "three"], of("everyone"))
    standings, names = taken(published, everyone)
    assert standings == ["known", "known", "new"]
    assert [session for _, session in names] == [*["general 2026-03-02"] * 2, "everyone 2026-03-02"]
    assert taken(published, everyone)[0] == ["known"] * 3
    other = workspace(tmp_path / "c.zip", "other", ["one", "two"], [{"id": "C3", "name": "other"}])
    assert taken(published, other)[0] == ["new", "new"]


@pytest.mark.parametrize("how", ["notice", "list"])
def test_a_former_name_of_a_channel_in_the_export(tmp_path: Path, how: str) -> None:
    published = Published(None)
    taken(published, workspace(tmp_path / "a.zip", "general", ["one", "two"]))
    lists = [{"id": "C1", "name": "all", "previous_names": ["general"]}] if how == "list" else None
    notice = "general" if how == "notice" else ""
    renamed = workspace(tmp_path / "b.zip", "all", ["one", "two", "three"], lists, notice)
    assert taken(published, renamed)[0] == ["known", "known", "new"]


# --- files whose names are in the ids of what they say --------------------------------------------

TOLD = ["I moved to Lisbon", "Nice! Since when?", "Since March"]


def messages(folder: Path, file: str, texts: Sequence[str], **fields: object) -> Path:
    """With these fields, each for all messages or one by one."""
    said: list[dict[str, object]] = []
    for number, text in enumerate(texts):
        own = {
            key: each[number] if isinstance(each, list) else each for key, each in fields.items()
        }
        said.append({"role": ("user", "assistant")[number % 2], "content": text, **own})
    (folder / file).write_text(json.dumps(said))
    return folder / file


def transcript(folder: Path, name: str, texts: Sequence[str]) -> Path:
    cues = [
        f"00:00:0{number}.000 --> 00:00:0{number}.900\nAna: {text}.\n"
        for number, text in enumerate(texts)
    ]
    (folder / name).write_text("WEBVTT\n\n" + "\n".join(cues))
    return folder / name


def dates(*days: int) -> list[str]:
    return [f"2026-03-0{day}T10:00:00Z" for day in days]


@pytest.mark.parametrize(
    "fields",
    [{}, {"created_at": dates(1, 2, 3, 4)}, {"id": ["a", "b", "c", "d"]}],
    ids=["without times", "with times", "with ids"],
)
def test_a_renamed_file_of_messages(tmp_path: Path, fields: dict[str, object]) -> None:
    published = Published(None)
    taken(published, messages(tmp_path, "chat.json", TOLD, **fields))
    more = [*TOLD, "It rains"]
    for standing in ("new", "known"):
        copy = messages(tmp_path, "chat (1).json", more, **fields)
        standings, names = taken(published, copy)
        assert standings == ["known", "known", "known", standing]
        # The conversation goes on where it was.
        assert {session for _, session in names} == {"chat"}
    assert taken(published, messages(tmp_path, "chat.json", more, **fields))[0] == ["known"] * 4
    # An older and shorter export of it.
    assert taken(published, messages(tmp_path, "old.json", TOLD[:2], **fields))[0] == ["known"] * 2


def test_a_renamed_file_with_one_message_of_the_same_time(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, messages(tmp_path, "chat.json", TOLD[:1], created_at=dates(1)))
    later = messages(tmp_path, "later.json", TOLD[:1], created_at=dates(2))
    assert taken(published, later)[0] == ["new"]
    copy = messages(tmp_path, "copy.json", TOLD, created_at=dates(1, 2, 3))
    standings, names = taken(published, copy)
    assert standings == ["known", "new", "new"]
    assert {session for _, session in names} == {"chat"}


def test_a_renamed_transcript(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, transcript(tmp_path, "call.vtt", TOLD))
    standings, names = taken(published, transcript(tmp_path, "call-final.vtt", [*TOLD, "It rains"]))
    assert standings == ["known", "known", "known", "new"]
    assert {session for _, session in names} == {"call"}


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        pytest.param([*TOLD[:2], "Since April"], {}, id="another end"),
        pytest.param(["Hi", *TOLD], {}, id="another beginning"),
        pytest.param(TOLD[:1], {}, id="one message tells nothing"),
        pytest.param(TOLD, {"name": ["Cem", "x", "Cem"]}, id="said by others"),
        pytest.param(TOLD, {"created_at": dates(8, 8, 8)}, id="said again later"),
        pytest.param(TOLD, {"session_id": "mine"}, id="in a session that the file names"),
    ],
)
def test_another_conversation_with_the_same_texts(
    tmp_path: Path, texts: list[str], fields: dict[str, object]
) -> None:
    published = Published(None)
    timed = {"created_at": dates(1, 2, 3)} if "created_at" in fields else {}
    taken(published, messages(tmp_path, "chat.json", TOLD, **timed))
    standings, names = taken(published, messages(tmp_path, "other.json", texts, **fields))
    assert standings == ["new"] * len(texts)
    assert {session for _, session in names} == {str(fields.get("session_id", "other"))}


def test_two_conversations_of_one_file_that_say_the_same_are_two(tmp_path: Path) -> None:
    published = Published(None)
    taken(published, messages(tmp_path, "a.json", TOLD))
    said = (tmp_path / "a.json").read_text()
    path = tmp_path / "all.jsonl"
    path.write_text(f'{{"messages": {said}}}\n{{"messages": {said}}}')
    standings, names = taken(published, path)
    # One is not what the other was taken for.
    assert standings == ["known"] * 3 + ["new"] * 3
    assert [session for _, session in names] == ["a"] * 3 + ["all-2"] * 3


def test_what_was_erased_of_a_file_stays_erased_under_another_name(tmp_path: Path) -> None:
    published = Published(None)
    path = messages(tmp_path, "chat.json", TOLD)
    for number, each in enumerate(item for item in read(path)[1] if isinstance(item, Outgoing)):
        raw = json.loads(each.value or b"")
        if number == 0:
            mark = mark_of(turn_memory_id(each.scope, raw["body"]["turn_id"]))
            raw["body"] |= {"content": mark}
            del raw["body"]["source_type"]  # as an erased record has none
        published.standing(Outgoing(each.topic, each.scope, each.key, json.dumps(raw).encode()))
    # An erased turn of the same session that no file said.
    raw["body"] |= {"turn_id": "other", "content": mark_of("other")}
    published.standing(Outgoing(each.topic, each.scope, each.key, json.dumps(raw).encode()))
    standings, _ = taken(published, messages(tmp_path, "copy.json", TOLD))
    assert standings == ["erased", "known", "known"]


def test_a_text_that_many_files_have_costs_no_more(tmp_path: Path) -> None:
    published = Published(None)
    for number in range(30):
        taken(published, messages(tmp_path, f"{number}.json", ["Hi", f"Hello number {number}"]))
    standings, names = taken(published, messages(tmp_path, "copy.json", ["Hi", "Hello number 29"]))
    assert (standings, names[0][1]) == (["known", "known"], "29")
    form, scope = "messages", "default"
    body = {"content": "Hi", "speaker": "", "role": "user"}
    assert len(published.sessions(scope, form, words_of(body))) == 8
