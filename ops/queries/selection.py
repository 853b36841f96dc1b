"""What to forget or to erase: the fields by which memories are chosen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

from palimpsest.ops.operations.operation import (
    Doc,
    MinScore,
    Roles,
    Scope,
    Since,
    Tags,
    Texts,
    Types,
    Until,
    Who,
)
from palimpsest.ops.queries.errors import RequestError

MemoryIds = Annotated[
    Texts,
    Doc(
        "ids of memories, or their first 8 characters (whole over HTTP)",
        max_length=200,
        item_length=64,
        argument=True,
        metavar="ID…",
    ),
]
Cascade = Annotated[bool, Doc("also what was drawn from nothing else", option="--cascade")]
Query = Annotated[
    str | None,
    Doc("what is found for this question", min_length=1, max_length=100_000, not_blank=True),
]
SourceType = Annotated[str | None, Doc("of this kind of source", min_length=1, max_length=256)]
Limit = Annotated[
    int | None, Doc("maximum number of memories; else 200, and 20 of a question", ge=1, le=200)
]


CRITERIA = ("query", "types", "tags", "who", "roles", "source_type", "since", "until")
"""What memories can be chosen by, beside ids."""


@dataclass(frozen=True)
class Selection:
    """What to forget: by ids, by a question, or by what all other fields say."""

    memory_ids: MemoryIds = ()
    scope: Scope = ""
    query: Query = None
    types: Types = ()
    tags: Tags = ()
    who: Who = None
    roles: Roles = ()
    min_score: MinScore = None
    source_type: SourceType = None
    since: Since = None
    until: Until = None
    limit: Limit = None
    cascade: Cascade = False

    def check_selection(self) -> None:
        """Raise RequestError where nothing is said that memories could be chosen by."""
        if not self.memory_ids and not any(getattr(self, name) for name in CRITERIA):
            raise RequestError(
                "nothing says what to forget; name ids, a question, or a type, tag, person, role,"
                " source type or time"
            )

    @property
    def is_by_ids(self) -> bool:
        """Whether memories are named and nothing else, so that none has to be searched for."""
        return bool(self.memory_ids) and not any(getattr(self, name) for name in CRITERIA)

    def selected(self) -> dict[str, Any]:
        """The fields of the selection."""
        return {each.name: getattr(self, each.name) for each in fields(Selection)}


@dataclass(frozen=True)
class PreviewSelection(Selection):
    """What a preview is of: `hard` also shows what was forgotten before."""

    hard: Annotated[bool, Doc("what erasing would erase")] = False
