"""What the README tells to type works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.program import ROOT, Program
from tests.warm_program import warm_command

README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALLING = ("make ", "source .venv/bin/activate")
"""Lines that made the environment in which the tests run."""


BLOCK = re.compile(
    r"(?P<why_not><!-- not run: [^>]+-->\n)?```sh\n(?P<typed>.*?)```(?:\n```\n(?P<shown>.*?)```)?",
    re.DOTALL,
)
LEFT_OUT = "…"
"""A line that stands for lines which are not shown."""
VARYING = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # ids of the reader's own commands
    r"|\b[0-9a-f]{8}\b(?=  )"
    r"|\b20\d\d-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?!Z)"  # when it was typed
)
DECIMAL = re.compile(r"\b0\.\d{3}\b")
BETWEEN = "=== what the next block prints ==="


def blocks() -> list[re.Match[str]]:
    """Every block of commands in order, with what it prints, but those that say why they are not
    run."""
    return [found for found in BLOCK.finditer(README) if not found["why_not"]]


def script() -> str:
    typed = f"echo '{BETWEEN}'\n".join(found["typed"] for found in blocks())
    return "\n".join(line for line in typed.splitlines() if not line.startswith(INSTALLING))


def as_shown(lines: str) -> list[str]:
    return [
        re.sub(r" +", " ", VARYING.sub("#", f"{line}  ")).strip() for line in lines.splitlines()
    ]


def is_shown(shown: str, printed: str) -> bool:
    """Whether a line is what the README shows, with scores that a processor's kind may change."""
    if DECIMAL.sub("", shown) != DECIMAL.sub("", printed):
        return False
    pairs = zip(DECIMAL.findall(shown), DECIMAL.findall(printed), strict=True)
    return all(abs(float(one) - float(other)) <= 0.02 for one, other in pairs)


def first_missing(shown: str, printed: str) -> str | None:
    """The first lines that the README shows and the program did not print, one after the other,
    behind what was shown before."""
    rest = as_shown(printed)
    for part in "\n".join(as_shown(shown)).split(LEFT_OUT):
        lines = part.strip("\n").splitlines()
        starts = range(len(rest) - len(lines) + 1)
        begin = next((at for at in starts if all(map(is_shown, lines, rest[at:]))), None)
        if begin is None:
            return part
        rest = rest[begin + len(lines) :]
    return None


def test_nothing_is_hidden_from_the_tests_but_what_needs_a_model() -> None:
    assert README.count("<!-- not run") == 1
    assert "```console" not in README  # a prompt before a command cannot be pasted


def test_the_way_to_a_context_of_your_own_chat_is_short() -> None:
    head = README[: README.index("## Use it from your agent")]
    lines = "".join(found["typed"] for found in BLOCK.finditer(head)).splitlines()
    typed = [line for line in lines if re.match(r"(make|source|palimpsest) ", line)]
    assert len(typed) == 5, typed


@pytest.mark.timeout(600)
def test_the_commands_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    """With the embedding model that comes with the program, as a reader has it."""
    program = Program(tmp_path)
    shims = tmp_path / "bin"
    shims.mkdir()
    warm_command(shims / "palimpsest")
    (shims / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (shims / "python").chmod(0o755)
    environment = {**program.environment, "PATH": f"{shims}:{program.environment['PATH']}"}
    environment.pop("PALIMPSEST_EMBEDDING__PROVIDER")
    folder = tmp_path / "reader"
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script()],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    every = zip(blocks(), done.stdout.split(f"{BETWEEN}\n"), strict=True)
    wrong = [
        f"{block['typed']}\nprinted\n{printed}\nwithout\n{missing}"
        for block, printed in every
        if (missing := first_missing(block["shown"] or "", printed)) is not None
    ]
    assert not wrong, "\n\n".join(wrong)
    assert not (folder / "palimpsest-data").exists()
