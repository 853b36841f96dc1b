"""The real program on a disk that is really full, and in a folder that may only be read."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flows.http_server import server
from tests.flows.program import Program, until

DISK = "14m"
MANY = 300
"""Turns of `long_texts` that take more room than is left beside 6 MiB."""


def mounted(*arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    return done.returncode == 0


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    if os.geteuid() != 0 or not mounted("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)):
        pytest.skip("a disk of its own is needed: root, and the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Program]:
    """The program with its data on a disk of 14 MiB."""
    with disk(tmp_path / "disk") as folder:
        data = str(folder / "data")
        yield Program(tmp_path, PALIMPSEST_DATA_DIR=data)


def fill(folder: Path) -> Path:
    """Take all the room that is left."""
    path = folder / "fill"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def ballast(program: Program, megabytes: int) -> None:
    """Leave less room from the start: less has to be written until the disk is full."""
    (program.folder / "disk" / "ballast").write_bytes(bytes(megabytes * 2**20))


def said(count: int) -> list[str]:
    return [f"I like the town number {number} best." for number in range(count)]


def long_texts(count: int, seed: int = 7) -> list[str]:
    """Texts of words that no compression makes short."""
    chance = random.Random(seed)
    return [f"{text} {chance.randbytes(900).hex(' ', 4)}" for text in said(count)]


def one_line(text: str) -> str:
    [line] = [line for line in text.splitlines() if line.strip()]
    return line


def test_on_a_full_disk_every_command_says_so_in_a_line_and_reading_goes_on(
    small: Program,
) -> None:
    small.ok("ingest", small.turns(*said(40)), "--scope", "home")
    small.ok("run", "--once")
    small.ok("ingest", small.turns(*said(60), name="more.jsonl"), "--scope", "home")
    filling = fill(small.folder / "disk")

    assert "disk is full" in one_line(small.fails("run", "--once"))
    assert small.json("status")["balance"]["turns"]["accepted"] == 60
    assert small.json("recall", "which town?", "--scope", "home")["results"]
    assert small.json("list")["memories"]
    assert small.json("sql", "SELECT holds FROM pipeline_total") == [{"holds": True}]
    done = small.run("doctor")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [told] = [line for line in done.stdout.splitlines() if "disk" in line.split()[:2]]
    assert "full" in told

    filling.unlink()
    result = small.json("run", "--once")
    assert result["balance"]["turns"]["stored"] == 60
    assert result["balance"]["holds"] is True


def test_a_disk_that_fills_while_it_runs_stops_the_worker_in_a_line(small: Program) -> None:
    ballast(small, 6)
    small.ok("ingest", small.turns(*long_texts(MANY)), "--scope", "home")
    assert "disk is full" in one_line(small.fails("run", "--once"))
    balance = small.json("status")["balance"]
    assert balance["holds"] is True
    assert balance["turns"]["accepted"] == MANY


def test_a_service_on_a_full_disk_stays_up_and_goes_on_once_there_is_room(
    small: Program,
) -> None:
    data = small.folder / "disk" / "data"
    with server(data) as running, running.client() as client:
        for text in said(20):
            body = {"content": text, "scope": "home"}
            assert client.post("/api/memory/remember", json=body).status_code == 200
        running.settle(client)
        for attempt in range(2):
            filling = fill(small.folder / "disk")
            refused = client.post(
                "/api/memory/remember?wait=1", json={"content": "I like tea best.", "scope": "home"}
            )
            assert refused.status_code in (202, 503), refused.text
            turns = "".join(
                f'{{"turn_id": "{attempt}-{number}", "scope": "home", "content": "{text}"}}\n'
                for number, text in enumerate(long_texts(150, attempt))
            )
            added = client.post(
                "/api/turns",
                content=turns,
                headers={"Content-Type": "application/x-ndjson"},
            )
            assert added.status_code in (200, 202, 503), added.text
            for _ in range(2):
                found = client.post(
                    "/api/memory/recall", json={"query": "which town?", "scope": "home"}
                )
                assert found.json()["results"]
                assert client.get("/api/memories?scope=home").json()["memories"]
            assert client.get("/health").status_code == 200
            filling.unlink()
            running.settle(client)
        kept = client.post(
            "/api/memory/remember", json={"content": "I like coffee best.", "scope": "home"}
        )
        assert kept.status_code == 200
        assert client.get("/api/pipeline/status").json()["balance"]["holds"] is True


def test_stages_of_a_service_wait_for_room_and_go_on(small: Program) -> None:
    ballast(small, 6)
    small.ok("ingest", small.turns(*long_texts(MANY)), "--scope", "home")
    with server(small.folder / "disk" / "data") as running, running.client() as client:
        until(lambda: "waits" in client.get("/ready").json().get("detail", ""))
        for _ in range(5):
            assert client.get("/health").status_code == 200
            assert client.get("/api/memories?scope=home").status_code == 200
        assert mounted("-o", "remount,size=200m", str(small.folder / "disk"))
        until(lambda: client.get("/ready").status_code == 200)
        running.settle(client)
        balance = client.get("/api/pipeline/status").json()["balance"]
    assert balance["holds"] is True
    assert balance["turns"]["stored"] == MANY


def test_ingest_tells_how_much_it_published_before_the_disk_was_full(small: Program) -> None:
    ballast(small, 10)
    told = small.fails("ingest", small.turns(*long_texts(3_000)), "--scope", "home")
    assert "nothing was written" not in told
    published = int(told.split(" turns were published")[0].split()[-1].replace(",", ""))
    assert 0 < published < 3_000
    topic = '"conversation-turns"'
    log = small.folder / "disk" / "data" / "log" / "log.sqlite"
    counted = subprocess.run(
        [
            "python3",
            "-c",
            "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("
            f"'SELECT count(*) FROM {topic}').fetchone()[0])",
            str(log),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(counted.stdout) == published


def test_doctor_in_a_folder_that_may_only_be_read_asks_for_that_alone(small: Program) -> None:
    small.ok("ingest", small.turns(*said(5)), "--scope", "home")
    small.ok("run", "--once")
    assert mounted("-o", "remount,ro", str(small.folder / "disk"))
    findings = {f["check"]: f for f in _findings(small)}
    assert "writable" in findings["data folder"]["advice"]
    assert findings["disk"]["ok"]
    assert findings["log"]["ok"]
    assert "writable" in findings["stores"]["advice"]
    assert "rebuild" not in str(findings)
    assert "room" not in str(findings)


def _findings(program: Program) -> list[dict[str, str]]:
    import json

    done = program.run("doctor", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found
