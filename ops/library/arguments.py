"""What the methods of the library take, and its checks."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, TypedDict, TypeVar, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from palimpsest.ops.queries.errors import RequestError
from palimpsest.schemas.codec import describe
from palimpsest.schemas.commands import Structure

T = TypeVar("T")
MOST = 10_000
"""Results that may be asked for at once."""


class Filters(TypedDict, total=False):
    """What a recall may be narrowed by, as `palimpsest.stores.recall.query.Query` explains it."""

    types: Sequence[str]
    tags_any: Sequence[str]
    tags_all: Sequence[str]
    who: str
    pinned: bool
    importance_min: float
    project: str
    session: str
    since: datetime
    until: datetime
    as_of: datetime
    categories: Sequence[str]
    valid_at: datetime
    group: bool
    explain: bool
    neighbours: int
    rerank: bool
    roles: Sequence[str]
    asked_at: datetime
    min_score: float


class Facts(TypedDict, total=False):
    """What a remembered text may be given besides itself."""

    type: str
    importance: float
    tags: Sequence[str]
    pinned: bool
    who: str
    project: str
    session_id: str
    source_type: str
    source_id: str
    structured: Structure | Mapping[str, JsonValue]
    metadata: dict[str, JsonValue]
    self_taught: bool
    lineage: int


class Patch(TypedDict, total=False):
    """What of a memory may be changed."""

    content: str
    type: str
    importance: float
    tags: Sequence[str]
    pinned: bool
    who: str
    if_version: int


class Selection(TypedDict, total=False):
    """What is to be forgotten, beside ids: active memories for a question, of any of the types,
    with any of the tags, said by somebody, in any of the roles or drawn from that, told in a time.
    What the question hardly finds is chosen only with a `min_score`."""

    query: str
    types: Sequence[str]
    tags: Sequence[str]
    who: str
    source_type: str
    since: datetime
    until: datetime
    limit: int
    roles: Sequence[str]
    min_score: float


def flag(value: object) -> str:
    """The value of a setting as a flag has it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Making one takes milliseconds, longer than most answers."""
    return TypeAdapter(kind)


def checked(kind: type[T], **given: Any) -> T:
    """A request or command, of what a program passed. Raises RequestError."""
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    model = cast("type[BaseModel]", kind)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else [*model.model_fields]
    for name in given.keys() - {*names}:
        near = difflib.get_close_matches(name, names, 1, 0.5)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"{name}: there is no such argument{meant}")
    try:
        made: T = _adapter(cast("Any", kind)).validate_python(given)
    except ValidationError as error:
        raise RequestError(describe(error)) from None
    for name in ("since", "until", "as_of", "valid_at", "asked_at"):
        time = given.get(name)
        if isinstance(time, datetime) and time.tzinfo is None:
            raise RequestError(f"{name}: the time has no zone; give it one, as datetime.UTC")
    if not 1 <= int(given.get("limit", 1)) <= MOST:
        raise RequestError(f"limit: from 1 to {MOST:,}, not {given['limit']}")
    return made
