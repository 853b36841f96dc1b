"""Messages for tests: the golden files, and strategies for any message."""

from __future__ import annotations

import json
import types
import typing
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from palimpsest.schemas import generate
from palimpsest.schemas.envelope import Envelope, Frozen, UtcTime
from palimpsest.schemas.messages import SCHEMAS
from palimpsest.schemas.topics import ALL_TOPICS

GOLDEN = Path(__file__).parents[1] / "golden" / "messages"
TOPIC_OF = {schema: topic for topic in ALL_TOPICS for schema in topic.schemas}
Json = dict[str, JsonValue]


def golden(schema: str) -> Json:
    """The golden message of a schema, as JSON."""
    loaded: Json = json.loads((GOLDEN / generate.file_name(schema)).read_text(encoding="utf-8"))
    return loaded


def to_bytes(raw: object) -> bytes:
    """A record's value, not made by the encoder."""
    return json.dumps(raw, ensure_ascii=False).encode()


json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


texts = st.text(st.characters(codec="utf-8"), max_size=30)
moments = st.datetimes(
    datetime(1, 1, 2),
    datetime(9999, 12, 30),
    timezones=st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
)


def strategy(annotation: object, info: FieldInfo | None = None) -> st.SearchStrategy[object]:
    """Values of a field's type, within the bounds that its schema sets."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is JsonValue:
        return json_values
    if origin is typing.Annotated:
        if annotation == UtcTime:
            return moments
        field = next((extra for extra in arguments[1:] if isinstance(extra, FieldInfo)), info)
        return strategy(arguments[0], field)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(strategy(argument, info) for argument in arguments))
    if origin is tuple:
        if arguments[-1] is ...:
            smallest = bound(info, "min_length", 0)
            return st.lists(strategy(arguments[0]), min_size=smallest, max_size=3).map(tuple)
        return st.tuples(*(strategy(argument) for argument in arguments))
    if origin is dict:
        return st.dictionaries(texts, strategy(arguments[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        return models(annotation)
    return plain(annotation, info)


def plain(annotation: object, info: FieldInfo | None) -> st.SearchStrategy[object]:
    if annotation is type(None):
        return st.none()
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        return st.integers(bound(info, "ge", -(2**62)), bound(info, "le", 2**62))
    if annotation is float:
        share = bound(info, "le", 0) == 1
        return st.floats(0, 1) if share else st.floats(allow_nan=False, allow_infinity=False)
    if annotation is str:
        if any(getattr(extra, "pattern", None) for extra in (info.metadata if info else ())):
            return st.text("0123456789abcdef", min_size=64, max_size=64)
        return texts.map(lambda text: text or "x") if bound(info, "min_length", 0) else texts
    raise NotImplementedError(annotation)


def bound(info: FieldInfo | None, name: str, default: int) -> int:
    found = [getattr(extra, name, None) for extra in (info.metadata if info else ())]
    return next((int(value) for value in found if value is not None), default)


def models(model: type[Frozen]) -> st.SearchStrategy[Frozen]:
    hints = typing.get_type_hints(model, include_extras=True)
    fields = {
        name: strategy(hints[name], info) if hints[name] is not UtcTime else moments
        for name, info in model.model_fields.items()
    }
    return st.builds(model, **fields)


envelopes = st.sampled_from(sorted(SCHEMAS)).flatmap(
    lambda schema: st.builds(
        Envelope[Frozen],
        id=texts.map(lambda text: text or "x"),
        schema=st.just(schema),
        scope=texts.filter(lambda text: bool(text.strip())),
        occurred_at=moments,
        correlation_id=texts,
        causation_id=st.none() | texts,
        body=models(SCHEMAS[schema]),
        x_unknown=json_values.filter(lambda value: value is not None),
    )
)
