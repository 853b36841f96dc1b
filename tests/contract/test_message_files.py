"""Golden messages and generated JSON Schemas: the forms that producers rely on.

A golden file is never edited once it is released: a new version gets a file of its own.
`<name>-<version>.json` is the fullest message of a schema, `<name>-<version>.<variant>.json`
shows another kind of body.
"""

from __future__ import annotations

import json
import typing
from datetime import UTC, datetime
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from palimpsest.schemas import commands, generate, messages
from palimpsest.schemas.codec import decode, encode
from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.messages import SCHEMAS
from tests.contract.message_examples import GOLDEN, TOPIC_OF, golden, to_bytes

RECORDED = datetime(2026, 3, 1, 9, 30, 1, tzinfo=UTC)
FILES = sorted(GOLDEN.glob("*.json"))
CURRENT_FILES = [
    path
    for path in FILES
    if f"{path.name.partition('.')[0]}.json" in set(map(generate.file_name, SCHEMAS))
]


def test_every_schema_lies_on_a_topic_and_has_a_golden_file() -> None:
    assert set(TOPIC_OF) == set(SCHEMAS)
    names = {path.name for path in GOLDEN.glob("*.json")}
    assert {generate.file_name(schema) for schema in SCHEMAS} <= names


def test_golden_files_of_every_version_decode() -> None:
    for path in FILES:
        raw = json.loads(path.read_text(encoding="utf-8"))
        name = raw["schema"].partition("/")[0]
        assert generate.file_name(raw["schema"]) == f"{path.name.partition('.')[0]}.json"
        current = next(schema for schema in SCHEMAS if schema.partition("/")[0] == name)
        message = decode(path.read_bytes(), TOPIC_OF[current], RECORDED)
        assert message.schema_ == current
        assert message.recorded_at == RECORDED


def test_golden_files_come_back_as_equal_json() -> None:
    for path in CURRENT_FILES:
        raw = json.loads(path.read_text(encoding="utf-8"))
        message = decode(path.read_bytes(), TOPIC_OF[raw["schema"]], RECORDED)
        assert json.loads(encode(message)) == raw, path
        assert encode(decode(encode(message), TOPIC_OF[raw["schema"]], None)) == encode(message)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_golden_files_are_valid_by_their_json_schema(schema: str) -> None:
    written = json.loads((generate.FOLDER / generate.file_name(schema)).read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(written, format_checker=jsonschema.FormatChecker())
    validator.check_schema(written)
    validator.validate(golden(schema))
    for broken in (
        {**golden(schema), "scope": ""},
        {**golden(schema), "scope": " \n"},
        {**golden(schema), "scope": "s" * 257},
        {**golden(schema), "schema": "other/1"},
        {**golden(schema), "body": "text"},
        {key: value for key, value in golden(schema).items() if key != "occurred_at"},
    ):
        assert not validator.is_valid(broken)


def test_golden_files_use_every_field_of_every_message() -> None:
    """Otherwise a renamed field would pass unseen."""
    used: set[tuple[type, str]] = set()
    for path in CURRENT_FILES:
        raw = json.loads(path.read_text(encoding="utf-8"))
        for model in models_in(decode(to_bytes(raw), TOPIC_OF[raw["schema"]], None)):
            assert not model.model_extra, f"{path.name}: {type(model).__name__} has unknown fields"
            kind = Envelope if isinstance(model, Envelope) else type(model)
            used |= {(kind, name) for name in model.model_fields_set}
    said: list[type[BaseModel]] = [
        kind
        for module in (messages, commands)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Frozen) and kind is not Frozen
    ]
    missing = {
        f"{kind.__name__}.{name}"
        for kind in [typing.cast("type[BaseModel]", Envelope), *said]
        for name in kind.model_fields
        if (kind, name) not in used and name != "recorded_at"
    }
    assert not missing, f"no golden message has {sorted(missing)}"


def models_in(value: object) -> list[BaseModel]:
    if isinstance(value, BaseModel):
        below = [models_in(getattr(value, name)) for name in type(value).model_fields]
        return [value, *(model for found in below for model in found)]
    if isinstance(value, tuple):
        return [model for item in value for model in models_in(item)]
    return []


def test_generated_schemas_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_stale_schemas_are_named_and_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main([], tmp_path) == 0
    (tmp_path / "conversation-turn-1.json").write_text("{}")
    (tmp_path / "dead-letter-1.json").unlink()
    capsys.readouterr()
    assert generate.main(["--check"], tmp_path) == 1
    said = capsys.readouterr()
    assert [text.rpartition("/")[2] for text in said.out.splitlines()] == [
        "conversation-turn-1.json",
        "dead-letter-1.json",
    ]
    assert "python -m palimpsest.schemas.generate" in said.err
    assert (tmp_path / "conversation-turn-1.json").read_text() == "{}"
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
