"""A person's privacy level in all scopes that a caller sees, through every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Client, RequestError
from tests.flows.http_server import Served, problem, server
from tests.flows.program import Program


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    program = Program(tmp_path, PALIMPSEST_EMBEDDING__DIMENSIONS="64")
    for scope in ("home", "work", "other"):
        text = f"I live in Oslo, says {scope}."
        program.ok("ingest", program.turns(text, speaker="Ana"), "--scope", scope)
    program.ok("run", "--once")
    with server(program.data) as running:
        yield running


def levels(served: Served, token: str, scope: str) -> dict[str, str]:
    with served.client(token) as client:
        found = client.get(f"/api/privacy?scope={scope}").json()["levels"]
        return {each["person"]: each["level"] for each in found}


ASKED: dict[str, Any] = {"level": "full", "person": "Ana", "all_scopes": True}


def test_a_level_is_set_in_the_scopes_of_a_token_and_in_no_other(served: Served) -> None:
    everything = served.token("all", "*")
    # One is named whole, and nothing is in it yet.
    own = served.token("own", "home", "wo*", "later")
    with served.client(own) as client:
        client.put("/api/privacy", json={"level": "partial", "person": "ana", "scope": "work"})
        answer = client.put("/api/privacy", json=ASKED).json()
        assert answer["applied"] is True
        assert (answer["status"], answer["level"], answer["before"]) == ("set", "full", "none")
        assert answer["scopes"] == {"home": "none", "later": "none", "work": "partial"}
        assert answer["memories"] == 2
        assert answer["names"] == {"Ana": 2}
        assert {f"--scope {scope}" in answer["offer"] for scope in ("home", "work")} == {True}
        said = {"turn_id": "new", "content": "I have a boat.", "speaker": "Ana", "scope": "later"}
        assert client.post("/api/turns", json=said).status_code == 202
    with served.client(everything) as client:
        served.settle(client)
    for scope, expected in (("home", "full"), ("work", "full"), ("later", "full")):
        assert [*levels(served, everything, scope).values()] == [expected]
    assert levels(served, everything, "other") == {}
    with served.client(everything) as client:
        assert client.get("/api/memories?scope=later").json()["memories"] == []
        again = client.put("/api/privacy", json=ASKED).json()
        assert again["scopes"] == {
            "home": "full", "later": "full", "other": "none", "work": "full"
        }  # fmt: skip


def test_a_retry_under_one_key_is_one_change_in_each_scope(served: Served) -> None:
    token = served.token("own", "home", "work")
    with served.client(token) as client:
        sent = {"json": ASKED, "headers": {"Idempotency-Key": "k1"}}
        first, second = (client.put("/api/privacy", **sent).json() for _ in range(2))
        assert first == second
    query = (
        "SELECT scope, count(*) FROM memory_history WHERE lower(event) = 'privacy'"
        " GROUP BY scope ORDER BY scope"
    )
    with served.client(served.token("all", "*")) as client:
        found = client.post("/api/sql", json={"query": query}).json()
        assert found["rows"] == [["home", 1], ["work", 1]]


def test_what_is_not_for_a_person_in_all_scopes_is_refused(served: Served) -> None:
    with served.client(served.token("own", "home", "work")) as client:
        nobody = client.put("/api/privacy", json={"level": "full", "all_scopes": True})
        assert "name one" in problem(nobody, 422, "invalid")["detail"]
        both = client.put("/api/privacy", json={**ASKED, "scope": "home"})
        assert "exclude each other" in problem(both, 422, "invalid")["detail"]
    agent = served.token("agent", "home", "work", actor="agent")
    with served.client(agent) as client:
        assert client.put("/api/privacy", json=ASKED).status_code == 200
        lower = client.put("/api/privacy", json={**ASKED, "level": "none"})
        problem(lower, 403, "forbidden")


def test_the_library_and_the_program_set_it_everywhere(served: Served, tmp_path: Path) -> None:
    with Client(served.address, scope="home") as memory:
        answer = memory.set_privacy("partial", person="Ana", all_scopes=True)
        assert answer.scopes == {"home": "none", "other": "none", "work": "none"}
        with pytest.raises(RequestError, match="name one"):
            memory.set_privacy("partial", all_scopes=True)
    program = Program(tmp_path, PALIMPSEST_EMBEDDING__DIMENSIONS="64")
    printed = program.ok("set-privacy", "full", "--person", "Ana", "--all-scopes")
    assert "home partial other partial work partial" in printed
