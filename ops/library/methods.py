"""All methods of the library: written once, for whatever a memory is reached by, for programs with
an event loop and without."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from palimpsest.ops.library.asking import Asking
from palimpsest.ops.library.changing import Changing
from palimpsest.ops.library.documents import Documents
from palimpsest.ops.library.privacy import WithPrivacy
from palimpsest.ops.library.replays import WithReplays
from palimpsest.ops.library.sessions import WithSessions

P = ParamSpec("P")
R = TypeVar("R")


class Methods(Asking, Changing, Documents, WithSessions, WithPrivacy, WithReplays):
    """A memory, for programs with an event loop."""


def arguments_of(
    kind: Callable[P, Methods],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """A constructor with the arguments of another class's."""

    def named(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        functools.update_wrapper(constructor, kind.__init__)
        return constructor

    return named


def asynchronous(memory: Methods | BlockingMethods) -> Methods:
    """The memory for programs with an event loop."""
    return memory.aio if isinstance(memory, BlockingMethods) else memory


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingMethods, P], R]:
    """The method for programs without an event loop."""

    @functools.wraps(method)
    def call(self: BlockingMethods, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.aio.background.blocking(method(self.aio, *args, **kwargs))

    call.__doc__ = (method.__doc__ or "").replace("await ", "")
    # Its first parameter is positional for whoever calls it: it is a method.
    return cast("Callable[Concatenate[BlockingMethods, P], R]", call)


class BlockingMethods:
    """A memory, for programs without an event loop: `aio` is the same one for those with one.
    Usable from any thread."""

    def __init__(self, aio: Methods) -> None:
        self.aio = aio

    @property
    def scope(self) -> str:
        return self.aio.scope

    def __enter__(self) -> Self:
        self.aio.background.blocking(self.aio.background.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is under way, and let go. A later use opens it anew."""
        self.aio.background.close()

    add = blocking(Methods.add)
    wait_until_processed = blocking(Methods.wait_until_processed)
    recall = blocking(Methods.recall)
    context = blocking(Methods.context)
    get = blocking(Methods.get)
    list = blocking(Methods.list)
    history = blocking(Methods.history)
    explain = blocking(Methods.explain)
    entity = blocking(Methods.entity)
    entities = blocking(Methods.entities)
    weak = blocking(Methods.weak)
    scopes = blocking(Methods.scopes)
    stats = blocking(Methods.stats)
    agreement = blocking(Methods.agreement)
    sql = blocking(Methods.sql)
    remember = blocking(Methods.remember)
    modify = blocking(Methods.modify)
    correct = blocking(Methods.correct)
    preview_forget = blocking(Methods.preview_forget)
    forget = blocking(Methods.forget)
    recover = blocking(Methods.recover)
    confirm = blocking(Methods.confirm)
    pin = blocking(Methods.pin)
    unpin = blocking(Methods.unpin)
    alias = blocking(Methods.alias)
    command = blocking(Methods.command)
    erase = blocking(Methods.erase)
    erase_scope = blocking(Methods.erase_scope)
    add_document = blocking(Methods.add_document)
    documents = blocking(Methods.documents)
    document = blocking(Methods.document)
    delete_document = blocking(Methods.delete_document)
    sessions = blocking(Methods.sessions)
    session_memory = blocking(Methods.session_memory)
    update_short_term_memory = blocking(Methods.update_short_term_memory)
    end_session = blocking(Methods.end_session)
    start_replay = blocking(Methods.start_replay)
    replay = blocking(Methods.replay)
    replays = blocking(Methods.replays)
    stop_replay = blocking(Methods.stop_replay)
    replay_differences = blocking(Methods.replay_differences)
    branches = blocking(Methods.branches)
    drop_branch = blocking(Methods.drop_branch)
    set_privacy = blocking(Methods.set_privacy)
    privacy = blocking(Methods.privacy)
