"""The program as its users run it: a process of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from tests.warm_program import WarmProcess, run_warm

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)
SAID = (
    "I live in Lisbon with my sister Nora.",
    "I am allergic to walnuts.",
    "I drink coffee every morning.",
    "I don't drink coffee every morning anymore.",
    "I am allergic to walnuts.",
)
"""Some turns: a fact that is said twice, and one that is taken back."""


class Program:
    """Runs `palimpsest` with `folder` as its working folder, with the hashing embedder unless
    the environment says otherwise. `afresh`: by a process that imports it, as its users do, where
    else one that has it imported is forked, with other values of constants where some are `patched`
    (by their whole names)."""

    def __init__(self, folder: Path, afresh: bool = False, **environment: str) -> None:
        self.folder = folder
        self.afresh = afresh
        # A busy machine must not turn what is done into what is pending.
        self.patched = {"palimpsest.ops.terminal.common.WAIT_SECONDS": PATIENCE_S}
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PALIMPSEST_", "COLUMNS"))},
            "PYTHONPATH": str(ROOT),
            "PALIMPSEST_EMBEDDING__PROVIDER": "hashing",
            "NO_COLOR": "1",
            **environment,
        }

    @property
    def data(self) -> Path:
        return self.folder / "palimpsest-data"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "palimpsest.ops.cli.main", *arguments]

    def run(
        self, *arguments: str, stdin: bytes | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        given = {**self.environment, **environment}
        if not self.afresh:
            done = run_warm(arguments, self.folder, given, stdin, PATIENCE_S * 2, self.patched)
        else:
            done = subprocess.run(
                self.command(*arguments),
                cwd=self.folder,
                env=given,
                input=stdin,
                capture_output=True,
                timeout=PATIENCE_S * 2,
                check=False,
            )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def ok(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """What a command that must succeed prints as JSON."""
        return json.loads(self.ok(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1, stdin: bytes | None = None) -> str:
        """Standard error of a command that must fail, without a traceback."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stderr

    def turns(self, *contents: str, name: str = "turns.jsonl", **fields: str) -> str:
        """A file of turns with these contents."""
        lines = [
            json.dumps(
                {
                    "turn_id": f"t{number}",
                    "session_id": "s1",
                    "speaker": "Ana",
                    "content": content,
                    "occurred_at": (BEGIN + timedelta(seconds=number)).isoformat(),
                    **fields,
                }
            )
            for number, content in enumerate(contents)
        ]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def start(
        self, *arguments: str, output: IO[bytes] | None = None, changed: str | None = None
    ) -> WarmProcess:
        """A process that goes on; see `WarmProcess`. `changed`: what it does before its `main`."""
        code = changed and f"{changed}\nfrom palimpsest.ops.cli.main import main\nmain()"
        return WarmProcess(
            arguments, self.folder, self.environment, output=output, patched=self.patched, code=code
        )

    @contextlib.contextmanager
    def worker(self, *arguments: str) -> Iterator[WarmProcess]:
        """A worker that answers on its local interface; stopped by SIGTERM at the end."""
        process = self.start("run", *arguments)
        try:
            until(lambda: self.announced() == process.pid or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)

    def announced(self) -> int | None:
        """The process that announced itself last; a killed one is announced until another is."""
        announcement = self.data / "worker.json"
        return json.loads(announcement.read_text())["pid"] if announcement.exists() else None


def until(true: object) -> None:
    """Return once `true()` holds; fail after `PATIENCE_S`."""
    assert callable(true)
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def memories(program: Program, *arguments: str) -> list[dict[str, Any]]:
    answer = program.json("list", "--limit", "100", *arguments)
    return answer["memories"]


def one(program: Program, content: str) -> dict[str, Any]:
    return next(
        row
        for row in memories(program)
        if row["type"] != "episodic" and content in str(row["content"])
    )
