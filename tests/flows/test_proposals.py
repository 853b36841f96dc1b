"""`palimpsest proposals`: what was held back, listed, applied and dismissed by its real program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flows.program import Program

SAID = (
    "I drink coffee every morning.",
    "I don't drink coffee every morning anymore.",
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """One update is held back in each of two scopes."""
    program = Program(tmp_path)
    for scope in ("home", "work"):
        program.ok("ingest", program.turns(*SAID), "--scope", scope)
    program.ok("run", "--once")
    return program


def held(program: Program, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = program.json("proposals", "list", *arguments)["proposals"]
    return found


def test_what_is_held_back_is_listed_applied_and_dismissed(program: Program) -> None:
    assert sorted(row["scope"] for row in held(program)) == ["home", "work"]
    [home] = held(program, "--scope", "home")
    assert (home["action"], home["state"]) == ("UPDATE", "ready")
    assert home["memory"] != home["fact"]
    assert home["id"][:8] in program.ok("proposals", "list")

    told = program.ok("proposals", "apply", home["id"][:8], "--reason", "she stopped")
    assert "accepted as command" in told
    program.ok("proposals", "dismiss", "--all", "--scope", "work", "--reason", "a joke")
    program.ok("run", "--once")
    assert held(program) == []
    assert "nothing waits for review" in program.ok("proposals", "list")
    [memory] = program.json("list", "--scope", "home", "--types", "preference", "--types", "fact")[
        "memories"
    ]
    assert (memory["content"], memory["version"]) == (home["fact"], 2)
    events = program.json("history", memory["id"])["events"]
    assert [(e["event"], e["actor_type"], e["reason"]) for e in events if e["event"] != "created"][
        -1
    ] == ("updated", "human", "she stopped")
    balance = program.json("status")["balance"]
    assert balance["holds"]
    assert (balance["facts"]["updated"], balance["facts"]["skipped"]) == (1, 1)
    assert balance["facts"]["blocked"] == 0


def test_a_running_worker_answers_with_what_became_of_each(program: Program) -> None:
    with program.worker():
        [first, second] = held(program)
        done = program.json("proposals", "apply", first["id"], "--wait", "30")
        assert (done["applied"], done["changes"][0]["status"]) == (True, "updated")
        program.ok("modify", second["memory_id"], "--tags", "mine", "--reason", "sorted")
        assert [row["state"] for row in held(program)] == ["version_conflict"]
        told = program.run("proposals", "apply", "--all", "--wait", "30")
        assert told.returncode == 1
        assert "version_conflict" in told.stdout
        assert "dismissed" in program.ok("proposals", "dismiss", second["id"], "--wait", "30")
        assert held(program) == []


def test_what_is_not_held_back_is_told(program: Program) -> None:
    for verb in ("apply", "dismiss"):
        assert "does not wait for review" in program.fails("proposals", verb, "5b1f22aa")
        program.fails("proposals", verb, code=2)
        [row, _] = held(program)
        program.fails("proposals", verb, row["id"], "--all", code=2)
        program.fails("proposals", verb, row["id"], "--reason", " ", code=2)
    assert len(held(program)) == 2
