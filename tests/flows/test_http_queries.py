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


@pytest.mark.parametrize("path", ["/api/turns", "/api/memory/recall", "/api/memory/remember"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b" ", "the body is empty; send JSON"),
        (b"{", "the body is no JSON: "),
        (b'{"query": NaN}', "the body has NaN, which is no JSON; send null, or leave it out"),
        (b'{"query": -Infinity}', "the body has -Infinity, which is no JSON"),
        (b'{"query": "a", "query": "b"}', "the body has the field query twice in one object"),
        (b'{"metadata": {"\\ud83d": 1, "\\ud83d": 2}}', "the body has the field ? twice"),
        (b'{"limit": ' + b"9" * 5_000 + b"}", "the body has a number of more than 1000 digits"),
        (b"[" * 9_999, "the body is nested too deeply"),
        ("{}".encode("utf-16"), "the body is not UTF-8"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_in_plain_words(
    client: httpx.Client, path: str, body: bytes, said: str
) -> None:
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    detail = problem(answer, 400, "malformed")["detail"]
    assert detail.startswith(said)
    assert not [hint for hint in ("char 0", "sys.", "codec", "Exceeds") if hint in detail]
