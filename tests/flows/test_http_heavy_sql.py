"""SQL that takes all it can get, over HTTP: the others go on as if it were not there."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.flows.http_server import Served, problem, server
from tests.flows.program import PATIENCE_S

SECONDS = 1.5
ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
GREEDY = (
    "SELECT len(range(100000000))",
    "SELECT len(repeat('x', 2000000000))",
    "SELECT len(string_agg(range::VARCHAR, '')) FROM range(200000000)",
    "SELECT list(range) FROM range(1000000000)",
)
"""More memory than any query may have, some of it where the database does not count it."""
PATIENT = (
    "SELECT count(*) FROM range(300000000) WHERE regexp_matches(md5(range::VARCHAR), '(a|b)*c')"
)
"""More time than a query may have."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("sql"), f"http.sql_seconds={SECONDS}") as running:
        yield running


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For queries that must be answered, however long a busy machine takes."""
    with server(tmp_path_factory.mktemp("patient"), f"http.sql_seconds={PATIENCE_S}") as patient:
        yield patient


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def asked(running: Served, query: str) -> httpx.Response:
    with running.client() as client:
        return client.post("/api/sql", json={"query": query})


@pytest.mark.parametrize("query", GREEDY)
def test_a_query_has_a_memory_of_its_own(running: Served, query: str) -> None:
    before = peak_mib()
    answer = asked(running, query)
    assert answer.json()["code"] in ("sql_too_large", "sql_too_slow"), answer.text
    assert peak_mib() < before + 500


def test_a_query_ends_with_its_time_whatever_it_does(running: Served) -> None:
    problem(asked(running, PATIENT), 422, "sql_too_slow")


@pytest.mark.soak
def test_no_query_makes_a_commit_fail(running: Served) -> None:
    greedy = "SELECT len(string_agg(repeat('x', 1000), '')) FROM range(1000000)"
    with ThreadPoolExecutor(3) as pool, running.client() as client:
        asking = [pool.submit(asked, running, greedy) for _ in range(6)]
        for number in range(20):
            said = {"content": f"Ana has the number {number}.", "scope": "ana"}
            assert client.post("/api/memory/remember", json=said).status_code == 200
        codes = {each.result().json()["code"] for each in asking}
        assert codes <= {"sql_too_large", "sql_too_slow", "unavailable"}
        running.settle(client)
        query = "SELECT count(*) FROM memories WHERE scope = 'ana' AND type <> 'episodic'"
        assert asked(running, query).json()["rows"][0][0] >= 20


def test_queries_that_find_no_place_are_to_be_sent_again_and_hold_up_nobody(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palimpsest.ops.sql.processes.PLACE_SECONDS", 0.25)

    def read(client: httpx.Client) -> None:
        body = {"query": "which number?", "scope": "ana"}
        assert client.post("/api/memory/recall", json=body).status_code == 200
        assert client.get("/api/memories?scope=ana").status_code == 200

    with ThreadPoolExecutor(8) as pool, running.client() as client:
        read(client)  # the first one loads what the others find
        asking = [pool.submit(asked, running, ENDLESS) for _ in range(8)]
        meanwhile = 0
        while not all(each.done() for each in asking):
            read(client)
            meanwhile += not all(each.done() for each in asking)
        statuses = sorted(each.result().status_code for each in asking)
    assert set(statuses) == {422, 503}
    assert meanwhile > 0  # rounds of reading, each answered before the queries ended


def test_a_query_sees_what_was_committed_just_before(patient: Served) -> None:
    with patient.client() as client:
        for number in range(3):
            said = {"content": f"Eve keeps {number} goats.", "scope": "eve"}
            made = client.post("/api/memory/remember", json=said).json()["id"]
            found = asked(patient, f"SELECT content FROM memories WHERE memory_id = '{made}'")
            assert found.json()["rows"] == [[said["content"]]]


def test_nothing_of_a_copy_is_left_behind(running: Served, patient: Served) -> None:
    """Neither by the queries above that were ended nor by one that was answered."""
    assert asked(patient, "SELECT count(*) FROM memories").status_code == 200
    for served in (running, patient):
        assert [path.name for path in served.folder.iterdir() if path.name.startswith("sql-")] == []
