"""Progress of long commands on a terminal, on stderr: amount, rate and time left."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from palimpsest.ops.cli.common import on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID
    from rich.table import Table

    from palimpsest.ops.bootstrap import AnyApplication
    from palimpsest.ops.replay.progress import Progress, Report

INTERVAL_SECONDS = 0.25
WINDOW_SECONDS = 30.0
"""For measuring a rate: long enough for slow batches, short enough to follow changes."""


def duration(seconds: float | None) -> str:
    """A duration for people, as 12 min; `?` where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _bar(amount: str) -> Bar:
    """A bar of rich on stderr; `amount` formats the column before the rate."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(amount),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )


class IngestProgress:
    """A bar over `total` bytes (None: not known), with turns, turns a second and the time left;
    nothing if stderr is no terminal."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._turns = 0
        self._progress: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> IngestProgress:
        if on_terminal():
            self._progress = _bar("{task.fields[turns]:,} turns")
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
        self._stopping = False

    def __enter__(self) -> Stoppable:
        self._handling = contextlib.ExitStack()
        self._handling.enter_context(_handled(self._stop))
        return self

    def __exit__(self, *_: object) -> None:
        self._handling.close()

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
def watched(app: AnyApplication) -> Iterator[None]:
    """Shows the progress of the stages until the context exits."""
    from rich.console import Console
    from rich.live import Live

    done = threading.Event()
    rates = Rates()
    with Live(
        progress_table(app, rates), console=Console(stderr=True), transient=True, auto_refresh=False
    ) as live:

        def show() -> None:
            while not done.wait(INTERVAL_SECONDS):
                with contextlib.suppress(Exception):  # the display may never end the work
                    live.update(progress_table(app, rates), refresh=True)

        watcher = threading.Thread(target=show, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


class Rates:
    """The recent rate of each stage. A stage works in batches, so its rate is measured from the
    first sample within the window to the last one, and stays while the stage is idle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def rate(self, name: str, done: int) -> float | None:
        """Records per second of `name`, which has processed `done`; None while that is unknown."""
        samples = self._samples.setdefault(name, deque())
        now = self._clock()
        if not samples or samples[-1][1] != done:
            samples.append((now, done))
        while len(samples) > 2 and samples[1][0] < now - WINDOW_SECONDS:
            samples.popleft()
        seconds = now - samples[0][0]
        return (done - samples[0][1]) / seconds if len(samples) > 1 and seconds > 0 else None


def progress_table(app: AnyApplication, rates: Rates) -> Table:
    """Records done and left by stage, their rate, the time left, and the models waited for."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for runner in app.runners:
        left = _left(app, runner.stage.name, runner.partition)
        done = runner.counts.records + runner.counts.skipped
        name = runner.stage.name + (f"[{runner.partition}]" if len(app.shards) > 1 else "")
        rate = rates.rate(name, done)
        bar = ProgressBar(total=max(done + left, 1), completed=done, width=24)
        table.add_row(
            name,
            bar,
            f"{done} done",
            f"{left} left",
            f"{rate:,.0f} a second" if rate else "",
            f"{duration(left / rate)} to go" if rate and left else "",
            f"{runner.counts.dead} dead" if runner.counts.dead else "",
        )
    for name, outage in tuple(app.models.outages.items()):
        table.add_row(f"waiting for {name}", "", f"try {outage.tries}", outage.reason[:60])
    return table


def _left(app: AnyApplication, stage: str, partition: int) -> int:
    left = 0
    runner = next(r for r in app.runners if r.stage.name == stage and r.partition == partition)
    for topic in runner.stage.reads:
        position = (
            app.shards[partition].cursor_of(stage, topic.name)
            if runner.stage.stateful
            else app.log.position(stage, topic.name, partition)
        )
        left += max(0, app.log.end_offset(topic.name, partition) - position)
    return left


@contextlib.contextmanager
def replaying() -> Iterator[tuple[Report, Callable[[], bool]]]:
    """Yields the progress display, and a function that returns whether to stop: after Ctrl-C or
    SIGTERM. A second one ends the process at once."""
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    with _handled(stop), replay_progress() as report:
        yield report, lambda: bool(received)


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM until the context exits."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def replay_progress() -> Iterator[Report]:
    """Returns the progress display if stderr is a terminal."""
    if not on_terminal():
        from palimpsest.ops.replay.progress import unreported

        yield unreported
        return
    with _bar("{task.fields[done]}") as bar:
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
