"""`palimpsest serve` as its users run it: a process of its own, beside the command line."""

from __future__ import annotations

import contextlib
import fcntl
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.flows.program import PATIENCE_S, SAID, Program, until
from tests.warm_program import WarmProcess

Process = subprocess.Popen[bytes] | WarmProcess
SECRET = "the safe opens with 7-31-8"


@contextlib.contextmanager
def serving(program: Program, *arguments: str) -> Iterator[tuple[Process, str]]:
    """The process and its address; its output is in the file `output`."""
    given = ("serve", "--port", "0", *arguments)
    process: Process
    with (program.folder / "output").open("wb") as output:
        fcntl.flock(output, fcntl.LOCK_EX)
        if program.afresh:
            process = subprocess.Popen(
                program.command(*given),
                cwd=program.folder,
                env=program.environment,
                stderr=output,
                stdout=output,
            )
        else:
            process = program.start(*given, output=output)
    try:
        until(lambda: process.poll() is not None or address(program))
        assert process.poll() is None, told(program)
        yield process, address(program)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def told(program: Program) -> str:
    return (program.folder / "output").read_text()


def address(program: Program) -> str:
    found = re.search(r"serving at (http://\S+);", told(program))
    return found[1] if found else ""


def test_the_service_and_the_command_line_see_the_same(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    with (
        serving(program) as (process, url),
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client,
    ):
        until(lambda: client.get("/ready").status_code == 200)
        said = {"content": SECRET, "scope": "home"}
        kept = client.post("/api/memory/remember?wait=60", json=said).json()
        assert program.json("get", kept["id"])["content"] == SECRET
        program.ok("forget", kept["id"], "--reason", "asked")
        until(lambda: client.get(f"/api/memory/{kept['id']}").json()["is_deleted"])
        assert "process" in program.fails("run", "--once")
        with client.stream("GET", "/api/events", params={"scope": "home"}) as stream:
            assert next(stream.iter_lines()) == ": follows"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    assert SECRET not in told(program)
    assert "Traceback" not in told(program)
    program.ok("run", "--once")
    assert program.json("get", kept["id"])["is_deleted"] is True


def have_ended(program: Program) -> bool:
    """Whether each process of the service has, those that it began too: its output is theirs."""
    with program.folder.joinpath("output").open() as output:
        try:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_neither_a_query_nor_its_copy_outlives_a_kill(program: Program) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"

    def copies() -> list[Path]:
        return [*program.data.glob("sql-*")]

    with (
        serving(program, "--set", "http.sql_seconds=600") as (process, url),
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client,
        ThreadPoolExecutor(1) as asking,
    ):
        until(lambda: client.get("/ready").status_code == 200)
        asked = asking.submit(client.post, "/api/sql", json={"query": endless})
        until(copies)
        process.kill()
        assert isinstance(asked.exception(), httpx.TransportError)
    until(lambda: have_ended(program))
    assert copies()
    with serving(program):
        assert copies() == []


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_others_see_a_key_among_flags_alone(by: str, tmp_path: Path) -> None:
    key = "sk-of-nobody-else"
    given = {"PALIMPSEST_LLM__API_KEY": key} if by == "environment" else {}
    program = Program(tmp_path, afresh=True, **given)
    flags = ("--set", f"llm.api_key={key}") if by == "flag" else ()
    with serving(program, *flags) as (process, _):
        seen = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert (key in seen) == (by == "flag")
    assert key not in told(program)


def test_help_says_how_to_keep_a_key_to_oneself(program: Program) -> None:
    told_of = " ".join(program.ok("run", "--help").replace("│", " ").split())
    assert "a key rather by PALIMPSEST_LLM__API_KEY or palimpsest.toml" in told_of


def test_an_open_address_needs_a_token(program: Program) -> None:
    assert "make a token first" in program.fails("serve", "--host", "0.0.0.0", "--port", "0")
