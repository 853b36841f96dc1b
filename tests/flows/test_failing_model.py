"""A model whose list of models works and whose completions fail: it is told, and a run ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.flows.program import Program


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
        program = Program(
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
