"""Turns of the worst texts there are, as large as a body may be: others are answered meanwhile."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator

import pytest

from tests.flows.http_server import Served, server

SIZE = 300_000
RUNS = {
    "blanks": "a" + " " * SIZE + "b",
    "brackets": "[({<" * (SIZE // 4),
    "base64": base64.b64encode(bytes(range(256)) * (SIZE // 342)).decode(),
    "denials": "I do not like " * (SIZE // 14),
}
MOST_SECONDS = 4.0
"""Of processor time, of all threads: what else the machine does takes none of it."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = ("max_body_bytes=2000000", "unprocessed_bytes_per_token=2000000")
    flags = (*(f"http.{each}" for each in limits), "http.modify_per_minute=1000")
    with server(tmp_path_factory.mktemp("big"), *flags) as running:
        yield running


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "denials" else pytest.mark.soak) for name in RUNS],
)
def test_a_big_turn_holds_up_nobody(running: Served, name: str) -> None:
    ended = threading.Event()
    most = 0.0

    def look() -> None:
        nonlocal most
        with running.client() as client:
            while not ended.is_set():
                began = time.process_time()
                assert client.get("/health").status_code == 200
                most = max(most, time.process_time() - began)

    looking = threading.Thread(target=look)
    with running.client() as client:
        looking.start()
        turn = {"turn_id": name, "content": RUNS[name], "scope": "ana", "speaker": "Ana"}
        answer = client.post("/api/turns", json=turn)
        assert answer.status_code == 202, answer.text[:300]
        said = {"content": RUNS[name][:9_000], "scope": "ana"}
        assert client.post("/api/memory/remember", json=said).status_code in (200, 202, 422)
        question = {"query": RUNS[name][:90_000], "scope": "ana"}
        assert client.post("/api/memory/recall", json=question).status_code == 200
        query = "SELECT count(*) FROM (SELECT unnest(bm25_terms(content)) FROM turns)"
        assert client.post("/api/sql", json={"query": query}).status_code in (200, 403, 422)
        running.settle(client)
        ended.set()
        looking.join()
    assert most < MOST_SECONDS
