"""Half an emoji, as programs leave it that cut texts at a number of UTF-16 units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.schemas.surrogates import halves, without_halves
from tests.unit.test_ingest_formats import read

HALF = "\ud83d"
AT = "2026-03-01T12:00:00Z"


def chatgpt(title: str, text: str) -> list[dict[str, Any]]:
    def node(key: str, parent: str | None, role: str, said: str) -> dict[str, Any]:
        return {
            "id": key,
            "parent": parent,
            "message": {
                "id": f"m-{key}",
                "author": {"role": role},
                "create_time": 1_772_366_400.0,
                "content": {"content_type": "text", "parts": [said]},
            },
        }

    nodes = [node("a", None, "user", text), node("b", "a", "assistant", "Fine.")]
    return [
        {
            "title": title,
            "conversation_id": "c",
            "create_time": 1_772_366_400.0,
            "current_node": "b",
            "mapping": {each["id"]: each for each in nodes},
        }
    ]


def claude(title: str, text: str) -> list[dict[str, Any]]:
    said = [
        {"uuid": "1", "sender": "human", "text": text, "created_at": AT},
        {"uuid": "2", "sender": "assistant", "text": "Fine.", "created_at": AT},
    ]
    return [{"uuid": "c", "name": title, "created_at": AT, "chat_messages": said}]


@pytest.mark.parametrize("export", [chatgpt, claude])
@pytest.mark.parametrize(
    ("title", "text"),
    [(f"Trip {HALF}", "I fly."), ("Trip", f"I fly. {HALF}"), (f"{HALF}x", f"\udc00 I {HALF} fly.")],
)
def test_an_export_with_half_an_emoji_is_read(
    tmp_path: Path, export: Any, title: str, text: str
) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(export(title, text)), encoding="ascii")
    _, items = read(path)
    bodies = [json.loads(item.value)["body"] for item in items]  # type: ignore[union-attr, arg-type]
    assert [each["content"] for each in bodies] == [without_halves(text), "Fine."]
    assert {each["metadata"]["title"] for each in bodies} == {without_halves(title)}
    assert HALF not in json.dumps(bodies, ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("plain \U0001f600", "plain \U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\udc00b\ud83d c", "\ufffdb\ufffd c"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    ],
)
def test_only_halves_are_replaced(text: str, whole: str) -> None:
    assert without_halves(text) == whole
    assert without_halves({"a": [text, 1, None], text: {}}) == {"a": [whole, 1, None], whole: {}}


def test_where_halves_lie_is_told() -> None:
    value = {"a": [{"b": "x"}, {"b": "\ud83d"}], "c": "\U0001f600", "\ude00": 1}
    assert [*halves(value)] == ["a[1].b", ""]
