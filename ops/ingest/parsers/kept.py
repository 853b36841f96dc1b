"""What exports of assistants have beside conversations: what the assistant remembered of a person
(memories.json, memories/ID.json) and projects with their texts (projects.json, projects/ID.json).

Claude's have both; a ChatGPT export may have a list of memories. A memory is a turn of the
assistant, and a later export of it is a revision; what a person wrote about a project is a turn of
theirs, its instructions are one of the system, and its files of a tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

from palimpsest.ops.ingest.parsers.base import (
    Bad,
    Document,
    Found,
    Item,
    LeftOut,
    ReadOptions,
    Utterance,
    each_object,
    edit_time,
    iso_time,
    named,
    parsed,
    said,
    unix_time,
    unread_time,
)
from palimpsest.schemas.messages import Role

KEPT: Final = re.compile(r"(?:.*/)?(?:memory|memories|projects)(?:-\d+)?(?:/[^/]+)?\.json")
"""Names of these files in an archive or a folder."""
_MEMORIES: Final = ("conversations_memory", "project_memories", "memory_files")
_PROJECT: Final = ("prompt_template", "is_starter_project")


def is_kept(value: object) -> bool:
    """Whether parsed JSON is a Claude memory or project, or a list with one."""
    listed = value if isinstance(value, list) else [value]
    return any(
        isinstance(each, dict) and (_is_memory(each) or _is_project(each)) for each in listed
    )


def is_list_of_memories(value: object) -> bool:
    """Whether parsed JSON is a list of single memories, as of ChatGPT."""
    return isinstance(value, list) and any(
        isinstance(each, dict) and isinstance(each.get("content"), str) and "role" not in each
        for each in value
    )


def read_kept(program: str, document: Document, options: ReadOptions) -> Iterator[Item]:
    """Yields the memories and projects of `program`: "claude" or "chatgpt". Raises Unreadable for
    what is not JSON."""
    value = parsed(document)
    listed = value if isinstance(value, list) else [value]
    yield from said(each_object(listed, document.name, partial(_kept, program, options)))


def _kept(program: str, options: ReadOptions, place: str, found: dict[str, object]) -> Found:
    if _is_memory(found):
        yield from _memories(options, place, found)
    elif _is_project(found):
        yield from _project(options, place, found)
    elif isinstance(found.get("content"), str):
        yield from _memory(program, options, place, found)
    else:
        yield Bad(place, f"neither a memory nor a project: it has {_some(found)}")


def _some(found: dict[str, object]) -> str:
    names = [named(name) for name in list(found)[:5]]
    return f"the members {', '.join(names)}" if names else "no members"


def _is_memory(found: dict[str, object]) -> bool:
    return any(name in found for name in _MEMORIES)


def _is_project(found: dict[str, object]) -> bool:
    return any(name in found for name in _PROJECT) or isinstance(found.get("docs"), list)


# --- memories -------------------------------------------------------------------------------


def _memories(options: ReadOptions, place: str, found: dict[str, object]) -> Found:
    """Yields what Claude remembered: of all conversations, of each project, and by subject."""
    account = named(found.get("account_uuid"))
    remembered = partial(_remembered, "claude", options)
    whole = found.get("conversations_memory")
    yield from remembered(f"{place}.conversations_memory", f"memory:{account}", whole)
    projects = found.get("project_memories")
    for project, text in projects.items() if isinstance(projects, dict) else []:
        where = f"{place}.project_memories.{named(project)}"
        yield from remembered(where, f"memory:project:{project}", text)
    for at, file in _objects(found.get("memory_files"), f"{place}.memory_files"):
        if isinstance(file, Bad):
            yield file
            continue
        path = named(file.get("path"))
        key = f"memory:{account}:file:{path}"
        yield from remembered(at, key, file.get("content"), file.get("updated_at"), path)


def _memory(program: str, options: ReadOptions, place: str, found: dict[str, object]) -> Found:
    """Yields one memory of a list."""
    if found.get("enabled") is False:
        yield LeftOut("memories that are switched off")
        return
    content, created = found.get("content"), found.get("created_at")
    own = named(found.get("id")) or named(content)
    edited = found.get("updated_at") or created
    yield from _remembered(program, options, place, f"memory:{own}", content, edited, "", created)


def _remembered(
    program: str,
    options: ReadOptions,
    place: str,
    key: str,
    text: object,
    edited: object = None,
    title: str = "",
    created: object = None,
) -> Found:
    """Yields a memory as a turn. Its text is of the time when it was last written; of a memory
    without one, of the time of the export."""
    if not isinstance(text, str) or not text.strip():
        yield LeftOut("memories without words")
        return
    at = _time(created, options) or _time(edited, options)
    yield Utterance(
        place=place,
        key=f"{program}:{key}"[:256],
        text=text.strip(),
        at=at,
        unread="" if at else unread_time(edited),
        session=f"{program} {key}"[:256],
        role="assistant",
        metadata={"title": title or "memory"},
        revised_at=_time(edited, options) or options.now,
    )


# --- projects -------------------------------------------------------------------------------


def _project(options: ReadOptions, place: str, found: dict[str, object]) -> Found:
    """Yields what a person wrote about a project, its instructions, and the texts of its files."""
    documents = list(_objects(found.get("docs"), f"{place}.docs"))
    if found.get("is_starter_project") is True:
        yield LeftOut("projects that came with the program")
        return
    name, own = named(found.get("name")), named(found.get("uuid")) or named(found.get("name"))
    created, edited = found.get("created_at"), found.get("updated_at")
    said_of = partial(_said_of, options, own, name)
    texts: tuple[tuple[str, Role], ...] = (("description", "user"), ("prompt_template", "system"))
    before = len(documents)
    for member, role in texts:
        text = found.get(member)
        if isinstance(text, str) and text.strip():
            before += 1
            yield said_of(f"{place}.{member}", f"{own}:{member}", text, role, created, edited)
    if not before:
        yield LeftOut("projects without texts")
    for at, each in documents:
        if isinstance(each, Bad):
            yield each
            continue
        file, text = (
            named(each.get("filename")) or named(each.get("file_name")),
            each.get("content"),
        )
        if not isinstance(text, str) or not text.strip():
            yield LeftOut("files of projects without a text")
            continue
        key = f"{own}:doc:{named(each.get('uuid')) or file}"
        when = each.get("created_at") or created
        # The words of a file are not the person's own.
        yield said_of(at, key, text, "tool", when, each.get("updated_at"), file)
    files = found.get("files")
    yield from (LeftOut("files of projects") for _ in (files if isinstance(files, list) else []))


def _said_of(
    options: ReadOptions,
    own: str,
    name: str,
    place: str,
    key: str,
    text: str,
    role: Role,
    created: object,
    edited: object,
    file: str = "",
) -> Utterance:
    at = _time(created, options)
    return Utterance(
        place=place,
        key=f"claude:project:{key}"[:256],
        text=text.strip(),
        at=at,
        unread="" if at else unread_time(created),
        session=f"project {own}"[:256],
        speaker=options.me if role == "user" else "",
        role=role,
        metadata={"title": name, **({"file": file} if file else {})},
        revised_at=edit_time(_time(edited, options), at),
    )


def _objects(value: object, place: str) -> Iterator[tuple[str, dict[str, object] | Bad]]:
    for number, each in enumerate(value if isinstance(value, list) else []):
        at = f"{place}[{number}]"
        yield at, each if isinstance(each, dict) else Bad(at, "not a JSON object")


def _time(value: object, options: ReadOptions) -> datetime | None:
    return iso_time(value, options.zone) or unix_time(value)
