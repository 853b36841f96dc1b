"""Waits for the results of many commands or turns with one query for all waiting callers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from palimpsest.ops.errors import NotOpenError
from palimpsest.ops.operations.answers import TurnResults, command_results
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.requests import JsonObject
from palimpsest.schemas.codec import decode
from palimpsest.schemas.identity import items_of
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing

K = TypeVar("K")
V = TypeVar("V")
LOOK_SECONDS = 0.25
"""Polling interval without commits, as where the stages run in other processes."""


class AwaitedResults(Generic[K, V]):
    """Runs one query for all waiting callers, after every commit to one of `shards`: with sixteen
    clients, individual polling every few milliseconds would keep a whole core busy.

    `find` returns the available results of the given keys."""

    def __init__(
        self,
        find: Callable[[Sequence[K]], Awaitable[Mapping[K, V]]],
        shards: Iterable[Shard] = (),
    ) -> None:
        self.find = find
        self._shards = shards
        self._awaited: dict[K, list[asyncio.Future[V]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def of(self, key: K) -> V:
        """Waits for the result. Raises the errors of `find`."""
        return (await self.within((key,), None))[key]

    async def within(self, keys: Iterable[K], seconds: float | None) -> Mapping[K, V]:
        """Waits for the results, or up to `seconds` for those that there are by then. Raises the
        errors of `find`."""
        create = asyncio.get_running_loop().create_future
        futures: dict[K, asyncio.Future[V]] = {key: create() for key in keys}
        if not futures:
            return {}
        for key, future in futures.items():
            self._awaited.setdefault(key, []).append(future)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="results")
        try:
            done, _ = await asyncio.wait(futures.values(), timeout=seconds)
            for failure in [each.exception() for each in done]:
                if failure is not None:
                    raise failure
            return {key: future.result() for key, future in futures.items() if future in done}
        finally:
            for key, future in futures.items():
                self._awaited[key].remove(future)
                if not self._awaited[key]:
                    del self._awaited[key]

    async def _look(self) -> None:
        committed = asyncio.Event()
        try:
            with contextlib.ExitStack() as told:
                for shard in self._shards:
                    told.enter_context(shard.commits.setting(committed))
                await self._deliver([*self._awaited])
                while self._awaited:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(committed.wait(), LOOK_SECONDS)
                    committed.clear()
                    await self._deliver([*self._awaited])
        finally:
            self._looking = None

    async def _deliver(self, keys: Sequence[K]) -> None:
        found: Mapping[K, V] = {}
        failure: Exception | None = None
        try:
            found = await self.find(keys)
        except Exception as error:
            failure = error  # the waiting caller gets the error
        for key in keys:
            for future in self._awaited.get(key, ()):
                if future.done():
                    continue
                if failure is not None:
                    future.set_exception(failure)
                elif key in found:
                    future.set_result(found[key])
        # Let the waiting callers remove their futures.
        await asyncio.sleep(0)


def awaited_commands(sources: Sources) -> AwaitedResults[str, JsonObject]:
    """Waits for stored results of commands, by id, in the process that has the stores open. Raises
    NotOpenError if they are closed first, and the errors of reading them."""

    async def find(ids: Sequence[str]) -> Mapping[str, JsonObject]:
        try:
            return await asyncio.to_thread(command_results, sources, ids)
        except StoreClosed as error:
            raise NotOpenError(str(error)) from error

    return AwaitedResults(find, sources.shards.values())


AT_ONCE = 1_000
"""Maximum number of turns in one query."""


class TurnKey(NamedTuple):
    """A published turn: its scope, and its id in the balance."""

    scope: str
    item_id: str


def key_of(record: Outgoing) -> tuple[TurnKey, ConversationTurn]:
    """Returns the key to wait for a turn's record by, and the turn."""
    value = record.value or b""
    message = decode(value, CONVERSATION_TURNS, None, len(value))
    assert isinstance(message.body, ConversationTurn)
    [item_id] = items_of(message).item_ids
    return TurnKey(message.scope, item_id), message.body


async def results_of(
    answer: Callable[[Read[Any]], Awaitable[Json]], keys: Sequence[TurnKey]
) -> Mapping[TurnKey, JsonObject]:
    """Returns the outcomes of the settled turns, by the answers to reads. Raises RequestError."""
    by_scope: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        by_scope[key.scope].append(key.item_id)
    found: dict[TurnKey, JsonObject] = {}
    for scope, ids in by_scope.items():
        for first in range(0, len(ids), AT_ONCE):
            asked = TurnResults(tuple(ids[first : first + AT_ONCE]), scope)
            turns = cast("JsonObject", await answer(asked))["turns"]
            for turn in cast("list[JsonObject]", turns):
                found[TurnKey(scope, str(turn["item_id"]))] = turn
    return found


def awaited_turns(
    answer: Callable[[Read[Any]], Awaitable[Json]], shards: Iterable[Shard] = ()
) -> AwaitedResults[TurnKey, JsonObject]:
    """Waits for the outcomes of turns, in this or another process. Raises RequestError."""
    return AwaitedResults(partial(results_of, answer), shards)
