"""The page for producers: its records are valid, its recipe gives the ids that it shows."""

from __future__ import annotations

import json
import re
import uuid

from jsonschema import Draft202012Validator

from palimpsest.schemas.codec import decode
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_COMMANDS
from tests.flows.program import ROOT

PAGE = (ROOT / "ops" / "docs" / "producers.md").read_text(encoding="utf-8")
RECORDS = [json.loads(block) for block in re.findall(r"```json\n(\{.*?\n\})\n```", PAGE, re.DOTALL)]
TURN, COMMAND = (
    next(record for record in RECORDS if record.get("schema") == schema)
    for schema in ("conversation-turn/1", "memory-command/1")
)


def test_the_records_of_the_page_are_valid() -> None:
    for record, topic, name in (
        (TURN, CONVERSATION_TURNS, "conversation-turn-1.json"),
        (COMMAND, MEMORY_COMMANDS, "memory-command-1.json"),
    ):
        schema = json.loads((ROOT / "schemas" / "json" / name).read_text(encoding="utf-8"))
        Draft202012Validator(schema).validate(record)
        decode(json.dumps(record).encode(), topic, None)


def test_the_recipe_of_the_page_gives_the_id_that_it_shows() -> None:
    scope, turn_id = TURN["scope"], TURN["body"]["turn_id"]
    assert str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scope}/{turn_id}")) == TURN["id"]
    example = (ROOT / "ops" / "examples" / "publish.py").read_text(encoding="utf-8")
    assert "uuid.uuid5(uuid.NAMESPACE_URL, f\"{scope}/{turn['turn_id']}\")" in example
