"""ingest as its users run it: what is known is told, and what is told of a stop is true."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess

import pytest

from tests.erased_bytes import where
from tests.flows.program import PATIENCE_S, ROOT, Program

GOLDEN = ROOT / "tests" / "golden" / "ingest"


def published(program: Program) -> int:
    """Turns on the log, counted in its file."""
    with sqlite3.connect(program.data / "log" / "log.sqlite") as log:
        return int(log.execute('SELECT count(*) FROM "conversation-turns"').fetchone()[0])


def test_a_chat_export_becomes_memory(program: Program) -> None:
    told = program.run("ingest", str(GOLDEN / "whatsapp_us.txt"), "--scope", "friends")
    assert told.returncode == 0
    assert "taken for a WhatsApp chat" in told.stderr
    assert "month/day/year" in told.stderr
    assert "5 turns published into friends (5), 0 bad" in told.stdout
    assert program.json("run", "--once")["balance"]["turns"]["stored"] == 5
    block = program.json("context", "where does Ben work?", "--scope", "friends")["text"]
    assert "bakery" in block


def test_new_and_known_turns_are_told_apart(program: Program) -> None:
    program.ok("ingest", program.turns("I bake.", "I sail."), "--scope", "home")
    again = program.turns("I bake.", "I sail.", "I row.", name="longer.jsonl")
    assert "0 bad: 1 new, 2 known before" in program.ok("ingest", again, "--scope", "home")
    program.ok("run", "--once")
    result = program.json("ingest", again, again, "--scope", "home")
    assert (result["new"], result["known"], result["conflicts"]) == (0, 6, [])
    elsewhere = program.json("ingest", again, "--scope", "other")
    assert (elsewhere["new"], elsewhere["known"]) == (3, 0)


def test_another_content_under_a_known_turn_id_is_a_conflict(program: Program) -> None:
    program.ok("ingest", program.turns("I bake."), "--scope", "home")
    other = program.turns("I sail.", "  I sail.", name="other.jsonl")
    told = program.fails("ingest", other, "--scope", "home")
    assert "turn_id t0 of scope home was published before with another content" in told
    result = json.loads(program.run("ingest", other, "--scope", "home", "--json").stdout)
    assert result["conflicts"] == [{"scope": "home", "turn_id": "t0"}]


def test_the_same_words_with_other_spaces_are_no_conflict(program: Program) -> None:
    program.ok("ingest", program.turns("I  bake. "), "--scope", "home")
    told = program.json("ingest", program.turns("I bake.", name="b.jsonl"), "--scope", "home")
    assert (told["known"], told["conflicts"]) == (1, [])


def test_what_was_erased_is_not_published_again(program: Program) -> None:
    said = program.turns("I bake rye bread.", "I sail.")
    program.ok("ingest", said, "--scope", "home")
    program.ok("run", "--once")
    rows = program.json("list", "--scope", "home")["memories"]
    turn = next(row["id"] for row in rows if row["content"] == "I bake rye bread.")
    program.ok("erase", turn, "--cascade", "--reason", "asked", "--scope", "home")
    program.ok("run", "--once")
    told = program.ok("ingest", said, "--scope", "home")
    assert "1 turn published into home (1), 0 bad" in told
    assert "1 erased before, which stay erased" in told
    again = program.json("ingest", said, "--scope", "home")
    assert [again[name] for name in ("published", "known", "erased")] == [1, 1, 1]
    assert again["conflicts"] == []
    assert where(program.data / "log", "rye bread") == []


def test_a_copy_of_a_file_brings_nothing_erased_back(program: Program) -> None:
    said = ("I bake rye bread.", "Nice! Since when?", "Since March.")
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": text}
        for number, text in enumerate(said)
    ]
    path = program.folder / "chat.json"
    path.write_text(json.dumps(messages))
    program.ok("ingest", str(path), "--scope", "home")
    program.ok("run", "--once")
    rows = program.json("list", "--scope", "home")["memories"]
    turn = next(row["id"] for row in rows if row["content"] == said[0])
    program.ok("erase", turn, "--cascade", "--reason", "asked", "--scope", "home")
    program.ok("run", "--once")
    copy = program.folder / "chat (1).json"
    copy.write_text(json.dumps([*messages, {"role": "user", "content": "I sail."}]))
    told = program.json("ingest", str(copy), "--scope", "home")
    assert [told[name] for name in ("new", "known", "erased")] == [1, 2, 1]
    assert '"chat (1)" begins with the messages of "chat", published before' in told["notes"][-1]
    program.ok("run", "--once")
    rows = program.json("list", "--scope", "home", "--types", "episodic")["memories"]
    assert {row["session_id"] for row in rows} == {"chat"}
    assert sorted(row["content"] for row in rows) == sorted([*said[1:], "I sail."])
    assert where(program.data, "rye bread") == []


def test_to_wait_tells_what_became_of_the_turns(program: Program) -> None:
    said = ("--scope", "ana", "--wait", "60")
    done = program.run("ingest", program.turns("I live in Oslo."), *said)
    assert "no worker runs" in done.stderr
    of_ben = program.turns("I sail.", name="ben.jsonl", speaker="Ben", turn_id="b")
    with program.worker():
        program.ok("set-privacy", "full", "--person", "Ben", "--scope", "ana")
        line = program.ok("ingest", program.turns("I live in Oslo."), of_ben, *said)
        assert "; 1 stored, 1 rejected, 0 dead letter, 0 pending" in line
        done = program.run("ingest", program.turns("I live in Rome."), *said, "--json")
        assert done.returncode == 1
        settled = json.loads(done.stdout)["settled"]
        assert settled == {"stored": 0, "rejected": 0, "dead_letter": 1, "pending": 0}
        assert "turn_id_conflict" in done.stderr


def test_a_near_miss_of_a_field_is_warned_of(program: Program) -> None:
    line = {"turn_id": "1", "content": "I bake.", "ocurred_at": "2026-03-02T09:00:00Z"}
    (program.folder / "t.jsonl").write_text(json.dumps(line))
    told = program.run("ingest", "t.jsonl")
    assert "t.jsonl:1: did you mean `occurred_at`?" in told.stderr
    assert "1 turn tells no time" in told.stderr
    assert told.returncode == 0


def test_an_unknown_schema_is_refused_and_a_null_scope_is_none(program: Program) -> None:
    told = program.run("ingest", str(GOLDEN / "turns.jsonl"))
    assert "unknown schema 'conversation-turn/9'; expected conversation-turn/1" in told.stderr
    assert "into default (3)" in told.stdout
    assert "None" not in told.stdout


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("empty.jsonl", b"", "empty"),
        ("rows.csv", b"speaker,text\nAna,hi\n", "table (CSV)"),
        ("photo.png", b"\x89PNG\r\n", "picture"),
        ("folder", None, "no export of ChatGPT"),
    ],
)
def test_what_cannot_be_taken_is_named_and_the_rest_goes_on(
    program: Program, name: str, data: bytes | None, what: str
) -> None:
    path = program.folder / name
    path.mkdir() if data is None else path.write_bytes(data)
    told = program.run("ingest", name, program.turns("I bake."))
    assert told.returncode == 1
    assert f"{name}: " in told.stderr
    assert what in told.stderr
    assert "1 turn published" in told.stdout


def test_a_dry_run_publishes_nothing(program: Program) -> None:
    told = program.ok("ingest", str(GOLDEN / "talk.srt"), "--dry-run")
    assert "2 turns would be published" in told
    assert "Ana: I found a flat in Ghent." in told
    assert not program.data.exists()


def test_messages_from_standard_input_are_recognised(program: Program) -> None:
    given = b'{"role": "user", "content": "I bake."}\n{"role": "assistant", "content": "Nice."}\n'
    told = program.run("ingest", "-", "--me", "Ana", stdin=given)
    assert "standard input: taken for messages with role and content" in told.stderr
    assert "1 known" not in told.stdout
    again = program.run("ingest", "-", "--me", "Ana", stdin=given)
    assert "0 new, 2 known before" in again.stdout


def many(program: Program, count: int) -> str:
    lines = (
        json.dumps({"turn_id": str(number), "content": f"I keep {number} bees. " + "x" * 300})
        for number in range(count)
    )
    (program.folder / "many.jsonl").write_text("\n".join(lines))
    return "many.jsonl"


INTERRUPTED = """
import contextlib
import os
from palimpsest.ops import opening
real = opening.publisher
@contextlib.contextmanager
def publisher(settings):
    with real(settings) as append:
        def interrupted(batch):
            append(batch)
            os.kill(os.getpid(), {number})
        yield interrupted
opening.publisher = publisher
"""
"""A signal comes as soon as a batch is published."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_tells_how_many_are_published(program: Program, number: signal.Signals) -> None:
    name = many(program, 4_000)
    process = program.start("ingest", name, changed=INTERRUPTED.format(number=number.value))
    told = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in told
    count = published(program)
    assert 0 < count < 4_000
    assert f"stopped: {count:,} turns were published before it stopped" in told
    assert f"{4_000 - count} new, {count} known before" in program.ok("ingest", name)


def test_when_the_disk_refuses_the_count_told_is_true(program: Program) -> None:
    name = many(program, 4_000)
    command = " ".join(program.command("ingest", name))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 1024; exec {command}"],
        cwd=program.folder,
        env=program.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    count = published(program)
    assert 0 < count < 4_000
    assert f"{count:,} turns were published before it stopped" in done.stderr
