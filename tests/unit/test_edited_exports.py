"""What an export tells of edits, and how an edited message meets what was published before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.recognising import recognised
from palimpsest.ops.ingest.records import Published
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_chat_findings import records
from tests.unit.test_ingest_formats import read

SAID, EDITED, LATER = 1772442000.0, 1772445600.0, 1772449200.0


def slack(text: str, edited: float | None) -> tuple[str, object]:
    message: dict[str, Any] = {"type": "message", "user": "U1", "text": text, "ts": f"{SAID:.6f}"}
    if edited is not None:
        message["edited"] = {"user": "U1", "ts": f"{edited:.6f}"}
    return "general/2026-03-02.json", [message]


def chatgpt(text: str, edited: float | None) -> tuple[str, object]:
    message = {
        "id": "m1",
        "author": {"role": "user"},
        "create_time": SAID,
        "update_time": SAID if edited is None else edited,
        "content": {"content_type": "text", "parts": [text]},
    }
    node = {"id": "m1", "parent": None, "children": [], "message": message}
    return "conversations.json", [
        {"id": "c1", "title": "Home", "create_time": SAID, "current_node": "m1",
         "mapping": {"m1": node}}
    ]  # fmt: skip


def claude(text: str, edited: float | None) -> tuple[str, object]:
    said, now = (datetime.fromtimestamp(each, UTC).isoformat() for each in (SAID, edited or SAID))
    message = {"uuid": "m1", "sender": "human", "text": text, "created_at": said, "updated_at": now}
    conversation = {"uuid": "c1", "name": "Home", "created_at": said, "chat_messages": [message]}
    return "conversations.json", [conversation]


def messages(text: str, edited: float | None) -> tuple[str, object]:
    message = {"id": "m1", "role": "user", "content": text, "created_at": SAID}
    return "chat.json", [message | ({} if edited is None else {"edited_at": edited})]


@pytest.mark.parametrize("export", [slack, chatgpt, claude, messages])
def test_an_edit_is_told_from_another_message(tmp_path: Path, export: Any) -> None:
    texts = [
        ("I live in Graz.", None), ("I live in Graz.", None), ("I live in Linz.", EDITED),
        ("I live in Graz.", None), ("I live in Rome.", LATER), ("I live in Linz.", EDITED),
        ("I live in Bonn.", LATER),
    ]  # fmt: skip
    published = Published(None)
    standings = []
    for number, (text, edited) in enumerate(texts):
        name, content = export(text, edited)
        folder = (tmp_path / str(number) / name).parent
        folder.mkdir(parents=True)
        [record] = records(folder, Path(name).name, json.dumps(content))
        standings.append(published.standing(record))
    assert standings == ["new", "known", "revised", "known", "revised", "known", "conflict"]


def talk(name: str, *said: tuple[str, str]) -> dict[str, object]:
    """A conversation of ChatGPT with these ids and texts."""
    nodes = {}
    for number, (own, text) in enumerate(said):
        message = {
            "id": own,
            "author": {"role": "user"},
            "create_time": SAID + number,
            "content": {"content_type": "text", "parts": [text]},
        }
        parent = said[number - 1][0] if number else None
        nodes[own] = {"id": own, "parent": parent, "children": [], "message": message}
    return {"id": name, "title": name, "current_node": said[-1][0], "mapping": nodes}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_branched_conversation_shares_its_beginning(tmp_path: Path, is_known: bool) -> None:
    began = ("m1", "I live in Graz.")
    first = talk("c1", began, ("m2", "Rex is five."))
    branch = talk("c2", began, ("m3", "Lea has a cat."))
    other_text = talk("c3", ("m1", "I live in Linz."))
    published = Published(None)
    if is_known:
        (tmp_path / "before.json").write_text(json.dumps([first]))
        for record in as_before(published, tmp_path / "before.json"):
            assert published.standing(record) == "new"
    (tmp_path / "now.json").write_text(json.dumps([branch, first, other_text]))
    found = as_before(published, tmp_path / "now.json")
    bodies = [json.loads(each.value or b"")["body"] for each in found]
    shared = {each["session_id"] for each in bodies if each["turn_id"] == "chatgpt:m1"}
    assert shared == {"c1" if is_known else "c2"}
    expected = ["new", "new", "known", "new", "conflict"]
    if is_known:  # a text that a published message never had is an edit
        expected = ["known", "new", "known", "known", "revised"]
    assert [published.standing(each) for each in found] == expected


def as_before(published: Published, path: Path) -> list[Outgoing]:
    items = [item for item in read(path)[1] if isinstance(item, Outgoing)]
    return [*recognised(items, published, datetime(2026, 11, 1, tzinfo=UTC), lambda _: None)]
