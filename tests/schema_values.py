"""Values that a JSON Schema allows, as far as the schemas of this project go.

Objects get further properties where the schema allows them: under names that the pipeline itself
uses, with values of any type.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.envelope import Envelope
from palimpsest.schemas.generate import FOLDER
from palimpsest.schemas.messages import CommandIntent, NormalizedTurn

Schema = Mapping[str, Any]
Strategy = st.SearchStrategy[Any]

OWN_NAMES = sorted(
    {
        *NormalizedTurn.model_fields,
        *RememberCommand.model_fields,
        *CommandIntent.model_fields,
        *Envelope.model_fields,
        *("turn", "write", "intent", "call", "round", "proposals", "as_of"),
    }
)
CHARACTERS = st.characters(codec="utf-8", categories=None)
ANY_JSON: Strategy = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(OWN_NAMES) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def read_schema(name: str, folder: Path = FOLDER) -> Schema:
    """The generated schema of a message, for example `conversation-turn-1`."""
    read: Schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return read


class SchemaValues:
    """`preferred` are strategies for properties by their names, used half of the time where what
    they give is allowed anyway."""

    def __init__(self, root: Schema, preferred: Mapping[str, Strategy]) -> None:
        self._root = root
        self._preferred = preferred

    def values(self) -> Strategy:
        return self._of(self._root)

    def _of(self, schema: Schema) -> Strategy:
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            return ANY_JSON if name == "JsonValue" else self._of(self._root["$defs"][name])
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return st.one_of([self._of(one) for one in schema[several]])
        return self._typed(schema)

    def _typed(self, schema: Schema) -> Strategy:
        match schema.get("type"):
            case "object":
                return self._object(schema)
            case "array":
                least, most = schema.get("minItems", 0), schema.get("maxItems", 3)
                items = self._of(schema.get("items", {}))
                return st.lists(items, min_size=least, max_size=min(most, least + 3))
            case "string":
                return _text(schema)
            case "integer":
                return st.integers(schema.get("minimum", -(2**62)), schema.get("maximum", 2**62))
            case "number":
                return st.floats(schema.get("minimum"), schema.get("maximum"), allow_nan=False)
            case "boolean":
                return st.booleans()
            case "null":
                return st.none()
            case None:
                return ANY_JSON
            case other:
                raise NotImplementedError(other)

    def _object(self, schema: Schema) -> Strategy:
        properties = schema.get("properties", {})
        if not properties:
            return st.dictionaries(st.text(CHARACTERS, max_size=4), ANY_JSON, max_size=2)
        fields = {name: self._property(name, value) for name, value in properties.items()}
        required = {name: fields[name] for name in schema.get("required", ())}
        optional = {name: fields[name] for name in fields if name not in required}
        declared = st.fixed_dictionaries(required, optional=optional)
        unknown = st.sampled_from([name for name in OWN_NAMES if name not in properties])
        further = st.just({}) | st.dictionaries(unknown, ANY_JSON, max_size=2)
        return st.builds(lambda known, more: {**more, **known}, declared, further)

    def _property(self, name: str, schema: Schema) -> Strategy:
        plain = self._of(schema)
        return plain | self._preferred[name] if name in self._preferred else plain


def _text(schema: Schema) -> Strategy:
    if schema.get("format") == "date-time":
        return st.datetimes(timezones=ZONES).map(lambda moment: moment.isoformat())
    least, most = schema.get("minLength", 0), schema.get("maxLength", 40)
    text = st.text(CHARACTERS, min_size=least, max_size=min(most, least + 40))
    pattern = schema.get("pattern")
    if pattern is None:
        return text
    if pattern == r"\S":
        return st.builds(str.__add__, st.sampled_from(string.ascii_letters), text)
    if pattern == r"^[0-9a-f]{64}$":
        return st.text("0123456789abcdef", min_size=64, max_size=64)
    raise NotImplementedError(pattern)
