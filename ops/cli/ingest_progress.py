"""Progress of long commands on a terminal, on stderr: how much, how fast, how long still."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from palimpsest.ops.cli.common import on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def duration(seconds: float | None) -> str:
    """A duration for people, as 12 min; `?` where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class IngestProgress:
    """A bar over `total` bytes (None: not known), with turns, turns a second and the time left;
    nothing where nobody watches."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._turns = 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> IngestProgress:
        if on_terminal():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[turns]:,} turns"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=Console(stderr=True),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("publishing", total=self._total, turns=0, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, size: int, turns: int = 0) -> None:
        """`size` bytes were read, `turns` turns published."""
        self._turns += turns
        if self._progress is None or self._task is None:
            return
        elapsed = self._progress.tasks[0].elapsed or 0.0
        rate = f"{self._turns / elapsed:,.0f} a second" if elapsed > 0.5 else ""
        self._progress.update(self._task, advance=size, turns=self._turns, rate=rate)


class Stoppable:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt, but never inside `whole`: the block is
    finished first."""

    def __init__(self) -> None:
        self._inside = False
        self._wanted = False

    def __enter__(self) -> Stoppable:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._stop) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._inside:
            raise KeyboardInterrupt
        self._wanted = True

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._wanted:
            raise KeyboardInterrupt
