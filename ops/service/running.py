"""Joins a running application with the readings that other processes may ask of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from ops.bootstrap import AnyApplication
from ops.queries import DirectQueries
from ops.reading.sources import Sources
from ops.service.local import local_interface


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
        unusable=lambda: app.unusable,
    )


@contextlib.asynccontextmanager
async def serving_reads(app: AnyApplication) -> AsyncIterator[Sources]:
    """Answer other processes until the context is left."""
    sources = sources_of(app)
    async with local_interface(DirectQueries(sources), app.settings.data_dir):
        yield sources
