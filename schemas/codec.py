"""Bytes to messages and back. The only place where a message's JSON is read or written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.failures import describe
from palimpsest.schemas.limits import DEFAULT_MAX_RECORD_BYTES
from palimpsest.schemas.messages import SCHEMAS
from palimpsest.schemas.topics import Topic

CONTENT_TYPE: Final = "application/json"
MAX_DEPTH: Final = 64
"""Levels that the objects and arrays of a producer's record may be nested. The pipeline wraps what
it reads, and JSON readers give up at 200 levels: what is taken must stay readable when wrapped."""

IMPORT_DEPTH: Final = 5
"""Levels that the record of an import has around a line: what was taken, and exported, can be taken
again."""

_DECLARED: Final = re.compile(r"([a-z][a-z0-9-]*)/([1-9][0-9]{0,5})")
_JSON_NAMES: Final = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
_OFFSET: Final = re.compile(r"\d:[^+-]*([+-])(\d\d):?(\d\d)")
_ADAPTERS: dict[str, TypeAdapter[Envelope[Frozen]]] = {}


class InvalidRecord(ValueError):
    """A record that is not a message of its topic. The text says what, where and what to do."""


def adapter(schema: str) -> TypeAdapter[Envelope[Frozen]]:
    """The validator of the envelope with the body of `schema`; built once."""
    known = _ADAPTERS.get(schema)
    if known is None:
        # Subscribed at run time: the type checker knows the body as Frozen only.
        envelope = cast("type[Envelope[Frozen]]", Envelope.__class_getitem__(SCHEMAS[schema]))
        known = _ADAPTERS[schema] = TypeAdapter(envelope)
    return known


def encode(message: Envelope[Frozen]) -> bytes:
    """One JSON object, UTF-8. `recorded_at` is left out: the log sets it.

    A null field, known or not, is the same as an absent one and is not written.
    Raises ValueError for a body that is not of the declared schema: it would be cut to the
    fields that it shares with it.
    """
    expected = SCHEMAS.get(message.schema_)
    if type(message.body) is not expected:
        raise ValueError(
            f"message {message.id} declares {message.schema_!r}"
            f" but its body is a {type(message.body).__name__}"
        )
    return adapter(message.schema_).dump_json(
        message, by_alias=True, exclude={"recorded_at"}, exclude_none=True
    )


def decode(
    value: bytes | None,
    topic: Topic,
    recorded_at: datetime | None,
    max_bytes: int = DEFAULT_MAX_RECORD_BYTES,
) -> Envelope[Frozen]:
    """The message in `value`, lifted to the current version of its schema.

    `max_bytes` and MAX_DEPTH bound what producers send; what the pipeline makes of it may be
    larger (a dead letter holds a whole record) and is never refused for its size.
    Of a key that stands twice in a JSON object the last one counts. A `recorded_at` in the
    bytes is ignored. Raises InvalidRecord when the bytes are missing, too large, nested too deep,
    no JSON object, of a schema that does not belong on `topic`, of an unknown version, or not valid
    by their schema.
    """
    if value is None:
        raise InvalidRecord("the record has no value")
    if topic.open_to_producers:
        if len(value) > max_bytes:
            raise InvalidRecord(
                f"the record has {len(value)} bytes, more than the {max_bytes} allowed"
                " (setting log.max_record_bytes); split the turn or raise the limit"
            )
        refuse_depth(value)
    message = _decode_current(value, topic)
    if message is None:
        return _decode_any(value, topic, recorded_at)
    # Not a copy: no other code has seen the message yet.
    message.__dict__["recorded_at"] = recorded_at
    return message


def refuse_depth(value: bytes) -> None:
    """Raises InvalidRecord for a record that is nested so deeply that no stage would take it."""
    depth = nesting(value) if value.count(b"{") + value.count(b"[") > MAX_DEPTH else 0
    if depth > MAX_DEPTH + IMPORT_DEPTH or (depth > MAX_DEPTH and not _imports(value)):
        raise InvalidRecord(
            f"the record's objects and arrays are nested deeper than {MAX_DEPTH} levels;"
            " send deep structures as text, for example metadata as a JSON string"
        )


def _imports(value: bytes) -> bool:
    """Whether a record, nested but little too deeply, is the command of an import."""
    try:
        node = from_json(value)
    except ValueError:
        return False
    for name in ("body", "command", "command"):
        node = node.get(name) if isinstance(node, dict) else None
    return bool(node == "import")


def nesting(value: bytes) -> int:
    """Returns how many levels deep the objects and arrays of a JSON text are nested."""
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub(b"", value)):
        if bracket.group() in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def utc_offset_minutes(value: bytes | None) -> int:
    """Returns the offset with which a record's `occurred_at` was written, which its message no
    longer has: the meaning of "yesterday" depends on it. 0 for UTC and if there is none."""
    try:
        raw = from_json(value or b"")
    except ValueError:
        return 0
    written = raw.get("occurred_at") if isinstance(raw, dict) else None
    return written_offset_minutes(written) if isinstance(written, str) else 0


def written_offset_minutes(written: str) -> int:
    """Returns the offset in an ISO 8601 text; 0 for UTC and if there is none."""
    match = _OFFSET.search(written)
    if match is None:
        return 0
    minutes = int(match.group(2)) * 60 + int(match.group(3))
    return 0 if minutes >= 24 * 60 else minutes if match.group(1) == "+" else -minutes


def _decode_current(value: bytes, topic: Topic) -> Envelope[Frozen] | None:
    """The fast path for valid messages of the current version; None sends the record to the slow
    path."""
    # The validating parser takes these for numbers; JSON does not know them.
    if len(topic.schemas) != 1 or b"NaN" in value or b"Infinity" in value:
        return None
    try:
        message = adapter(topic.schemas[0]).validate_json(value)
    except ValidationError:
        return None
    return message if message.schema_ == topic.schemas[0] else None


def _decode_any(value: bytes, topic: Topic, recorded_at: datetime | None) -> Envelope[Frozen]:
    try:
        raw = from_json(value, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRecord(f"not JSON in UTF-8: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRecord(f"not a JSON object but {_JSON_NAMES[type(raw)]}")
    declared = raw.get("schema")
    if not isinstance(declared, str):
        raise InvalidRecord(
            f'no "schema" in the record; on {topic.name} it is one of {", ".join(topic.schemas)}'
        )
    match = _DECLARED.fullmatch(declared)
    name, version = match.groups() if match else ("", "0")
    current = next((s for s in topic.schemas if s.partition("/")[0] == name), None)
    if current is None:
        raise InvalidRecord(
            f"schema {declared[:80]!r} does not belong on {topic.name};"
            f" expected {', '.join(topic.schemas)}"
        )
    if declared != current and not _lift(raw, name, int(version), current):
        raise InvalidRecord(
            f"schema version {declared!r} is unknown here (current is {current});"
            " a newer program must read it"
        )
    raw["recorded_at"] = recorded_at
    try:
        return adapter(current).validate_python(raw)
    except ValidationError as error:
        raise InvalidRecord(f"not a valid {current}: {describe(error)}") from error


def identified(value: bytes | None, topic: Topic, recorded_at: datetime) -> Envelope[Frozen]:
    """Returns the envelope, with an empty body, of a record that is no valid message but has a
    readable id and scope. Raises ValueError for one without them."""
    raw = from_json(value or b"")
    if not isinstance(raw, dict):
        raise InvalidRecord(f"not a JSON object but {_JSON_NAMES[type(raw)]}")
    correlation = raw.get("correlation_id")
    return Envelope[Frozen].model_validate(
        {
            "id": raw.get("id"),
            "schema": topic.schemas[0],
            "scope": raw.get("scope"),
            "occurred_at": recorded_at,
            "recorded_at": recorded_at,
            "correlation_id": correlation if isinstance(correlation, str) else raw.get("id"),
            "body": {},
        }
    )


def _lift(raw: dict[str, object], name: str, version: int, current: str) -> bool:
    try:
        return upcast(name, version, int(current.partition("/")[2]), raw) is not None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # The old version's form is not validated before: an upcast may trip over anything.
        raise InvalidRecord(
            f"not a valid {name}/{version}: it cannot be lifted to {current}"
            f" ({type(error).__name__}: {error})"
        ) from error


def json_schema(schema: str) -> dict[str, object]:
    """JSON Schema (2020-12) of the whole message, for producers and consumers in any language."""
    generated = adapter(schema).json_schema(by_alias=True, mode="validation")
    properties = generated["properties"]
    properties.pop("recorded_at", None)
    properties["schema"] = {"const": schema, "type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:palimpsest:{schema}",
        **generated,
    }


def render_json_schema(schema: str) -> str:
    """The text of the generated file of `schema` under schemas/json/."""
    return json.dumps(json_schema(schema), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


# Lifting older message versions to the current one. A function lifts by exactly one version and
# changes the raw JSON object in place. It is added together with the new version's golden file; a
# golden file of an older version is never edited.

Upcast = Callable[[dict[str, object]], None]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(schema name, version lifted from) to the function that lifts to the next version."""


def upcast(
    name: str,
    version: int,
    current: int,
    raw: dict[str, object],
    upcasts: dict[tuple[str, int], Upcast] = UPCASTS,
) -> dict[str, object] | None:
    """Returns `raw` lifted from `version` to `current`, or None if there is no upcast path."""
    for step in range(version, current):
        lift = upcasts.get((name, step))
        if lift is None:
            return None
        lift(raw)
        raw["schema"] = f"{name}/{step + 1}"
    return raw if version <= current else None
