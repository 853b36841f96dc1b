"""What a new column of a table costs: a line in its row, and a migration."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.source_modules import ROOT


def test_a_column_is_one_line_of_its_row() -> None:
    """Tables new and old, view and comment, bulk writes, the state hash, export and import have
    it, without another list."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.one_more_column"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Of the table and of the view.
    columns = [["VARCHAR", "'plain'", None], ["VARCHAR", None, "how it was said"]]
    assert json.loads(done.stdout) == {
        "a new store": columns,
        "an old store": columns,
        "the state hash": [[True]],
        "exported": [[True]],
        "imported": [["glad"]],
    }
