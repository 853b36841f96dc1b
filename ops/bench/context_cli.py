"""bench context: what of an answer stands in the block that a model reads."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.bench.retrieval_cli import Data, HalfOption, Json, by_name
from palimpsest.ops.cli.common import AsJson, Cli, command, print_json


def register(group: typer.Typer) -> None:
    command(group)(context)


def context(
    cli: Cli,
    data: Data,
    half: HalfOption = None,
    budget: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Tokens; may be given several times. Else 500 to 4,000."),
    ] = None,
    stale: Annotated[
        bool, typer.Option(help="Also play the conversations in which something stops being true.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the memories here, and use what is there; else a temporary one."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure which share of the evidence and of the answers' words stands in the block that
    `context` returns, by budget and category, beside a plain list of the turns that recall finds.

    Example: palimpsest bench context --data locomo --data realtalk --budget 500 --budget 1000
    """
    import asyncio

    from palimpsest.ops.bench.context import BUDGETS, measure_context
    from palimpsest.ops.bench.retrieval import DataSet

    results: list[Json] = []
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        for each in by_name(data):
            settings = Cli(where / each.name, cli.config, cli.overrides).settings
            try:
                chosen = DataSet(each, half)
                measured = asyncio.run(measure_context(settings, chosen, budget or BUDGETS))
                results.append(cast("Json", measured))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--data") from error
    told: Json = {"sets": results}
    if stale:
        from palimpsest.ops.bench.stale_blocks import measure_stale

        told["stale"] = measure_stale()
    if json:
        print_json(told)
    else:
        _show(results, told.get("stale"))


def _show(results: list[Json], stale: object) -> None:
    from palimpsest.ops.cli.tables import console, table

    out = console()
    columns = ("budget", "text", "questions of", "number", "evidence", "answer", "filler", "tokens")
    for result in results:
        rows = []
        for budget, texts in cast("dict[str, dict[str, Json]]", result["budgets"]).items():
            for name, found in texts.items():
                groups = {"all": found} | cast("dict[str, Json]", found["by_category"])
                for group, means in groups.items():
                    if means["questions"]:
                        shown = (means[key] for key in ("questions", *columns[4:]))
                        rows.append((budget, name, group, *shown))
        out.print(table(columns, rows, f"\n{result['data']}"))
    if stale is not None:
        out.print(f"\nstale statements: {stale}")
