"""Turns that are alike, and turns whose scope is misspelled."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.flows.http_server import server
from tests.flows.program import Program


def test_the_same_turn_with_two_spaces_is_no_conflict(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Lisbon."))
    program.ok("ingest", program.turns("I live  in  Lisbon."))
    program.ok("run", "--once")
    assert program.json("dead-letters", "list")["dead_letters"] == []
    [balance] = program.json("sql", "FROM pipeline_total")
    assert balance["holds"]


def test_a_misspelled_scope_is_refused_over_http(tmp_path: Path) -> None:
    turn = {"turn_id": "t1", "content": "I live in Lisbon."}
    with server(tmp_path) as served:
        at = f"{served.address}/api/turns"
        refused = httpx.post(at, json={**turn, "scop": "ana"})
        assert refused.status_code == 422
        assert "did you mean `scope`" in refused.text
        several = httpx.post(at, json=[{**turn, "scop": "ana"}, {**turn, "scope": "ana"}]).json()
        assert (several["accepted"], len(several["refused"])) == (1, 1)
        assert httpx.post(at, json={**turn, "turn_id": "t2", "mood": "glad"}).status_code == 202
