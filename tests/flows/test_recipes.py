"""What the page of recipes shows works as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.program import PATIENCE_S, ROOT, Program

PAGE = (ROOT / "ops" / "docs" / "recipes.md").read_text(encoding="utf-8")
HOOKS = ROOT / "ops" / "examples" / "coding_agent_hooks.py"
INSTALLING = "pip install palimpsest\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def python(folder: Path, program: str, given: str | None = None, **environment: str) -> str:
    """What a program prints that must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**Program(folder).environment, **environment},
        input=given,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_programs_of_the_page_run_one_after_another(tmp_path: Path) -> None:
    told = []
    for program in blocks("python"):
        if "langgraph" in program:
            pytest.importorskip("langgraph", reason="pip install --group frameworks")
        told.append(python(tmp_path, program))
    first, loop, graph, notebook = told
    assert "I moved to Lisbon in March." in first or "Ana moved to Lisbon in March." in first
    assert "## Facts" in first
    assert "['created', 'updated']" in first
    assert "Nora" in loop
    assert graph == "['I live in Lisbon.']\n"
    assert "created" in notebook


def test_every_block_of_commands_is_run_by_a_test() -> None:
    installing, hooks = blocks("sh")
    assert installing == INSTALLING
    assert hooks.count("coding_agent_hooks.py") == 2
    assert len(blocks("json")) == 1


async def test_the_settings_to_paste_start_a_server(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    from mcp import Client, StdioServerParameters

    server = json.loads(blocks("json")[0])["mcpServers"]["memory"]
    assert server["command"] == "palimpsest"
    folder = str(tmp_path / "memory")
    arguments = [folder if given.startswith("/") else given for given in server["args"]]
    command, *first = Program(tmp_path).command(*arguments)
    starting = StdioServerParameters(
        command=command, args=first, cwd=tmp_path, env=Program(tmp_path).environment
    )
    async with Client(starting) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
    named = re.search(r"The tools: (.*?)\. An agent", PAGE)
    assert named is not None
    assert listed == set(re.findall(r"`([a-z_]+)`", named[1]))


def test_the_methods_that_the_page_names_are_those_of_the_library() -> None:
    from palimpsest import Memory

    named = re.search(r"Methods: (.*?);", PAGE)
    assert named is not None
    assert set(re.findall(r"`([a-z_]+)`", named[1])) == {
        name for name in vars(Memory) if not name.startswith("_") and name != "scope"
    }


def test_the_hooks_of_a_coding_agent_remember(tmp_path: Path) -> None:
    program = Program(tmp_path)
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, module in (("palimpsest", " -m palimpsest.ops.cli.main"), ("python", "")):
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        (shims / name).chmod(0o755)
    shutil.copy(HOOKS, tmp_path)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", blocks("sh")[1]],
        cwd=tmp_path,
        env={**program.environment, "PATH": f"{shims}:{program.environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    remembered = done.stdout[done.stdout.index("What is remembered of this project") :]
    assert "make ship" in remembered
    assert "How do we deploy?" not in remembered  # the question itself is nothing known


def test_an_answer_is_published_once(tmp_path: Path) -> None:
    said = [
        {"type": "user", "message": {"content": "How?"}},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Use make ship."}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}},
    ]
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    event = {
        "hook_event_name": "Stop",
        "session_id": "s1",
        "cwd": "/code/shop",
        "transcript_path": str(transcript),
    }
    for _ in range(2):
        python(tmp_path, HOOKS.read_text(encoding="utf-8"), json.dumps(event))
    program = Program(tmp_path)
    program.ok("run", "--once")
    turns = program.json("list", "--scope", "shop", "--type", "episodic")["memories"]
    assert [(turn["content"], turn["who"]) for turn in turns] == [("Use make ship.", "assistant")]
