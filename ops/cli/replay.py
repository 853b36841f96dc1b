"""replay: what the log remembers, read again."""

from __future__ import annotations

import typer

from palimpsest.ops.cli import replay_branches


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Read the log again: into branches.", no_args_is_help=True)
    replay_branches.register(group)
    app.add_typer(group, name="replay")
