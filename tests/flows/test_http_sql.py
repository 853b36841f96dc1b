"""SQL over HTTP: what is refused, and why by its code."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.flows.http_server import problem, server


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("sql")
    with server(folder, "http.sql_seconds=2") as running, running.client() as client:
        said = {"content": "Ana lives in Oslo.", "scope": "ana"}
        assert client.post("/api/memory/remember", json=said).status_code == 200
        yield client


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELEC 1", 400, "sql_invalid"),
        ("SELECT nothing FROM memories", 400, "sql_invalid"),
        ("SELECT 'x'::INTEGER", 400, "sql_invalid"),
        ("DELETE FROM memories", 403, "sql_refused"),
        (
            "SELECT sum(a.range * b.range) FROM range(1000000) a, range(100000) b",
            422,
            "sql_too_slow",
        ),
        ("SELECT * FROM range(2000000)", 422, "sql_too_large"),
    ],
)
def test_why_sql_is_not_answered(client: httpx.Client, query: str, status: int, code: str) -> None:
    said = problem(client.post("/api/sql", json={"query": query}), status, code)
    assert said["kind"] == code
