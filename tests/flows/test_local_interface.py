"""Reading while a worker runs: the worker answers, and only to whom it should."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest.ops.service import queries
from palimpsest.ops.service.server import listening
from tests.flows.program import PATIENCE_S, Program, until

SAID = ("I live in Lisbon with my sister Nora.", "I am allergic to walnuts.")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    return program


def address(program: Program) -> tuple[str, str]:
    said = json.loads((program.data / "worker.json").read_text())
    return f"http://127.0.0.1:{said['port']}", said["token"]


def processed(program: Program) -> bool:
    status = program.json("status")
    return all(stage["lag"] == 0 for stage in status["stages"])


def is_idle(program: Program) -> bool:
    return {stage["state"] for stage in program.json("status")["stages"]} == {"idle"}


READS = (
    ("recall", "where does Ana live?", "-s", "home"),
    ("list",),
    ("sql", "SELECT * FROM memories ORDER BY memory_id"),
    ("dead-letters", "list"),
)


def test_the_answers_are_the_same_with_a_worker_and_without(program: Program) -> None:
    # A busy machine must not cut short what the graph says.
    settings = "[recall]\ngraph_timeout_ms = 60000.0\n[access]\nrecord = false\n"
    (program.folder / "palimpsest.toml").write_text(settings)
    program.ok("run", "--once")
    without = [program.json(*read) for read in READS]
    found = program.json("list", "--types", "fact")
    memory_id = str(found["memories"][0]["id"])
    one = [program.json(name, memory_id) for name in ("get", "history", "explain")]
    with program.worker():
        assert [program.json(*read) for read in READS] == without
        assert [program.json(name, memory_id) for name in ("get", "history", "explain")] == one
        assert "there is no memory" in program.fails("get", "nothing-such")
        assert "SELECT" in program.fails("sql", "DROP TABLE memory_rows")


def test_a_worker_takes_up_what_is_published_and_answers_commands(program: Program) -> None:
    with program.worker():
        until(lambda: processed(program))
        program.ok(
            "ingest",
            program.turns("I moved to Porto.", name="b.jsonl", turn_id="late"),
            "--scope",
            "home",
        )
        until(lambda: processed(program))
        done = program.json("remember", "Ana plays the harp", "-s", "home")
        assert done["applied"] is True
        memory_id = done["id"]
        assert "status forgotten" in program.ok("forget", str(memory_id), "--reason", "asked")
        assert "status deleted" in program.run("forget", str(memory_id), "--reason", "x").stdout
        until(lambda: is_idle(program))  # what follows a change comes after its result


def test_a_second_worker_is_refused(program: Program) -> None:
    with program.worker() as worker:
        told = program.fails("run", "--once")
        assert str(worker.pid) in told
        assert worker.poll() is None


def test_a_dead_workers_file_is_no_hindrance(program: Program) -> None:
    with program.worker() as worker:
        worker.kill()
        worker.wait()
        assert (program.data / "worker.json").exists()
        assert processed(program) in (True, False)
    program.ok("run", "--once")
    assert processed(program)


def test_many_readers_at_once(program: Program) -> None:
    program.ok("run", "--once")
    # They wait for one another: on a busy machine for longer than a user would.
    program.patched |= {f"{queries.__name__}.PATIENCE_SECONDS": PATIENCE_S}
    readers = [program.start("list", "--json") for _ in range(4)]
    answers = [reader.communicate(2 * PATIENCE_S) for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * 4, [each[1] for each in answers]
    assert len({answer[0] for answer in answers}) == 1


def test_only_the_folders_user_is_answered(program: Program) -> None:
    with program.worker():
        file = program.data / "worker.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        url, token = address(program)
        assert re.fullmatch(r"[\w-]{40,}", token)

        def status(path: str, said: str = f"Bearer {token}", **given: Any) -> int:
            headers = {"Authorization": said} if said else {}
            return httpx.post(url + path, headers=headers, timeout=PATIENCE_S, **given).status_code

        for said in ("", "Bearer x", f"Bearer {token}x"):
            for path in ("/ask/status", "/sql", "/ping", "/ask/nothing"):
                assert status(path, said, json={}) == 401
        assert status("/ask/status", json={}) == 200
        assert status("/ask/nothing", json={}) == 404
        assert status("/ask/get", json={"x": 1}) == 400
        assert status("/ask/get", content=b"\xff") == 400
        assert status("/ask/get", content=b" " * 2_000_000) == 413
        own = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/ask/status", headers=own, timeout=PATIENCE_S).status_code == 405


async def test_an_answer_does_not_wait_for_acknowledgements() -> None:
    """asyncio turns Nagle's algorithm off only on sockets that say they are TCP."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    with listening("127.0.0.1", 0) as listener:
        server = await asyncio.start_server(lambda _, writer: accepted.put(writer), sock=listener)
        async with server:
            _, client = await asyncio.open_connection(*listener.getsockname())
            async with asyncio.timeout(PATIENCE_S):
                served = await accepted.get()
            connection = served.get_extra_info("socket")
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            for writer in (client, served):
                writer.close()
