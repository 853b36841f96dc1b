"""After a start the scopes that changed last are in memory before anyone asks."""

from __future__ import annotations

from pathlib import Path

from palimpsest.ops.server.serving import NEWEST, load_newest
from tests.flows.http_server import server
from tests.flows.program import until
from tests.harness import FULL, Pipeline, pipeline_settings


def test_the_newest_scopes_are_loaded(tmp_path: Path) -> None:
    scopes = [f"s{number}" for number in range(NEWEST + 2)]
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        for scope in scopes:
            pipeline.say("I live in Oslo.", scope=scope)
            pipeline.run()
            pipeline.clock.advance(hours=1)
        pipeline.reopen()
        indexes = pipeline.shard.space.indexes
        load_newest([pipeline.shard], lambda: True)
        assert not any(map(indexes.resident, scopes))
        load_newest([pipeline.shard], lambda: False)
        assert [scope for scope in scopes if indexes.resident(scope)] == scopes[-NEWEST:]


def test_a_service_loads_them_at_its_start(tmp_path: Path) -> None:
    said = {"content": "Ana lives in Oslo.", "scope": "ana"}
    with server(tmp_path) as served, served.client() as client:
        assert client.post("/api/memory/remember", json=said).status_code == 200
    with server(tmp_path) as served:
        app = served.up.app
        assert app is not None
        [shard] = app.shards.values()
        until(lambda: shard.space.indexes.resident("ana") is not None)
