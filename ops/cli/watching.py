"""Progress of a run on a terminal: one line a stage, on stderr."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from ops.bootstrap import AnyApplication

INTERVAL_SECONDS = 0.25


@contextlib.contextmanager
def watched(app: AnyApplication) -> Iterator[None]:
    """Show what the stages do until the context is left."""
    from rich.console import Console
    from rich.live import Live

    done = threading.Event()
    with Live(
        progress_table(app), console=Console(stderr=True), transient=True, auto_refresh=False
    ) as live:

        def show() -> None:
            while not done.wait(INTERVAL_SECONDS):
                with contextlib.suppress(Exception):  # the display may never end the work
                    live.update(progress_table(app), refresh=True)

        watcher = threading.Thread(target=show, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def progress_table(app: AnyApplication) -> Table:
    """Records done and left by stage, and what is being waited for."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for runner in app.runners:
        left = _left(app, runner.stage.name, runner.partition)
        done = runner.counts.records + runner.counts.skipped
        name = runner.stage.name + (f"[{runner.partition}]" if len(app.shards) > 1 else "")
        bar = ProgressBar(total=max(done + left, 1), completed=done, width=24)
        table.add_row(name, bar, f"{done} done", f"{left} left", f"{runner.counts.dead} dead")
    for name, outage in tuple(app.models.outages.items()):
        table.add_row(f"waiting for {name}", "", f"try {outage.tries}", outage.reason[:60], "")
    return table


def _left(app: AnyApplication, stage: str, partition: int) -> int:
    left = 0
    runner = next(r for r in app.runners if r.stage.name == stage and r.partition == partition)
    for topic in runner.stage.reads:
        position = (
            app.log.position(stage, topic.name, partition)
            if runner.store is None
            else app.shards[partition].cursor_of(stage, topic.name)
        )
        left += max(0, app.log.end_offset(topic.name, partition) - position)
    return left
