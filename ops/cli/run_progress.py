"""Progress of a run on a terminal: one line per stage, on stderr."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from palimpsest.ops.cli.ingest_progress import duration

if TYPE_CHECKING:
    from rich.table import Table

    from palimpsest.ops.bootstrap import AnyApplication

INTERVAL_SECONDS = 0.25
WINDOW_SECONDS = 30.0
"""Over which a pace is measured: long enough for slow batches, short enough to follow changes."""


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
    """How fast each stage worked lately. A stage works in batches, so its rate is measured from
    the first sample within the window to the last one, and stays while the stage rests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def rate(self, name: str, done: int) -> float | None:
        """Records a second of `name`, which has done `done`; None as long as that is unknown."""
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
