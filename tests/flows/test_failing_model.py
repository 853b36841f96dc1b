"""A model whose list of models works and whose completions fail: it is told, and a run ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from palimpsest import Memory, NotYetAppliedError
from palimpsest.streams.runtime import model_port
from tests.flows.program import Program, until

SOON = {"FIRST_DELAY_SECONDS": 0.02, "JITTER_SECONDS": 0.0}
"""When a model is asked again."""


def impatient(folder: Path, **environment: str) -> Program:
    program = Program(folder, **environment)
    program.patched |= {f"{model_port.__name__}.{name}": value for name, value in SOON.items()}
    return program


@contextmanager
def refusing(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer(200, b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(status, b'{"error": {"message": "no such key"}}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_once_ends_where_the_model_refuses_completions(tmp_path: Path) -> None:
    with refusing(401) as address:
        program = impatient(
            tmp_path,
            PALIMPSEST_LLM__PROVIDER="openai",
            PALIMPSEST_LLM__MODEL="m",
            PALIMPSEST_LLM__BASE_URL=address,
            PALIMPSEST_LLM__API_KEY="k",
        )
        program.ok("ingest", program.turns("I live in Lisbon.", "I am allergic to walnuts."))
        told = program.fails("run", "--once")
    assert "answered 401" in told
    assert "left: extract 2" in told
    assert program.json("sql", "SELECT count(*) AS n FROM turns") == [{"n": 2}]


@pytest.mark.soak
def test_a_failing_model_is_told_once_by_a_run_and_in_the_library(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with refusing(500) as address:
        settings = {"embedding.provider": "hashing", "llm.provider": "openai", "llm.model": "m"}
        settings |= {"llm.base_url": address, "llm.api_key": "k"}
        with Memory(tmp_path / "lib", scope="ana", settings=settings) as memory:
            memory.add([{"content": "I live in Lisbon."}, {"content": "I am allergic to nuts."}])
            until(lambda: any("waiting for llm:openai" in each for each in caplog.messages))
            with pytest.raises(NotYetAppliedError, match=r"waiting for a model: .* answered 500"):
                memory.wait_until_processed(1.0)
        told = [each for each in caplog.messages if "waiting for llm:openai" in each]
        assert len(told) == 1
        named = {f"PALIMPSEST_{k.upper().replace('.', '__')}": v for k, v in settings.items()}
        (tmp_path / "run").mkdir()
        program = impatient(tmp_path / "run", **named)
        program.ok("ingest", program.turns("I live in Lisbon.", "I am allergic to walnuts."))
        assert program.fails("run", "--once").count("waiting for llm:openai") == 1
