"""Who is asked for what when the memory lies in several processes: real interfaces, no broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palimpsest.ops.queries.dispatch import DirectQueries
from palimpsest.ops.queries.requests import (
    ContextRequest,
    EntitiesRequest,
    EntityRequest,
    ForgetPreviewRequest,
    GetRequest,
    ListRequest,
    NotFoundError,
    NotOpenError,
    RecallRequest,
    Request,
    RequestError,
    SearchRequest,
    StatsRequest,
    WeakRequest,
)
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.service import routing
from palimpsest.ops.service.local import local_interface
from palimpsest.ops.service.routing import RoutedQueries, own_folder
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.base import partition_for
from tests.harness import Pipeline

PARTITIONS = 4
PARTITION = partition_for("ana", PARTITIONS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "PATIENCE_SECONDS", 0.3)


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[RoutedQueries, Sources]]:
    """One worker that has the partition of `ana` alone; the others have no owner."""
    settings = Settings(data_dir=folder)
    with Pipeline(folder / "parts") as pipeline:
        pipeline.say("I work at Globex in Lima.")
        await pipeline.drain()
        shards = {PARTITION: pipeline.shard}
        model, append = pipeline.embedding, pipeline.log.append
        sources = Sources(settings, pipeline.log, shards, PARTITIONS, model, append)
        queries = DirectQueries(sources)
        routed = RoutedQueries(settings, PARTITIONS)
        async with local_interface(queries, own_folder(folder), partitions=lambda: [*shards]):
            yield routed, sources
            await routed.close()


@pytest.mark.parametrize(
    "request_",
    [
        ContextRequest("ana", "where does Ana work?"),
        RecallRequest("ana", "where does Ana work?"),
        ListRequest("ana"),
        ForgetPreviewRequest("ana", query="where does Ana work?"),
        SearchRequest("ana", "Globex"),
        EntitiesRequest("ana"),
        EntityRequest("ana", "Globex"),
        WeakRequest("ana", below=1.0),
    ],
)
async def test_what_is_asked_of_a_scope_needs_its_partition_alone(
    tmp_path: Path, request_: Request
) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert "Globex" in str(await routed.answer(request_))


async def test_what_is_asked_by_id_needs_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (routed, _):
        with pytest.raises(RequestError, match="no worker has the partitions"):
            await routed.answer(GetRequest("0123456789"))


async def test_counts_of_a_scope_need_its_partition_and_counts_of_all_need_all(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert "'active': 2" in str(await routed.answer(StatsRequest("ana")))
        with pytest.raises(RequestError, match="no worker has the partitions"):
            await routed.answer(StatsRequest())


async def test_errors_keep_their_kind_on_the_way(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (routed, sources):
        [client] = set((await routed.owners()).values())
        with pytest.raises(NotFoundError, match="there is no memory"):
            await client.answer(GetRequest("0123456789"))
        with pytest.raises(RequestError) as refused:
            await client.answer(RecallRequest("ana", " "))
        assert type(refused.value) is RequestError
        sources.shards = {}
        with pytest.raises(NotOpenError, match="not open"):
            await client.answer(RecallRequest("ana", "Globex"))


async def test_a_partition_on_the_move_is_asked_again(tmp_path: Path) -> None:
    """Told by the kind of the error: whatever the text says."""
    async with cluster(tmp_path) as (routed, sources):
        shards, asked = sources.shards, asyncio.Event()

        class Moving(dict[int, object]):
            def get(self, number: int, default: object = None) -> object:
                asked.set()
                sources.shards = shards
                raise NotOpenError("elsewhere now")

        sources.shards = Moving(shards)  # type: ignore[assignment]
        assert "Globex" in str(await routed.answer(RecallRequest("ana", "Globex")))
        assert asked.is_set()
