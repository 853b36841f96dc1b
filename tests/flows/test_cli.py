"""The command line from end to end, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.program import PATIENCE_S, ROOT, SAID, Program, memories, one

# --- the walk ---------------------------------------------------------------------------------


def test_ingest_run_recall_explain_status(tmp_path: Path) -> None:
    program, afresh = Program(tmp_path), Program(tmp_path, afresh=True)
    said = program.ok("ingest", program.turns(*SAID), "--scope", "home")
    assert "5 turns published into home (5), 0 bad" in said
    result = afresh.json("run", "--once")
    assert result["stages"]["normalize"]["records"] == 5
    assert isinstance(result["seconds"], float)
    balance = result["balance"]
    assert balance["turns"]["accepted"] == balance["turns"]["stored"] == 5
    assert balance["holds"] is True

    asked = ("where does Ana live?", "--scope", "home", "--no-record")
    answer = afresh.json("recall", *asked)
    assert set(answer) == {"query", "method", "results", "related", "notices"}
    best = answer["results"][0]
    assert "Lisbon" in best["content"]
    for name in ("id", "content", "type", "score", "source", "scope", "who", "session_id"):
        assert name in best
    for name in ("source_id", "derived_from", "tags", "pinned", "importance", "created_at"):
        assert name in best
    for name in ("keyword", "vector", "graph", "recency", "importance"):
        assert name in best["scores"]

    provenance = program.json("explain", str(one(program, "Lisbon")["id"]))
    assert provenance["derived_from"][0]["content"] == SAID[0]
    assert provenance["decisions"][0]["action"] == "ADD"

    status = program.json("status")
    assert set(status) == {
        *(
            "stages",
            "balance",
            "health",
            "dead_letters",
            "pending",
            "providers",
            "jobs",
            "embeddings",
            "waiting",
        )
    }
    assert [set(stage) for stage in status["stages"]] == [
        {"stage", "partition", "cursor", "end", "lag", "state", "waiting_since"}
    ] * 6
    assert all(stage["lag"] == 0 for stage in status["stages"])
    assert status["dead_letters"] == 0


def test_an_update_keeps_what_was_before(told: Program) -> None:
    coffee = one(told, "coffee")
    assert coffee["version"] == 2
    provenance = told.json("explain", str(coffee["id"]))
    assert provenance["before"][0]["id"] == f"{coffee['id']}@1"
    assert "don't" not in provenance["before"][0]["content"]
    update = provenance["decisions"][-1]
    assert (update["action"], update["outcome"]) == ("UPDATE", "updated")
    assert any("drinks coffee" in str(seen["content"]) for seen in update["candidates"])
    shown = told.ok("explain", str(coffee["id"])[:8])
    assert "before" in shown
    assert "contradicts" in shown


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
    assert {row["content"] for row in memories(program, "--types", "episodic")} == {
        "I live in Ghent.",
        "I work in Ghent.",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest",),
        ("ingest", "missing.jsonl"),
        ("ingest", "x.jsonl", "--scope", " "),
        ("run", "--nonsense"),
        ("recall",),
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
    turns = {row["source_id"]: row for row in memories(program, "--types", "episodic")}
    assert {row["scope"] for row in turns.values()} == {"talk"}
    assert turns["D1:1"]["occurred_at"] == "2023-05-08T00:30:00Z"
    assert turns["D1:2"]["occurred_at"] == "2023-05-08T00:30:01Z"
    assert turns["D2:1"]["session_id"] == "session_2"
    assert turns["D1:2"]["content"] == "Look at this."
    program.ok("ingest", "talk.json", "--format", "locomo", "--captions", "--scope", "seen")
    program.ok("run", "--once")
    seen = memories(program, "--scope", "seen", "--types", "episodic")
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
    assert memories(program, "--types", "fact") == []
    assert memories(program, "--deleted")[0]["id"] == harp["id"]
    program.ok("recover", str(harp["id"]))
    program.ok("flags", "home", "--shadow-mode")
    program.ok("run", "--once")
    assert one(program, "oboe")["version"] == 5
    flags = program.ok("sql", "SELECT shadow_mode FROM scope_flags", "--format", "csv")
    assert flags.split() == ['"shadow_mode"', "true"]


def test_a_constraint_is_in_every_context_that_names_its_entity(program: Program) -> None:
    rule = "Never deploy on a Friday."
    attribute = {"entity": "Apollo", "aspect": "deployment", "kind": "constraint"}
    structured = json.dumps({"attributes": [attribute]})
    program.ok("remember", rule, "--structured", structured)
    program.ok("run", "--once")
    assert f"- {rule}" in program.ok("context", "when can Apollo go live?")
    assert f"- deployment (constraint): {rule}" in program.ok("entity", "Apollo")
    for wrong, code, told in (
        ('{"attributs": []}', 2, "there is no field attributs"),
        ("[1]", 2, "must be a JSON object"),
        ("{", 2, "it is not JSON"),
    ):
        refused = program.run("remember", "x", "--structured", wrong)
        assert refused.returncode == code
        assert told in " ".join(refused.stderr.split())


def test_what_was_drawn_from_a_turn_is_shown_before_it_is_forgotten(program: Program) -> None:
    text = "I live in Lisbon with my sister Nora. I am allergic to walnuts."
    program.ok("ingest", program.turns(text), "--scope", "home")
    program.ok("run", "--once")
    [saved] = (str(row["id"]) for row in memories(program) if row["type"] == "episodic")
    shown = program.json("forget", saved[:8], "--mode", "preview", "--cascade")
    assert [row["id"] for row in shown["candidates"]] == [saved]
    assert len(shown["cascade"]) == len(memories(program)) - 1 > 1
    told = program.ok("forget", saved, "--mode", "preview")
    assert "drawn from nothing else" in told
    assert "--confirm" in told
    forget = ("forget", saved, "--cascade", "--reason", "asked for", "--confirm")
    assert "token is for other memories" in program.fails(*forget, "odd")
    program.ok(*forget, shown["confirm_token"])
    program.ok("run", "--once")
    assert memories(program) == []


def test_a_preview_tells_what_a_memory_would_say_again(program: Program) -> None:
    program.ok("flags", "home", "--allow-update-delete")
    program.ok("run", "--once")
    program.ok("ingest", program.turns("I live in Oslo.", "I moved to Bergen."), "--scope", "home")
    program.ok("run", "--once")
    [turn] = (str(row["id"]) for row in memories(program) if "I moved" in str(row["content"]))
    told = program.ok("forget", turn, "--mode", "preview")
    assert "drawn from nothing else" not in told
    assert "Bergen.' but, as another text does: Ana lives in Oslo." in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("forget", "--reason", "x"),
        ("forget", "--query", "x", "--scope", "home", "--mode", "execute"),
        ("forget", "--query", "x", "--scope", "home", "--reason", "x", "--if-version", "1"),
        ("alias", "", "Annie", "--scope", "home"),
    ],
)
def test_what_to_forget_must_be_told(program: Program, arguments: tuple[str, ...]) -> None:
    program.fails(*arguments, code=2)


# --- sql --------------------------------------------------------------------------------------


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


def test_what_no_worker_has_read_yet_is_told_of(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    waiting = f"{len(SAID)} published records wait for a worker; `palimpsest run` processes them"
    assert waiting in program.run("recall", "where?", "--scope", "home").stderr
    program.ok("run", "--once")
    assert "wait for a worker" not in program.run("recall", "where?", "--scope", "hoem").stderr


def test_flags_shows_what_is_in_effect_and_where_from(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("flags", "home", "--shadow-mode")
    program.ok("run", "--once")
    flags = {row["flag"]: row for row in program.json("flags", "home")["flags"]}
    assert flags["shadow_mode"] == {"flag": "shadow_mode", "value": True, "from": "this scope"}
    assert flags["enabled"]["from"] == "setting pipeline.enabled"
    assert "this scope" in program.ok("flags", "home")


# --- running ----------------------------------------------------------------------------------


def test_sigterm_finishes_the_batch_and_stops_cleanly(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    with program.worker() as worker:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=PATIENCE_S) == 0
    assert not (program.data / "worker.json").exists()
    program.ok("run", "--once")
    assert len(memories(program, "--types", "episodic")) == 5


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
    graph = {finding["check"]: finding["found"] for finding in findings}["graph"]
    assert graph == "searched, and written from turns"
    settings = told.json("settings")
    assert settings["embedding.provider"] == {
        "value": "hashing",
        "source": "environment PALIMPSEST_EMBEDDING__PROVIDER",
    }
    assert "did you mean" in told.fails("status", "--set", "llm.modle=x")


def test_a_graph_that_is_only_read_is_warned_of(program: Program) -> None:
    warning = "the graph is searched, but turns add nothing to it"
    setting = ("--set", "graph.extraction_writes_enabled=false")
    program.turns("Ana lives in Oslo")
    assert warning in program.run("run", "--once", *setting).stderr
    assert warning not in program.run("run", "--once").stderr
    findings = program.json("doctor", *setting)
    assert any(warning in finding["found"] for finding in findings)


SERVERS = {"uvicorn", "starlette", "fastapi", "mcp", "onnxruntime", "palimpsest.ops.http.service"}
HEAVY = {*SERVERS, "duckdb", "numpy", "pyarrow", "lancedb", "palimpsest.schemas.messages"}


def loaded(program: Program, *arguments: str) -> set[str]:
    """The modules that a command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "palimpsest.ops.cli.main", *arguments],
        cwd=program.folder,
        env={**program.environment, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_a_command_loads_what_it_needs(told: Program) -> None:
    assert loaded(told, "--help") & {*HEAVY, "pydantic", "httpx", "asyncio"} == set()
    turn = told.turns("I moved to Porto.", name="moved.jsonl")
    appends = {"palimpsest.schemas.messages"}
    assert loaded(told, "ingest", turn, "--scope", "ana") & {*HEAVY, "httpx"} == appends
    assert loaded(told, "list", "--scope", "ana") & {*SERVERS, "httpx"} == set()
    with told.worker():
        others = {"palimpsest.ops.surfaces.catalogue", "palimpsest.schemas.commands"}
        assert loaded(told, "list", "--scope", "ana") & {*HEAVY, *others, "click"} == set()
