"""Connections that say too little or take too little, beside somebody who asks."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from palimpsest.ops.service.server import ConnectionLimits
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.threads import in_thread_of
from tests.flows.http_server import Served, problem, server
from tests.flows.program import PATIENCE_S, until

IDLE = 600
FLAGS = ("http.max_connections=100", "http.head_seconds=2", "http.body_seconds=2")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("connections"), *FLAGS) as running:
        yield running


def ended(connection: socket.socket) -> bool:
    """Waits for the other side to close."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def works(running: Served, client: httpx.Client, number: int = 0) -> None:
    assert client.get("/health").status_code == 200
    until(lambda: client.get("/ready").status_code == 200)
    said = {"content": f"Ana has the number {number}.", "scope": "ana"}
    assert client.post("/api/memory/remember", json=said).status_code == 200
    found = client.post("/api/memory/recall", json={"query": "number", "scope": "ana"})
    assert found.json()["results"]


def test_idle_connections_keep_nobody_out(running: Served) -> None:
    with contextlib.ExitStack() as undo:
        for _ in range(IDLE):
            undo.enter_context(running.connected())
        began = time.monotonic()
        for number in range(5):
            with running.client() as client:  # a connection of its own
                works(running, client, number)
        assert time.monotonic() - began < 60


@pytest.mark.parametrize("pool", ["of the event loop", "append", "body"])
def test_a_service_without_a_free_thread_is_not_ready(running: Served, pool: Any) -> None:
    held = threading.Event()

    def occupy() -> None:
        for _ in range(64):
            if pool == "of the event loop":
                running.loop.run_in_executor(None, held.wait)
            else:
                running.loop.create_task(in_thread_of(pool, held.wait))

    with running.client() as client:
        running.loop.call_soon_threadsafe(occupy)
        try:
            said = problem(client.get("/ready"), 503, "unavailable")
            assert "no thread was free" in said["detail"]
            assert client.get("/health").status_code == 200
        finally:
            held.set()
        until(lambda: client.get("/ready").status_code == 200)
        works(running, client)


def test_too_few_file_descriptors_are_survived(running: Served) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as undo:
        mine = [undo.enter_context(running.connected()) for _ in range(50)]
        taken = max(each.fileno() for each in mine)
        # For the service, which has this process, there is none left now.
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 2, hard))
        try:
            with contextlib.suppress(OSError):
                for _ in range(20):
                    undo.enter_context(running.connected())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with running.client() as client:
        until(lambda: client.get("/health").status_code == 200)
        works(running, client)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /health HT",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /api/memory/recall HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        b"Content-Type: application/json\r\n\r\n{",
    ],
)
def test_who_does_not_say_what_is_asked_for_is_cut_off(running: Served, said: bytes) -> None:
    with contextlib.ExitStack() as undo:
        connection = undo.enter_context(running.connected())
        connection.sendall(said)
        assert ended(connection)


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_a_connection_is_kept_for_the_next_request(running: Served) -> None:
    """A client that sends just when the server closes is reset, and does not know what was done:
    the server must not be the first to give up."""
    with running.connected() as connection:

        def asks() -> None:
            connection.sendall(HEALTH)
            answer = b""
            while not answer.endswith(b"}"):
                part = connection.recv(4096)
                assert part, answer
                answer += part

        asks()
        connection.settimeout(2.5)  # longer than what may take head_seconds
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(PATIENCE_S)
        asks()
        connection.sendall(HEALTH[:10])  # this head takes too long
        assert ended(connection)


def test_it_is_kept_for_longer_than_clients_keep_theirs() -> None:
    clients = httpx.Limits().keepalive_expiry or 0.0
    assert ConnectionLimits().keep_alive_seconds > clients
    assert Settings().http.keep_alive_seconds > clients


def test_a_large_answer_that_nobody_takes_is_let_go_of(
    running: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palimpsest.ops.service import server as serving

    monkeypatch.setattr(serving, "STALL_SECONDS", 1.0)
    paused = threading.Event()  # for a second: who looks now and then may miss it
    pause = serving._Limited.pause_writing

    def noted(connection: serving._Limited) -> None:
        pause(connection)
        paused.set()

    monkeypatch.setattr(serving._Limited, "pause_writing", noted)
    query = b'{"query": "SELECT repeat(\'x\', 50000000)"}'
    with contextlib.ExitStack() as undo:
        connection = undo.enter_context(running.connected())
        connection.sendall(
            b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(query), query)
        )
        assert paused.wait(PATIENCE_S)
        # It was cut off when it took nothing; what lies in the system's buffers comes still.
        until(lambda: not any(_writes(each) for each in _connections()))
        assert ended(connection)


def _connections() -> list[object]:
    import gc

    from palimpsest.ops.service.server import _Limited

    return [each for each in gc.get_objects() if isinstance(each, _Limited)]


def _writes(connection: object) -> bool:
    flow = getattr(connection, "flow", None)
    return bool(flow is not None and flow.write_paused)


def test_a_folder_is_let_go_of_although_connections_are_open(tmp_path: Path) -> None:
    with contextlib.ExitStack() as undo:
        with server(tmp_path, *FLAGS) as running:
            for _ in range(50):
                undo.enter_context(running.connected())
            began = time.monotonic()
        assert time.monotonic() - began < 60


def test_a_stop_that_hangs_ends_the_process() -> None:
    program = (
        "import threading; from palimpsest.ops.cli import serving; serving.STOP_SECONDS = 0.5;"
        " serving._end_anyway(); threading.Event().wait()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "did not stop" in done.stderr) == (1, True)
