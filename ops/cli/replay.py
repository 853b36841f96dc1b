"""replay: commands that carry out a replay in this process."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Final

import typer

from palimpsest.ops.operations.operation import Json
from palimpsest.ops.replay.requests import REPLAYS, Reextract, ReplayRequest
from palimpsest.ops.surfaces.command_line import as_function
from palimpsest.ops.terminal.common import Cli, command, warn

LIVE: Final = ("log.", "kafka.", "data_dir")
"""The settings of the live log."""


def register(group: typer.Typer) -> None:
    for name, kind in REPLAYS.items():
        command(group, name)(as_function(kind, execute))


def execute(cli: Cli, request: ReplayRequest) -> Json:
    """Carries out a replay with its progress on a terminal. After Ctrl-C or SIGTERM, one that
    `stops` finishes what is under way; a second signal ends it at once."""
    import asyncio

    from palimpsest.ops.replay.jobs import run, stopping_on
    from palimpsest.ops.terminal.progress import replay_progress

    def asked(again: bool) -> None:
        if again:
            raise KeyboardInterrupt
        warn("stopping: what is under way is finished first")

    if isinstance(request, Reextract):
        # Other settings than those of the log are those of the branch.
        of_log = tuple(flag for flag in cli.overrides if flag.strip().startswith(LIVE))
        others = tuple(flag for flag in cli.overrides if flag not in of_log)
        cli, request = replace(cli, overrides=of_log), replace(request, overrides=others)
    signals = (signal.SIGINT, signal.SIGTERM) if request.stops else ()
    with stopping_on(*signals, asked=asked) as stopping, replay_progress() as report:
        answer: Json = asyncio.run(run(cli.settings, request, report, stopping))
    for note in answer.get("notes", ()):
        warn(note)
    return answer
