"""The words of the program itself: what a text can be without telling anything."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Final

from pydantic import BaseModel

from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.messages import SCHEMAS
from palimpsest.schemas.row_types import ROW_TYPES
from palimpsest.schemas.rows import columns_of
from palimpsest.schemas.topics import TOPICS

SOURCES: Final = frozenset({"conversation", "extraction", "manual", "document", "self-taught"})
"""Kinds of sources that the program knows; of others the name may tell something."""
EDGES: Final = frozenset(
    {"temporal", "causal", "entity", "derived_from", "supersedes", "restates", "contradicts"}
)
"""Relations that the program draws between memories."""
_WORDS: Final = (
    EDGES
    | SOURCES
    | {"episodic", "document-chunk", "unknown", "local", "pipeline"}
    | {"dead", "turn stored", "graph updated", "imported"}
)
_STAGES: Final = frozenset(
    {"normalize", "extract", "decide", "apply-writes", "graph-persist", "audit"}
)
PLAIN: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:@\d{1,19})?|[0-9a-f]{64}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]{0,10}(?:Z|[+-]\d\d:?\d\d)?"
    r"|erased (?:[0-9a-f-]{36}(?: \d{1,9})?|\d{1,9})|\[erased [0-9a-f]{32}\]",
    re.ASCII | re.IGNORECASE,
)
"""Ids (of a memory's state too), hashes, times, and what was scrubbed before."""


@cache
def vocabulary() -> frozenset[str]:
    """All words that a closed field of a message can have."""
    literals = {word for part in _parts() for word in _literals(part)}
    return frozenset(literals) | _WORDS | _STAGES | SCHEMAS.keys() | TOPICS.keys()


@cache
def field_names() -> frozenset[str]:
    rows = {name for row_type in ROW_TYPES for name in columns_of(row_type)}
    models = {name for part in _parts() if isinstance(part, type) for name in part.model_fields}
    others = {"drawn_from", "source_memory", "before", "schema", "erased_item_id"}
    return frozenset(rows | models | others)


@cache
def _parts() -> tuple[type[BaseModel], ...]:
    """The classes of all messages and of their parts."""
    found: dict[type[BaseModel], None] = {}
    left: list[object] = [Envelope[Frozen], *SCHEMAS.values()]
    while left:
        each = left.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            if each not in found:
                found[each] = None
                left += [info.annotation for info in each.model_fields.values()]
        else:
            left += typing.get_args(each)
    return tuple(found)


def _literals(part: type[BaseModel]) -> Iterator[str]:
    left: list[object] = [info.annotation for info in part.model_fields.values()]
    while left:
        each = left.pop()
        if typing.get_origin(each) is typing.Literal:
            yield from (word for word in typing.get_args(each) if isinstance(word, str))
        elif isinstance(each, types.UnionType) or typing.get_origin(each) is not None:
            left += typing.get_args(each)


def is_plain(text: str) -> bool:
    """Whether a text cannot tell anything: an id, a hash, a time or a word of the program's."""
    return text in vocabulary() or PLAIN.fullmatch(text) is not None
