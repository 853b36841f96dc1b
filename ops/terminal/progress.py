"""Progress of long commands on a terminal, on stderr: amount, rate and time left."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

from palimpsest.ops.terminal.common import on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from palimpsest.ops.maintenance.process import Process
    from palimpsest.ops.replay.requests import ReplayProgress, Report

INTERVAL_SECONDS: Final = 0.25
WINDOW_SECONDS: Final = 30.0
"""For measuring a rate: long enough for slow batches, short enough to follow changes."""


def duration(seconds: float) -> str:
    """A duration for people, as 12 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _bar(amount: str) -> Bar:
    """A bar of rich on stderr for each task; `amount` formats the column before the rate, which is
    the recent one, or the task's field `rate`."""
    from rich import progress
    from rich.console import Console

    class RateColumn(progress.ProgressColumn):
        def render(self, task: progress.Task) -> str:
            rate = task.fields.get("rate", task.speed)
            return f"{rate:,.0f} a second" if rate else ""

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TextColumn(amount, markup=False),
        RateColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=WINDOW_SECONDS,
    )


@contextlib.contextmanager
def ingesting(total: int | None) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with the bytes that were read and the turns that were published:
    they are shown on a terminal, over `total` bytes (None: not known)."""
    if not on_terminal():
        yield lambda size, turns: None
        return
    with _bar("{task.fields[turns]:,} turns") as bar:
        task = bar.add_task("publishing", total=total, turns=0, rate=None)

        def advance(size: int, turns: int) -> None:
            published = bar.tasks[0].fields["turns"] + turns
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = published / elapsed if elapsed > 0.5 else None
            bar.update(task, advance=size, turns=published, rate=rate)

        yield advance


class Stoppable:
    """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt, but never inside `whole`: the block is
    finished first."""

    def __init__(self) -> None:
        self._inside = False
        self._stopping = False

    def __enter__(self) -> Stoppable:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._stop) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._before.items():
            signal.signal(number, previous)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if not self._inside:
            raise KeyboardInterrupt
        self._stopping = True

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._stopping:
            raise KeyboardInterrupt


@contextlib.contextmanager
def watched(app: Process) -> Iterator[None]:
    """Shows the progress of the stages, and the models waited for, until the context exits."""
    done = threading.Event()
    with _bar("{task.fields[amount]}") as bar:
        tasks: dict[str, TaskID] = {}

        def show() -> None:
            while not done.wait(INTERVAL_SECONDS):
                with contextlib.suppress(Exception):  # the display may never end the work
                    _show(app, bar, tasks)

        watcher = threading.Thread(target=show, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _show(app: Process, bar: Bar, tasks: dict[str, TaskID]) -> None:
    from palimpsest.ops.reading.stage_lags import stage_lags

    def update(name: str, completed: int, total: int | None, amount: str) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total, completed=completed, amount=amount)
        bar.update(tasks[name], completed=completed, total=total, amount=amount)

    lags = {
        (each.stage, each.partition): each.lag
        for each in stage_lags(app.settings, app.shards, app.log)
    }
    for runner in app.runners:
        name, partition, counts = runner.stage.name, runner.partition, runner.counts
        completed, left = counts.records + counts.skipped, lags.get((name, partition), 0)
        dead = f", {counts.dead:,} dead" if counts.dead else ""
        amount = f"{completed:,} done, {left:,} left{dead}"
        shown = f"{name}[{partition}]" if len(app.shards) > 1 else name
        update(shown, completed, completed + left, amount)
    outages = {f"waiting for {name}": outage for name, outage in app.models.outages.items()}
    for name, outage in outages.items():
        update(name, 0, None, f"try {outage.tries}: {outage.reason[:60]}")
    for name in [*tasks]:
        if name.startswith("waiting for ") and name not in outages:
            bar.remove_task(tasks.pop(name))


@contextlib.contextmanager
def replay_progress() -> Iterator[Report]:
    """Returns the progress display if stderr is a terminal."""
    if not on_terminal():
        from palimpsest.ops.replay.requests import unreported

        yield unreported
        return
    with _bar("{task.fields[amount]}") as bar:
        task = bar.add_task("", total=None, amount="")

        def report(progress: ReplayProgress) -> None:
            if progress.phase != bar.tasks[0].description:
                # What an earlier run has done is no pace of this one.
                bar.reset(task, description=progress.phase, completed=progress.done)
            amount = f"{progress.done:,} of {progress.total:,} {progress.unit}"
            bar.update(task, total=progress.total, completed=progress.done, amount=amount)

        yield report
