"""What Prometheus reads of a running service, with its own parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from palimpsest.ops.scripts.reference import render_alerts, render_dashboard
from palimpsest.ops.telemetry.catalogue import METRICS, PREFIX
from tests.flows.http_server import Served, problem, server
from tests.flows.program import PATIENCE_S, SAID, Program, until

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("metrics")) as running, running.client() as client:
        turns = [
            {"turn_id": f"t{number}", "speaker": "Ana", "content": text}
            for number, text in enumerate(SAID)
        ]
        assert client.post("/api/turns", json=turns).json()["accepted"] == len(SAID)
        running.settle(client)
        yield running


def values(client: httpx.Client) -> Values:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("palimpsest_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def at(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_what_was_done_is_counted(served: Served) -> None:
    with served.client() as client:
        before = values(client)
        for _ in range(3):
            asked = {"query": "walnuts"}
            assert client.post("/api/memory/recall", json=asked).status_code == 200
        problem(client.get("/api/memory/nothing"), 404, "not_found")
        problem(client.get("/nothing/at/all"), 404, "not_found")
        answer = client.post("/api/memory/remember", json={"content": "I like tea."})
        assert answer.status_code == 200
        waits = client.post("/api/memory/remember?wait=0", json={"content": "I like milk."})
        assert waits.status_code == 202
        missing = client.post("/api/memory/remember", content=b"{", headers={"Accept": "*/*"})
        assert missing.status_code == 415
        after = values(client)

    def more(name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return after[key] - before.get(key, 0.0)

    recall = {"method": "POST", "route": "/api/memory/recall"}
    assert more("http_requests_total", **recall, status="200") == 3
    assert more("http_request_seconds_count", **recall) == 3
    assert more("query_seconds_count", query="recall") == 3
    assert (
        0 < more("query_seconds_sum", query="recall") <= more("http_request_seconds_sum", **recall)
    )
    one = {"method": "GET", "route": "/api/memory/{memory_id}"}
    assert more("http_requests_total", **one, status="404") == 1
    assert more("http_requests_total", method="GET", route="other", status="404") == 1
    assert more("command_wait_seconds_count", end="applied") == 1
    assert more("command_wait_seconds_count", end="pending") == 1


def test_what_the_stages_did_is_that_of_the_pipeline(served: Served) -> None:
    with served.client() as client:
        served.settle(client)
        found = values(client)
    place = {"partition": "0"}
    assert at(found, "stage_records_total", stage="normalize", **place) >= len(SAID)
    assert at(found, "stage_emitted_records_total", stage="apply-writes", **place) > 0
    assert at(found, "stage_batches_total", stage="extract", **place) > 0
    assert at(found, "store_seconds_total", stage="apply-writes", **place) > 0
    commit = {"stage": "audit", "step": "commit", **place}
    assert at(found, "stage_batch_seconds_total", **commit) > 0
    assert at(found, "model_calls_total", provider="embedding") > 0
    assert at(found, "model_calls_total", provider="llm:rules") >= len(SAID)
    assert at(found, "balance_holds") == 1
    assert at(found, "balance_items", kind="turns", state="stored") >= len(SAID)
    assert at(found, "pipeline_known") == 1
    assert at(found, "dead_letters") == 0
    assert at(found, "stage_lag_records", stage="decide", **place) >= 0


def test_the_newer_format_is_given_to_who_asks_for_it(served: Served) -> None:
    with served.client() as client:
        headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
        answer = client.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = [family.name for family in openmetrics.text_string_to_metric_families(answer.text)]
    assert "palimpsest_http_requests" in families


def test_metrics_are_for_administrators(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        admin = running.token("prometheus", "*", may=["admin"])
        reader = running.token("reader", "*", may=["recall"])
        with running.client() as client:
            problem(client.get("/metrics"), 401, "unauthorized")
        with running.client(reader) as client:
            problem(client.get("/metrics"), 403, "forbidden")
        with running.client(admin) as client:
            found = values(client)
        requests = {"method": "GET", "route": "other", "status": "401"}
        assert at(found, "http_requests_total", **requests) == 1


def test_a_worker_shows_its_own(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    with program.worker():
        told = json.loads((program.data / "worker.json").read_text())
        url = f"http://127.0.0.1:{told['port']}/metrics"
        assert httpx.get(url, trust_env=False, timeout=PATIENCE_S).status_code == 401
        headers = {"Authorization": f"Bearer {told['token']}"}
        with httpx.Client(
            base_url=url.removesuffix("/metrics"), headers=headers, timeout=PATIENCE_S
        ) as client:
            place = {"stage": "normalize", "partition": "0"}
            until(lambda: at(values(client), "stage_records_total", **place) == len(SAID))


def test_a_scrape_has_what_the_catalogue_defines(served: Served) -> None:
    with served.client() as client:
        client.post("/api/memory/recall", json={"query": "walnuts"})
        client.post("/api/memory/remember", json={"content": "I like tea."})
        client.get("/metrics")
        text = client.get("/metrics").text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert {*families} - {f"{PREFIX}{each}_created" for each in METRICS} == {
        f"{PREFIX}{each}" for each in METRICS
    }
    for name, metric in METRICS.items():
        family = families[f"{PREFIX}{name}"]
        assert (family.type, family.documentation) == (metric.kind, metric.meaning)
        for sample in family.samples:
            assert {*sample.labels} - {"le"} == {*metric.labels}, sample
    samples = {sample.name for family in families.values() for sample in family.samples}
    used = {*re.findall(rf"{PREFIX}\w+", render_dashboard() + render_alerts())}
    assert used - samples == set()
