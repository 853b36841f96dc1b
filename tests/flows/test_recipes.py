"""What the page of recipes shows works as it stands there."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from palimpsest import Client, Memory
from tests.flows.program import PATIENCE_S, ROOT, Program, until
from tests.flows.test_http_program import serving
from tests.warm_program import WarmProcess, warm_command

DOCS = ROOT / "ops" / "docs"
PAGE = (DOCS / "recipes.md").read_text(encoding="utf-8")
HOOKS = ROOT / "ops" / "examples" / "coding_agent_hooks.py"
INSTALLING = "pip install .   # in the folder of the checkout\n"
SERVICE = "http://127.0.0.1:7245"
EACH_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Example:
    """A block of a page, and what stands below it as its output."""

    code: str
    printed: str


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def examples(language: str, page: str = PAGE) -> list[Example]:
    """The blocks that show what they print, or print nothing."""
    found = re.findall(rf"```{language}\n(.*?)```\n(?:```text\n(.*?)```\n)?", page, re.DOTALL)
    return [Example(code, printed) for code, printed in found]


def as_a_reader(folder: Path) -> Program:
    """The program with its own embedding model: what the page shows was found by that."""
    program = Program(folder)
    del program.environment["PALIMPSEST_EMBEDDING__PROVIDER"]
    return program


def with_commands(folder: Path) -> dict[str, str]:
    """An environment in which `palimpsest` and `python3` are those of this one, and nothing is set
    that a reader would not have set."""
    environment = as_a_reader(folder).environment
    shims = folder / "bin"
    shims.mkdir(exist_ok=True)
    warm_command(shims / "palimpsest")
    for name in ("python", "python3"):
        (shims / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (shims / name).chmod(0o755)
    return {**environment, "PATH": f"{shims}:{environment['PATH']}"}


def printed(folder: Path, *command: str) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=with_commands(folder),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def python(folder: Path, program: str, given: str | None = None) -> str:
    """What a program prints that must succeed, in a process that has the library imported."""
    environment = with_commands(folder)
    process = WarmProcess((), folder, environment, (given or "").encode(), code=program)
    out, err = (each.decode() for each in process.communicate(4 * PATIENCE_S))
    assert process.wait() == 0, err + out
    return out


def told(text: str) -> str:
    """An output with each id by its place."""
    ids = {each: f"id-{number}" for number, each in enumerate(dict.fromkeys(EACH_ID.findall(text)))}
    return EACH_ID.sub(lambda found: ids[found[0]], text).strip()


@contextlib.contextmanager
def a_service(folder: Path) -> Iterator[str]:
    (folder / "served").mkdir()
    # A busy machine must not turn what is done into what is pending, nor cut short a search.
    patient = ("--set", "http.wait_seconds=60", "--set", "recall.graph_timeout_ms=60000")
    with serving(as_a_reader(folder / "served"), *patient) as (_, address):
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
            until(lambda: client.get(f"{address}/ready").status_code == 200)
        yield address


def test_the_programs_of_the_page_run_one_after_another(tmp_path: Path) -> None:
    shown = examples("python") + examples("python", (DOCS / "client.md").read_text("utf-8"))
    assert len(shown) == 10
    with a_service(tmp_path) as address:
        for example in shown:
            if "langgraph" in example.code:
                pytest.importorskip("langgraph", reason="pip install --group frameworks")
            said = python(tmp_path, example.code.replace(SERVICE, address))
            assert told(said) == told(example.printed), example.code


def test_the_page_of_the_client_tells_its_arguments() -> None:
    page = (DOCS / "client.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    shown = [(name, default) for name, default in shown if not name.endswith("Error")]
    parameters = inspect.signature(Client).parameters
    assert [name for name, _ in shown] == [*parameters]
    for name, default in shown:
        value = parameters[name].default
        said = str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
        assert name == "token" or default.strip("`") == said


def test_curl_gets_what_the_page_shows(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    shown = [each for each in examples("sh") if each.code.count("localhost:7245")]
    assert len(shown) == 6
    with a_service(tmp_path) as address:
        for example in shown:
            code = example.code.replace("localhost:7245", address.removeprefix("http://"))
            assert told(printed(tmp_path, "bash", "-eu", "-c", code)) == told(example.printed)


def test_every_block_of_commands_is_run_by_a_test() -> None:
    installing, *curl, hooks = blocks("sh")
    assert installing == INSTALLING
    assert all("curl" in each for each in curl)
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
    named = re.search(r"Methods: (.*?);", PAGE)
    assert named is not None
    assert set(re.findall(r"`([a-z_]+)`", named[1])) == {
        name for name, _ in inspect.getmembers(Memory, inspect.isfunction) if name[0] != "_"
    }


def test_the_hooks_of_a_coding_agent_remember(tmp_path: Path) -> None:
    shutil.copy(HOOKS, tmp_path)
    said = printed(tmp_path, "bash", "-euo", "pipefail", "-c", blocks("sh")[-1])
    remembered = said[said.index("What is remembered of this project") :]
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
    turns = program.json("list", "--scope", "shop", "--types", "episodic")["memories"]
    assert [(turn["content"], turn["who"]) for turn in turns] == [("Use make ship.", "assistant")]
