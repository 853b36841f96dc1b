"""A member that an object of JSON has twice: whichever is taken, the other text is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.ops.ingest.parsers.base import Bad, Unreadable
from palimpsest.streams.logs.base import Outgoing
from tests.unit.test_ingest_formats import read, using

LINE = (
    '{"schema":"conversation-turn/1","scope":"s","body":{"turn_id":"1","speaker":"Ana",'
    '"content":"I live in Graz."TWICE}}'
)
MESSAGE = '{"role":"user","content":"I live in Graz."TWICE}'
TELEGRAM = (
    '{"name":"Ana","type":"personal_chat","id":1,"messages":[{"id":1,"type":"message",'
    '"date":"2024-05-03T10:00:00","from":"Ana","text":"I live in Graz."TWICE}]}'
)


@pytest.mark.parametrize(
    ("form", "text", "name", "kept"),
    [
        ("turns", LINE, "content", 1),
        ("messages", MESSAGE, "content", 1),
        ("messages", f"[{MESSAGE}]", "content", 0),
        ("telegram", TELEGRAM, "text", 0),
    ],
)
def test_a_member_that_is_there_twice_is_refused(
    tmp_path: Path, form: str, text: str, name: str, kept: int
) -> None:
    twice = text.replace("TWICE", f',{json.dumps(name)}:"I live in Rome."')
    once = text.replace("TWICE", "").replace('"1"', '"2"')
    path = tmp_path / "chat.json"
    path.write_text(f"{twice}\n{once if kept else ''}\n")
    try:
        items = read(path, using(form))[1]
    except Unreadable as error:
        items = [Bad(path.name, str(error))]
    [bad] = [each.reason for each in items if isinstance(each, Bad)]
    assert bad == f"an object has the member {name} twice; keep one of them"
    assert sum(isinstance(each, Outgoing) for each in items) == kept
