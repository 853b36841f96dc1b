"""Progress of a replay on a terminal, on stderr: amount, rate and time left."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from palimpsest.ops.cli.common import on_terminal

if TYPE_CHECKING:
    from palimpsest.ops.replay.progress import Progress, Report


@contextlib.contextmanager
def replaying() -> Iterator[tuple[Report, Callable[[], bool]]]:
    """What shows progress, and what tells whether to stop: Ctrl-C and
    SIGTERM ask for it, and a second time they end the process at once."""
    wanted: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if wanted:
            raise KeyboardInterrupt
        wanted.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        with shown() as report:
            yield report, lambda: bool(wanted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def shown() -> Iterator[Report]:
    """Returns the progress display if stderr is a terminal."""
    if not on_terminal():
        from palimpsest.ops.replay.progress import unreported

        yield unreported
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None, done="", rate="")
        began: dict[str, int] = {}

        def report(progress: Progress) -> None:
            if progress.phase not in began:
                # What an earlier run has done is no pace of this one.
                began.clear()
                began[progress.phase] = progress.done
                bar.reset(task, total=progress.total, completed=progress.done)
            elapsed = bar.tasks[0].elapsed or 0.0
            worked = progress.done - began[progress.phase]
            bar.update(
                task,
                description=progress.phase,
                total=progress.total,
                completed=progress.done,
                done=f"{progress.done:,} of {progress.total:,} {progress.unit}",
                rate=f"{worked / elapsed:,.0f} a second" if elapsed > 0.5 and worked else "",
            )

        yield report
