"""Checks requests and parses answers with pydantic models generated from the operations' fields."""

from __future__ import annotations

import difflib
import functools
import importlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.changing import Modify
from palimpsest.ops.operations.operation import Doc, Operation, Parameter, parameters
from palimpsest.ops.operations.shared import TimeWord, time_of_word
from palimpsest.schemas.failures import HALF_A_PAIR
from palimpsest.schemas.surrogates import halves

T = TypeVar("T")
O = TypeVar("O", bound=Operation[Any])  # noqa: E741


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


SPELLINGS: Final[Mapping[str, str]] = {"type": "types", "importance_min": "min_importance"}
"""Other spellings of fields that JSON requests may use, instead of the field's own name."""


class Strict(BaseModel):
    """Base of request models. Refuses unknown fields: a misspelled filter would have no effect."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    spellings: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _respelled(cls, values: object) -> object:
        if not isinstance(values, Mapping) or values.keys().isdisjoint(cls.spellings):
            return values
        # With both, the other spelling stays and is refused as an unknown field.
        names = {k: k if cls.spellings.get(k, k) in values else cls.spellings[k] for k in values}
        return {names[key]: value for key, value in values.items()}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Adds the other spellings, of which a request has one at most."""
        schema = handler(core)
        found = handler.resolve_ref_schema(schema)
        for other, name in cls.spellings.items():
            about = {"description": f"another spelling of `{name}`"}
            found["properties"][other] = {**found["properties"][name], **about}
            is_required = name in found.get("required", ())
            if is_required:
                found["required"].remove(name)
            one, both = (
                [{"required": [each]} for each in (name, other)],
                {"required": [name, other]},
            )
            found.setdefault("allOf", []).append({"oneOf": one} if is_required else {"not": both})
        return schema


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _dated(value: object) -> object:
    """A date is its first moment in UTC; a word (`shared.TimeWord`) is relative to now."""
    if isinstance(value, str) and (time_then := time_of_word(value)) is not None:
        return time_then
    if isinstance(value, str) and _DATE.fullmatch(value.strip()):
        try:
            value = date.fromisoformat(value.strip())
        except ValueError:
            return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    return value


def _calendar(value: object) -> object:
    """Refuses numbers, also as texts: pydantic would read them as a Unix time."""
    if isinstance(value, int | float) or (isinstance(value, str) and value.strip().isdecimal()):
        raise ValueError("write the time as a text, for example 2026-03-01 or 2026-03-01T09:30:00Z")
    return _dated(value)


def _counted(value: object) -> object:
    """Refuses true and false, which pydantic would read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Input should be a valid number")
    return value


def _decided(value: object) -> object:
    """Refuses numbers, which pydantic would read as true and false."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("Input should be true or false")
    return value


def _in_utc(value: T) -> T:
    """Refuses a time that UTC cannot represent."""
    if isinstance(value, datetime):
        try:
            value.astimezone(UTC)
        except OverflowError:
            raise ValueError("the time lies outside the years 1 to 9999 in UTC") from None
    return value


def _whole(value: object) -> object:
    """Refuses texts with half a surrogate pair: pydantic does so only where it measures a text."""
    if next(halves(value), None) is not None:
        raise ValueError(HALF_A_PAIR)
    return value


def _lowered(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _split(value: object) -> object:
    """Separates items at commas."""
    listed = _listed(value)
    if not isinstance(listed, tuple | list):
        return listed
    parts = (each.split(",") if isinstance(each, str) else [each] for each in listed)
    return tuple(part.strip() if isinstance(part, str) else part for each in parts for part in each)


def _paired(value: object) -> object:
    """Turns an object into `key=value` texts."""
    if not isinstance(value, Mapping):
        return _listed(value)
    for key, each in value.items():
        if "=" in str(key):
            raise ValueError(f"{key!r} has a =, so it cannot be asked for")
        if not isinstance(each, str | int | float):
            raise ValueError(f"{key}: give a text, a number, true or false")
    texts = ((k, v if isinstance(v, str) else json.dumps(v)) for k, v in value.items())
    return tuple(f"{key}={text}" for key, text in texts)


def _is_pair(text: str) -> str:
    if text.find("=") < 1:
        raise ValueError(f"{text!r} must be key=value")
    return text


def field_type(parameter: Parameter) -> Any:
    """The type of a parameter with its bounds, for pydantic."""
    doc: Any = parameter.doc
    plain: Any = parameter.plain_type
    is_optional = plain is not parameter.type
    is_text = plain is str
    if doc.model is not None:
        module, _, name = doc.model.partition(":")
        model = _annotated(getattr(importlib.import_module(module), name), AfterValidator(_known))
        plain = tuple.__class_getitem__((model, ...)) if get_origin(plain) is tuple else model
    elif plain is datetime:
        plain = _annotated(
            _annotated(AwareDatetime, AfterValidator(_in_utc)),
            BeforeValidator(_calendar, AwareDatetime | date | TimeWord),
        )
    elif plain == int | datetime:
        plain = _annotated(
            _annotated(int | AwareDatetime, AfterValidator(_in_utc)),
            BeforeValidator(
                lambda value: _dated(_counted(value)), int | AwareDatetime | date | TimeWord
            ),
        )
    bounds = {name: getattr(doc, name) for name in ("ge", "le")}
    if parameter.repeated and doc.model is None:
        plain = _several(get_args(plain)[0], doc)
    if is_text or parameter.repeated or get_origin(plain) is tuple:
        bounds |= {"min_length": doc.min_length, "max_length": doc.max_length}
    limits = {name: value for name, value in bounds.items() if value is not None}
    bounded = _annotated(plain, Field(**limits)) if limits else plain
    if plain in (int, float):
        bounded = _annotated(bounded, BeforeValidator(_counted))
    elif plain is bool:
        bounded = _annotated(bounded, BeforeValidator(_decided))
    elif is_text and doc.lower:
        bounded = _annotated(bounded, BeforeValidator(_lowered, str))
    if plain is str or get_origin(parameter.plain_type) in (tuple, dict):
        bounded = _annotated(bounded, BeforeValidator(_whole))
    if is_text and (doc.not_blank or doc.min_length):
        shown = Field(json_schema_extra={"pattern": r"\S" if doc.min_length else r"^$|\S"})
        bounded = _annotated(_annotated(bounded, AfterValidator(_not_blank)), shown)
    return bounded | None if is_optional else bounded


def _several(item: Any, doc: Doc) -> Any:
    """The type of a field with several texts, which may be given as one."""
    item = _annotated(item, Field(min_length=1, max_length=doc.item_length))
    item = _annotated(item, AfterValidator(_not_blank))
    if doc.lower:
        item = _annotated(item, BeforeValidator(_lowered, str))
    read: Any = _split if doc.split else _listed
    taken: Any = str | list[str]
    if doc.pairs:
        item = _annotated(item, AfterValidator(_is_pair))
        read, taken = _paired, taken | dict[str, str | float | bool]
    several: Any = tuple.__class_getitem__((item, ...))
    return _annotated(several, BeforeValidator(read, json_schema_input_type=taken))


def _not_blank(text: str) -> str:
    """Refuses a text of spaces and invisible characters only."""
    if text and not any(char.isprintable() and not char.isspace() for char in text):
        raise ValueError("must not be blank")
    return text


def _known(found: T) -> T:
    """Refuses fields that messages would pass on without an effect."""
    if isinstance(found, BaseModel):
        known = [*type(found).model_fields]
        for name in found.model_extra or ():
            raise ValueError(f"there is no field {name}; there are {', '.join(known)}")
        for name in known:
            _known(getattr(found, name))
    elif isinstance(found, tuple):
        for each in found:
            _known(each)
    return found


def _annotated(kind: Any, about: Any) -> Any:
    return Annotated.__class_getitem__((kind, about))  # type: ignore[attr-defined]


def model_of(
    kind: type[Operation[Any]],
    leave_out: tuple[str, ...] = (),
    surface: Literal["http", "command", "library"] | None = None,
) -> type[Strict]:
    """A model of the fields of a request, without `leave_out`; with a surface, only its fields."""
    return _model_of(kind, leave_out, surface)  # type: ignore[arg-type]


@functools.cache
def _model_of(kind: Any, leave_out: tuple[str, ...], surface: Any) -> type[Strict]:
    definitions: dict[str, Any] = {}
    for each in parameters(kind):
        if each.name in leave_out or (surface is not None and not each.on(surface)):
            continue
        about = Field(... if each.required else each.default, description=each.doc.text)
        definitions[each.name] = (field_type(each), about)
    made = create_model(kind.__name__, __base__=Strict, __doc__=kind.__doc__, **definitions)
    made.spellings = {
        other: name
        for other, name in SPELLINGS.items()
        if name in definitions and other not in definitions
    }
    return made


def checked(kind: type[O], values: Mapping[str, Any]) -> O:
    """Builds the request from values by name. Raises RequestError that names the wrong field."""
    names = [each.name for each in parameters(kind)]
    for name in values.keys() - {*names}:
        near = difflib.get_close_matches(name, names, 1, 0.5)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"{name}: there is no such argument{meant}")
    for name, value in values.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            raise RequestError(f"{name}: the time has no zone; give it one, as datetime.UTC")
    try:
        found = model_of(kind).model_validate({**values})
    except ValidationError as error:
        from palimpsest.schemas.failures import describe

        raise RequestError(describe(error)) from None
    return built(kind, found)


def built(kind: type[O], model: BaseModel | None, **others: Any) -> O:
    """Builds the request from a checked model and other fields. Raises RequestError for
    contradictory fields."""
    names = () if model is None else type(model).model_fields
    request = kind(**{name: _plain(getattr(model, name)) for name in names}, **others)
    request.validate()
    return request


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return value


def typed(kind: Any, answer: Any) -> Any:
    """Parses the JSON of an answer into its type."""
    return _adapter(kind).validate_python(answer)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Cached: creating an adapter takes milliseconds, longer than most answers."""
    return TypeAdapter(kind)


Reason = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]
Patch: type[Strict] = create_model(
    "Patch",
    __base__=model_of(Modify, ("reason", "scope", "self_taught", "key", "wait")),
    __doc__="What to change of one memory; what is not named stays.",
    reason=(Reason | None, Field(default=None, description="why; else that of all")),
)
"""The change of one memory in `modify_many`."""
Patch.spellings = {"id": "memory_id"}
