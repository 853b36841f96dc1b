"""A damaged or unknown message hides no other, and nothing is lost without a notice."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note, Unreadable
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read

TEXTS = ["Hello.", "I moved to Porto.", "When was that?"]
BEGAN = 1_772_442_000


def slack() -> tuple[str, Any]:
    return "2026-03-02.json", [
        {"type": "message", "user": "U1", "text": text, "ts": f"{BEGAN + number}.000100"}
        for number, text in enumerate(TEXTS)
    ]


def chatgpt() -> tuple[str, Any]:
    nodes: dict[str, Any] = {"root": {"id": "root", "children": ["n0"]}}
    for number, text in enumerate(TEXTS):
        nodes[f"n{number}"] = {
            "parent": f"n{number - 1}" if number else "root",
            "children": [f"n{number + 1}"] if number + 1 < len(TEXTS) else [],
            "message": {
                "id": f"m{number}",
                "author": {"role": "user"},
                "create_time": BEGAN + number,
                "content": {"content_type": "text", "parts": [text]},
            },
        }
    return "conversations.json", [{"title": "T", "mapping": nodes, "conversation_id": "c"}]


def claude() -> tuple[str, Any]:
    messages = [
        {
            "uuid": f"m{number}",
            "text": text,
            "sender": "human",
            "created_at": "2026-03-02T10:00:00Z",
        }
        for number, text in enumerate(TEXTS)
    ]
    return "conversations.json", [{"uuid": "u", "name": "T", "chat_messages": messages}]


def telegram() -> tuple[str, Any]:
    messages = [
        {"id": number, "type": "message", "date": f"2026-03-02T10:0{number}:00", "from": "Ann",
         "from_id": "user1", "text": text}
        for number, text in enumerate(TEXTS, 1)
    ]  # fmt: skip
    return "result.json", {"name": "A", "type": "personal_chat", "id": 5, "messages": messages}


def discord() -> tuple[str, Any]:
    messages = [
        {"id": str(number), "type": "Default", "timestamp": f"2026-03-02T10:0{number}:00+00:00",
         "content": text, "author": {"id": "9", "name": "Ann"}}
        for number, text in enumerate(TEXTS)
    ]  # fmt: skip
    channel = {"id": "2", "type": "GuildTextChat", "name": "general"}
    return "a.json", {"guild": {"id": "1"}, "channel": channel, "messages": messages}


def messages() -> tuple[str, Any]:
    return "a.json", [{"role": "user", "content": text} for text in TEXTS]


EXPORTS = (slack, chatgpt, claude, telegram, discord, messages)
LISTED = {slack: (), claude: (0, "chat_messages"), telegram: ("messages",), discord: ("messages",),
          messages: ()}  # fmt: skip
"""Where the messages of an export are."""
VALUES: tuple[Any, ...] = (
    *(None, "", 0, -1, 10**30, 3.5, True, [], {}, "x", [None], {"type": "new", "text": "q"}),
    "2026-13-45",
)


def taken(path: Path, value: Any) -> tuple[list[str], int]:
    """The texts that are taken, and the number of what is named or counted as not taken."""
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    items = read(path)[1]
    texts = [
        json.loads(e.value or b"")["body"]["content"] for e in items if isinstance(e, Outgoing)
    ]
    notes = "\n".join(each.text for each in items if isinstance(each, Note))
    counted = sum(map(int, re.findall(r"^(\d+) entr", notes, re.MULTILINE)))
    return texts, counted + sum(isinstance(each, Bad) for each in items)


@pytest.mark.parametrize("damaged", [None, {}, "x", {"type": "new kind"}, []])
@pytest.mark.parametrize("export", LISTED)
def test_a_first_message_that_is_damaged_hides_no_other(
    tmp_path: Path, export: Any, damaged: Any
) -> None:
    name, value = export()
    inner = value
    for each in LISTED[export]:
        inner = inner[each]
    inner.insert(0, damaged)
    texts, others = taken(tmp_path / name, value)
    assert texts == TEXTS
    assert others or damaged == []


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if before:
        yield before
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value if isinstance(value, list) else ())
    )
    for key, each in inner:
        yield from places(each, (*before, key))


@pytest.mark.parametrize("export", EXPORTS)
def test_any_value_in_any_place_is_read_or_named(tmp_path: Path, export: Any) -> None:
    name, whole = export()
    for place in places(whole):
        for value in VALUES:
            damaged = copy.deepcopy(whole)
            inner = damaged
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            try:
                texts, others = taken(tmp_path / name, damaged)
            except Unreadable:
                continue
            is_emptied = not value or "mapping" in place  # there is no message any more
            assert len(texts) >= len(TEXTS) or others or is_emptied, (place, value)


def test_turns_in_utf_16_are_read_by_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"turn_id": text, "content": text}) for text in TEXTS]
    (tmp_path / "a.jsonl").write_bytes("\r\n".join(lines).encode("utf-16"))
    assert read(tmp_path / "a.jsonl")[0] == "turns"
    texts = [item for item in read(tmp_path / "a.jsonl")[1] if isinstance(item, Outgoing)]
    assert len(texts) == len(TEXTS)


def test_a_colon_in_a_name_of_zoom(tmp_path: Path) -> None:
    text = (
        "10:00:00 From Ann: Guest To Everyone:\n\tHello.\n10:01:00 From Ben : I gave it to Ann:\n"
    )
    path = tmp_path / "chat.txt"
    path.write_text(text)
    bodies = [json.loads(e.value or b"")["body"] for e in read(path)[1] if isinstance(e, Outgoing)]
    assert [(each["speaker"], each["content"]) for each in bodies] == [
        ("Ann: Guest", "Hello."),
        ("Ben", "I gave it to Ann:"),
    ]
