"""The words of the program itself: what a text can be without telling anything."""

from __future__ import annotations

import re
import typing
from functools import cache
from typing import Final

from pydantic import BaseModel, JsonValue

from palimpsest.schemas.envelope import Envelope, Frozen
from palimpsest.schemas.erasure.quotations import ERASED, is_mark
from palimpsest.schemas.messages import SCHEMAS
from palimpsest.schemas.rows.columns import columns_of
from palimpsest.schemas.rows.row_types import ROW_TYPES
from palimpsest.schemas.topics import TOPICS

SOURCES: Final = frozenset(
    {"conversation", "extraction", "manual", "document", "profile", "self-taught"}
)
"""Kinds of sources that the program knows; of others the name may tell something."""
EDGES: Final = frozenset(
    {"temporal", "causal", "entity", "derived_from", "supersedes", "restates", "contradicts"}
)
"""Relations that the program draws between memories."""
_NOTED: Final = frozenset(
    {"proposed_action", "target_id", "fact", "fact_type", "confidence", "decision_reason"}
    | {"candidates", "source_memory", "extraction_model", "prompt_version", "decision_model"}
    | {"fact_count", "entity_count", "contradiction_risk", "review_needed", "round", "warnings"}
    | {"blocked_reason", "skipped_reason", "was", "drawn_from", "lowered", "confirmed"}
)
"""The program's notes about the outcome of a memory: their texts are redacted like all others."""
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
    words, _ = _of_messages()
    return words | _WORDS | _STAGES | SCHEMAS.keys() | TOPICS.keys()


@cache
def field_names() -> frozenset[str]:
    rows = {name for row_type in ROW_TYPES for name in columns_of(row_type)}
    _, fields = _of_messages()
    others = {"drawn_from", "source_memory", "before", "schema", "erased_item_id"}
    return fields | rows | others


@cache
def _of_messages() -> tuple[frozenset[str], frozenset[str]]:
    """The words of closed fields, and the names of all fields, of messages and their parts."""
    words: set[str] = set()
    fields: set[str] = set()
    found: set[type[BaseModel]] = set()
    left: list[object] = [Envelope[Frozen], *SCHEMAS.values()]
    while left:
        each = left.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            if each not in found:
                found.add(each)
                fields |= each.model_fields.keys()
                left += [info.annotation for info in each.model_fields.values()]
        elif typing.get_origin(each) is typing.Literal:
            words.update(word for word in typing.get_args(each) if isinstance(word, str))
        else:
            left += typing.get_args(each)
    return frozenset(words), frozenset(fields)


def is_plain(text: str) -> bool:
    """Whether a text cannot tell anything: an id, a hash, a time or a word of the program's."""
    return text in vocabulary() or PLAIN.fullmatch(text) is not None


def plain_part(node: JsonValue) -> JsonValue:
    """Keeps the program's notes about an event, and of anything else only what reveals nothing."""
    if isinstance(node, dict):
        known = field_names()
        return {
            name: each if name in _NOTED else plain_part(each)
            for name, each in node.items()
            if name in known | _NOTED
        }
    if isinstance(node, list):
        return [plain_part(each) for each in node]
    is_word = isinstance(node, str) and not is_mark(node) and not is_plain(node)
    return ERASED if is_word and node else node
