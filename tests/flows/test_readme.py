"""What the README tells to type works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.program import ROOT, Program

README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALLING = ("make ", "source .venv/bin/activate")
"""Lines that made the environment in which the tests run."""


def blocks() -> list[str]:
    """Every block of commands in order, but those that say why they are not run."""
    found = re.findall(r"(<!-- not run: [^>]+-->\n)?```sh\n(.*?)```", README, re.DOTALL)
    return [block for why_not, block in found if not why_not]


def script() -> str:
    lines = "".join(blocks()).splitlines()
    return "\n".join(line for line in lines if not line.startswith(INSTALLING))


def test_nothing_is_hidden_from_the_tests_but_what_needs_a_model() -> None:
    assert README.count("<!-- not run") == 1
    assert "```console" not in README  # a prompt before a command cannot be pasted


def test_the_way_to_a_context_of_your_own_chat_is_short() -> None:
    head = README[: README.index("## Use it from your agent")]
    lines = "".join(re.findall(r"```sh\n(.*?)```", head, re.DOTALL)).splitlines()
    typed = [line for line in lines if re.match(r"(make|source|palimpsest) ", line)]
    assert len(typed) == 5, typed


@pytest.mark.timeout(300)
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    """With the embedding model that comes with the program, as a reader has it."""
    program = Program(tmp_path)
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, module in (("palimpsest", " -m palimpsest.ops.cli.main"), ("python", "")):
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        (shims / name).chmod(0o755)
    environment = {**program.environment, "PATH": f"{shims}:{program.environment['PATH']}"}
    environment.pop("PALIMPSEST_EMBEDDING__PROVIDER")
    folder = tmp_path / "reader"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    for told in (
        "5 turns published into friends (5), 0 bad",
        "4 created + 1 blocked",
        "## Profile\n- Ben is allergic to walnuts.",
        "(a newer statement waits for review: Ana no longer drinks coffee every morning",
        "Ana is allergic to peanuts",
        "1. Ana moved to Lisbon in March 2026.",
        "Ana no longer drinks coffee every morning.\npreference, version 2",
        "Ben must not eat walnuts",
        "sound",
    ):
        assert told in done.stdout
    assert "taken for a WhatsApp chat" in done.stderr
    assert not (folder / "palimpsest-data").exists()
