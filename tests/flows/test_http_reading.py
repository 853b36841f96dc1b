"""Reading over HTTP, on a real port: what is answered, and odd requests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.flows.http_server import JSON, Served, problem, server
from tests.flows.program import SAID, Program

ARROW = "application/vnd.apache.arrow.stream"
NOBODY = "00000000-0000-5000-8000-000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    program = Program(tmp_path_factory.mktemp("http"), PALIMPSEST_EMBEDDING__DIMENSIONS="64")
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("ingest", program.turns("I work at Globex.", name="b.jsonl"), "--scope", "work")
    with server(program.data, "access.record=false") as running, running.client() as client:
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


RECALL = "/api/memory/recall"
GIVEN: list[tuple[str, str, dict[str, Any], int]] = [
    ("POST", RECALL, {"json": {"query": "coffee", "scope": "never seen"}}, 200),
    ("POST", RECALL, {"json": {"query": "x", "types": "fact", "tags": ["a"]}}, 200),
    ("POST", RECALL, {"json": {"query": "x", "type": "fact", "importance_min": 0.1}}, 200),
    ("POST", RECALL, {"json": {"query": "x", "type": "fact", "types": "fact"}}, 422),
    ("POST", RECALL, {"json": {"query": "x", "kind": "fact"}}, 422),
    ("POST", RECALL, {"json": {"query": "x", "scope": " "}}, 422),
    ("POST", RECALL, {"json": {"query": "x", "since": "2026-03-01"}}, 200),
    ("POST", RECALL, {"json": {"query": "x", "since": "last_week", "until": "today"}}, 200),
    ("POST", RECALL, {"json": {"query": "x", "since": "last year"}}, 422),
    ("POST", RECALL, {"json": ["x"]}, 422),
    ("POST", RECALL, {"content": b"", "headers": JSON}, 422),
    ("POST", RECALL, {"content": b"\xff\xfe", "headers": JSON}, 400),
    ("POST", RECALL, {"content": b"[" * 100_000, "headers": JSON}, 400),
    ("POST", RECALL, {"content": b'{"query": NaN}', "headers": JSON}, 400),
    ("POST", RECALL, {"content": b'{"query": "x"}'}, 415),
    ("POST", RECALL, {"data": {"query": "x"}}, 415),
    ("POST", "/api/memory/context", {"json": {"query": "coffee", "budget": 1}}, 422),
    ("GET", "/api/memory/search?scope=home&query=" + "x" * 50_000, {}, 200),
    ("GET", "/api/weak?below=2", {}, 422),
    ("GET", "/api/memories?scope=home&types=fact&types=preference&limit=1", {}, 200),
    ("GET", "/api/memories?deleted=true", {}, 200),
    ("GET", "/api/memories?limit=1001", {}, 422),
    ("GET", "/api/memories?cursor=yesterday", {}, 422),
    ("GET", "/api/memories?cursor=9999-99-99/x", {}, 422),
    ("GET", "/api/memories?order=oldest", {}, 422),
    ("GET", "/api/memory/0", {}, 404),
    ("GET", "/api/sessions?scope=home&open=true&limit=1", {}, 200),
    ("GET", "/api/sessions?scope=home&cursor=yesterday", {}, 422),
    ("GET", "/api/entities?scope=home&query=no&limit=1", {}, 200),
    ("GET", "/api/entities?scope=home&cursor=x", {}, 422),
    ("POST", "/api/sql", {"json": {"query": "SELECT 1", "partition": 9}}, 422),
    ("GET", "/api/documents?status=lost", {}, 422),
    ("GET", "/api/documents?cursor=yesterday", {}, 422),
    ("GET", f"/api/documents/{NOBODY}/chunks?cursor=-1", {}, 422),
    ("GET", "/api", {}, 404),
    ("GET", "/nothing", {}, 404),
]
CODES = {400: "malformed", 404: "not_found", 415: "unsupported_media_type", 422: "invalid"}


def test_odd_requests(client: httpx.Client) -> None:
    """What `test_http_statuses` does not try of every route."""
    for method, path, given, status in GIVEN:
        answer = client.request(method, path, **given)
        if status == 200:
            assert answer.status_code == 200, answer.text
        else:
            problem(answer, status, CODES[status])


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
    assert client.get(place).json() == {**memory, "recalls": []}
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


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_sql_as_a_file(client: httpx.Client, form: str) -> None:
    query = """SELECT 1 AS a, 2 AS a, INTERVAL 1 DAY AS i, TIME '10:00' AS t, {'x': [1]} AS s,
        TIMESTAMPTZ '2026-03-01 10:00Z' AS z, 1.5::DECIMAL(9, 2) AS d, NULL AS n, '=1+1' AS f"""
    answer = client.get("/api/sql", params={"query": query, "format": form})
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    named = client.post("/api/sql", json={"query": query}, headers={"Accept": kind})
    assert (named.headers["content-type"], named.content) == (kind, answer.content)
    if form == "csv":
        head, row = csv.reader(io.StringIO(answer.text))
        assert (head[0], row[0], row[-1]) == ("a", "1", "'=1+1")
    else:
        table = parquet.read_table(io.BytesIO(answer.content))
        assert table.column_names[:2] == ["a", "a_1"]
        assert table.num_rows == 1


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
