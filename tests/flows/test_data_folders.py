"""A data folder that is none."""

from __future__ import annotations

from pathlib import Path

from tests.flows.program import Program


def test_a_file_in_place_of_the_data_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    told = Program(tmp_path).run("list", "--data-dir", "notes.txt")
    assert told.returncode == 1
    assert "notes.txt is a file, not a folder" in told.stderr
