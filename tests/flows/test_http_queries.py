"""What stands in the query of a request, and a byte order mark before its body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.flows.http_server import problem, server

BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("queries")
    with server(folder) as served, served.client() as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/turns?scope=x"),
        ("POST", "/api/turns?wait=0&scope=x"),
        ("POST", "/api/memory/remember?scope=x"),
        ("POST", "/api/memory/recall?scope=x"),
        ("POST", "/api/rpc/recall?scope=x"),
        ("POST", "/api/memory/forget?scope=x"),
        ("GET", "/api/memories?scop=x"),
        ("GET", "/api/memory/search?query=tea&scop=x"),
        ("GET", "/api/pipeline/status?scop=x"),
        ("GET", "/api/memory/00000000-0000-0000-0000-000000000000?scop=x"),
        ("DELETE", "/api/memory/00000000-0000-0000-0000-000000000000?reason=so&scop=x"),
        ("POST", "/api/sql?scop=x"),
    ],
)
def test_an_unknown_parameter_is_refused(client: httpx.Client, method: str, path: str) -> None:
    body = {"content": "I drink tea.", "query": "tea", "memory_ids": ["00000000"]}
    sent = client.request(method, path, json=body if method == "POST" else None)
    said = problem(sent, 422, "invalid")
    assert {each["where"] for each in said["errors"]} <= {"query.scope", "query.scop"}
    assert client.get("/api/memories").json()["memories"] == []


def test_a_misspelled_parameter_is_told_with_the_nearest(client: httpx.Client) -> None:
    sent = client.post("/api/turns?wiat=1", json={"content": "I drink tea."})
    assert "did you mean wait?" in problem(sent, 422, "invalid")["detail"]


def test_a_byte_order_mark_is_no_part_of_a_body(client: httpx.Client) -> None:
    turn = json.dumps({"content": "I drink tea.", "turn_id": "tea", "scope": "bom"}).encode()
    asked = json.dumps({"query": "tea", "scope": "bom"}).encode()
    headers = {"content-type": "application/json"}
    sent = client.post("/api/turns?wait=60", content=BOM + turn, headers=headers)
    assert sent.is_success, sent.text
    for path in ("/api/memory/recall", "/api/rpc/recall"):
        assert client.post(path, content=BOM + asked, headers=headers).json()["results"]
    lines = BOM + turn.replace(b"tea", b"milk") + b"\n" + turn.replace(b"tea", b"water")
    sent = client.post(
        "/api/turns", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    assert sent.json()["accepted"] == 2
