"""What the README tells to type works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.program import ROOT, Program

README = (ROOT / "README.md").read_text(encoding="utf-8")


def console_commands() -> str:
    """The commands of the README's console blocks as one script."""
    lines = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        lines += re.findall(r"^(?:\$|>) (.*)$", block, re.MULTILINE)
    return "\n".join(lines)


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    program = Program(tmp_path)
    shim = tmp_path / "bin" / "palimpsest"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m ops.cli.main "$@"\n')
    shim.chmod(0o755)
    script = console_commands()
    assert script.count("palimpsest ") > 10
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**program.environment, "PATH": f"{shim.parent}:{program.environment['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    for told in ("5 turns published", "4 created + 1 blocked", "Ana moved to Lisbon", "sound"):
        assert told in done.stdout
