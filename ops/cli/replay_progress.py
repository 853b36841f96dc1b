"""Progress of a replay on a terminal, on stderr: how much, how fast, how long still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from palimpsest.ops.cli.common import on_terminal
from palimpsest.ops.replay.progress import Progress, Report, unreported


@contextlib.contextmanager
def shown() -> Iterator[Report]:
    """What to report to; nothing is shown where nobody watches."""
    if not on_terminal():
        yield unreported
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(step: Progress) -> None:
            if step.phase not in tasks:
                tasks[step.phase] = bars.add_task(step.phase, unit=step.unit, rate="")
            task = bars.tasks[bars.task_ids.index(tasks[step.phase])]
            rate = f"{task.speed:,.0f} a second" if task.speed else ""
            bars.update(task.id, completed=step.done, total=step.total, unit=step.unit, rate=rate)

        yield report
