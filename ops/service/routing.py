"""Asking the workers of a cluster: the one that has the partition open answers.

Every worker answers the same queries on its local interface. Those that share the data folder
announce themselves in `<data_dir>/workers/<pid>/`; those on other machines are named by the
setting kafka.workers, with the secret kafka.worker_token that all of them share.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import JsonValue

from palimpsest.ops.queries import agreement
from palimpsest.ops.queries.diagnostics import judged
from palimpsest.ops.queries.errors import (
    NotFoundError,
    NotOpenError,
    RequestError,
    UnavailableError,
)
from palimpsest.ops.queries.pages import paged
from palimpsest.ops.queries.replays import ABOUT_REPLAYS
from palimpsest.ops.queries.requests import (
    AgreementRequest,
    CommandRequest,
    ContextRequest,
    DeadLettersRequest,
    DiagnosticsRequest,
    DiscardRequest,
    DocumentsRequest,
    EmbeddingsRequest,
    EntitiesRequest,
    EntityRequest,
    ExportRequest,
    FlagsRequest,
    ForgetPreviewRequest,
    HeldProposalsRequest,
    JsonObject,
    ListRequest,
    PrivacyRequest,
    RecallRequest,
    RedriveRequest,
    Request,
    ScopesRequest,
    SearchRequest,
    SessionMemoryRequest,
    SessionsRequest,
    SqlRequest,
    StatsRequest,
    StatusRequest,
    WeakRequest,
)
from palimpsest.ops.queries.scopes import newest_first
from palimpsest.ops.queries.sql import joined, limits_of, numbered, refusals_told, rest
from palimpsest.ops.queries.sql_processes import QueryProcesses
from palimpsest.ops.queries.stats import stats_of
from palimpsest.ops.service.client import NotThereError, RemoteQueries
from palimpsest.ops.service.workers import announcements
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.database.sql_united import UnitedQuery
from palimpsest.streams.kafka.waiting import Awaited
from palimpsest.streams.logs.base import partition_for

T = TypeVar("T")
PATIENCE_SECONDS = 15.0
"""How long a partition may be without an owner, as during a rebalance, before it is an error."""
LOOK_AGAIN_SECONDS = 0.1
PAGES: dict[type[Request], tuple[str, str]] = {
    ListRequest: ("memories", "occurred_at"),
    DocumentsRequest: ("documents", "created_at"),
}
"""What comes in pages, by its name and the time that orders it."""


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

    # --- who has what ------------------------------------------------------------------------

    async def owners(self) -> dict[int, RemoteQueries]:
        """The worker of every partition that one has open now."""
        return {
            number: client
            for client, said in await self._pinged()
            for number in cast("list[int]", said.get("partitions") or [])
        }

    async def waiting(self, *awaited: Awaited) -> list[str]:
        """What of these workers wait for now."""
        waits = [(said["pid"], said.get("waiting")) for _, said in await self._pinged()]
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
        """Every worker, once all partitions have one. Raises RequestError when some stay
        without."""
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

    async def answer(self, request: Request) -> JsonValue:
        about_replays = ABOUT_REPLAYS.get(type(request))
        if about_replays is not None:
            return await asyncio.to_thread(about_replays, self._settings, request)
        return await self._of_workers(request)

    async def _of_workers(self, request: Request) -> JsonValue:
        match request:
            case (
                RecallRequest()
                | SearchRequest()
                | ContextRequest()
                | EmbeddingsRequest()
                | EntitiesRequest()
                | EntityRequest()
                | FlagsRequest()
                | PrivacyRequest()
                | ForgetPreviewRequest()
                | SessionMemoryRequest()
                | SessionsRequest()
                | WeakRequest()
                | ListRequest(scope=str())
                | DocumentsRequest(scope=str())
                | StatsRequest(scope=str())
                | AgreementRequest(scope=str())
            ):
                number = partition_for(str(request.scope), self._partitions)
                return await self._persisted(number, lambda owner: owner.answer(request))
            case ListRequest() | DocumentsRequest():
                name, ordered_by = PAGES[type(request)]
                return paged(await self._from_all(request), request.limit, name, ordered_by)
            case ScopesRequest():
                said = await self._from_all(request)
                listed = [cast("list[JsonObject]", part["scopes"]) for part in said]
                return {"scopes": newest_first([*chain.from_iterable(listed)])}
            case StatusRequest():
                joined_status = _status(await self._from_all(request))
                return {**joined_status, "waiting": [*await self.waiting("broker", "partitions")]}
            case StatsRequest() | AgreementRequest() | DiagnosticsRequest():
                return JOINED[type(request)](await self._from_all(request))
            case DeadLettersRequest():
                return _dead_letters(await self._from_all(request), request.limit)
            case HeldProposalsRequest():
                return _held(await self._from_all(request), request.limit)
            case RedriveRequest(dead_letter_ids=()):
                return _joined(await self._from_all(request))
            case RedriveRequest() | DiscardRequest():
                parts = [
                    await self._by_id(_only(request, name)) for name in request.dead_letter_ids
                ]
                return _joined(cast("list[JsonObject]", parts))
            case CommandRequest():
                answers = await self._from_all(request)
                return next((answer for answer in answers if answer is not None), None)
        return await self._by_id(request)

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
        return await joined(self._sql, request.query, parts, rest(limits, deadline))

    async def copy_shard(self, partition: int, path: Path) -> None:
        await self._persisted(partition, lambda owner: owner.copy_shard(partition, path))

    async def export_scope(self, request: ExportRequest, path: Path) -> None:
        number = partition_for(request.scope, self._partitions)
        await self._persisted(number, lambda owner: owner.export_scope(request, path))

    async def _part(self, number: int, request: SqlRequest) -> pa.Table:
        asked = replace(request, partition=number)
        return await self._persisted(number, lambda owner: owner.table(asked))

    async def _persisted(self, partition: int, ask: Callable[[RemoteQueries], Awaitable[T]]) -> T:
        """Asked again while the partition moves from one worker to another."""
        deadline = time.monotonic() + self._patience
        while True:
            owner = await self._owner(partition)
            try:
                return await ask(owner)
            except (NotThereError, NotOpenError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _from_all(self, request: Request) -> list[JsonObject]:
        """Asked again where a worker goes away meanwhile, unless it may have begun to change
        something."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answers = [await client.answer(request) for client in await self._all()]
            except NotThereError as error:
                if isinstance(request, RedriveRequest) or time.monotonic() > deadline:
                    raise UnavailableError(f"a worker went away meanwhile: {error}") from error
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                return cast("list[JsonObject]", answers)

    async def _by_id(self, request: Request) -> JsonValue:
        """The answer of the worker that knows what the request names."""
        refused: RequestError | None = None
        for client in await self._all():
            try:
                return await _asked(client, request)
            except UnavailableError:
                raise
            except RequestError as error:
                if refused is None or isinstance(refused, NotFoundError):
                    refused = error
        assert refused is not None
        raise refused


async def _asked(worker: RemoteQueries, request: Request) -> JsonValue:
    """The worker's answer. Raises UnavailableError for one that has just gone."""
    try:
        return await worker.answer(request)
    except NotThereError as error:
        raise UnavailableError(f"a worker went away meanwhile: {error}") from error


def _resolved(address: str) -> list[str]:
    """The address once for every machine that its name stands for."""
    url = urlsplit(address)
    try:
        found = socket.getaddrinfo(url.hostname, url.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return []  # no such worker now; a query of its partitions reports that
    hosts = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [
        f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port or 80}" for host in hosts
    ]


def _only(request: RedriveRequest | DiscardRequest, dead_letter_id: str) -> Request:
    return type(request)((dead_letter_id,))


def _list(answer: JsonObject, name: str) -> list[JsonObject]:
    return cast("list[JsonObject]", answer[name])


def _held(parts: Sequence[JsonObject], limit: int) -> JsonObject:
    held = [row for part in parts for row in cast("list[JsonObject]", part["proposals"])]
    held.sort(key=lambda row: (str(row["occurred_at"]), str(row["id"])))
    return {"proposals": cast("list[JsonValue]", held[:limit])}


def _dead_letters(answers: Sequence[JsonObject], limit: int) -> JsonObject:
    rows = [row for answer in answers for row in _list(answer, "dead_letters")]
    rows.sort(key=lambda row: str(row["last_failed_at"]), reverse=True)
    return {"dead_letters": [*rows[:limit]]}


def _joined(answers: Sequence[JsonObject]) -> JsonObject:
    """Lists of the same name one after another."""
    joined: dict[str, list[JsonValue]] = {}
    for answer in answers:
        for name, values in answer.items():
            joined.setdefault(name, []).extend(cast("list[JsonValue]", values))
    return {**joined}


def _stats(answers: Sequence[JsonObject]) -> JsonObject:
    types = [
        {"type": name, "number": number}
        for answer in answers
        for name, number in cast("JsonObject", answer["types"]).items()
    ]
    return stats_of(None, answers, types)


def _diagnostics(answers: Sequence[JsonObject]) -> JsonObject:
    counted: dict[str, dict[str, int]] = {}
    for answer in answers:
        for domain, found in cast(
            "dict[str, dict[str, dict[str, int]]]", answer["domains"]
        ).items():
            total = counted.setdefault(domain, {})
            for name, number in found["counts"].items():
                total[name] = total.get(name, 0) + number
    return judged(counted)


def _status(answers: Sequence[JsonObject]) -> JsonObject:
    stages = [stage for answer in answers for stage in _list(answer, "stages")]
    stages.sort(key=lambda stage: int(str(stage["partition"])))
    balances = [cast("dict[str, dict[str, int]]", answer["balance"]) for answer in answers]
    return {
        "stages": [*stages],
        "balance": {
            "turns": _added([balance["turns"] for balance in balances]),
            "facts": _added([balance["facts"] for balance in balances]),
            "holds": all(bool(balance["holds"]) for balance in balances),
        },
        "dead_letters": sum(int(str(answer["dead_letters"])) for answer in answers),
        "held_back": _added([cast("dict[str, int]", answer["held_back"]) for answer in answers]),
        "providers": answers[0]["providers"] if answers else {},
    }


def _agreement(answers: Sequence[JsonObject]) -> JsonObject:
    return agreement.joined(_list(answer, "deciders") for answer in answers)


def _added(parts: Sequence[dict[str, int]]) -> JsonObject:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


JOINED: Mapping[type[Request], Callable[[Sequence[JsonObject]], JsonObject]] = {
    StatsRequest: _stats,
    AgreementRequest: _agreement,
    DiagnosticsRequest: _diagnostics,
}
"""How the answers of all workers become one."""
