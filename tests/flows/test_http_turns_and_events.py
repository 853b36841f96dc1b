"""Publishing turns over HTTP, and following what comes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.http_server import Served, problem, server

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
TEXT = {"Content-Type": "text/plain"}
WHOLE = {"schema": "conversation-turn/1", "scope": "ana", "occurred_at": "2026-03-01T09:30:00Z"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("turns")) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def said(number: int, content: str = "I drink tea.", **more: Any) -> dict[str, Any]:
    return {"turn_id": f"t{number}", "speaker": "Ana", "content": content, **more}


def contents(client: httpx.Client, scope: str) -> list[str]:
    found = client.get("/api/memories", params={"scope": scope, "types": "episodic"}).json()
    return sorted(each["content"] for each in found["memories"])


def test_one_turn_becomes_memories(served: Served, client: httpx.Client) -> None:
    answer = client.post("/api/turns", json=said(1, "I am allergic to nuts.", scope="one"))
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "refused": []})
    served.settle(client)
    found = client.post("/api/memory/recall", json={"query": "allergic", "scope": "one"}).json()
    assert "nuts" in found["results"][0]["content"]


def test_to_wait_is_answered_when_all_are_settled(client: httpx.Client) -> None:
    """Stored or a dead letter; also those that were settled before."""
    first = said(1, "I live in Oslo.", scope="waits")
    answer = client.post("/api/turns?wait=60", json=first)
    [turn] = answer.json()["turns"]
    assert (answer.status_code, turn["status"], turn["turn_id"]) == (200, "stored", "t1")
    [found] = client.get("/api/memories?scope=waits&types=episodic").json()["memories"]
    assert found["id"] == turn["memory_id"]
    others = [first, said(1, "I live in Rome.", scope="waits"), said(2, " ", scope="waits"), {}]
    answer = client.post("/api/turns?wait=60", json=others)
    assert (answer.status_code, answer.json()["accepted"]) == (200, 2)
    assert answer.json()["refused"][0]["why"] == "content: must not be blank"
    told = [(each["status"], each["reason"]) for each in answer.json()["turns"]]
    assert [status for status, _ in told] == ["stored", "dead_letter"]
    assert "turn_id_conflict" in told[1][1]


def test_to_wait_ends_with_its_time(client: httpx.Client) -> None:
    """The stages need longer than a microsecond."""
    answer = client.post("/api/turns?wait=0.000001", json=said(3, "I live in Oslo."))
    assert answer.status_code == 202
    assert [each["status"] for each in answer.json()["turns"]] == ["pending"]
    for wait in ("-1", "61", "soon", "nan"):
        problem(client.post(f"/api/turns?wait={wait}", json=said(4)), 422, "invalid")


def test_why_a_turn_is_refused_may_quote_what_is_remembered(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        writes = served.token("writes", "*", may=["remember"])
        with served.client(writes) as client:
            client.post("/api/turns?wait=60", json=said(1, "I live in Oslo."))
            answer = client.post("/api/turns?wait=60", json=said(1, "I live in Rome."))
        [turn] = answer.json()["turns"]
        assert (turn["status"], turn["reason"]) == ("dead_letter", "")


def test_of_many_the_good_ones_are_taken(served: Served, client: httpx.Client) -> None:
    many = [said(1, "A. one", scope="many"), {"content": "no id"}, 7, said(2, "B", scope=5)]
    answer = client.post("/api/turns", json=many)
    assert answer.status_code == 202
    assert answer.json()["accepted"] == 1
    assert [each["where"] for each in answer.json()["refused"]] == ["body[1]", "body[2]", "body[3]"]
    lines = [json.dumps(said(3, "C. three", scope="many")), "{", "", "\ufeff", json.dumps(said(4))]
    answer = client.post("/api/turns", content="\n".join(lines).encode(), headers=NDJSON)
    assert answer.json()["accepted"] == 2
    assert [each["where"] for each in answer.json()["refused"]] == ["line 2", "line 4"]
    served.settle(client)
    assert contents(client, "many") == ["A. one", "C. three"]


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"json": {}}, 422, "invalid"),
        ({"json": []}, 422, "invalid"),
        ({"json": [{}]}, 422, "invalid"),
        ({"json": "hello"}, 422, "invalid"),
        ({"json": said(1, "\0")}, 422, "invalid"),
        ({"json": said(1, occurred_at="yesterday")}, 422, "invalid"),
        ({"json": said(1, scope="x" * 300)}, 422, "invalid"),
        ({"json": said(1, role="owner")}, 422, "invalid"),
        ({"json": said(1, " ")}, 422, "invalid"),
        ({"json": said(1, speaker=" ")}, 422, "invalid"),
        ({"json": {**WHOLE, "body": {"turn_id": "1", "content": "x", "speeker": "A"}}}, 422,
         "invalid"),
        ({"content": b"{", "headers": JSON}, 400, "malformed"),
        ({"content": b"\xff", "headers": JSON}, 400, "malformed"),
        ({"content": b"[" * 9_999, "headers": JSON}, 400, "malformed"),
        ({"content": b"\xff\n{", "headers": NDJSON}, 422, "invalid"),
        ({"content": b"{}", "headers": TEXT}, 415, "unsupported_media_type"),
        ({"content": b"{}"}, 415, "unsupported_media_type"),
        ({"json": said(1, "x" * 2_000_000)}, 413, "too_large"),
    ],
)  # fmt: skip
def test_what_is_no_turn_is_refused(
    client: httpx.Client, given: dict[str, Any], status: int, code: str
) -> None:
    problem(client.post("/api/turns", **given), status, code)


def read(stream: Iterator[str], count: int) -> list[dict[str, Any]]:
    """The next events of a stream, with their ids and names."""
    events: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    for line in stream:
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data"):
            event[name] = json.loads(value) if name == "data" else value
        elif not line:
            events += [event] if "data" in event else []
            event = {}
            if len(events) == count:
                break
    return events


def test_a_stream_tells_what_happens_and_goes_on_where_it_ended(
    served: Served, client: httpx.Client
) -> None:
    asked = {"scope": "followed"}
    with client.stream("GET", "/api/events", params=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": follows"
        with served.client() as other:
            other.post("/api/turns", json=said(1, "I live in Faro.", scope="unheard"))
            other.post("/api/turns", json=said(1, "I live in Faro.", scope="followed"))
        first = read(lines, 2)
    assert [each["event"] for each in first] == ["created", "created"]
    assert {each["data"]["content"] for each in first} >= {"I live in Faro."}
    client.post("/api/turns", json=said(2, "I play the cello.", scope="followed"))
    served.settle(client)
    for last, number in ((first[0]["id"], 3), (first[1]["id"], 2)):
        headers = {"Last-Event-ID": last}
        with client.stream("GET", "/api/events", params=asked, headers=headers) as answer:
            lines = answer.iter_lines()
            assert [next(lines), next(lines)] == [": follows", f"id: {last}"]
            again = read(lines, number)
        assert "I play the cello." in {each["data"]["content"] for each in again}
        assert last not in {each["id"] for each in again}


@pytest.mark.parametrize("last", ["x", "-1", "999999", "9" * 19])
def test_a_stream_cannot_begin_where_there_was_nothing(client: httpx.Client, last: str) -> None:
    headers = {"Last-Event-ID": last}
    problem(client.get("/api/events", headers=headers), 422, "invalid")


def test_a_stream_ends_with_its_token_and_with_the_service(tmp_path: Path) -> None:
    with server(tmp_path) as served:
        token = served.token("reader", "home", may=["recall"])
        with served.client(token) as client:
            with client.stream("GET", "/api/events") as answer:
                lines = answer.iter_lines()
                assert next(lines) == ": follows"
                served.up.service.tokens.revoke("reader")
                assert list(lines) == [""]
            problem(client.get("/api/events"), 401, "unauthorized")
        other = served.client(served.token("other", "home"))
        with other as client, client.stream("GET", "/api/events") as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": follows"
            served.up.service.stopping.set()
            assert list(lines) == [""]
