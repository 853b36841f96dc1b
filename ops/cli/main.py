"""The program `palimpsest`: its commands, by group. Each group is a module beside this one."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Annotated, Any

# One thread a product: on few cores a second one costs more than it helps, and readers beside a
# writer slow each other down. Set before numpy reads it; a value that is set already stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
from typer.core import TyperGroup

from palimpsest.ops.cli import (
    agents,
    bench,
    changing,
    dead_letters,
    demo,
    documents,
    erasing,
    forgetting,
    gateway,
    memories,
    overviews,
    privacy,
    proposals,
    publishing,
    replay,
    requests,
    running,
    scopes,
    serving,
    sessions,
    setup,
    snapshots,
    sql,
    topics,
    transfer,
)
from palimpsest.ops.cli.common import print_json


class Program(TyperGroup):
    """All commands. With --json, wrong use is reported as JSON, too."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            # By its form: where the class lies depends on typer's version.
            told = getattr(error, "format_message", None)
            if told is not None and "--json" in sys.argv:
                print_json({"error": told()})
            raise


app = typer.Typer(
    name="palimpsest",
    cls=Program,
    help="Long-term memory for AI agents: turns in, memories out, every decision explained."
    "\n\nStart with: palimpsest demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

GROUPS = (
    demo,
    publishing,
    running,
    serving,
    memories,
    overviews,
    requests,
    scopes,
    sessions,
    privacy,
    sql,
    snapshots,
    replay,
    transfer,
    replay,
    changing,
    erasing,
    forgetting,
    documents,
    dead_letters,
    proposals,
    setup,
    topics,
    gateway,
    agents,
    replay,
    bench,
)

for group in GROUPS:
    group.register(app)


def _version(asked: bool) -> None:
    if asked:
        from palimpsest.ops.distribution import program_version

        typer.echo(f"palimpsest {program_version()}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


GARBAGE_AFTER = (100_000, 20, 50)
"""Objects made before Python looks for cycles, and how many such looks before a wider one. The
usual 700 make it go through all resident indexes again and again, a fifth of a worker's time;
what stages leave behind is freed without it."""


def main() -> None:
    """Entry point. Exit code 0 ok, 1 failed, 2 wrong use."""
    gc.set_threshold(*GARBAGE_AFTER)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its number, and no traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    os.umask(0o077)  # what it writes is for this user alone
    app()


if __name__ == "__main__":
    main()
