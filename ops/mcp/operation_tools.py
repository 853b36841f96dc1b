"""Generates the tools for agents from operations with a `Surface.tool`.

A tool's arguments are the fields of the request with their descriptions, its result the answer as
JSON. `Words` replace them for agents: fewer arguments, shorter texts, shorter answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
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
            yield _argument(each.name, _type(each, Argument("")), each.default, each.doc.text)


def _chosen(kind: type[AnyOperation], words: Words) -> Iterator[inspect.Parameter]:
    known = {each.name: each for each in parameters(kind)}
    for name, argument in words.arguments.items():
        if name in words.more:
            yield _argument(name, words.more[name], None, argument.text)
            continue
        parameter: Parameter = known[argument.name or name]
        default = MISSING if argument.required else parameter.default
        yield _argument(name, _type(parameter, argument), default, argument.text)


def _type(parameter: Parameter, argument: Argument) -> Any:
    """What a tool checks of an argument. The lengths of texts are left to the operation."""
    if parameter.plain_type is str or parameter.doc.model is not None:
        return parameter.type
    doc = parameter.doc
    least = doc.ge if argument.ge is None else argument.ge
    most = doc.le if argument.le is None else argument.le
    return field_type(replace(parameter, doc=replace(doc, ge=least, le=most)))


def _argument(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated.__class_getitem__((kind, Field(description=text))),  # type: ignore[attr-defined]
        default=inspect.Parameter.empty if default is MISSING else default,
    )


def shape(kind: type, of: object, **others: Any) -> Any:
    """Builds a short answer of class `kind` from the same fields of a longer one, and `others`."""
    names = {each.name for each in fields(kind)}
    values = {name: getattr(of, name) for name in names if name not in others and hasattr(of, name)}
    return kind(**values, **others)
