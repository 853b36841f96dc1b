"""`palimpsest replay` as its users run it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from palimpsest.ops.cli.main import whole
from palimpsest.schemas.commands import ForgetCommand
from tests.replayed import Live, live_settings

LIVE = {"PALIMPSEST_EMBEDDING__PROVIDER": "hashing"}


def replay(folder: Path, *arguments: str, code: int = 0) -> str:
    told = CliRunner().invoke(whole(), ["replay", *arguments, "--data-dir", str(folder)], env=LIVE)
    assert told.exit_code == code, (told.output, told.exception)
    return told.output


def as_json(folder: Path, *arguments: str) -> Any:
    return json.loads(replay(folder, *arguments, "--json"))


def test_a_branch_from_its_estimate_to_its_end(tmp_path: Path) -> None:
    live = Live(live_settings(tmp_path))
    live.say("I am allergic to walnuts.", "I live in Lisbon with my sister Nora.")
    asyncio.run(live.run())
    allergic = next(key for text, key in live.facts().items() if "walnuts" in text)
    live.command(ForgetCommand(memory_ids=(allergic,), reason="private"))
    asyncio.run(live.run())
    assert "no branches" in replay(tmp_path, "branches")
    named = ("reextract", "--branch", "again", "--set", "extraction.context_turns=0")
    assert "2 of 2 turns" in replay(tmp_path, *named, "--dry-run")
    told = as_json(tmp_path, *named, "--dry-run", "--since", "2999-01-01")
    assert (told["turns"], told["all_turns"], told["cost"]) == (0, 2, None)
    assert not (tmp_path / "branches").exists()
    done = as_json(tmp_path, *named)
    assert (done["ended"], done["turns"], done["branch"]["whole"]) == ("done", 2, True)
    assert "was made with" in replay(tmp_path, *named, "--scope", "ben", code=1)
    [branch] = as_json(tmp_path, "branches")["branches"]
    assert (branch["name"], branch["behind"], branch["erasures"]) == ("again", 0, 0)
    assert branch["settings"] == ["extraction.context_turns=0"]
    assert "again" in replay(tmp_path, "branches")
    [row] = as_json(tmp_path, "curation", "again")["curated"]
    assert (row["live_id"], row["status"], row["command"]) == (allergic, "re-applied", "forget")
    assert "1 re-applied" in replay(tmp_path, "curation", "again")
    assert "nothing" in replay(tmp_path, "curation", "again", "--status", "refused")
    with sqlite3.connect(tmp_path / "branches" / "again" / "reextraction.sqlite") as database:
        assert database.execute("SELECT status FROM curated").fetchall() == [("re-applied",)]
    live.command(ForgetCommand(memory_ids=(allergic,), reason="private", hard=True))
    asyncio.run(live.run())
    assert "was erased live" in replay(tmp_path, "branches")
    assert "again: 0 turns and 1 commands" in replay(tmp_path, "reextract", "--branch", "again")
    assert "is gone" in replay(tmp_path, "drop", "again")
    assert "no branch again" in replay(tmp_path, "drop", "again", code=1)
    assert "no branch again" in replay(tmp_path, "curation", "again", code=1)
