"""Parts of messages of other programs: whose they are, what is words and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.parsers.base import Note
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using


def turns(path: Path, content: object) -> tuple[list[dict[str, Any]], str]:
    """The bodies of the turns of a file, and what was told of the rest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    items = list(read(path, using())[1])
    bodies = [json.loads(each.value or b"")["body"] for each in items if isinstance(each, Outgoing)]
    told = [
        each.text if isinstance(each, Note) else f"BAD {each.reason}"
        for each in items
        if not isinstance(each, Outgoing)
    ]
    return bodies, "\n".join(told)


SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "Deployed"}}
FORWARDED = [
    {
        "is_share": True,
        "author_name": "Ben",
        "message_blocks": [
            {
                "message": {
                    "blocks": [
                        {
                            "type": "rich_text",
                            "elements": [
                                {
                                    "type": "rich_text_section",
                                    "elements": [{"type": "text", "text": "We meet at 5"}],
                                }
                            ],
                        }
                    ]
                }
            }
        ],
    }
]
DATE = [
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [
                    {"type": "text", "text": "On "},
                    {"type": "date", "timestamp": 1772442000, "fallback": "March 2"},
                ],
            }
        ],
    }
]


@pytest.mark.parametrize(
    ("fields", "speaker", "content"),
    [
        ({"bot_id": "B1", "bot_profile": {"name": "Zapier"}, "text": "zap"}, "Zapier", "zap"),
        ({"bot_id": "B1", "text": "zap"}, "B1", "zap"),
        ({"user": "U9", "user_profile": {"name": "zed"}, "text": "hi"}, "zed", "hi"),
        (
            {"user": "U9", "text": "This content can't be displayed.", "blocks": [SECTION]},
            "U9",
            "Deployed",
        ),
        ({"user": "U9", "text": "", "attachments": FORWARDED}, "U9", "Ben\nWe meet at 5"),
        (
            {"user": "U9", "text": "", "attachments": [{**FORWARDED[0], "text": "We meet at 5"}]},
            "U9",
            "Ben\nWe meet at 5",
        ),
        ({"user": "U9", "text": "", "blocks": DATE}, "U9", "On March 2"),
    ],
)
def test_who_says_what_in_slack(
    fields: dict[str, object], speaker: str, content: str, tmp_path: Path
) -> None:
    day = [{"type": "message", "ts": "1772442000.000100", **fields}]
    [turn], _ = turns(tmp_path / "general" / "2026-03-02.json", day)
    assert (turn["speaker"], turn["content"]) == (speaker, content)


def test_a_change_without_a_mark_is_an_edit_of_its_own_time(tmp_path: Path) -> None:
    said = {"type": "message", "ts": "1772442000.000100", "user": "U1", "text": "I live in Graz"}
    change = {
        **{"type": "message", "subtype": "message_changed", "ts": "1772442060.000100"},
        "message": {**said, "text": "I live in Linz"},
    }
    [turn], _ = turns(tmp_path / "general" / "2026-03-02.json", [said, change])
    assert turn["content"] == "I live in Linz"
    assert turn["revised_at"].startswith("2026-03-02T09:01:00")


def claude(*parts: object, text: str = "", sender: str = "assistant") -> object:
    message = {"uuid": "m1", "sender": sender, "text": text, "content": list(parts)}
    return [
        {"uuid": "c1", "name": "Home", "chat_messages": [message | {"created_at": "2026-03-02"}]}
    ]


ABSENT = "```\nThis block is not supported on your current device yet.\n```\n"


@pytest.mark.parametrize(
    ("export", "content", "left_out"),
    [
        (claude({"type": "voice_note", "text": "I sail"}, sender="human"), "I sail", ""),
        (claude({"type": "text", "text": f"{ABSENT}Done."}), "Done.", "1 part that the export"),
        (
            claude({"type": "text", "text": "<antThinking>I wonder.</antThinking>Yes."}),
            "Yes.",
            "1 part of type thinking",
        ),
        (
            claude({"type": "text", "text": 'See <antArtifact title="A b">A poem</antArtifact>.'}),
            "See A poem.",
            "",
        ),
        (
            claude({"type": "text", "text": "What is <antThinking>?"}, sender="human"),
            "What is <antThinking>?",
            "",
        ),
    ],
)
def test_what_is_words_in_claude(
    export: object, content: str, left_out: str, tmp_path: Path
) -> None:
    [turn], told = turns(tmp_path / "conversations.json", export)
    assert turn["content"] == content
    assert left_out in told


def test_a_message_of_what_the_export_lacks_is_counted(tmp_path: Path) -> None:
    said, told = turns(
        tmp_path / "conversations.json", claude({"type": "tool_use", "name": "x"}, text=ABSENT)
    )
    assert not said
    assert "1 entry is left out: 1 part of type tool_use" in told


def test_parts_of_gemini_are_read(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "parts": [{"text": "I live in Graz"}, {"inline_data": {"data": "QQ"}}]},
        {"role": "model", "parts": [{"text": "Nice"}]},
    ]
    said, told = turns(tmp_path / "chat.json", messages)
    assert [(turn["role"], turn["content"]) for turn in said] == [
        ("user", "I live in Graz"),
        ("assistant", "Nice"),
    ]
    assert "1 entry is left out: 1 part of type inline_data" in told


def test_an_older_mark_of_a_source_is_no_word(tmp_path: Path) -> None:
    message = {
        "id": "m1",
        "author": {"role": "assistant"},
        "create_time": 1772442000,
        "content": {
            "content_type": "text",
            "parts": ["It is so.:contentReference[oaicite:3]{index=3} Yes."],
        },
    }
    node = {"id": "m1", "parent": None, "children": [], "message": message}
    conversation = {"id": "c1", "current_node": "m1", "mapping": {"m1": node}}
    [turn], _ = turns(tmp_path / "conversations.json", [conversation])
    assert turn["content"] == "It is so. Yes."
