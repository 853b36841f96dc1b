"""Serves the reads of other processes from a running application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, cast

from palimpsest.ops.bootstrap import AnyApplication
from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.pipeline import Status
from palimpsest.ops.parts import SetupError
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.local import ListenAddress, Shown, local_interface
from palimpsest.ops.service.queries import DirectQueries
from palimpsest.ops.service.workers import own_folder
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sources import Sources
from palimpsest.ops.sql.queries import remove_abandoned

if TYPE_CHECKING:
    from palimpsest.ops.http.metrics import Metrics


def sources_of(app: AnyApplication) -> Sources:
    """The sources of reads, from the parts of the application."""
    return Sources(
        settings=app.settings,
        log=app.log,
        shards=app.shards if isinstance(app.shards, Mapping) else dict(enumerate(app.shards)),
        partitions=app.log.partitions("conversation-turns"),
        embedding=app.embedding,
        append=app.log.append,
        running=frozenset(runner.stage.name for runner in app.runners),
        outages=app.models.outages,
        unusable=lambda: app.gate.unusable,
        waiting=lambda: app.wait,
    )


@contextlib.asynccontextmanager
async def serving_reads(app: AnyApplication) -> AsyncIterator[Sources]:
    """Answers other processes until the context exits."""
    sources = sources_of(app)
    await asyncio.to_thread(remove_abandoned, app.settings.data_dir)
    try:
        async with _answering(app, sources):
            yield sources
    finally:
        sources.sql.close()


@contextlib.asynccontextmanager
async def _answering(app: AnyApplication, sources: Sources) -> AsyncIterator[None]:
    queries = DirectQueries(sources)
    shown = _shown(app, queries)
    if app.settings.log.kind != "kafka":
        async with local_interface(queries, app.settings.data_dir, shown=shown):
            yield
        return
    # Workers that share a data folder announce themselves in separate folders.
    folder = own_folder(app.settings.data_dir)
    try:
        async with local_interface(
            queries,
            folder,
            listen_address(app.settings),
            lambda: [*sources.shards],
            shown,
            sources.waiting,
        ):
            yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _shown(app: AnyApplication, queries: DirectQueries) -> Shown:
    """The metrics of this process, created on first request."""
    metrics: list[Metrics] = []

    async def status() -> JsonObject:
        return cast("JsonObject", await queries.answer(Status()))

    async def shown(accept: str) -> tuple[bytes, str]:
        if not metrics:
            try:
                from palimpsest.ops.http.metrics import Metrics
            except ModuleNotFoundError as error:
                raise RequestError(f"metrics need the extra `serve` ({error.name})") from None
            metrics.append(Metrics(status, lambda: app.runners, app.models.usage, lambda: app.wait))
        return await metrics[0].shown(accept)

    return shown


def listen_address(settings: Settings) -> ListenAddress:
    """The address of a worker on Kafka. Raises SetupError for an open address without a secret."""
    kafka = settings.kafka
    if kafka.worker_token is None:
        if kafka.listen not in ("127.0.0.1", "::1", "localhost"):
            raise SetupError(
                f"kafka.listen is {kafka.listen}: others than this machine could read the memory;"
                " set kafka.worker_token, the same for all workers and readers"
            )
        return ListenAddress(kafka.listen, kafka.listen_port)
    return ListenAddress(kafka.listen, kafka.listen_port, kafka.worker_token.get_secret_value())
