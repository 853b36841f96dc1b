"""Tools for agents, made from the operations that name one (`Surface.tool`).

A tool has the fields of the request as arguments, described as elsewhere, and the answer as JSON.
`Words` describe it for agents instead: fewer arguments, shorter texts, shorter answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from pydantic_core import to_jsonable_python

from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.operation import Operation, Parameter, description, parameters

if TYPE_CHECKING:
    from palimpsest.ops.library.memory_methods import AsyncMethods

AnyOperation = Operation[Any]
NOT_FOR_AGENTS: Final = frozenset({"scope", "key", "wait"})
"""Fields that a tool has no argument for: an agent works in one scope."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool. `name` is that of the field, where the agent's name for it differs;
    `required`: also where the operation has a default."""

    text: str
    name: str = ""
    ge: float | None = None
    le: float | None = None
    required: bool = False


@dataclass(frozen=True)
class Words:
    """What a tool says to agents: `text` describes it, `arguments` are all that it has. `shown`
    makes the answer of the type `answer`; `call` answers where that takes more than one operation,
    with `more` arguments by their types."""

    text: str
    arguments: Mapping[str, Argument]
    answer: Any = None
    shown: Callable[[Any], Any] | None = None
    call: Callable[[AsyncMethods, dict[str, Any]], Awaitable[Any]] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def tool_of(
    kind: type[AnyOperation], memory: Callable[[], AsyncMethods], words: Words | None
) -> Callable[..., Awaitable[Any]]:
    """The tool of an operation, for the memory that `memory` returns for each call."""

    async def call(**given: Any) -> Any:
        if words is None:
            return to_jsonable_python(await memory().send(checked(kind, given)))
        names = {name: words.arguments[name].name or name for name in given.keys() - words.more}
        values = {names.get(name, name): value for name, value in given.items()}
        if words.call is not None:
            return await words.call(memory(), values)
        answer = await memory().send(checked(kind, values))
        return answer if words.shown is None else words.shown(answer)

    call.__name__ = str(kind.surface.tool)
    call.__doc__ = description(kind) if words is None else words.text
    arguments = [*(_all_fields(kind) if words is None else _chosen(kind, words))]
    arguments.sort(key=lambda each: each.default is not inspect.Parameter.empty)
    answer = dict[str, Any] if words is None else words.answer
    call.__signature__ = inspect.Signature(arguments, return_annotation=answer)  # type: ignore[attr-defined]
    return call


def _all_fields(kind: type[AnyOperation]) -> Iterator[inspect.Parameter]:
    for each in parameters(kind):
        if each.name not in NOT_FOR_AGENTS and each.on("library"):
            bounds = {"ge": each.doc.ge, "le": each.doc.le}
            yield _argument(each.name, each.type, each.default, each.doc.text, bounds)


def _chosen(kind: type[AnyOperation], words: Words) -> Iterator[inspect.Parameter]:
    known = {each.name: each for each in parameters(kind)}
    for name, said in words.arguments.items():
        if name in words.more:
            yield _argument(name, words.more[name], None, said.text, {})
            continue
        found: Parameter = known[said.name or name]
        default = MISSING if said.required else found.default
        bounds = {
            "ge": found.doc.ge if said.ge is None else said.ge,
            "le": found.doc.le if said.le is None else said.le,
        }
        yield _argument(name, found.type, default, said.text, bounds)


def _argument(
    name: str, kind: Any, default: Any, text: str, bounds: Mapping[str, float | None]
) -> inspect.Parameter:
    set_bounds: dict[str, Any] = {key: each for key, each in bounds.items() if each is not None}
    about = Field(description=text, **set_bounds)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated.__class_getitem__((kind, about)),  # type: ignore[attr-defined]
        default=inspect.Parameter.empty if default is MISSING else default,
    )


def shape(kind: type, of: object, **others: Any) -> Any:
    """A short answer: of its class, the fields that a longer one has too, and others."""
    names = {each.name for each in fields(kind)}
    values = {name: getattr(of, name) for name in names if name not in others and hasattr(of, name)}
    return kind(**values, **others)
