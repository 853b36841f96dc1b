"""The HTTP service in front of workers on a real broker: it routes by scope, says so when the
worker of a scope is gone, and goes on when another one has taken over."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest.ops.kafka.broker import Broker
from palimpsest.streams.logs.base import partition_for
from tests.erased_bytes import where
from tests.flows.program import until
from tests.flows.test_cache_invalidation import caching, forgets_what_changes
from tests.flows.test_fetching import PAGE
from tests.flows.web import answer, web
from tests.soak.lab import Lab, MakeLab

PARTITIONS = 4
PATIENCE_S = 120.0
SCOPES = ("ana", "ben", "eva", "kim", "mia", "gus")


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    # Longer than a request waits for a partition: it is told that its worker is gone.
    return make_lab(PARTITIONS, 6.0)


def answered(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer that is no 503. Every 503 must say when to come again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = ask()
        if answer.status_code != 503:
            return answer
        assert int(answer.headers["retry-after"]) >= 1, answer.text
        assert answer.json()["type"].endswith("unavailable")
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.2)


def remembered(client: httpx.Client, scope: str, text: str) -> dict[str, Any]:
    body = {"scope": scope, "content": text}
    answer = client.post("/api/memory/remember?wait=60", json=body)
    assert answer.status_code == 200, answer.text
    kept: dict[str, Any] = answer.json()
    return kept


def test_the_gateway_routes_by_scope_and_outlives_its_workers(lab: Lab) -> None:
    assert {partition_for(scope, PARTITIONS) for scope in SCOPES} == {0, 1, 2, 3}
    url = lab.serve("gateway")
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
        asked = {"scope": "ana", "query": "where does Ana live?"}
        # Nobody is there: told, and soon.
        began = time.monotonic()
        alone = client.post("/api/memory/recall", json=asked)
        assert (alone.status_code, time.monotonic() - began < 30) == (503, True)
        accepted = client.post(
            "/api/memory/remember?wait=0", json={"scope": "ana", "content": "Ana lives in Lima"}
        )
        assert accepted.status_code == 202, accepted.text
        for name in ("one", "two"):
            lab.start(name)
        lab.until_owned(2)
        assert answered(lambda: client.get("/ready")).status_code == 200
        # What nobody was there for is done by whoever came.
        place = accepted.headers["location"]
        result = answered(lambda: client.get(place))
        while result.json().get("applied") is not True:
            result = answered(lambda: client.get(place))
        kept = {scope: remembered(client, scope, f"{scope} keeps bees") for scope in SCOPES}
        for scope, memory in kept.items():
            found = client.get(f"/api/memory/{memory['id']}")
            assert (found.status_code, found.json()["scope"]) == (200, scope)
            hits = client.post("/api/memory/recall", json={"scope": scope, "query": "bees"})
            assert f"{scope} keeps bees" in hits.text
        # One dies: its scopes are away until the other one has them.
        lab.kill("two")
        for scope, memory in kept.items():
            path = f"/api/memory/{memory['id']}"
            assert answered(partial(client.get, path)).json()["scope"] == scope
        changed = {"content": "ana keeps goats", "reason": "changed"}
        path = f"/api/memory/{kept['ana']['id']}?wait=60"
        answer = answered(lambda: client.patch(path, json=changed))
        assert (answer.status_code, answer.json()["status"]) == (200, "updated")
    lab.stop("gateway")


@pytest.mark.soak
def test_the_example_of_a_cache_follows_the_topic(lab: Lab) -> None:
    url = lab.serve("gateway")
    lab.start("one")
    lab.until_owned(1)
    topic = lab.settings.cluster.physical("cache-invalidations")
    given = (url, "home", "where does Ana live?", lab.broker.bootstrap_servers, topic)
    with caching(lab.folder, *given) as process:
        forgets_what_changes(url, process)


@pytest.mark.soak
def test_documents_sessions_and_secrets_behind_a_gateway(broker: Broker, tmp_path: Path) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    reachable = ("documents.allow_private=true",)
    with (
        Lab(tmp_path / name, broker, name, PARTITIONS, 6.0, reachable) as lab,
        web(page=answer(PAGE.encode(), "text/html; charset=utf-8")) as pages,
    ):
        url = lab.serve("gateway")
        lab.start("one")
        lab.until_owned(1)
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
            ids = []
            for given in ({"text": "The kettle holds two litres."}, {"url": pages.url("/page")}):
                added = client.post("/api/documents?wait=60", json={**given, "scope": "ana"})
                assert added.status_code == 200, added.text
                ids.append(added.json()["id"])
            for each in ids:
                until(partial(is_done, client, each))
            hit = client.post("/api/memory/recall", json={"scope": "ana", "query": "litres"})
            assert "kettle" in hit.text
            turn = {"scope": "ana", "turn_id": "t1", "session_id": "s1", "speaker": "Ana"}
            turn["content"] = "Remember that I moved to Bodø. My password is tr0ub4dor&3."
            assert client.post("/api/turns", json=turn).status_code == 202
            lab.until_drained()
            ended = client.post("/api/sessions/s1/end?wait=60", json={"scope": "ana"})
            assert ended.json()["status"] == "ended"
            kept = client.get("/api/sessions/s1/memory", params={"scope": "ana"}).json()
            [said] = kept["short_term"]["turns"]
            assert said["content"].endswith("My password is [REDACTED:password].")
            assert kept["short_term"]["explicit_intent"] is True
        lab.stop("one")
        lab.stop("gateway")
        assert where(lab.folder / "data", "tr0ub4dor") == []
        records = [
            record.value or b""
            for topic in ("conversation-turns", "turns-normalized", "memory-writes")
            for partition in range(PARTITIONS)
            for record in lab.log.read(topic, partition, 0, 10_000)
        ]
        assert not any(b"tr0ub4dor" in value for value in records)


def is_done(client: httpx.Client, document: str) -> bool:
    return bool(client.get(f"/api/documents/{document}").json()["status"] == "done")
