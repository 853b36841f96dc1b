"""What an export tells of edits, and how an edited message meets what was published before."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.records import Published
from tests.unit.test_chat_findings import records

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
