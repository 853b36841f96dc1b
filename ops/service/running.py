"""Joins a running application with the readings that other processes may ask of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from palimpsest.ops.bootstrap import AnyApplication
from palimpsest.ops.parts import SetupError
from palimpsest.ops.queries.dispatch import DirectQueries
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.service.local import Place, local_interface
from palimpsest.ops.service.routing import own_folder
from palimpsest.ops.settings.sections import Settings


def sources_of(app: AnyApplication) -> Sources:
    """What readings read, from the parts of the application."""
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
    )


@contextlib.asynccontextmanager
async def serving_reads(app: AnyApplication) -> AsyncIterator[Sources]:
    """Answer other processes until the context is left."""
    sources = sources_of(app)
    queries = DirectQueries(sources)
    if app.settings.log.kind != "kafka":
        async with local_interface(queries, app.settings.data_dir):
            yield sources
        return
    # Several workers share a folder; each announces itself in its own.
    folder = own_folder(app.settings.data_dir)
    try:
        async with local_interface(
            queries, folder, place_of(app.settings), lambda: [*sources.shards]
        ):
            yield sources
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def place_of(settings: Settings) -> Place:
    """Where a worker on Kafka listens. Raises SetupError for an open address without a secret."""
    kafka = settings.kafka
    if kafka.worker_token is None:
        if kafka.listen not in ("127.0.0.1", "::1", "localhost"):
            raise SetupError(
                f"kafka.listen is {kafka.listen}: others than this machine could read the memory;"
                " set kafka.worker_token, the same for all workers and readers"
            )
        return Place(kafka.listen, kafka.listen_port)
    return Place(kafka.listen, kafka.listen_port, kafka.worker_token.get_secret_value())
