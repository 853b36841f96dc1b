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
    "letters": "x" * SIZE,
    "dashes": "-" * SIZE,
    "blanks": "a" + " " * SIZE + "b",
    "digits": "7" * SIZE,
    "quotes": "'\"" * (SIZE // 2),
    "brackets": "[({<" * (SIZE // 4),
    "base64": base64.b64encode(bytes(range(256)) * (SIZE // 342)).decode(),
    "names": "Ana " * (SIZE // 4),
    "denials": "I do not like " * (SIZE // 14),
}
MOST_SECONDS = 2.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = ("max_body_bytes=2000000", "unprocessed_bytes_per_token=2000000")
    flags = (*(f"http.{each}" for each in limits), "http.modify_per_minute=1000")
    with server(tmp_path_factory.mktemp("big"), *flags) as running:
        yield running


@pytest.mark.parametrize("name", RUNS)
def test_a_big_turn_holds_up_nobody(running: Served, name: str) -> None:
    ended = threading.Event()
    slowest = 0.0

    def look() -> None:
        nonlocal slowest
        with running.client() as client:
            while not ended.is_set():
                began = time.monotonic()
                assert client.get("/health").status_code == 200
                slowest = max(slowest, time.monotonic() - began)

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
    assert slowest < MOST_SECONDS
