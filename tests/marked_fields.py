"""Messages that have a word of its own in every field that a person can fill, from the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel


class Marks:
    """Gives words, and knows for which field each was given."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}

    def new(self, field: str) -> str:
        word = f"zq{len(self.fields):04d}marked"
        self.fields[word] = field
        return word

    def left(self, found: Iterator[str] | list[str]) -> list[str]:
        """What was found, with the names of the fields."""
        return sorted(
            {
                f"{self.fields[word]}: {line}"
                for line in found
                for word in self.fields
                if word in line
            }
        )


def marked(marks: Marks, model: type[BaseModel], **given: Any) -> dict[str, Any]:
    """A message of the model; `given` are fields, also of parts of it, that have to be so."""
    schema = model.model_json_schema()
    value = _of(marks, schema, schema, model.__name__, given)
    model.model_validate(value)
    return dict(json.loads(json.dumps(value)))


def _of(
    marks: Marks, root: Mapping[str, Any], schema: Mapping[str, Any], path: str, given: Any
) -> Any:
    name = path.rpartition(".")[2].rstrip("[]")
    if name in given and given[name] in schema.get("enum", (given[name],)):
        return given[name]
    if "$ref" in schema:
        part = schema["$ref"].removeprefix("#/$defs/")
        if part == "JsonValue":
            return {marks.new(f"{path}{{key}}"): [marks.new(path)]}
        return _of(marks, root, root["$defs"][part], path, given)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return _of(marks, root, schema[several][0], path, given)
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if properties is None:
            of_all = schema.get("additionalProperties")
            if isinstance(of_all, dict) and of_all.get("type") == "number":
                return {"disk": 0.5}  # a measure for each of a list of names
            return {marks.new(f"{path}{{key}}"): [marks.new(path)]}
        return {
            key: _of(marks, root, each, f"{path}.{key}", given) for key, each in properties.items()
        }
    if schema.get("type") == "array":
        return [_of(marks, root, schema["items"], f"{path}[]", given)]
    return _simple(marks, schema, path)


def _simple(marks: Marks, schema: Mapping[str, Any], path: str) -> Any:
    match schema.get("type"):
        case "string" if schema.get("format") == "date-time":
            return "2026-03-01T09:30:00Z"
        case "string" if "0-9a-f" in schema.get("pattern", ""):
            return "0" * 64
        case "string":
            return marks.new(path)
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "number":
            return 0.5
        case "boolean":
            return False
    return None
