"""Erasing: what was said is gone from every file, and all else is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palimpsest.ops.maintenance.erasing import carry_out_in
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand, RememberCommand
from palimpsest.schemas.identity import erase_token, turn_memory_id
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, pipeline_settings

SECRET = "Ana keeps the spare key under the third flowerpot"
FOREIGN = "Ana wohnt in der Königsstraße 12 in Tübingen"
OTHER = "Ben works at a bakery in Ghent"


def pipeline(folder: Path, **given: Any) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL), **given)


def erase(running: Pipeline, *memory_ids: str, number: int = 50, **given: Any) -> Any:
    running.command(
        ForgetCommand(memory_ids=memory_ids, reason="asked for", hard=True, **given), first=number
    )
    running.run()
    carry_out_in(running.log, 0, running.shard)
    error, result = running.result(number)
    return result if error is None else error


def everything(running: Pipeline) -> list[str]:
    return running.values("SELECT content FROM memory_rows WHERE NOT is_deleted ORDER BY ALL")


def test_a_turn_with_its_facts_is_in_no_file_any_more(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say(SECRET, FOREIGN, OTHER)
        running.run()
        running.shard.vector_table().sync()
        before = everything(running)
        assert where(tmp_path, SECRET, FOREIGN)
        ids = [turn_memory_id("ana", f"t{number}") for number in (1, 2)]
        result = erase(running, *ids, cascade=True)
        assert {row["status"] for row in result} == {"erased"}
        assert len(result) > 2
        assert where(tmp_path, SECRET, FOREIGN, "flowerpot", "Königsstraße") == []
        gone = [text for text in before if "flowerpot" in text or "Königsstraße" in text]
        assert everything(running) == [text for text in before if text not in gone]
        assert running.balance().holds
    assert where(tmp_path, SECRET, FOREIGN, "flowerpot", "Königsstraße") == []
    assert where(tmp_path, OTHER)
