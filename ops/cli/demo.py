"""demo: everything once, with nothing else installed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.terminal.common import AsJson, Cli, command, on_terminal, print_json

FOLDER = Path("palimpsest-demo")


def register(app: typer.Typer) -> None:
    command(app)(demo)


def demo(
    cli: Cli,
    json: AsJson = False,
    console: Annotated[
        bool, typer.Option("--open", help="Then serve it and open the console in a browser.")
    ] = False,
) -> None:
    """Run a conversation of two friends through the whole pipeline, then show what is remembered
    and why. Takes less than a minute; its folder is kept for exploration.

    Example: palimpsest demo
    """
    import asyncio

    from palimpsest.ops.demo.show import perform
    from palimpsest.ops.terminal.progress import watched

    names = {flag.partition("=")[0] for flag in cli.overrides}
    flag = "pipeline.allow_update_delete"
    extra = () if flag in names else (f"{flag}=true",)
    chosen = Cli(cli.data_dir or FOLDER, cli.config, (*extra, *cli.overrides))
    if not json:
        typer.echo("Maya and Tom talk twice, three weeks apart. Reading along …", err=True)
    result = asyncio.run(
        perform(chosen.settings, watched if on_terminal() else lambda _: contextlib.nullcontext())
    )
    if json:
        print_json(result)
    else:
        from palimpsest.ops.demo.show import print_demo

        print_demo(cast("dict[str, object]", result))
    if console:
        from palimpsest.ops.cli.serving import serve_console

        serve_console(chosen.settings)
