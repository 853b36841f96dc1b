"""What the program says of itself, and how it says what is wrong."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.flows.program import Program, until
from tests.warm_program import WarmProcess


def test_the_version_is_told(program: Program) -> None:
    assert program.ok("--version").strip() == f"palimpsest {version('palimpsest-memory')}"


def test_brackets_in_help_texts_are_shown(program: Program) -> None:
    assert "`[a,b]:` tags it" in program.ok("remember", "--help")
    assert "[default: palimpsest.toml]" in " ".join(program.ok("get", "--help").split())
    assert "[[" not in program.ok("dead-letters", "redrive", "--help")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("get", "12345678"), 1, "there is no memory"),
        (("erase-scope",), 2, "scope"),
        (("recall", "x", "--scope", "a", "--nonsense"), 2, "--nonsense"),
        (("ingest", "missing.jsonl"), 2, "there is no file missing.jsonl"),
        (("modify", "12345678", "--reason", "none"), 2, "nothing to change"),
        (("status", "--set", "llm.provder=x"), 1, "llm.provder"),
    ],
)
def test_an_error_is_json_where_json_was_asked_for(
    program: Program, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = program.run(*arguments, "--json")
    assert done.returncode == code
    assert told in json.loads(done.stdout)["error"]
    assert told in done.stderr
    assert program.run(*arguments).stdout == ""


def test_a_dead_letter_is_short_unless_all_is_asked_for(program: Program) -> None:
    big = "I keep " + " ".join(f"word{number}" for number in range(900)) + "."
    program.ok("ingest", program.turns(big), "--scope", "home")
    program.ok("run", "--once", "--set", "log.max_record_bytes=2000")
    dead_letter = program.json("dead-letters", "list")["dead_letters"][0]["id"]
    short = program.ok("dead-letters", "show", dead_letter)
    assert len(short.splitlines()) < 20
    assert "word99" not in short
    assert "max_record_bytes" in short
    assert "--json shows all" in short
    assert "word899" in program.ok("dead-letters", "record", dead_letter)
    assert "word899" in program.json("dead-letters", "show", dead_letter)["record"]


def stopped_between_writes(program: Program, worker: WarmProcess) -> bool:
    """Stops a worker, unless it is just writing to the log: nobody else could then."""
    worker.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{worker.pid}/stat")
    if state.exists():
        until(lambda: state.read_text().rpartition(")")[2].split()[0] in "Tt")
    log = program.data / "log" / "log.sqlite"
    try:
        with (
            contextlib.closing(sqlite3.connect(log, timeout=0)) as connection,
            log.with_name("log.turn").open("rb") as turn,
        ):
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            connection.execute("BEGIN IMMEDIATE")
    except (BlockingIOError, sqlite3.OperationalError):
        worker.send_signal(signal.SIGCONT)
        return False
    return True


def test_a_wish_says_who_carries_it_out(program: Program) -> None:
    assert "no worker runs" in program.ok("remember", "Ana bakes", "--scope", "home")
    with program.worker() as worker:
        until(lambda: stopped_between_writes(program, worker))  # as busy as can be
        began = time.monotonic()
        done = program.run("remember", "Ana sails", "--scope", "home", "--wait", "2")
        took = time.monotonic() - began
        worker.send_signal(signal.SIGCONT)
    assert "the running worker is busy with earlier work; waiting for it" in done.stderr
    assert "the running worker applies it when its turn comes" in done.stdout
    assert done.returncode == 0
    assert took < 30
