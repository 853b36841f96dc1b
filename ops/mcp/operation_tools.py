"""Generates the tools for agents from operations with a `Surface.tool`.

A tool's arguments are the fields of the request with their descriptions, its result the answer as
JSON. `Words` replace them for agents: fewer arguments, shorter texts, shorter answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field
from pydantic_core import to_jsonable_python

from palimpsest.ops.operations.checking import checked, field_type
from palimpsest.ops.operations.operation import Operation, Parameter, description, parameters

if TYPE_CHECKING:
    from palimpsest.ops.library.memory_methods import AsyncMethods

AnyOperation = Operation[Any]
NOT_FOR_AGENTS: Final = frozenset({"scope", "key", "wait"})
"""Fields that are not arguments of tools: an agent works in one scope."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool. `name` is the field's name if the argument's name differs; `required`
    applies even if the operation has a default."""

    text: str
    name: str = ""
    ge: float | None = None
    le: float | None = None
    required: bool = False


@dataclass(frozen=True)
class Words:
    """A tool's description for agents: `text` describes it, `arguments` are its only arguments.
    `shown` converts the answer to the type `answer`; `call` handles tools that take more than one
    operation, with the types of `more` arguments."""

    text: str
    arguments: Mapping[str, Argument]
    answer: Any = None
    shown: Callable[[Any], Any] | None = None
    call: Callable[[AsyncMethods, dict[str, Any]], Awaitable[Any]] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def tool_of(
    kind: type[AnyOperation], memory: Callable[[], AsyncMethods], words: Words | None
) -> Callable[..., Awaitable[Any]]:
    """Returns the tool of an operation; each call uses the memory that `memory` returns."""

    async def call(**arguments: Any) -> Any:
        if words is None:
            return to_jsonable_python(await memory().send(checked(kind, arguments)))
        names = {name: words.arguments[name].name or name for name in arguments.keys() - words.more}
        values = {names.get(name, name): value for name, value in arguments.items()}
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
            yield _argument(each.name, _type(each), each.default, each.doc.text, bounds)


def _chosen(kind: type[AnyOperation], words: Words) -> Iterator[inspect.Parameter]:
    known = {each.name: each for each in parameters(kind)}
    for name, argument in words.arguments.items():
        if name in words.more:
            yield _argument(name, words.more[name], None, argument.text, {})
            continue
        parameter: Parameter = known[argument.name or name]
        default = MISSING if argument.required else parameter.default
        bounds = {
            "ge": parameter.doc.ge if argument.ge is None else argument.ge,
            "le": parameter.doc.le if argument.le is None else argument.le,
        }
        yield _argument(name, _type(parameter), default, argument.text, bounds)


def _type(parameter: Parameter) -> Any:
    """What a tool checks of an argument; other bounds are those of the operation."""
    is_time = parameter.plain_type in (datetime, int | datetime)
    return field_type(parameter) if is_time else parameter.type


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
    """Builds a short answer of class `kind` from the same fields of a longer one, and `others`."""
    names = {each.name for each in fields(kind)}
    values = {name: getattr(of, name) for name in names if name not in others and hasattr(of, name)}
    return kind(**values, **others)
