"""The HTTP service where the memory lies in several processes: real interfaces of workers, no
broker. A worker that is away is told at once as 503, not waited for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx

from palimpsest.ops.http.service import Rates, Service
from palimpsest.ops.http.tokens import Tokens
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.server.application import create_app
from palimpsest.ops.server.serving import pipeline_status, without_owner
from palimpsest.ops.service.announcement import own_folder
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.service.server import listening, served
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.telemetry.metrics import Metrics
from palimpsest.ops.worker.local import local_interface
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.logs.settings import LogSettings
from tests.flows.http_server import problem
from tests.harness import Pipeline

PARTITIONS = 4
HERE, AWAY = "ana", "ben"
NOBODY = "00000000-0000-5000-8000-000000000000"
PATIENCE_S = 0.1


@contextlib.asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Sources]]:
    """A gateway to one worker that has the partition of `ana` alone."""
    assert partition_for(HERE, PARTITIONS) != partition_for(AWAY, PARTITIONS)
    settings = Settings(data_dir=folder, log=LogSettings(kind="kafka"))
    with Pipeline(folder / "parts") as pipeline:
        pipeline.say("I work at Globex in Lima.")
        await pipeline.drain()
        log = pipeline.log
        shards = {partition_for(HERE, PARTITIONS): pipeline.shard}
        sources = Sources(settings, log, shards, PARTITIONS, pipeline.embedding, log.append)
        routed = RoutedQueries(settings, PARTITIONS, PATIENCE_S)
        service = Service(
            settings,
            routed,
            log.append,
            log,
            Tokens(folder),
            Rates(settings.http),
            partial(without_owner, routed, PARTITIONS),
            lambda position, seconds: log.wait([position], seconds),
            Metrics(partial(pipeline_status, routed)),
        )
        service.started.set()
        worker = local_interface(
            DirectQueries(sources), own_folder(folder), partitions=lambda: [*sources.shards]
        )
        with listening("127.0.0.1", 0) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with (
                worker,
                served(create_app(service), listener),
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client,
            ):
                yield client, sources
                await routed.close()


async def test_a_scope_is_answered_by_its_worker(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (client, _):
        body = {"query": "where does Ana work?", "scope": HERE}
        answer = await client.post("/api/memory/recall", json=body)
        assert "Globex" in answer.text
        for path in ("memories", "entities", "stats", "embeddings"):
            found = await client.get(f"/api/{path}", params={"scope": HERE})
            assert found.status_code == 200, found.text


async def test_a_worker_that_goes_away_is_told(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (client, sources):
        body = {"query": "where does Ana work?", "scope": HERE}
        assert (await client.post("/api/memory/recall", json=body)).status_code == 200
        sources.shards = {}
        problem(await client.post("/api/memory/recall", json=body), 503, "unavailable")
        assert (await client.get("/health")).status_code == 200


async def test_a_turn_is_taken_while_its_worker_is_away(tmp_path: Path) -> None:
    """What is published waits on the log."""
    async with gateway(tmp_path) as (client, _):
        turn = {"turn_id": "t", "content": "hello", "scope": AWAY}
        assert (await client.post("/api/turns", json=turn)).status_code == 202
        body = {"content": "Ben sings.", "scope": AWAY}
        answer = await client.post("/api/memory/remember", json=body)
        assert answer.status_code == 202
