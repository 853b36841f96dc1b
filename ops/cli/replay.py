"""replay: the group of commands that read the log again."""

from __future__ import annotations

import typer

from palimpsest.ops.cli.replay_promotion import register as register_promotion


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Read the log again, and compare.", no_args_is_help=True)
    register_promotion(group)
    app.add_typer(group, name="replay")
