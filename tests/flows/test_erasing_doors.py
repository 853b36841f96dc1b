"""Erasing as users do it: while a worker runs, by every way in."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from palimpsest import Memory, NotDoneError
from palimpsest.schemas.identity import turn_memory_id
from tests.erased_bytes import where
from tests.flows.http_server import problem, server
from tests.flows.program import Program

SECRET = "I love my green flowerpot"
FOREIGN = "Ana wohnt in der Königsstraße 12 in Tübingen"
OTHER = "Ben works at a bakery in Ghent"


def opened(folder: Path) -> Memory:
    settings = {"embedding.provider": "hashing"}
    return Memory(folder, scope="ana", settings=settings, wait_seconds=60.0)


def test_while_turns_keep_coming(tmp_path: Path) -> None:
    said = [f"I visited museum number {number} in May 2025" for number in range(40)]
    with opened(tmp_path) as memory:
        memory.add([{"turn_id": "t1", "content": SECRET}, {"turn_id": "t2", "content": FOREIGN}])
        # The first erasure meets facts on their way, the second what is stored.
        coming = threading.Thread(target=lambda: [memory.add(each) for each in said])
        coming.start()
        first, second = (turn_memory_id("ana", f"t{number}") for number in (1, 2))
        assert {
            each.status for each in memory.erase([first], reason="x", cascade=True).changes
        } == {"erased"}
        assert where(tmp_path, SECRET) == []
        coming.join()
        memory.wait_until_processed()
        memory.erase([second], reason="x", cascade=True)
        assert where(tmp_path, SECRET, FOREIGN, "Königsstraße", "flowerpot") == []
        kept = [each.content for each in memory.list(types=["episodic"], limit=100).memories]
        assert sorted(kept) == sorted(said)
        assert memory.recall("museum number 7").results
        facts = [each.content for each in memory.list(types=["fact"], limit=100).memories]
        assert facts
        assert not [each for each in facts if "flowerpot" in each]
    assert where(tmp_path, SECRET, FOREIGN, "Königsstraße", "flowerpot") == []


def test_a_whole_scope_by_the_library(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([SECRET, FOREIGN])
        memory.add(OTHER, scope="ben")
        memory.wait_until_processed()
        count = len(memory.list(limit=100).memories)
        with pytest.raises(NotDoneError, match=f"holds {count} memories"):
            memory.erase_scope("ana", reason="she left", memories=count + 1)
        assert memory.erase_scope("ana", reason="she left", memories=count).memories == count
        assert where(tmp_path, SECRET, FOREIGN) == []
        assert memory.list().memories == ()
        assert memory.list(scope="ben").memories


def test_a_whole_scope_over_http(tmp_path: Path) -> None:
    def erased_scope(by: httpx.Client, **body: object) -> httpx.Response:
        said = {"scope": "ana", "reason": "asked", **body}
        return by.post("/api/memory/erase-scope", json=said)

    with server(tmp_path) as served, served.client() as http:
        body = {"content": "The bread is in the oven", "scope": "ana"}
        assert http.post("/api/memory/remember", json=body).status_code == 200
        served.settle(http)
        counted = erased_scope(http, mode="preview").json()
        assert counted["memories"] > 0
        refused = erased_scope(http, confirm_token="scope-0-000000000000")
        problem(refused, 409, "confirm_mismatch")
        confirmed = counted["confirm_token"]
        token = served.token("some", "ana", may=["forget", "recall"])
        with served.client(token) as some:
            problem(erased_scope(some, confirm_token=confirmed), 403, "forbidden")
        token = served.token("all", "ana", may=["forget", "recall", "admin"])
        with served.client(token) as one:
            answer = erased_scope(one, confirm_token=confirmed).json()
        assert (answer["status"], answer["memories"]) == ("erased", counted["memories"])


def test_by_the_command_line(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns(SECRET, FOREIGN, OTHER), "--scope", "ana")
    program.ok("run", "--once")
    first, second = (turn_memory_id("ana", f"t{number}") for number in (0, 1))
    assert "reason" in program.fails("erase", first[:8], code=2)
    accepted = program.ok("erase", first, "--cascade", "--reason", "asked")
    assert "the next `palimpsest run` applies it" in accepted
    program.ok("run", "--once")
    assert where(program.data, SECRET) == []
    with program.worker():
        told = program.ok("erase", second, "--cascade", "--reason", "asked")
        assert "status erased" in told
        assert where(program.data, SECRET, FOREIGN) == []
        assert "no file of the stores has it any more" in told
        assert "snapshots" in told
        counted = program.json("erase-scope", "ana", "--mode", "preview")
        assert counted["memories"] > 0
        assert program.json("erase-scope", "ana", "--reason", "asked") == counted
        token = counted["confirm_token"]
        said = program.json("erase-scope", "ana", "--reason", "asked", "--confirm", token)
        assert (said["status"], said["memories"]) == ("erased", counted["memories"])
        assert said["erasure"] == "done"
    assert where(program.data, OTHER) == []
