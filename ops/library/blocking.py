"""`Memory`: the methods of AsyncMemory for programs without an event loop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from palimpsest.ops.library.memory import AsyncMemory
from palimpsest.ops.library.opened import USER
from palimpsest.schemas.commands import Actor

P = ParamSpec("P")
R = TypeVar("R")


def blocking(
    method: Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Memory, P], R]:
    """The method for programs without an event loop."""

    @functools.wraps(method)
    def call(self: Memory, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._background.blocking(method(self.aio, *args, **kwargs))

    call.__doc__ = (method.__doc__ or "").replace("await ", "")
    # Its first parameter is positional for whoever calls it: it is a method.
    return cast("Callable[Concatenate[Memory, P], R]", call)


class Memory:
    """Long-term memory in this process. `AsyncMemory` tells what the arguments are, and has the
    same methods for programs with an event loop; `aio` is the same memory as one. Usable from any
    thread.

    >>> from palimpsest import Memory
    >>> with Memory(folder, scope="ana") as memory:
    ...     added = memory.add("I moved to Lisbon in March.", speaker="Ana")
    ...     memory.recall("where does Ana live?").results[0].content
    'I moved to Lisbon in March.'
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        scope: str = "default",
        settings: Mapping[str, object] | None = None,
        actor: Actor = USER,
        wait_seconds: float = 30.0,
    ) -> None:
        self.aio = AsyncMemory(
            data_dir, scope=scope, settings=settings, actor=actor, wait_seconds=wait_seconds
        )
        self._background = self.aio.background

    @property
    def scope(self) -> str:
        return self.aio.scope

    def __enter__(self) -> Self:
        self._background.blocking(self._background.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the batches under way, and let go of the folder. A later use opens it anew."""
        self._background.close()

    add = blocking(AsyncMemory.add)
    wait_until_processed = blocking(AsyncMemory.wait_until_processed)
    recall = blocking(AsyncMemory.recall)
    context = blocking(AsyncMemory.context)
    get = blocking(AsyncMemory.get)
    list = blocking(AsyncMemory.list)
    history = blocking(AsyncMemory.history)
    explain = blocking(AsyncMemory.explain)
    entity = blocking(AsyncMemory.entity)
    weak = blocking(AsyncMemory.weak)
    scopes = blocking(AsyncMemory.scopes)
    stats = blocking(AsyncMemory.stats)
    sql = blocking(AsyncMemory.sql)
    remember = blocking(AsyncMemory.remember)
    modify = blocking(AsyncMemory.modify)
    correct = blocking(AsyncMemory.correct)
    forget = blocking(AsyncMemory.forget)
    recover = blocking(AsyncMemory.recover)
    confirm = blocking(AsyncMemory.confirm)
    erase = blocking(AsyncMemory.erase)
    erase_scope = blocking(AsyncMemory.erase_scope)
