"""Defines an operation: its request as plain data, its answer, and where it is available.

A subclass of Read or Write is the only definition of an operation. HTTP, the command line, the
library, MCP, the calls between workers and the reference pages are generated from it
(`ops/surfaces`). This module and its neighbours import only the standard library, so that
`palimpsest --help` stays fast; handlers import the rest when called.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from palimpsest.ops.lifecycle.accesses import Accessed

if TYPE_CHECKING:
    from types import ModuleType

    from palimpsest.ops.reading.sources import Sources
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.schemas.commands import Command

if TYPE_CHECKING:
    Texts: TypeAlias = Sequence[str]
    """Several texts: programs may pass any sequence, or a single text; a checked request has a
    tuple."""
    Pairs: TypeAlias = Sequence[str] | Mapping[str, str | float | bool]
    """Texts `key=value`, which programs may pass as a mapping; a checked request has a tuple."""
else:
    Texts = Pairs = tuple[str, ...]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Json: TypeAlias = Any
"""A JSON value: the form of answers until a caller wants them typed."""

Permission = Literal["remember", "recall", "modify", "forget", "recover", "sql", "admin"]
Rate = Literal["modify", "delete", "batch_forget"]
"""The per-minute rate limit that an operation counts against."""
Routing = Literal["scope", "id", "all", "any", "folder"]
"""Which worker answers: the owner of the partition of `scope` (all workers if `scope` is None); the
one that knows the id; all of them together; the first that has an answer; or the data folder
itself, without a worker."""
Panel = Literal[
    "Start", "Ask", "Change", "Explain and review", "Data in and out", "Run and operate"
]
"""The heading of a command in `palimpsest --help`."""


@dataclass(frozen=True, slots=True)
class Doc:
    """The description and bounds of a request's field, for the help, OpenAPI, MCP and the reference
    pages.

    `min_length` and `max_length` count the characters of a text or the items of a tuple;
    `item_length` is the maximum number of characters of an item. `not_blank` refuses a text of
    spaces only. `split`: a comma separates items. `lower`: upper case is read as lower
    case. `pairs`: each item is `key=value`, and an object is accepted, too.
    `argument`: positional on the command line. `option`: its spelling there if it differs from the
    field's name. `header`: the HTTP header that carries it. `surfaces`: where it is accepted, None
    for everywhere. `model`: a pydantic class, as "module:name", that describes a JSON object in
    detail.
    """

    text: str
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    item_length: int | None = None
    not_blank: bool = False
    split: bool = False
    lower: bool = False
    pairs: bool = False
    argument: bool = False
    option: str | None = None
    metavar: str | None = None
    header: str | None = None
    surfaces: tuple[Literal["http", "command", "library"], ...] | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """Where an operation is available and to whom; None means not available there.

    `http`: method and path; the path provides the fields that it names. `status`: the status of the
    answer. `also`: a second required permission.
    `command`: its words on the command line, `panel`: its heading there. `rate`: the limit that it
    counts against. `sees_all`: only for callers who may see every scope. `tool`: its name for
    agents over MCP. `overview`: it reads everything, so only a few run at once. `needs_stages`: a
    command without a running worker runs the stages itself.
    """

    http: tuple[str, str] | None = None
    status: int = 200
    tag: str = "memories"
    command: str | None = None
    panel: Panel = "Ask"
    permission: Permission = "recall"
    also: Permission | None = None
    routing: Routing = "scope"
    rate: Rate | None = None
    sees_all: bool = False
    tool: str | None = None
    overview: bool = False
    needs_stages: bool = False


OPERATING: Final = functools.partial(
    Surface,
    tag="operation",
    panel="Run and operate",
    permission="admin",
    sees_all=True,
    routing="all",
)
"""Where those who operate a memory find what concerns all partitions."""


@dataclass_transform(frozen_default=True)
class Record:
    """Base of requests and answers: every subclass is a frozen dataclass."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        super().__init_subclass__()
        # A dataclass compiles six functions of its own. A program that starts has two hundred of
        # them and makes objects of two or three, so they share what can be written once; not with
        # a dataclass from elsewhere, which brings its own.
        own = not any(is_dataclass(e) and not issubclass(e, Record) for e in cls.__mro__)
        made = {"init": False, "repr": False, "eq": False} if own else {}
        dataclass(frozen=True, kw_only=kw_only, **made)(cls)

    def __init__(self, *given: Any, **named: Any) -> None:
        kind = type(self)
        own: tuple[Field[Any], ...] = fields(kind)  # type: ignore[arg-type]
        places = [each.name for each in own if not each.kw_only]
        values = dict(zip(places, given, strict=False))
        extra = [str(each) for each in given[len(places) :]]
        extra += [name for name in named if name in values or all(name != e.name for e in own)]
        if extra:
            raise TypeError(f"{kind.__name__} was given too much: {', '.join(extra)}")
        values |= named
        for each in own:
            if each.name not in values:
                if each.default_factory is not MISSING:
                    values[each.name] = each.default_factory()
                elif each.default is not MISSING:
                    values[each.name] = each.default
                else:
                    raise TypeError(f"{kind.__name__} was given no {each.name}")
        # In the order of the fields, as what is printed has it.
        self.__dict__.update({each.name: values[each.name] for each in own})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({shown})"


class Answer(Record):
    """What an operation answers, or a part of it: its JSON has the fields of the class."""


class Operation(Record, Generic[R_co]):
    """A request as plain data; `R` is the type of its answer. The docstring describes it on every
    surface; the docstring of a command ends with a line that begins with `Example:`."""

    surface: ClassVar[Surface]
    slug: ClassVar[str]
    """Its name in the library, in calls between workers and in the reference."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        super().__init_subclass__(kw_only)
        cls.slug = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def validate(self) -> None:
        """Raises RequestError for contradictory fields."""

    def is_done(self, answer: Json) -> bool:
        """Whether an answer reports no problem, for the exit code of the command."""
        is_plain = not isinstance(answer, dict)
        return is_plain or (not answer.get("refused") and answer.get("error") is None)

    def set_fields(self) -> dict[str, Json]:
        """The fields that differ from their defaults, as JSON."""
        values = {each.name: getattr(self, each.name) for each in parameters(type(self))}
        defaults = {each.name: each.default for each in parameters(type(self))}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
            if value != defaults[name]
        }


class Read(Operation[R_co]):
    """An operation that does not change memories."""

    def read(self, sources: Sources) -> Json | Awaitable[Json]:
        """Returns the answer from open stores, as JSON in the shape of `R`. A plain function may
        block, as it runs in a thread; otherwise it is a coroutine function. Raises RequestError."""
        raise NotImplementedError(f"{type(self).__name__} is answered from the data folder")

    def read_folder(self, settings: Settings) -> Json:
        """For `folder` operations: returns the answer from the data folder alone. Blocks."""
        raise NotImplementedError(f"{type(self).__name__} is answered from the stores")

    def accessed(self, answer: Json) -> Accessed | None:
        """What is recorded of the read; None for nothing."""
        return None

    order: ClassVar[tuple[str, ...]] = ("partition",)
    """The fields by which the rows of merged answers are sorted; one with a hyphen descends."""

    def merge(self, answers: Sequence[Json]) -> Json:
        """Merges the answers of all workers, in any order, as `merged`: their rows in `order`, up
        to the `limit` of the request. Raises RequestError."""
        whole = merged(answers)
        for rows in whole.values():
            if isinstance(rows, list) and rows and isinstance(rows[0], dict):
                for name in reversed(self.order):
                    rows.sort(key=_place(name.removeprefix("-")), reverse=name.startswith("-"))
                del rows[getattr(self, "limit", None) or len(rows) :]
        return whole

    def parts(self) -> Sequence[Operation[Any]]:
        """For an operation on several ids: one operation per id, as each worker knows its own."""
        return (self,)


def merged(parts: Sequence[Json]) -> Json:
    """One JSON value of several: lists are joined, numbers added, and objects merged by name; true
    is what is true of all, and of all else the first counts."""
    first = parts[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: merged([part[name] for part in parts if name in part]) for name in names}
    if isinstance(first, list):
        return [each for part in parts for each in part]
    if isinstance(first, bool):
        return all(parts)
    return sum(parts) if isinstance(first, int | float) else first


def _place(name: str) -> Callable[[Json], tuple[bool, Json]]:
    """The sort key of a row by a field, of a time by its moment; a row without it comes first."""

    def place(row: Json) -> tuple[bool, Json]:
        value = row.get(name)
        is_time = isinstance(value, str) and name.endswith("_at")
        return value is not None, datetime.fromisoformat(value) if is_time else value

    return place


class Ask(Protocol):
    """Executes an operation and returns its answer as JSON."""

    async def __call__(self, operation: Operation[Any], /) -> Json: ...


Key = Annotated[
    str | None,
    Doc(
        "idempotency key: a repetition with the same key has no further effect",
        min_length=1,
        max_length=256,
        header="Idempotency-Key",
    ),
]
Wait = Annotated[
    float | None, Doc("seconds to wait for the result; by default as configured", ge=0, le=3600)
]


class Write(Operation[R_co], kw_only=True):
    """An operation that changes memories: it becomes a command in the log, which a worker executes.
    Its answer is the effect of the command, with the command's id."""

    key: Key = None
    wait: Wait = None
    body: ClassVar[str] = ""
    """The class of its command in `schemas.commands`, whose fields are those of the same names."""
    patience: ClassVar[float] = 0.0
    """The minimum number of seconds that it waits when `wait` is unset."""

    def instead(self) -> Read[Any] | None:
        """A read to answer instead of making a change, as for a preview; None for a change. Its
        answer is one of the types of `R`."""
        return None

    @property
    def in_all_scopes(self) -> bool:
        """Whether it is a change of each scope that the caller sees, with a command for each."""
        return False

    def together(self, answers: Mapping[str, Json]) -> Json:
        """Returns the answer of such a change from its answers by scope, of at least one."""
        raise NotImplementedError

    def counts_against(self) -> Rate | None:
        """The rate limit that this request counts against."""
        return None if self.instead() is not None else self.surface.rate

    async def command(self, ask: Ask, settings: Settings) -> Command:
        """Builds the command for the log. Ids are whole here, and `scope` is set. `ask` reads what
        the command depends on. Raises RequestError."""
        from palimpsest.schemas import commands

        kind, changed = getattr(commands, self.body), self.set_fields()
        named = [
            name
            for name, each in kind.model_fields.items()
            if name in changed or (each.is_required() and hasattr(self, name))
        ]
        command: Command = kind.model_validate({name: getattr(self, name) for name in named})
        return command

    async def scope_of(self, ask: Ask) -> str:
        """Returns the scope of the command, for an operation without a `scope` or an id."""
        raise NotImplementedError


# ---- introspection for the surfaces ----
@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a request. `type` excludes the annotation's Doc; `default` is MISSING if the field
    is required."""

    name: str
    type: Any
    doc: Doc
    default: Any

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def repeated(self) -> bool:
        """Whether it holds several values."""
        return get_origin(self.plain_type) is tuple

    @property
    def plain_type(self) -> Any:
        """The type without None."""
        return without_none(self.type)

    def on(self, surface: Literal["http", "command", "library"]) -> bool:
        return self.doc.surfaces is None or surface in self.doc.surfaces


def without_none(kind: Any) -> Any:
    """The `X` of `X | None`."""
    left = [each for each in get_args(kind) if each is not type(None)]
    is_optional = len(left) < len(get_args(kind)) and get_origin(kind) is not tuple
    return functools.reduce(operator.or_, left) if is_optional else kind


_OF_WRITES: Final = ("key", "wait")


def parameters(kind: type[Operation[Any]]) -> tuple[Parameter, ...]:
    """The fields of a request, in order."""
    return _parameters(kind)  # type: ignore[arg-type]


@functools.cache
def _parameters(kind: Any) -> tuple[Parameter, ...]:
    hints = get_type_hints(kind, include_extras=True)
    found = [_parameter(each, hints[each.name]) for each in fields(kind)]
    is_write = issubclass(kind, Write)
    # The fields of every write come last.
    return tuple(sorted(found, key=lambda each: is_write and each.name in _OF_WRITES))


def _parameter(each: Field[Any], hint: Any) -> Parameter:
    doc = next((a for a in get_args(hint)[1:] if isinstance(a, Doc)), None)
    if doc is None:
        raise TypeError(f"the field {each.name} has no Doc that describes it")
    default = each.default_factory() if each.default_factory is not MISSING else each.default
    return Parameter(each.name, get_args(hint)[0], doc, default)


def answer_type(kind: type[Operation[Any]]) -> Any:
    """The `R` of an operation."""
    for base in (base for each in kind.__mro__ for base in vars(each).get("__orig_bases__", ())):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Operation):
            return get_args(base)[0]
    raise TypeError(f"{kind.__name__} does not say what it answers, as Read[Answer]")


def description(kind: type[Operation[Any]]) -> str:
    """The docstring without its example."""
    return _parts(kind)[0]


def example(kind: type[Operation[Any]]) -> str | None:
    """The example command in the docstring's last line."""
    return _parts(kind)[1]


EXAMPLE: Final = "Example: "


def _parts(kind: type[Operation[Any]]) -> tuple[str, str | None]:
    import inspect

    text = inspect.cleandoc(kind.__doc__ or "")
    before, _, after = text.partition(f"\n\n{EXAMPLE}")
    return before, after or None


def defined_in(module: ModuleType) -> tuple[type[Operation[Any]], ...]:
    """The operations of a module in order: its classes that have a `surface`."""
    return tuple(
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Operation)
        and value.__module__ == module.__name__
        and "surface" in vars(value)
    )
