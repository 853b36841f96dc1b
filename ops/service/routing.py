"""Routes queries to the workers of a cluster: the owner of a partition answers.

Every worker answers the same queries on its local interface. Those that share the data folder
announce themselves in `<data_dir>/workers/<pid>/`; those on other machines are named by the
setting kafka.workers, with the secret kafka.worker_token that all of them share.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import pyarrow as pa

from palimpsest.ops.errors import NotFoundError, NotOpenError, RequestError, UnavailableError
from palimpsest.ops.operations.dead_letters import Redrive
from palimpsest.ops.operations.operation import Json, Read
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.requests import ExportRequest, FileRequest, JsonObject, SqlRequest
from palimpsest.ops.service.client import NotThereError, RemoteQueries
from palimpsest.ops.service.server import announcements
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.processes import QueryProcesses
from palimpsest.ops.sql.queries import joined, limits_of, numbered, refusals_told, rest
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
        self._sql = QueryProcesses(settings.store)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        self._sql.close()

    # --- owners ------------------------------------------------------------------------------

    async def owners(self) -> dict[int, RemoteQueries]:
        """The worker of every partition that is open now."""
        return {
            number: client
            for client, state in await self._pinged()
            for number in cast("list[int]", state.get("partitions") or [])
        }

    async def waiting(self, *awaited: Awaited) -> list[str]:
        """Which of `awaited` the workers wait for now."""
        waits = [(state["pid"], state.get("waiting")) for _, state in await self._pinged()]
        return [
            f"worker {pid} is {wait['text']}"
            for pid, wait in waits
            if isinstance(wait, dict) and wait["for"] in awaited
        ]

    async def _pinged(self) -> list[tuple[RemoteQueries, JsonObject]]:
        answers: list[tuple[RemoteQueries, JsonObject]] = []
        for client in self._reachable():
            with contextlib.suppress(NotThereError, RequestError):
                answers.append((client, await client.ping()))
        return answers

    def _reachable(self) -> list[RemoteQueries]:
        places = announcements(self._settings.data_dir)
        token = self._settings.kafka.worker_token
        for address in self._settings.kafka.workers:
            for resolved in _resolved(address):
                places[resolved] = "" if token is None else token.get_secret_value()
        for place, secret in places.items():
            if place not in self._clients:
                self._clients[place] = RemoteQueries(place, secret)
        return [self._clients[place] for place in places]

    async def _owner(self, partition: int) -> RemoteQueries:
        owners = await self._awaited(lambda owners: partition in owners)
        if partition not in owners:
            raise await self._without([partition])
        return owners[partition]

    async def _all(self) -> list[RemoteQueries]:
        """All workers, once every partition has one. Raises RequestError if some remain without."""
        owners = await self._awaited(lambda owners: len(owners) == self._partitions)
        missing = sorted(set(range(self._partitions)) - owners.keys())
        if missing:
            raise await self._without(missing)
        return list(dict.fromkeys(owners.values()))

    async def _without(self, missing: Sequence[int]) -> UnavailableError:
        numbers = ", ".join(map(str, missing))
        which = f"the partitions {numbers}" if len(missing) > 1 else f"partition {numbers}"
        waiting = await self.waiting("broker", "partitions") or [
            "start one with `palimpsest run`, or name those of other machines in kafka.workers"
        ]
        return UnavailableError("; ".join([f"no worker has {which} open", *waiting]))

    async def _awaited(
        self, enough: Callable[[dict[int, RemoteQueries]], bool]
    ) -> dict[int, RemoteQueries]:
        deadline = time.monotonic() + self._patience
        while True:
            owners = await self.owners()
            if enough(owners) or time.monotonic() > deadline or not self._reachable():
                return owners
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
            owner = await self._owner(partition)
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
                return await _answer_of(client, operation)
            except UnavailableError:
                raise
            except RequestError as error:
                if refused is None or isinstance(refused, NotFoundError):
                    refused = error
        assert refused is not None
        raise refused


async def _answer_of(worker: RemoteQueries, operation: Read[Any]) -> Json:
    """The worker's answer. Raises UnavailableError if it has just gone."""
    try:
        return await worker.answer(operation)
    except NotThereError as error:
        raise UnavailableError(f"a worker went away meanwhile: {error}") from error


def _resolved(address: str) -> list[str]:
    """The addresses of all machines behind a host name."""
    url = urlsplit(address)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return []  # no such worker now; a query of its partitions reports that
    hosts = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [
        f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port or 80}" for host in hosts
    ]
