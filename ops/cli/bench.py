"""bench: benchmarks on this machine."""

from __future__ import annotations

import importlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

OTHERS = ("retrieval_cli", "context_cli", "latency_cli", "peers_cli", "service_cli", "rebuild_cli")
"""Modules of palimpsest.ops.bench with a `register(group)` of their own."""


class Provider(StrEnum):
    instant = "instant"
    rules = "rules"


def register(app: typer.Typer) -> None:
    """Adds the group if the benchmarks exist: a checkout has them, an installed wheel does not."""
    benchmarks = Path(__file__).parents[1] / "bench"
    if not benchmarks.exists():
        return
    group = typer.Typer(
        help="Measure this machine, from a checkout of the project.", no_args_is_help=True
    )
    command(group)(throughput)
    for name in OTHERS:
        importlib.import_module(f"palimpsest.ops.bench.{name}").register(group)
    app.add_typer(group, name="bench")


def throughput(
    cli: Cli,
    turns: Annotated[int, typer.Option(min=1, help="Total number of turns.")] = 2000,
    scopes: Annotated[int, typer.Option(min=1, help="Number of scopes of the turns.")] = 20,
    words: Annotated[int, typer.Option(min=1, help="Words per turn.")] = 14,
    provider: Annotated[
        Provider, typer.Option(help="instant: a model server without a model, over HTTP.")
    ] = Provider.instant,
    stored: Annotated[
        int, typer.Option(min=0, help="Turns to store before the measurement starts.")
    ] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the memory here; by default a temporary folder.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Send turns through the whole pipeline with an instant model, and show the time by stage.

    Example: palimpsest bench throughput --turns 5000 --scopes 50
    """
    import asyncio

    from palimpsest.ops.bench.throughput import Load, measure

    load = Load(turns, scopes, words, provider.value, stored)
    result = asyncio.run(measure(load, cli.overrides, folder))
    if json:
        print_json(result)
        return
    _show(cast("dict[str, object]", result))


def _show(result: dict[str, object]) -> None:
    from palimpsest.ops.cli.tables import console, table

    out = console()
    stages = cast("dict[str, dict[str, object]]", result["stages"])
    steps = tuple(cast("dict[str, float]", next(iter(stages.values()))["seconds"]))
    out.print(
        table(
            ("stage", "records", "batches", *(f"{step} s" for step in steps)),
            [
                (
                    name,
                    stage["records"],
                    stage["batches"],
                    *cast("dict[str, float]", stage["seconds"]).values(),
                )
                for name, stage in stages.items()
            ],
        )
    )
    out.print(
        f"\n[bold]{result['turns_per_second']} turns/s[/]: {result['turns']} turns over"
        f" {result['scopes']} scopes, {result['stored_before']} stored before, in"
        f" {result['seconds']} s ({result['cpu_seconds']} s of processor),"
        f" {result['memories']} memories"
    )
    out.print(
        "[dim]The seconds of a stage are those of the clock, and stages run at the same time, so"
        " they add up to more than the whole.[/]"
    )
