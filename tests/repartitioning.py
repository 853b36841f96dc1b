"""A memory with a past in some number of partitions, and the same in another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.replay.rebuild import Rebuilt
from palimpsest.ops.replay.repartition import repartition
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    Command,
)
from palimpsest.schemas.promotions import (
    GainChange,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.state_hash import table_hashes
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.logs.settings import LogSettings
from palimpsest.streams.models.settings import EmbeddingSettings
from palimpsest.streams.runtime.output import outgoing
from tests.folded_history import live, recorded
from tests.harness import CAREFUL, DIMENSIONS, pipeline_settings
from tests.messages import commanded, published, topic_of, turn
from tests.promotions_by_hand import parts, promoted
from tests.spoken_model import ScriptedModel, spoken


def settings_of(folder: Path, **log: Any) -> Settings:
    embedding = EmbeddingSettings(provider="hashing", dimensions=DIMENSIONS)
    made = pipeline_settings(CAREFUL, "model")
    update = {"data_dir": folder, "embedding": embedding, "log": LogSettings(**log)}
    return made.model_copy(update=update)


def lived(folder: Path) -> Settings:
    """A history in one partition in which nearly everything happens."""
    place = folder / "shards" / "0"
    place.mkdir(parents=True)
    (folder / "shard").symlink_to(place, target_is_directory=True)
    with recorded(folder) as pipeline:
        live(pipeline)
        gained = GainChange(memory=promoted(pipeline, "cat", "Ana has a cat"))
        pipeline.command(*parts((gained,)), first=900)
        pipeline.run()
        execute_in(pipeline.log, 0, pipeline.shard)
    (folder / "shard").unlink()
    return settings_of(folder)


def partitions_of(settings: Settings) -> int:
    with open_log(settings, "read") as log:
        return log.partitions(MEMORY_WRITES.name)


def scopes_of(settings: Settings) -> list[str]:
    found = each_shard(settings, lambda reader: reader.execute("FROM scopes").fetchall())
    return sorted({row[0] for rows in found for row in rows})


def each_shard(settings: Settings, look: Callable[[Any], Any]) -> list[Any]:
    """What is seen in each partition's store."""
    options = shard_options(settings, embedding_model(settings))
    found = []
    for partition in range(partitions_of(settings)):
        shard = open_shard(settings, partition, options)
        try:
            with shard.reading() as reader:
                found.append(look(reader))
        finally:
            shard.close()
    return found


def states(settings: Settings, scopes: Sequence[str]) -> dict[str, dict[str, str]]:
    """By scope the state hashes of its tables, with the times of the log, in its partition."""
    found = each_shard(
        settings,
        lambda reader: {scope: table_hashes(reader, times=True, scope=scope) for scope in scopes},
    )
    return {scope: found[partition_for(scope, len(found))][scope] for scope in scopes}


def repartitioned(settings: Settings, shards: int, **wanted: Any) -> Rebuilt:
    request = Rebuild(name=wanted.pop("name", "other"), shards=shards, **{"swap": True, **wanted})
    return asyncio.run(repartition(settings, request))


def goes_on(settings: Settings, *turns: tuple[str, str], first: int = 1_000) -> None:
    """Turns of scopes, as a worker takes them."""
    messages = [
        published(turn(text, number), scope) for number, (scope, text) in enumerate(turns, first)
    ]
    with open_log(settings, "publish") as log:
        log.append([outgoing(topic_of(message), message) for message in messages])
    worked(settings)


def commands(settings: Settings, *given: tuple[str, Command], first: int = 1_000) -> None:
    messages = [commanded(each, number, scope) for number, (scope, each) in enumerate(given, first)]
    with open_log(settings, "publish") as log:
        log.append([outgoing(topic_of(message), message) for message in messages])
    worked(settings)


def worked(settings: Settings) -> None:
    async def working() -> None:
        async with application(settings, make_language=lambda _: ScriptedModel(spoken)) as app:
            await run(app)

    async def run(app: Application) -> None:
        await app.run(until_drained=True)
        assert app.finished

    asyncio.run(working())
