"""What an operation is: its request as plain data, its answer, and where it can be reached.

A subclass of Read or Write is the one definition of an operation. HTTP, the command line, the
library, MCP, the calls between workers and the reference pages are made from it (`ops/surfaces`).
Only the standard library is imported here and beside it, so that `palimpsest --help` stays fast;
what answers is imported when it is asked.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Sequence
from dataclasses import MISSING, Field, dataclass, fields
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
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from palimpsest.ops.settings.sections import Settings
    from palimpsest.ops.sources import Sources
    from palimpsest.schemas.commands import Command

if TYPE_CHECKING:
    Texts: TypeAlias = Sequence[str]
    """Several texts: a program may pass any sequence of them, or a single one; a checked request
    has a tuple."""
else:
    Texts = tuple[str, ...]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Json: TypeAlias = Any
"""A JSON value: what answers are until somebody wants them typed."""

Permission = Literal["remember", "recall", "modify", "forget", "recover", "sql", "admin"]
Rate = Literal["modify", "delete", "batch_forget"]
"""Which limit of requests a minute an operation counts against."""
Routing = Literal["scope", "id", "all", "any", "folder"]
"""Which worker has the answer: the one with the partition of `scope` (all of them where `scope` is
None); the one that knows the id; all of them together; whichever has one; or the data folder
itself, without any worker."""
Panel = Literal[
    "Start", "Ask", "Change", "Explain and review", "Data in and out", "Run and operate"
]
"""Under which heading `palimpsest --help` lists a command."""


@dataclass(frozen=True, slots=True)
class Doc:
    """What a field of a request means, and what it may hold. Said here once for the help, OpenAPI,
    MCP and the reference pages.

    `min_length` and `max_length` are of a text in characters, of a tuple in items; `item_length` is
    the most characters of each item. `not_blank`: a text of spaces alone is refused.
    `argument`: positional on the command line. `option`: its spelling there where that is not the
    field's name. `header`: the HTTP header that carries it. `surfaces`: where it can be given,
    None for everywhere. `model`: a class of pydantic, as "module:name", that describes a JSON
    object further.
    """

    text: str
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    item_length: int | None = None
    not_blank: bool = False
    argument: bool = False
    option: str | None = None
    metavar: str | None = None
    header: str | None = None
    surfaces: tuple[Literal["http", "command", "library"], ...] | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """Where an operation can be reached and by whom; what is None is not offered there.

    `http`: method and path; fields that the path names come from it. `status`: that of the answer.
    `also`: a permission that is needed besides.
    `command`: its words on the command line, and `panel` its heading there. `rate`: the limit that
    it counts against. `sees_all`: only for callers who may see every scope. `tool`: its name for
    agents over MCP. `overview`: it reads all that there is, so few of them run at once.
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


class Operation(Generic[R_co]):
    """A request as plain data; `R` is the type of its answer. The docstring describes it on every
    surface. The last line of one that is a command begins with `Example:`."""

    __slots__ = ()
    surface: ClassVar[Surface]
    slug: ClassVar[str]
    """Its name in the library, in calls between workers and in the reference."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.slug = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def validate(self) -> None:
        """Raise RequestError for fields that make no sense together."""

    def given(self) -> dict[str, Json]:
        """The fields that do not have their defaults, as JSON."""
        values = {each.name: getattr(self, each.name) for each in parameters(type(self))}
        defaults = {each.name: each.default for each in parameters(type(self))}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
            if value != defaults[name]
        }


class Read(Operation[R_co]):
    """An operation that changes no memory."""

    __slots__ = ()

    def read(self, sources: Sources) -> Json | Awaitable[Json]:
        """Its answer from open stores, as JSON of the shape of `R`. A plain function may block: it
        runs in a thread; else it is a coroutine function. Raises RequestError."""
        raise NotImplementedError(f"{type(self).__name__} is answered from the data folder")

    def read_folder(self, settings: Settings) -> Json:
        """For `folder` operations: the answer from the data folder alone. Blocks."""
        raise NotImplementedError(f"{type(self).__name__} is answered from the stores")

    def merge(self, answers: Sequence[Json]) -> Json:
        """One answer from those of all workers, in any order. Raises RequestError."""
        raise NotImplementedError(f"the answers of several workers to {self.slug} cannot be merged")

    def parts(self) -> Sequence[Operation[Any]]:
        """For an operation by several ids, one operation for each: every worker knows its own."""
        return (self,)


class Ask(Protocol):
    """Has an operation answered, as JSON."""

    async def __call__(self, operation: Operation[Any], /) -> Json: ...


Key = Annotated[
    str | None,
    Doc(
        "idempotency key: given again under the same key, it is done once",
        min_length=1,
        max_length=256,
        header="Idempotency-Key",
    ),
]
Wait = Annotated[
    float | None,
    Doc("seconds to wait for the result; else as set", ge=0, le=3600),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Operation[R_co]):
    """An operation that changes memory: it becomes a command in the log, which a worker executes.
    Its answer is what the command did, with the command's id."""

    key: Key = None
    wait: Wait = None
    patience: ClassVar[float] = 0.0
    """The least seconds that it waits unless `wait` is given."""

    def instead(self) -> Read[Any] | None:
        """What is read instead of changing anything, as a preview; None for a change."""
        return None

    def counts_against(self) -> Rate | None:
        """The limit of requests a minute that this one counts against."""
        return None if self.instead() is not None else self.surface.rate

    async def command(self, ask: Ask, settings: Settings) -> Command:
        """The command in the log. Ids are whole here, and `scope` names the scope. `ask` reads what
        must be known first. Raises RequestError."""
        raise NotImplementedError

    async def scope_of(self, ask: Ask) -> str:
        """The scope of the command, for an operation without a field `scope` or an id."""
        raise NotImplementedError


# ---- fields that many operations have ----
Scope = Annotated[
    str,
    Doc(
        "the memory space; else the caller's only one, or `default`",
        max_length=256,
        not_blank=True,
        option="--scope/-s",
    ),
]
"""Empty: the scope that the surface stands for."""
AnyScope = Annotated[
    str | None,
    Doc(
        "only of this memory space; else of all that the caller sees",
        min_length=1,
        max_length=256,
        not_blank=True,
        option="--scope/-s",
    ),
]
ScopeOfId = Annotated[
    str | None,
    Doc(
        "the memory space that it must lie in; else any that the caller sees",
        min_length=1,
        max_length=256,
        not_blank=True,
        option="--scope/-s",
    ),
]
MemoryId = Annotated[
    str,
    Doc(
        "a memory's id, or its first 8 characters (whole over HTTP)",
        min_length=1,
        max_length=64,
        argument=True,
        metavar="ID",
    ),
]
Reason = Annotated[str, Doc("why; kept in the history", max_length=2_000)]
RequiredReason = Annotated[
    str, Doc("why; kept in the history", min_length=1, max_length=2_000, not_blank=True)
]
IfVersion = Annotated[int | None, Doc("only while the memory is at this version", ge=1, le=2**62)]
Cursor = Annotated[str | None, Doc("the `next_cursor` of the page before", max_length=512)]
Question = Annotated[
    str,
    Doc(
        "what to look for, in any words",
        min_length=1,
        max_length=100_000,
        not_blank=True,
        argument=True,
    ),
]
AskedAt = Annotated[
    datetime | None,
    Doc("when the question is asked, from which its words for times count; else now"),
]
MinScore = Annotated[
    float | None, Doc("least score of a result, from 0 to 1; else as set", ge=0, le=1)
]
Types = Annotated[
    Texts,
    Doc(
        "of any of these types, as fact, preference, episodic (a turn)",
        max_length=50,
        item_length=256,
    ),
]
Tags = Annotated[Texts, Doc("with any of these tags", max_length=50, item_length=256)]
Categories = Annotated[Texts, Doc("of any of these categories", max_length=50, item_length=256)]
Roles = Annotated[
    Texts,
    Doc(
        "said in any of these roles (user, assistant, tool, system), or extracted from it",
        max_length=4,
        item_length=256,
    ),
]
Who = Annotated[str | None, Doc("said by this person, or extracted from it", max_length=256)]
SessionId = Annotated[str | None, Doc("of this session", max_length=256)]
Since = Annotated[datetime | None, Doc("stated at this time or later")]
Until = Annotated[datetime | None, Doc("stated before this time")]
ValidAt = Annotated[datetime | None, Doc("without what was true only until this time")]


Limit = Annotated[int, Doc("maximum number of results", ge=1, le=1_000)]
LongLimit = Annotated[int, Doc("maximum number of results", ge=1, le=10_000)]


# ---- what the surfaces read ----
@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a request. `type` is without the annotation's Doc; `default` is MISSING where it
    must be given."""

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
    """The type that is left of `X | None`."""
    left = [each for each in get_args(kind) if each is not type(None)]
    is_optional = len(left) < len(get_args(kind)) and get_origin(kind) is not tuple
    return left[0] if is_optional and len(left) == 1 else kind


_OF_WRITES: Final = ("key", "wait")


def parameters(kind: type[Operation[Any]]) -> tuple[Parameter, ...]:
    """The fields of a request, in order."""
    return _parameters(kind)  # type: ignore[arg-type]


@functools.cache
def _parameters(kind: Any) -> tuple[Parameter, ...]:
    hints = get_type_hints(kind, include_extras=True)
    made = [_parameter(each, hints[each.name]) for each in fields(kind)]
    # What every write has comes last.
    return tuple(sorted(made, key=lambda each: issubclass(kind, Write) and each.name in _OF_WRITES))


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
    """The docstring without its example, in paragraphs."""
    return _parts(kind)[0]


def example(kind: type[Operation[Any]]) -> str | None:
    """The command of the docstring's last line."""
    return _parts(kind)[1]


EXAMPLE: Final = "Example: "


def _parts(kind: type[Operation[Any]]) -> tuple[str, str | None]:
    import inspect

    text = inspect.cleandoc(kind.__doc__ or "")
    before, _, after = text.partition(f"\n\n{EXAMPLE}")
    return before, after or None
