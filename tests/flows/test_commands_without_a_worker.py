"""Commands that wait in the log until a worker runs, from the command line."""

from __future__ import annotations

from tests.flows.program import Program, one


def test_run_once_tells_which_waiting_commands_were_refused_and_why(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "home")
    program.ok("run", "--once")
    memory_id = str(one(program, "Lisbon")["id"])
    program.ok("forget", memory_id, "--reason", "x", "--scope", "home")
    told = program.ok("run", "--once")
    assert "refused" not in told
    program.ok("forget", memory_id, "--reason", "again", "--scope", "home")
    told = program.ok("run", "--once")
    assert (
        f"1 command was refused:\n- forget: {memory_id}: deleted (it is forgotten); see "
        "`palimpsest result " in told
    )
    assert program.json("run", "--once")["refused"] == []


def test_a_blank_scope_is_refused_and_not_taken_for_the_default_one(program: Program) -> None:
    program.ok("ingest", program.turns("I live in Lisbon."))
    program.ok("run", "--once")
    (program.folder / "note.txt").write_text("A note.")
    asked = [["recall", "Lisbon"], ["context", "Lisbon"], ["list"], ["remember", "Ana bakes."]]
    asked += [["ingest", "note.txt"], ["import", "note.txt"], ["documents", "add", "note.txt"]]
    asked += [["embeddings"], ["replay", "diff", "better"], ["mcp"]]
    for words in asked:
        for blank in ("", " "):
            failed = program.fails(*words, "--scope", blank, code=2)
            assert "scope: must not be blank" in failed, words
    assert "scope: must not be blank" in program.fails("flags", "", code=2)
    assert "Lisbon" in program.ok("recall", "Lisbon")
