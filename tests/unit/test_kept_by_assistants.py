"""Memories and projects in exports of assistants are read like what was said."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Note
from palimpsest.ops.ingest.records import Published
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

MEMORIES = {
    "conversations_memory": "**Work context**\n\nAna teaches in Ghent.",
    "project_memories": {"p1": "The move is planned for May.", "p2": " "},
    "memory_files": [
        {"path": "/diet.md", "content": "- eats no nuts", "updated_at": "2026-01-02T03:04:05Z"}
    ],
    "account_uuid": "a1",
}
PROJECT = {
    "uuid": "p1",
    "name": "The move",
    "description": "I move to Bruges.",
    "is_private": True,
    "is_starter_project": False,
    "prompt_template": "Answer in Dutch.",
    "created_at": "2025-11-02T09:00:00+00:00",
    "updated_at": "2025-12-24T09:00:00+00:00",
    "docs": [
        {
            "uuid": "d1",
            "filename": "lease.txt",
            "content": "The rent is 900 euros.",
            "created_at": "2025-11-03T09:00:00+00:00",
        },
        {"uuid": "d2", "filename": "plan.png", "content": ""},
    ],
}
CONVERSATION = {
    "uuid": "c1",
    "name": "Greeting",
    "chat_messages": [
        {"uuid": "m1", "sender": "human", "text": "Hello", "created_at": "2026-01-01T12:00:00Z"}
    ],
}


def archive(path: Path, **files: object) -> Path:
    with zipfile.ZipFile(path, "w") as found:
        for name, value in files.items():
            found.writestr(name.replace("__", "/") + ".json", json.dumps(value))
    return path


def taken(path: Path) -> tuple[list[dict[str, Any]], str, list[str]]:
    form, items = read(path, using(me="Ana"))
    turns = [json.loads(item.value or b"") for item in items if isinstance(item, Outgoing)]
    notes = "\n".join(item.text for item in items if isinstance(item, Note))
    return turns, f"{form}\n{notes}", [item.reason for item in items if isinstance(item, Bad)]


def shown(turns: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (turn["occurred_at"][:10], turn["body"].get("role", "user"), turn["body"]["content"])
        for turn in turns
    ]


REMEMBERED = [
    ("2026-03-01", "assistant", "**Work context**\n\nAna teaches in Ghent."),
    ("2026-03-01", "assistant", "The move is planned for May."),
    ("2026-01-02", "assistant", "- eats no nuts"),
]
OF_PROJECT = [
    ("2025-11-02", "user", "I move to Bruges."),
    ("2025-11-02", "system", "Answer in Dutch."),
    ("2025-11-03", "tool", "The rent is 900 euros."),
]


@pytest.mark.parametrize(
    ("memories", "projects"),
    [("memories", "projects"), ("memories__a1", "projects__p1")],
)
def test_an_archive_is_read_whole(tmp_path: Path, memories: str, projects: str) -> None:
    whole = {memories: [MEMORIES], projects: [PROJECT]}
    if "__" in memories:  # newer exports have a file for each
        whole = {memories: MEMORIES, projects: PROJECT}
    path = archive(tmp_path / "a.zip", conversations=[CONVERSATION], users=[{}], **whole)
    turns, notes, bad = taken(path)
    assert shown(turns) == [("2026-01-01", "user", "Hello"), *REMEMBERED, *OF_PROJECT]
    assert not bad
    assert "1 memory without words" in notes
    assert "1 file of projects without a text" in notes
    assert "1 other file in it is not read: users.json" in notes
    by_text = {turn["body"]["content"]: turn["body"] for turn in turns}
    assert by_text["I move to Bruges."]["speaker"] == "Ana"
    assert by_text["The rent is 900 euros."]["metadata"] == {
        "title": "The move",
        "file": "lease.txt",
    }


@pytest.mark.parametrize(
    ("value", "expected"), [([MEMORIES], REMEMBERED), (PROJECT, OF_PROJECT), (MEMORIES, REMEMBERED)]
)
def test_a_file_alone_is_recognised(tmp_path: Path, value: object, expected: object) -> None:
    path = tmp_path / "download.json"
    path.write_text(json.dumps(value, indent=1))
    turns, notes, bad = taken(path)
    assert (shown(turns), bad) == (expected, [])
    assert notes.startswith("claude\n")
    turns, _, bad = taken(archive(tmp_path / "a.zip", projects=[PROJECT]))
    assert (shown(turns), bad) == (OF_PROJECT, [])


def test_a_later_export_revises_what_was_remembered(tmp_path: Path) -> None:
    published, standings = Published(None), []
    for number, text in enumerate(["Ana teaches.", "Ana teaches.", "Ana retired."]):
        file = {"path": "/work.md", "content": text, "updated_at": f"2026-01-0{number + 1}T00:00Z"}
        path = archive(tmp_path / f"{number}.zip", memories=[{"memory_files": [file]}])
        [record] = [item for item in read(path)[1] if isinstance(item, Outgoing)]
        standings.append(published.standing(record))
    assert standings == ["new", "known", "revised"]


def test_what_is_not_a_persons_is_counted(tmp_path: Path) -> None:
    starter = PROJECT | {"is_starter_project": True}
    empty = {"uuid": "p3", "name": "Empty", "prompt_template": "", "docs": []}
    path = archive(tmp_path / "a.zip", projects=[starter, empty, 7, {"uuid": "x"}])
    turns, notes, bad = taken(path)
    assert not turns
    assert "1 project that came with the program" in notes
    assert "1 project without texts" in notes
    assert bad == ["not a JSON object", "neither a memory nor a project: it has the members uuid"]


def test_what_chatgpt_remembered_is_read(tmp_path: Path) -> None:
    def message(number: int, recipient: str, role: str, text: str) -> dict[str, object]:
        return {
            "id": f"m{number}",
            "author": {"role": role},
            "recipient": recipient,
            "create_time": 1767225600.0 + number,
            "content": {"content_type": "text", "parts": [text]},
        }

    said = [
        message(0, "all", "user", "I bought a boat."),
        message(1, "bio", "assistant", "User owns a boat."),
        message(2, "all", "tool", "Model set context updated."),
    ]
    nodes = {
        f"m{number}": {"parent": f"m{number - 1}" if number else None, "message": each}
        for number, each in enumerate(said)
    }
    export = [{"id": "c1", "title": "Boat", "current_node": "m2", "mapping": nodes}]
    kept = [
        {"id": "k1", "content": "User sails.", "created_at": "2025-05-01T00:00:00Z"},
        {"id": "k2", "content": "User rows.", "enabled": False},
    ]
    path = archive(tmp_path / "a.zip", conversations=export, memories=kept, projects=[])
    turns, notes, bad = taken(path)
    assert shown(turns) == [
        ("2026-01-01", "user", "I bought a boat."),
        ("2026-01-01", "assistant", "User owns a boat."),
        ("2025-05-01", "assistant", "User sails."),
    ]
    assert not bad
    assert "1 memory that is switched off" in notes
    assert "1 other file in it is not read: projects.json" in notes
