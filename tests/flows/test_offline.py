"""The program looks for no host and writes no file but in its data folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows import offline_program
from tests.source_modules import ROOT

IN_A_NETWORK_OF_ITS_OWN = ("unshare", "--net", "--mount")


def may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*IN_A_NETWORK_OF_ITS_OWN, "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not may_unshare(), reason="needs Linux, root and util-linux (unshare)")
def test_main_commands_look_for_no_host_and_write_no_file_elsewhere(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    ran = subprocess.run(
        [*IN_A_NETWORK_OF_ITS_OWN, sys.executable, offline_program.__file__, folder, home],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
    )
    found = json.loads(ran.stdout)
    assert found["asked"] == []
    assert set(found["codes"].values()) == {0}, found["codes"]
    assert [*home.rglob("*")] == []
    assert sorted(path.name for path in folder.iterdir()) == ["data", "resolv.conf", "turns.jsonl"]
