"""Failures of validations in plain words: without names of Python types, classes or patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

HALF_A_PAIR: Final = "has half a surrogate pair (half an emoji), which is no text"
WORDS: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "is missing",
    "string_unicode": HALF_A_PAIR,
    "int_type": "Input should be a whole number",
    "int_parsing_size": "Input should be a whole number of fewer digits",
    "int_parsing": "Input should be a whole number",
    "int_from_float": "Input should be a whole number",
    "float_parsing": "Input should be a number",
    "none_required": "Input should be null",
    "dict_type": "Input should be a valid object",
    "model_type": "Input should be a valid object",
    "model_attributes_type": "Input should be a valid object",
    "dataclass_type": "Input should be a valid object",
    "mapping_type": "Input should be a valid object",
    "tuple_type": "Input should be a valid array",
    "list_type": "Input should be a valid array",
    "set_type": "Input should be a valid array",
    "frozen_set_type": "Input should be a valid array",
    "is_instance_of": "Input is of another kind",
    "invalid-json-value": "Input should be a value that JSON has",
    "recursion_loop": "contains itself",
    "json_type": "Input should be JSON",
    "timezone_aware": "the time has no zone; write for example 2026-03-01T09:30:00Z",
}
"""Replaces texts of pydantic that are meant for programmers, by type of failure."""
_NO_TIME: Final = ("datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid")
_OF_FIELDS: Final = ("extra_forbidden", "missing")
_TYPE_NAMES: Final = frozenset(
    (
        *("str", "int", "float", "bool", "bytes", "none", "decimal", "date", "datetime", "time"),
        *("timedelta", "any", "dict", "list", "tuple", "set", "model", "lax", "strict"),
    )
)
_CLASS: Final = re.compile(r"[A-Z]\w*[a-z]\w*")
_COMPOUND: Final = re.compile(r"[a-z]+(?:-[a-z]+)*(?:\[.*\]|\(.*\))", re.DOTALL)


def describe(error: ValidationError, limit: int = 5) -> str:
    """The failures of a validation in one line, with where each lies and without the input."""
    found = failures(error.errors(include_url=False, include_input=False))
    lines = [f"{where or 'record'}: {why}" for where, why in found[:limit]]
    if len(found) > limit:
        lines.append(f"and {len(found) - limit} more")
    return "; ".join(lines)


def failures(errors: Iterable[ErrorDetails]) -> list[tuple[str, str]]:
    """Each place with what is wrong with it. A value that fails all types it may have fails once:
    what it might have been is joined by "or"."""
    found: dict[str, list[str]] = {}
    for each in errors:
        if each["type"] == "default_factory_not_called":
            continue  # it follows from another failure, which is told
        loc = each["loc"]
        # The last name is that of a field, however it is written.
        names = (*place(loc[:-1]), *loc[-1:]) if each["type"] in _OF_FIELDS else place(loc)
        where = ".".join(map(str, names))
        whys = found.setdefault(where, [])
        if (why := says(each)) not in whys:
            whys.append(why)
    return [(where, _joined(whys)) for where, whys in found.items()]


def place(loc: Iterable[int | str]) -> tuple[int | str, ...]:
    """Where a failure lies, without the names of the types that were tried there."""
    parts = tuple(loc)
    return tuple(
        part
        for number, part in enumerate(parts)
        if number == 0 or not isinstance(part, str) or not _is_type(part)
    )


def says(failure: ErrorDetails) -> str:
    """A failure in the terms of JSON, which has neither tuples, dictionaries nor classes."""
    kind, context = failure["type"], failure.get("ctx") or {}
    if kind == "union_tag_invalid":
        return f"{_bare(context['discriminator'])} should be one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{_bare(context['discriminator'])} is missing"
    if kind == "string_pattern_mismatch" and context.get("pattern") in (r"\S", r"^$|\S"):
        return "must not be blank"
    for name, limit in (("at least", "min_length"), ("at most", "max_length")):
        if kind in ("too_short", "too_long") and limit in context:
            count = context[limit]
            return f"Input should have {name} {count} item{'' if count == 1 else 's'}"
    if kind == "json_invalid":
        return f"is no valid JSON: {context.get('error', 'it ends too early')}"
    if kind == "string_too_short":
        least = context["min_length"]
        return (
            "must not be empty" if least == 1 else f"Input should have at least {least} characters"
        )
    if kind == "string_too_long":
        return f"Input should have at most {context['max_length']:,} characters"
    if kind in _NO_TIME:
        why = str(context.get("error", ""))
        reason = f": {why}" if "range" in why or "zone" in why else ""
        return f"is no time such as 2026-03-01T09:30:00Z{reason}"
    text = WORDS.get(kind) or failure["msg"]
    text = text.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text.replace("valid tuple", "valid array").replace("valid dictionary", "valid object")


def _is_type(part: str) -> bool:
    return (
        part in _TYPE_NAMES
        or _CLASS.fullmatch(part) is not None
        or _COMPOUND.fullmatch(part) is not None
    )


def _bare(name: str) -> str:
    return name.strip("'")


def _joined(whys: list[str]) -> str:
    start = "Input should be "
    if len(whys) > 1 and all(each.startswith(start) for each in whys):
        return start + " or ".join(each.removeprefix(start) for each in whys)
    return "; or ".join(whys)
