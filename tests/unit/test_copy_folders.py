"""What a killed process left of copies is removed, what a living one uses is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.ops.service.sql_queries import PREFIX, TEMPORARY_PREFIX, CopyFolder
from palimpsest.ops.service.sql_queries import remove_abandoned as removed


def test_only_what_nobody_has_locked_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, temporary = tmp_path / "data", tmp_path / "temporary"
    for folder in (data / f"{PREFIX}left", temporary / f"{TEMPORARY_PREFIX}left"):
        folder.mkdir(parents=True)
        (folder / "memory.duckdb").write_text("what somebody said")
    (temporary / "sql-of-another-program").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    used = [CopyFolder(data), CopyFolder(None)]
    removed(data)
    assert list(data.iterdir()) == [used[0].path]
    assert {*temporary.iterdir()} == {used[1].path, temporary / "sql-of-another-program"}
    for each in used:
        each.cleanup()
        assert not each.path.exists()
