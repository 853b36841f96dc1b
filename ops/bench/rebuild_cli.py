"""bench rebuild: how fast stores are made anew from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json


def register(group: typer.Typer) -> None:
    command(group)(rebuild)


def rebuild(
    cli: Cli,
    turns: Annotated[int, typer.Option(min=1, help="Turns in all.")] = 2000,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes that they are spread over.")] = 20,
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions; each is folded by a process of its own.")
    ] = 2,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time; else one a core.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the recording here, and take the one that is there."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Record turns without any model's time, fold the log into new stores, and tell how long.

    Example: palimpsest bench rebuild --turns 3000 --scopes 30
    """
    from palimpsest.ops.bench.rebuild import Recording, measure

    result = measure(Recording(turns, scopes, partitions, processes), cli.overrides, folder)
    if json:
        print_json(result)
        return
    _show(cast("dict[str, object]", result))


def _show(result: dict[str, object]) -> None:
    from palimpsest.ops.cli.tables import console, table

    out = console()
    stages = cast("dict[str, dict[str, object]]", result["stages"])
    out.print(
        table(
            ("stage", "records", "seconds"),
            [(name, stage["records"], stage["seconds"]) for name, stage in stages.items()],
        )
    )
    same = "the same as live" if result["same_state"] else "[red]not the same as live[/]"
    out.print(
        f"\n[bold]{result['turns_per_second']} turns/s[/]: {result['turns']} turns"
        f" ({result['records_per_second']} records/s) over {result['partitions']} partitions in"
        f" {result['seconds']} s ({result['cpu_seconds']} s of processor)"
    )
    out.print(f"The largest process had {result['peak_mib']} MiB; what is stored is {same}.")
    out.print("[dim]The seconds of a stage are the sum over processes that run at a time.[/]")
