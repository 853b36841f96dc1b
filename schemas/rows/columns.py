"""The rows of the stores: what stages write and read, as plain frozen data.

One class a table. A field is a column, with its meaning and marks: the tables, the comments of
views, what the state hash leaves out and the lines of an export are made from these classes. Times
are UTC. JSON columns hold text.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel

# Annotations are read while the program runs, so they are not postponed here.


class Mark(Enum):
    """What follows from a column."""

    UNIQUE = auto()
    """No value stands twice."""
    APPEND_TIME = auto()
    """A log's append time, or text with one: equal after a rebuild from the same log, different
    when the same turns are published again. The state hash includes it on demand."""
    SCHEDULE = auto()
    """It depends on batching, repeats and speed: it orders or measures, and does not say what is
    remembered. Not in the state hash."""
    NOT_KNOWN_BEFORE = auto()
    """No migration can fill it: a store of an earlier release lacks what a rebuild from its log
    has, or has another time, and holds the same memory all the same. Not in the state hash."""
    NOT_EXPORTED = auto()
    """It follows from other columns or belongs to this store (of tables that are exported)."""


UNIQUE, APPEND_TIME, SCHEDULE, NOT_KNOWN_BEFORE, NOT_EXPORTED = Mark


@dataclass(frozen=True, slots=True)
class Since:
    """The number of the migration that added a column. Rows of before have the default."""

    migration: int


@dataclass(frozen=True, slots=True)
class Row:
    """Base of all rows. `since` is the number of the migration that added the table; `read_from`
    is the view to read instead where the table has only some of the rows.

    `indexed`: whether the database has an index of the key. It takes 60 to 150 bytes a row and is
    used to read single rows by a key of one column. A unit of work finds repeats without it.

    `rewritten`: stages read such rows before they write them, so the newest one counts. Of all
    others the first one counts unless it was read: a repeat under another message id changes
    nothing."""

    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]
    SINCE: ClassVar[int] = 1
    INDEXED: ClassVar[bool] = True
    REWRITTEN: ClassVar[bool] = False
    SOURCE: ClassVar[str]

    def __init_subclass__(
        cls,
        table: str = "",
        key: tuple[str, ...] = (),
        since: int = 1,
        indexed: bool = True,
        rewritten: bool = False,
        read_from: str = "",
    ) -> None:
        if table:  # dataclass() makes a class with slots a second time, without arguments
            cls.TABLE, cls.KEY, cls.SINCE, cls.INDEXED = table, key, since, indexed
            cls.REWRITTEN, cls.SOURCE = rewritten, read_from or table

    @property
    def key(self) -> tuple[object, ...]:
        # A list is read much quicker than a generator, and many keys are made a turn.
        return tuple([getattr(self, name) for name in self.KEY])


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `default` is MISSING where every row names a value; `since` is 0 for a
    column that is as old as its table."""

    name: str
    type: type
    is_list: bool
    is_optional: bool
    default: object
    meaning: str
    marks: frozenset[Mark]
    since: int


RowT = TypeVar("RowT", bound=Row)
_columns: Final[dict[type[Row], Mapping[str, Column]]] = {}
_shared: Final[dict[tuple[type[Row], type], tuple[str, ...]]] = {}


def columns_of(row_type: type[Row]) -> Mapping[str, Column]:
    """The columns of a row type by name, in order."""
    if row_type not in _columns:
        found = fields(row_type)
        _columns[row_type] = {
            each.name: _column(each.name, each.type, each.default) for each in found
        }
    return _columns[row_type]


def shared(row_type: type[Row], source: "Row | BaseModel") -> dict[str, object]:
    """Returns the columns that a message or another row has under the same names as the row."""
    names = _shared.get((row_type, type(source)))
    if names is None:
        if isinstance(source, Row):
            known = {*columns_of(type(source))}
        else:
            known = {*type(source).model_fields}
        names = tuple(name for name in columns_of(row_type) if name in known)
        _shared[row_type, type(source)] = names
    return {name: getattr(source, name) for name in names}


def row_of(row_type: type[RowT], source: "Row | BaseModel", **given: object) -> RowT:
    """Returns a row with the `given` columns, and for the others what the source, a message or
    another row, has under the same names."""
    return row_type(**{**shared(row_type, source), **given})


def _column(name: str, annotation: object, default: object) -> Column:
    of_type, *marks = get_args(annotation)
    is_optional = isinstance(of_type, types.UnionType)
    if is_optional:
        of_type, _ = get_args(of_type)
    is_list = get_origin(of_type) is tuple
    if get_origin(of_type) is Literal:
        of_type = str
    return Column(
        name,
        get_args(of_type)[0] if is_list else of_type,
        is_list,
        is_optional,
        default,
        next(mark for mark in marks if isinstance(mark, str)),
        frozenset(mark for mark in marks if isinstance(mark, Mark)),
        next((mark.migration for mark in marks if isinstance(mark, Since)), 0),
    )


Scope = Annotated[str, "the memory space", NOT_EXPORTED]
MemoryId = Annotated[str, "id of the memory"]
ItemId = Annotated[str, "id of the turn or fact"]
SessionId = Annotated[str, "the session (conversation) it belongs to"]
Cost = Annotated[
    float | None, "what the reply cost, by the prices in the settings; NULL without them"
]
Appended = Annotated[datetime, APPEND_TIME]
MaybeAppended = Annotated[datetime | None, APPEND_TIME]
RecordedAt = Annotated[Appended, "when the record was appended to the log"]
