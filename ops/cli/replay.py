"""replay: the group of commands that read the log again."""

from __future__ import annotations

import typer

from palimpsest.ops.cli import replay_promotion


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Read the log again: compare, promote, roll back.", no_args_is_help=True
    )
    replay_promotion.register(group)
    app.add_typer(group, name="replay")
