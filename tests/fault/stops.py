"""A run whose folder is copied at steps: each copy is what a process killed there leaves."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from palimpsest.stores.lock import StoreLock
from tests.harness import Pipeline

Stop = tuple[str, str, int]
"""A stage, a step, and how often the stage has done it by then."""


class _OneThread(asyncio.SelectorEventLoop):
    """Does blocking work itself, so that at a step no other thread is at the files."""

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run_in_one_thread(pipeline: Pipeline, *only: str) -> None:
    """Until everything is processed, by these stages only where any are named: by the same steps in
    the same order each time."""
    pipeline.shard.lock = StoreLock()
    pipeline.happened.clear()
    with asyncio.Runner(loop_factory=_OneThread) as runner:
        runner.run(pipeline.drain(*only))


def run_and_copy(
    pipeline: Pipeline, wanted: Callable[[Stop], bool], folder: Path, *only: str
) -> dict[Stop, Path]:
    """The same; a copy in `folder` of what lay there at each stop that is wanted."""
    copies: dict[Stop, Path] = {}

    def look(stage: str, step: str) -> None:
        stop = (stage, step, pipeline.happened[stage, step])
        if wanted(stop):
            copies[stop] = copied(pipeline.folder, folder / "-".join(map(str, stop)))

    pipeline.on_step = look
    run_in_one_thread(pipeline, *only)
    return copies


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder that is in use. Another process makes it: who closes a file lets go of all
    locks that the process has on it, and so of those of SQLite."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    return target


def distinct(copies: Iterable[Path]) -> list[Path]:
    """One of each that hold the same bytes: what follows from these needs to be tried once."""
    return [*{_content(folder): folder for folder in copies}.values()]


def _content(folder: Path) -> str:
    """A digest of all files but the index of SQLite's write-ahead log, which a process makes again
    when the one before was killed."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.endswith("-shm"):
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
