"""Every reading route of the HTTP service with every status that it can have, on a real port."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.flows.http_server import JSON, Served, problem, server
from tests.flows.program import SAID, Program

ARROW = "application/vnd.apache.arrow.stream"
NOBODY = "00000000-0000-5000-8000-000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    program = Program(tmp_path_factory.mktemp("http"), PALIMPSEST_EMBEDDING__DIMENSIONS="64")
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("ingest", program.turns("I work at Globex.", name="b.jsonl"), "--scope", "work")
    with server(program.data) as running, running.client() as client:
        running.settle(client)
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


@pytest.fixture
def memory(client: httpx.Client) -> dict[str, Any]:
    found = client.get("/api/memories", params={"scope": "home", "types": "fact"}).json()
    memory: dict[str, Any] = found["memories"][0]
    return memory


GIVEN: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "/health", {}, 200),
    ("GET", "/ready", {}, 200),
    ("GET", "/openapi.json", {}, 200),
    ("POST", "/api/memory/recall", {"json": {"query": "coffee", "scope": "home"}}, 200),
    ("POST", "/api/memory/recall", {"json": {"query": "coffee", "scope": "never seen"}}, 200),
    ("POST", "/api/memory/recall", {"json": {"query": "coffee"}}, 200),
    ("POST", "/api/memory/recall", {"json": {"query": "x", "types": "fact", "tags": ["a"]}}, 200),
    ("POST", "/api/memory/recall", {"json": {"query": " "}}, 422),
    ("POST", "/api/memory/recall", {"json": {}}, 422),
    ("POST", "/api/memory/recall", {"json": {"query": "x", "limit": 0}}, 422),
    ("POST", "/api/memory/recall", {"json": {"query": "x", "kind": "fact"}}, 422),
    ("POST", "/api/memory/recall", {"json": {"query": "x", "scope": " "}}, 422),
    ("POST", "/api/memory/recall", {"json": {"query": "x", "since": "2026-03-01"}}, 422),
    ("POST", "/api/memory/recall", {"json": ["x"]}, 422),
    ("POST", "/api/memory/recall", {"content": b"", "headers": JSON}, 422),
    ("POST", "/api/memory/recall", {"content": b"{", "headers": JSON}, 400),
    ("POST", "/api/memory/recall", {"content": b"\xff\xfe", "headers": JSON}, 400),
    ("POST", "/api/memory/recall", {"content": b"[" * 100_000, "headers": JSON}, 400),
    ("POST", "/api/memory/recall", {"content": b'{"query": NaN}', "headers": JSON}, 400),
    ("POST", "/api/memory/recall", {"content": b'{"query": "x"}'}, 415),
    ("POST", "/api/memory/recall", {"data": {"query": "x"}}, 415),
    ("POST", "/api/memory/recall", {"content": b" " * 2_000_000, "headers": JSON}, 413),
    ("PUT", "/api/memory/recall", {"json": {}}, 405),
    ("POST", "/api/memory/context", {"json": {"query": "coffee", "scope": "home"}}, 200),
    ("POST", "/api/memory/context", {"json": {"query": "coffee", "budget": 1}}, 422),
    ("GET", "/api/memory/search?query=coffee&scope=home", {}, 200),
    ("GET", "/api/memory/search", {}, 422),
    ("GET", "/api/scopes", {}, 200),
    ("GET", "/api/weak?scope=home&below=0.9&limit=3", {}, 200),
    ("GET", "/api/weak?below=2", {}, 422),
    ("GET", "/api/memories", {}, 200),
    ("GET", "/api/memories?scope=home&types=fact&types=preference&limit=1", {}, 200),
    ("GET", "/api/memories?deleted=true", {}, 200),
    ("GET", "/api/memories?limit=1001", {}, 422),
    ("GET", "/api/memories?cursor=yesterday", {}, 422),
    ("GET", "/api/memories?cursor=9999-99-99/x", {}, 422),
    ("GET", "/api/memories?order=oldest", {}, 422),
    ("GET", f"/api/memory/{NOBODY}", {}, 404),
    ("GET", "/api/memory/0", {}, 404),
    ("GET", f"/api/memory/{NOBODY}/history", {}, 404),
    ("GET", f"/api/memory/{NOBODY}/history?limit=0", {}, 422),
    ("GET", f"/api/memory/{NOBODY}/explain", {}, 404),
    ("GET", "/api/sessions/s1/memory?scope=home", {}, 200),
    ("GET", "/api/sessions/s1/memory?scope=elsewhere", {}, 404),
    ("GET", "/api/sessions/s9/memory?scope=home", {}, 404),
    ("GET", "/api/sessions?scope=home", {}, 200),
    ("GET", "/api/sessions?scope=home&open=true&limit=1", {}, 200),
    ("GET", "/api/sessions?scope=home&cursor=yesterday", {}, 422),
    ("GET", "/api/sessions?scope=home&limit=0", {}, 422),
    (
        "POST",
        "/api/memory/context",
        {"json": {"query": "x", "scope": "home", "session_id": "s1"}},
        200,
    ),
    ("GET", "/api/embeddings?scope=home", {}, 200),
    ("GET", "/api/entities?scope=home", {}, 200),
    ("GET", "/api/entities?scope=home&query=no&limit=1", {}, 200),
    ("GET", "/api/entities?scope=home&cursor=x", {}, 422),
    ("GET", "/api/entities/Nora?scope=home", {}, 200),
    ("GET", "/api/entities/Nora?scope=work", {}, 404),
    ("GET", "/api/pipeline/status", {}, 200),
    ("GET", "/api/diagnostics", {}, 200),
    ("GET", "/api/diagnostics?domain=queue", {}, 200),
    ("GET", "/api/diagnostics?domain=weather", {}, 404),
    ("GET", "/api/stats", {}, 200),
    ("GET", "/api/stats?scope=home", {}, 200),
    ("POST", "/api/sql", {"json": {"query": "SELECT count(*) FROM memories"}}, 200),
    ("POST", "/api/sql", {"json": {"query": "SELECT 1", "partition": 9}}, 422),
    ("POST", "/api/sql", {"json": {"query": "SELECT 1"}, "headers": {"Accept": "text/csv"}}, 406),
    ("GET", f"/api/commands/{NOBODY}", {}, 404),
    ("GET", "/api/events?scope=%20", {}, 422),
    ("GET", "/api/memory/search?scope=home&query=" + "x" * 2_001, {}, 422),
    ("GET", "/api/documents", {}, 200),
    ("GET", "/api/documents?scope=home&status=done&limit=1", {}, 200),
    ("GET", "/api/documents?status=lost", {}, 422),
    ("GET", "/api/documents?cursor=yesterday", {}, 422),
    ("GET", f"/api/documents/{NOBODY}", {}, 404),
    ("GET", "/api/documents/0", {}, 404),
    ("GET", f"/api/documents/{NOBODY}/chunks", {}, 404),
    ("GET", f"/api/documents/{NOBODY}/chunks?cursor=-1", {}, 422),
    ("GET", "/api", {}, 404),
    ("GET", "/", {}, 404),
]
CODES = {
    400: "malformed", 404: "not_found", 405: "method_not_allowed", 406: "not_acceptable",
    413: "too_large", 415: "unsupported_media_type", 422: "invalid",
}  # fmt: skip


@pytest.mark.parametrize(("method", "path", "given", "status"), GIVEN)
def test_every_route_has_its_statuses(
    client: httpx.Client, method: str, path: str, given: dict[str, Any], status: int
) -> None:
    answer = client.request(method, path, **given)
    if status == 200:
        assert answer.status_code == 200, answer.text
    else:
        problem(answer, status, CODES[status])


def test_a_body_of_untold_length_is_counted_as_it_comes(client: httpx.Client) -> None:
    many = (b" " * 100_000 for _ in range(20))
    problem(client.post("/api/memory/recall", content=many, headers=JSON), 413, "too_large")


def test_what_is_wrong_is_told_with_its_place(client: httpx.Client) -> None:
    said = problem(
        client.post("/api/memory/recall", json={"query": "x", "limit": 0}), 422, "invalid"
    )
    assert [each["where"] for each in said["errors"]] == ["body.limit"]
    said = problem(client.get("/api/memories?limit=many"), 422, "invalid")
    assert [each["where"] for each in said["errors"]] == ["query.limit"]


def test_a_recall_finds_and_filters(client: httpx.Client) -> None:
    body = {"query": "what is Ana allergic to?", "scope": "home", "explain": True}
    found = client.post("/api/memory/recall", json=body).json()
    assert "walnuts" in found["results"][0]["content"]
    assert set(found["results"][0]["scores"]) >= {"keyword", "vector"}
    one = client.post("/api/memory/recall", json={**body, "types": "episodic", "limit": 1}).json()
    assert [each["type"] for each in one["results"]] == ["episodic"]
    words = client.get("/api/memory/search", params={"query": "walnuts", "scope": "home"}).json()
    assert words["method"] == "keyword"
    assert all("walnuts" in each["content"] for each in words["results"])


def test_pages_follow_one_another(client: httpx.Client) -> None:
    whole = client.get("/api/memories", params={"scope": "home"}).json()
    ids, cursor = [], None
    while True:
        asked = {"scope": "home", "limit": "2", **({"cursor": cursor} if cursor else {})}
        page = client.get("/api/memories", params=asked).json()
        ids += [each["id"] for each in page["memories"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert ids == [each["id"] for each in whole["memories"]]
    names, cursor = [], None
    while True:
        asked = {"scope": "home", "limit": "1", **({"cursor": cursor} if cursor else {})}
        page = client.get("/api/entities", params=asked).json()
        names += [each["name"] for each in page["entities"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(names) == sorted(
        each["name"]
        for each in client.get("/api/entities", params={"scope": "home"}).json()["entities"]
    )
    assert len(names) > 1


def test_one_memory_with_its_history_and_reasons(
    client: httpx.Client, memory: dict[str, Any]
) -> None:
    place = f"/api/memory/{memory['id']}"
    assert client.get(place).json() == memory
    assert client.get(f"{place}/history").json()["events"][0]["event"] == "created"
    explained = client.get(f"{place}/explain").json()
    assert explained["derived_from"][0]["type"] == "episodic"
    problem(client.get(f"/api/memory/{memory['id'][:8]}"), 404, "not_found")


def test_vectors_are_exported_a_line_each(client: httpx.Client) -> None:
    answer = client.get("/api/embeddings", params={"scope": "home"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    stats = client.get("/api/stats", params={"scope": "home"}).json()
    assert len(lines) == stats["embedded"] == stats["active"]
    assert {len(line["vector"]) for line in lines} == {64}


def test_an_entity_with_all_that_is_known(client: httpx.Client) -> None:
    found = client.get("/api/entities/NORA", params={"scope": "home"}).json()
    assert found["name"] == "Nora"
    assert any("Nora" in each["content"] for each in found["memories"])
    assert found["relations"]


def test_sql_as_json_and_as_arrow(client: httpx.Client) -> None:
    query = {"query": "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS n, {'x': [1]} AS s"}
    said = client.post("/api/sql", json=query).json()
    assert said["rows"] == [[1, 2, None, {"x": [1]}]]
    assert [column["name"] for column in said["columns"]][:2] == ["a", "a"]
    query = {"query": "SELECT count(*) AS n FROM memories"}
    answer = client.post("/api/sql", json=query, headers={"Accept": ARROW})
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert table.to_pylist() == [{"n": client.get("/api/stats").json()["active"]}]


def test_a_foreign_page_is_not_answered(client: httpx.Client) -> None:
    host = client.base_url.netloc.decode()
    for headers, status, code in (
        ({"Host": "evil.example"}, 421, "misdirected"),
        ({"Host": "127.0.0.1.evil.example"}, 421, "misdirected"),
        ({"Origin": "https://evil.example"}, 403, "forbidden"),
        ({"Origin": "null"}, 403, "forbidden"),
    ):
        problem(client.get("/api/memories", headers=headers), status, code)
    for name in ("localhost", "127.0.0.1:9", "[::1]:9"):
        assert client.get("/health", headers={"Host": name}).status_code == 200
    own = client.get("/health", headers={"Origin": f"http://{host}"})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers
