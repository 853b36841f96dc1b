"""Turns that are alike, and turns whose scope is misspelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.flows.http_server import Served, server
from tests.flows.program import PATIENCE_S, Program


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("served")) as up:
        yield up


def test_the_same_turn_with_two_spaces_is_no_conflict(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Lisbon."))
    program.ok("ingest", program.turns("I live  in  Lisbon."))
    program.ok("run", "--once")
    assert program.json("dead-letters", "list")["dead_letters"] == []
    [balance] = program.json("sql", "FROM pipeline_total")
    assert balance["holds"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("scop", "scope"), ("Scope", "scope"), ("user_id", "scope"), ("namespace", "scope")),
        *(("speakr", "speaker"), ("sessionId", "session_id"), ("session", "session_id")),
        *(("occured_at", "occurred_at"), ("timestamp", "occurred_at"), ("rol", "role")),
    ],
)
def test_a_misspelled_field_is_refused_over_http(served: Served, name: str, meant: str) -> None:
    turn = {"turn_id": "t1", "content": "I live in Lisbon.", name: "ana"}
    refused = served.client().post("/api/turns", json=turn)
    assert refused.status_code == 422
    assert f"did you mean `{meant}`" in refused.text


def test_a_misspelled_scope_is_refused_over_http(served: Served) -> None:
    turn = {"turn_id": "t1", "content": "I live in Lisbon."}
    at = f"{served.address}/api/turns"
    several = httpx.post(
        at, json=[{**turn, "scop": "ana"}, {**turn, "scope": "ana"}], timeout=PATIENCE_S
    ).json()
    assert (several["accepted"], len(several["refused"])) == (1, 1)
    assert (
        httpx.post(
            at, json={**turn, "turn_id": "t2", "mood": "glad"}, timeout=PATIENCE_S
        ).status_code
        == 202
    )
