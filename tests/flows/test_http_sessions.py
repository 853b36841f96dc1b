"""Sessions over HTTP and on the command line: listed, looked into, summed up, ended, followed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.flows.http_server import Served, problem, server
from tests.flows.test_http_turns_and_events import read, said


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("sessions")) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_a_session_from_its_first_turn_to_its_end(served: Served, client: httpx.Client) -> None:
    scope = {"scope": "ana"}
    client.post("/api/turns", json=said(1, "We go to Oslo.", session_id="talk/1", **scope))
    served.settle(client)
    place = "/api/sessions/talk%2F1"
    kept = client.get(f"{place}/memory", params=scope).json()
    assert [turn["content"] for turn in kept["short_term"]["turns"]] == ["We go to Oslo."]
    assert kept["short_term"]["summary"] is None
    assert "We go to Oslo." in {memory["content"] for memory in kept["memories"]}
    done = client.put(f"{place}/memory", json={"summary": "A trip to Oslo.", **scope})
    assert done.json()["status"] == "updated"
    assert client.get(f"{place}/memory", params=scope).json()["short_term"]["summary"]["text"] == (
        "A trip to Oslo."
    )
    asked = {"query": "where do we go?", "session_id": "talk/1", **scope}
    assert (
        "Summary: A trip to Oslo." in client.post("/api/memory/context", json=asked).json()["text"]
    )
    ended = client.post(f"{place}/end", json=scope).json()
    assert (ended["status"], ended["turns"]) == ("ended", 1)
    assert client.post(f"{place}/end", json=scope).json()["status"] == "already"
    [session] = client.get("/api/sessions", params=scope).json()["sessions"]
    assert (session["session_id"], session["ended_by"]) == ("talk/1", "command")
    assert client.get("/api/sessions", params={**scope, "open": True}).json()["sessions"] == []
    problem(client.post("/api/sessions/never/end", json=scope), 404, "not_found")


def test_a_summary_is_refused_after_a_wish_to_be_remembered(
    served: Served, client: httpx.Client
) -> None:
    wish = said(9, "Please remember that I moved to Porto.", session_id="wish", scope="ben")
    client.post("/api/turns", json=wish)
    served.settle(client)
    summary = {"summary": "Of Porto.", "scope": "ben"}
    refused = client.put("/api/sessions/wish/memory", json=summary)
    assert "remember" in problem(refused, 409, "remember_instead")["detail"]


def test_the_end_of_a_session_is_an_event(served: Served, client: httpx.Client) -> None:
    with client.stream("GET", "/api/events", params={"scope": "followed"}) as answer:
        lines = answer.iter_lines()
        assert next(lines) == ": follows"
        with served.client() as other:
            other.post("/api/turns", json=said(1, "Hm.", session_id="a", scope="followed"))
            served.settle(other)
            other.post("/api/turns", json=said(2, "Well.", session_id="b", scope="followed"))
        events = []
        while not events or events[-1]["event"] != "session_ended":
            events += read(lines, 1)
    told = events[-1]["data"]
    assert (told["session_id"], told["reason"]) == ("a", "new-session")
    assert (told["session"]["turns"], told["session"]["ends"]) == (1, 1)
