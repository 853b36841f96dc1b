"""Generates the library's methods from operations, for programs with and without an event loop.

A method is defined once: as an operation, or as a coroutine function if it takes more than one
request. Its class decides how it is called: `AsyncMethods` has coroutine functions,
`BlockingMethods` functions that return the result."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from palimpsest.ops.errors import RequestError
from palimpsest.ops.library.examples import EXAMPLES
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.operation import (
    Operation,
    Write,
    answer_type,
    description,
    parameters,
)
from palimpsest.ops.transport.base import BackgroundTransport, Transport

P = ParamSpec("P")
R = TypeVar("R")


class MemoryBase:
    """A memory behind `transport`, for programs with an event loop. `scope` is the default memory
    space of operations; changes must be applied within `wait_seconds`."""

    def __init__(self, transport: Transport, scope: str, wait_seconds: float) -> None:
        if not isinstance(scope, str) or not scope.strip():
            why = (
                "must not be blank" if isinstance(scope, str) else "Input should be a valid string"
            )
            raise RequestError(f"scope: {why}; leave it out for the default one")
        self.transport = transport
        self.scope = scope
        self.wait_seconds = wait_seconds

    @property
    def background(self) -> BackgroundTransport:
        """The transport, for methods that need more than operations."""
        return cast("BackgroundTransport", self.transport)

    async def __aenter__(self) -> Self:
        await self.background.run(self.background.open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish the work in progress and release everything. A later use opens it again."""
        await asyncio.to_thread(self.background.close)

    async def send(self, operation: Operation[R]) -> R:
        """The answer to an operation, in the memory's own scope where it names none. Raises
        RequestError."""
        scoped: Any = operation
        if not isinstance(operation, Operation):
            raise RequestError("operation: give one of those of palimpsest.ops.operations")
        unscoped = getattr(operation, "scope", self.scope) in ("", None)
        everywhere = isinstance(operation, Write) and operation.in_all_scopes
        if unscoped and not everywhere and operation.surface.routing != "folder":
            scoped = replace(scoped, scope=self.scope)
        answer: R = await self.transport.send(scoped, self.wait_seconds)
        return answer


class BlockingBase:
    """A memory for programs without an event loop; `aio` is the same memory for programs with one.
    Thread-safe."""

    def __init__(self, aio: MemoryBase) -> None:
        self.aio = aio

    @property
    def scope(self) -> str:
        return self.aio.scope

    def __enter__(self) -> Self:
        self.aio.background.blocking(self.aio.background.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the work in progress and release everything. A later use opens it again."""
        self.aio.background.close()

    def send(self, operation: Operation[R]) -> R:
        """The answer to an operation, in the memory's own scope where it names none. Raises
        RequestError."""
        return self.aio.background.blocking(self.aio.send(operation))


class Method(Generic[P, R]):
    """A method with both forms: a coroutine function for a MemoryBase, a function that blocks for a
    BlockingBase."""

    def __init__(self, make: Callable[[], Callable[..., Coroutine[Any, Any, R]]]) -> None:
        self._make = make

    @functools.cached_property
    def coroutine(self) -> Callable[..., Coroutine[Any, Any, R]]:
        """Created on first use: signatures and docstrings of all operations take a while."""
        return self._make()

    @functools.cached_property
    def function(self) -> Callable[..., R]:
        coroutine = self.coroutine

        @functools.wraps(coroutine)
        def call(self: BlockingBase, *args: Any, **kwargs: Any) -> R:
            return self.aio.background.blocking(coroutine(self.aio, *args, **kwargs))

        call.__doc__ = (coroutine.__doc__ or "").replace("await ", "")
        return call

    @overload
    def __get__(
        self, memory: MemoryBase, owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, memory: BlockingBase, owner: object = None) -> Callable[P, R]: ...
    @overload
    def __get__(self, memory: None, owner: object = None) -> Callable[..., Any]: ...
    def __get__(self, memory: Any, owner: Any = None) -> Any:
        is_blocking = issubclass(owner or type(memory), BlockingBase)
        function: Any = self.function if is_blocking else self.coroutine
        return function if memory is None else function.__get__(memory, owner)


def written(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Method[P, R]:
    """Creates a method from a hand-written coroutine function of a MemoryBase."""
    return Method(lambda: function)


def method(kind: Callable[P, Operation[R]]) -> Method[P, R]:
    """Creates the method that sends an operation: its arguments are the fields of the request, its
    result is the answer."""
    return Method(lambda: _coroutine(cast("type[Operation[R]]", kind)))


def _coroutine(kind: type[Operation[R]]) -> Callable[..., Coroutine[Any, Any, R]]:
    signature = _signature(kind)
    positional = [
        each.name for each in signature.parameters.values() if each.kind is not each.KEYWORD_ONLY
    ][1:]

    async def call(self: MemoryBase, *args: Any, **kwargs: Any) -> R:
        if len(args) > len(positional):
            raise TypeError(f"{kind.slug} takes at most {len(positional)} positional arguments")
        values = dict(zip(positional, args, strict=False))
        for name in values.keys() & kwargs.keys():
            raise TypeError(f"{kind.slug} got several values for {name}")
        return await self.send(checked(kind, {**values, **kwargs}))

    call.__name__, call.__qualname__ = kind.slug, f"MemoryMethods.{kind.slug}"
    call.__signature__ = signature  # type: ignore[attr-defined]
    arguments = "\n".join(f"{each.name}: {each.doc.text}" for each in parameters(kind))
    call.__doc__ = f"{description(kind)}\n\n{arguments}\n\n{EXAMPLES.get(kind.slug, '')}".strip()
    return call


def _signature(kind: type[Operation[Any]]) -> inspect.Signature:
    known = {each.name: each for each in parameters(kind)}
    values = [
        inspect.Parameter(
            each.name,
            each_kind,
            annotation=known[each.name].type,
            default=inspect.Parameter.empty
            if known[each.name].required
            else known[each.name].default,
        )
        for keyword_only, each_kind in (
            (False, inspect.Parameter.POSITIONAL_OR_KEYWORD),
            (True, inspect.Parameter.KEYWORD_ONLY),
        )
        for each in fields(kind)
        if each.kw_only is keyword_only
    ]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([itself, *values], return_annotation=answer_type(kind))


def arguments_of(
    kind: Callable[P, MemoryBase],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Types a constructor with the arguments of another class's constructor."""

    def named(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        functools.update_wrapper(constructor, kind.__init__)
        return constructor

    return named
