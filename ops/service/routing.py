"""Routes queries to the workers of a cluster: the owner of a partition answers.

Every worker answers the same queries on its local interface. Those that share the data folder
announce themselves in `<data_dir>/workers/<pid>/`; those on other machines are named by the
setting kafka.workers, with the secret kafka.worker_token that all of them share.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import pyarrow as pa

from palimpsest.ops.errors import NotFoundError, NotOpenError, RequestError, UnavailableError
from palimpsest.ops.operations.dead_letters import Redrive
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.requests import ExportRequest, FileRequest, JsonObject, SqlRequest
from palimpsest.ops.service.announcement import announcements
from palimpsest.ops.service.client import CONNECT_SECONDS, NotThereError, RemoteQueries
from palimpsest.ops.service.sql_queries import joined, limits_of, numbered, refusals_told, rest
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.processes import QueryProcesses
from palimpsest.stores.database.sql import UnitedQuery
from palimpsest.streams.kafka.cluster import Awaited
from palimpsest.streams.logs.base import partition_for

T = TypeVar("T")
PATIENCE_SECONDS = 15.0
"""How long a partition may be without an owner, for example during a rebalance, before an error."""
LOOK_AGAIN_SECONDS = 0.1


class RoutedQueries:
    """Queries answered by the owner of the scope's partition, or by all workers together."""

    def __init__(self, settings: Settings, partitions: int, patience: float | None = None) -> None:
        """`patience`: seconds that a partition may be without an owner."""
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._settings = settings
        self._partitions = partitions
        self._clients: dict[str, RemoteQueries] = {}
        self._lookups: dict[str, asyncio.Future[list[str]]] = {}
        self._sql = QueryProcesses(settings.store)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        self._sql.close()

    # --- owners ------------------------------------------------------------------------------

    async def owners(self) -> dict[int, RemoteQueries]:
        """The worker of every partition that is open now."""
        return (await self.found()).owners

    async def waiting(self, *awaited: Awaited) -> list[str]:
        """Which of `awaited` the workers wait for now."""
        return (await self.found()).waiting(awaited)

    async def found(self, needed: Collection[int] = ()) -> PingAnswers:
        """Asks all workers at once; until the partitions that are `needed` have an owner, if there
        are any, so that one that does not answer delays nobody who does not need it."""
        found = PingAnswers()
        token = self._settings.kafka.worker_token
        secret = "" if token is None else token.get_secret_value()
        asked: set[asyncio.Task[PingAnswers]] = {
            asyncio.create_task(self._ping(place, own))
            for place, own in announcements(self._settings.data_dir).items()
        }
        looked_up = {
            asyncio.create_task(self._looked_up(each)) for each in self._settings.kafka.workers
        }
        try:
            while (asked or looked_up) and not (needed and found.owners.keys() >= {*needed}):
                await asyncio.wait(asked | looked_up, return_when=asyncio.FIRST_COMPLETED)
                for lookup in [each for each in looked_up if each.done()]:
                    looked_up.remove(lookup)
                    asked |= {
                        asyncio.create_task(self._ping(place, secret)) for place in lookup.result()
                    }
                for ping in [each for each in asked if each.done()]:
                    asked.remove(ping)
                    found.add(ping.result())
        finally:
            for task in asked | looked_up:
                task.cancel()
            await asyncio.gather(*asked, *looked_up, return_exceptions=True)
        return found

    async def _ping(self, place: str, secret: str) -> PingAnswers:
        if not secret:
            return PingAnswers(silent=[f"{place} cannot be asked: kafka.worker_token is not set"])
        if place not in self._clients:
            self._clients[place] = RemoteQueries(place, secret)
        client = self._clients[place]
        try:
            state = await client.ping()
        except NotThereError as error:
            return PingAnswers(silent=[f"{place} does not answer: {error}"])
        except RequestError as error:
            return PingAnswers(silent=[f"{place} refuses: {error}"])
        numbers = cast("list[int]", state.get("partitions") or [])
        return PingAnswers(dict.fromkeys(numbers, client), [state])

    async def _looked_up(self, address: str) -> list[str]:
        """The addresses of all machines behind a host name; none where nothing knows it within
        `CONNECT_SECONDS`, so that a query of its partitions reports that."""
        lookup = self._lookups.get(address)
        if lookup is None or lookup.done():
            lookup = self._lookups[address] = _lookup(urlsplit(address))
        done, _ = await asyncio.wait([lookup], timeout=CONNECT_SECONDS)
        return lookup.result() if done else []

    async def _all(self) -> list[RemoteQueries]:
        """All workers, once every partition has one. Raises RequestError if some remain without."""
        return list(dict.fromkeys((await self._owners(range(self._partitions))).values()))

    async def _owners(self, needed: Collection[int]) -> dict[int, RemoteQueries]:
        """The owners of these partitions at least, once each has one. Raises UnavailableError if
        some remain without, or there is nobody to ask."""
        deadline = time.monotonic() + self._patience
        while True:
            found = await self.found(needed)
            missing = sorted({*needed} - found.owners.keys())
            if not missing:
                return found.owners
            if time.monotonic() > deadline or not (found.states or found.silent):
                raise found.without(missing)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    # --- answers -----------------------------------------------------------------------------

    async def answer(self, operation: Read[Any]) -> Json:
        answer = await self._of_workers(operation)
        if isinstance(operation, Status):
            return {**answer, "waiting": [*await self.waiting("broker", "partitions")]}
        return answer

    async def _of_workers(self, operation: Read[Any]) -> Json:
        match operation.surface.routing:
            case "folder":
                return await asyncio.to_thread(operation.read_folder, self._settings)
            case "scope" if getattr(operation, "scope", None) is not None:
                number = partition_for(str(operation.scope), self._partitions)  # type: ignore[attr-defined]
                return await self._persisted(number, lambda owner: owner.answer(operation))
            case "id":
                parts = operation.parts()
                answers = [await self._by_id(cast("Read[Any]", part)) for part in parts]
                return answers[0] if parts == (operation,) else operation.merge(answers)
            case "all" if len(parts := operation.parts()) > 1 or parts[0] is not operation:
                answers = [await self._by_id(cast("Read[Any]", part)) for part in parts]
                return operation.merge(answers)
        return operation.merge(await self._from_all(operation))

    async def result(self, command_id: str, scope: str, seconds: float) -> JsonObject | None:
        number = partition_for(scope, self._partitions)
        return await self._persisted(number, lambda owner: owner.result(command_id, scope, seconds))

    async def table(self, request: SqlRequest) -> pa.Table:
        number = numbered(request, self._partitions)
        if number is not None:
            return await self._persisted(number, lambda owner: owner.table(request))
        limits = limits_of(request)
        deadline = time.monotonic() + limits.seconds
        with refusals_told(limits.seconds), UnitedQuery(request.query) as united:
            if united.part is None:
                return await self._part(0, request)
            parts = [
                await self._part(
                    each,
                    replace(request, query=united.part, seconds=rest(limits, deadline).seconds),
                )
                for each in range(self._partitions)
            ]
        return await joined(self._sql, request, parts, rest(limits, deadline))

    async def write_file(self, request: FileRequest, path: Path) -> None:
        number = (
            partition_for(request.scope, self._partitions)
            if isinstance(request, ExportRequest)
            else request.partition
        )
        await self._persisted(number, lambda owner: owner.write_file(request, path))

    async def _part(self, number: int, request: SqlRequest) -> pa.Table:
        query = replace(request, partition=number)
        return await self._persisted(number, lambda owner: owner.table(query))

    async def _persisted(self, partition: int, ask: Callable[[RemoteQueries], Awaitable[T]]) -> T:
        """Retries while the partition moves from one worker to another."""
        deadline = time.monotonic() + self._patience
        while True:
            owner = (await self._owners([partition]))[partition]
            try:
                return await ask(owner)
            except (NotThereError, NotOpenError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _from_all(self, operation: Read[Any]) -> list[Json]:
        """Retries if a worker or partition goes away meanwhile, unless a change may have begun."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answers = [await client.answer(operation) for client in await self._all()]
            except (NotThereError, NotOpenError) as error:
                if isinstance(operation, Redrive) or time.monotonic() > deadline:
                    raise UnavailableError(f"a worker went away meanwhile: {error}") from error
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                return answers

    async def _by_id(self, operation: Read[Any]) -> Json:
        """The answer of the worker that knows the operation's id."""
        refused: RequestError | None = None
        for client in await self._all():
            try:
                return await client.answer(operation)
            except NotThereError as error:
                raise UnavailableError(f"a worker went away meanwhile: {error}") from error
            except UnavailableError:
                raise
            except RequestError as error:
                if refused is None or isinstance(refused, NotFoundError):
                    refused = error
        assert refused is not None
        raise refused


@dataclass(slots=True)
class PingAnswers:
    """What workers answered to a ping. `silent`: who gave no answer, in words."""

    owners: dict[int, RemoteQueries] = field(default_factory=dict)
    states: list[JsonObject] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    def add(self, other: PingAnswers) -> None:
        self.owners |= other.owners
        self.states += other.states
        self.silent += other.silent

    def waiting(self, awaited: Collection[Awaited]) -> list[str]:
        waits = [(state["pid"], state.get("waiting")) for state in self.states]
        return [
            f"worker {pid} is {wait['text']}"
            for pid, wait in waits
            if isinstance(wait, dict) and wait["for"] in awaited
        ]

    def without(self, missing: Sequence[int]) -> UnavailableError:
        numbers = ", ".join(map(str, missing))
        which = f"the partitions {numbers}" if len(missing) > 1 else f"partition {numbers}"
        reasons = [*self.waiting(("broker", "partitions")), *self.silent] or [
            "start one with `palimpsest run`, or name those of other machines in kafka.workers"
        ]
        return UnavailableError("; ".join([f"no worker has {which} open", *reasons]))


def _lookup(url: SplitResult) -> asyncio.Future[list[str]]:
    """The addresses of all machines behind a host name. What looks them up cannot be cancelled, so
    that the process must not have to wait for its end."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def look() -> None:
        try:
            known = socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_STREAM)
        except OSError:
            known = []
        hosts = dict.fromkeys(str(entry[4][0]) for entry in known)
        places = [
            f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port or 80}"
            for host in hosts
        ]
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(found.set_result, places)

    threading.Thread(target=look, name="lookup", daemon=True).start()
    return found
