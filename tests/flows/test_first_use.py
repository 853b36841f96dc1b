"""What someone meets who uses the program for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from palimpsest.schemas.failures import describe
from palimpsest.schemas.messages import ConversationTurn
from tests.flows.program import Program


def test_an_unknown_view_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Lisbon."))
    program.ok("run", "--once")
    assert "did you mean memories?" in program.fails("sql", ".schema memorys", code=2)
    *_, view = program.json("sql", ".tables")
    assert program.json("sql", f".schema {next(iter(view.values()))}")


def test_a_token_for_all_scopes_alone_may_do_what_reaches_over_all(tmp_path: Path) -> None:
    program = Program(tmp_path)
    told = program.fails("tokens", "create", "a", "--scope", "ana", "--permission", "sql", code=2)
    assert "--scope '*'" in told
    program.ok("tokens", "create", "a", "--scope", "*", "--permission", "sql")


def test_a_terminal_without_utf_8_is_no_failure(tmp_path: Path) -> None:
    program = Program(tmp_path, afresh=True, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    program.ok("ingest", program.turns("Ich wohne in Köln. 東京"))
    program.ok("run", "--once")
    assert "K\\xf6ln" in program.ok("list")


def test_a_wrong_list_is_told_in_the_words_of_json() -> None:
    with pytest.raises(ValidationError) as found:
        ConversationTurn.model_validate({"turn_id": "t", "content": "x", "tags": 5})
    assert "tags: Input should be a valid array" in describe(found.value)


def test_a_wrong_list_of_a_setting_is_told_so_too(tmp_path: Path) -> None:
    (tmp_path / "palimpsest.toml").write_text("[intent]\nmore_phrases = 5\n")
    told = Program(tmp_path).fails("status")
    assert "intent.more_phrases = 5" in told
    assert "Input should be a valid array" in told


def test_the_embedding_model_is_told_when_the_stores_are_made(tmp_path: Path) -> None:
    program = Program(tmp_path)
    del program.environment["PALIMPSEST_EMBEDDING__PROVIDER"]
    program.ok("ingest", program.turns("I live in Lisbon."))
    told = [program.run("run", "--once").stderr for _ in range(2)]
    assert ["chosen by search.language" in each for each in told] == [True, False]


def test_an_import_that_waits_does_not_say_that_nothing_was_taken(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.ok("ingest", program.turns("I live in Lisbon."), "--scope", "ana")
    program.ok("run", "--once")
    program.ok("export", "ana", "ana.jsonl")
    told = program.ok("import", "ana.jsonl", "--scope", "ben")
    assert "lines taken" not in told
    assert "1 batch waits for the next `palimpsest run`" in told
    program.ok("run", "--once")
    command_id = told.split()[-1]
    assert program.json("result", command_id)["applied"] is True
