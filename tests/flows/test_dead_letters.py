"""Dead letters from the command line: looked at, sent again, discarded."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.flows.program import Program, one


def test_dead_letters_are_redriven_and_discarded(program: Program) -> None:
    big = "I keep " + " ".join(f"word{n}" for n in range(900)) + "."
    turns = program.turns(big)
    program.ok("ingest", turns, "--scope", "home")
    program.ok("run", "--once", "--set", "log.max_record_bytes=2000")
    listed = program.json("dead-letters", "list")
    dead_letter = listed["dead_letters"][0]
    assert dead_letter["stage"] == "normalize"
    dead_letter_id = str(dead_letter["id"])
    assert "max_record_bytes" in program.ok("dead-letters", "list")
    shown = program.json("dead-letters", "show", dead_letter_id[:8])
    assert "word899" in str(shown["record"])
    told = program.fails(
        "dead-letters", "redrive", dead_letter_id, "--set", "log.max_record_bytes=2000"
    )
    assert "would fail the same way" in told
    assert "publish it again" in program.fails("dead-letters", "redrive", "--all")
    record = program.ok("dead-letters", "record", dead_letter_id)
    program.ok("ingest", "-", stdin=record.encode())
    result = program.json("run", "--once")
    assert result["balance"]["turns"]["accepted"] == 2
    assert result["balance"]["turns"]["dead"] == result["balance"]["turns"]["stored"] == 1
    assert result["balance"]["holds"] is True


class MuteModel(BaseHTTPRequestHandler):
    """A model server that says nothing that could be read."""

    def do_GET(self) -> None:
        self._say({"data": [{"id": "mute"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say({"choices": [{"index": 0, "message": {"role": "assistant", "content": "?"}}]})

    def _say(self, said: object) -> None:
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def mute_model() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), MuteModel)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def mute_run(url: str) -> list[str]:
    settings = ("llm.provider=openai", f"llm.base_url={url}", "llm.model=mute")
    return ["run", "--once", *(word for each in settings for word in ("--set", each))]


def test_a_turn_with_a_dead_letter_is_not_told_as_one_without_a_fact(program: Program) -> None:
    program.ok("ingest", program.turns("Well, well."))
    program.ok("run", "--once")
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "home")
    with mute_model() as url:
        balance = program.json(*mute_run(url))["balance"]
    assert (balance["without_facts"], balance["failed_turns"]) == ([1, 2], 1)
    dead_letter_id = program.json("dead-letters", "list")["dead_letters"][0]["id"]
    program.ok("dead-letters", "discard", dead_letter_id)
    balance = program.json("run", "--once")["balance"]
    assert (balance["without_facts"], balance["failed_turns"]) == ([2, 2], 0)


def test_a_redriven_turn_is_extracted_after_all(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "home")
    with mute_model() as url:
        told = program.ok(*mute_run(url))
    assert "1 turn failed; see `palimpsest dead-letters list`" in told
    assert "gave no fact" not in told
    dead_letters = program.json("dead-letters", "list")["dead_letters"]
    assert [dead_letter["stage"] for dead_letter in dead_letters] == ["extract"]
    assert "1 sent again" in program.ok("dead-letters", "redrive", "--all")
    assert program.json("run", "--once")["balance"]["holds"] is True
    assert "Lisbon" in str(one(program, "Lisbon")["content"])
    assert program.json("dead-letters", "list") == {"dead_letters": []}
    assert program.json("dead-letters", "list", "--status", "redriven") != {"dead_letters": []}
    dead_letter_id = dead_letters[0]["id"]
    assert "redriven" in program.fails("dead-letters", "discard", dead_letter_id)
    assert "already" in program.fails("dead-letters", "redrive", dead_letter_id)


def test_a_discarded_dead_letter_stays_counted(program: Program) -> None:
    program.ok("ingest", program.turns("I keep " + "bees and " * 400), "--scope", "home")
    program.ok("run", "--once", "--set", "log.max_record_bytes=2000")
    dead_letters = program.json("dead-letters", "list")
    dead_letter_id = str(dead_letters["dead_letters"][0]["id"])
    assert program.json("dead-letters", "discard", dead_letter_id) == {
        "discarded": [dead_letter_id]
    }
    assert program.json("dead-letters", "list")["dead_letters"] == []
    [discarded] = program.json("dead-letters", "list", "--status", "all")["dead_letters"]
    assert discarded["id"] == dead_letter_id
    status = program.json("status")
    assert status["dead_letters"] == 0
    assert status["balance"]["turns"]["dead"] == 1
    assert status["balance"]["holds"] is True
