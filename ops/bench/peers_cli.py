"""bench peers: what other ways to search find, beside what this one does."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.bench.retrieval_cli import Data, HalfOption, by_name
from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

Json = dict[str, object]


def register(group: typer.Typer) -> None:
    command(group)(peers)


def peers(
    cli: Cli,
    data: Data,
    half: HalfOption = None,
    environments: Annotated[
        Path | None,
        typer.Option(
            help="Keep the peers' environments here, and use those that are there; else temporary."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Ask the same questions of the same turns here and elsewhere: BM25, LanceDB's own hybrid
    search and mem0's. Each is installed into an environment of its own, from the package index as
    pip is set, and gets vectors from the model in use here; none gets a language model.

    Example: palimpsest bench peers --data locomo --environments peers
    """
    import asyncio

    from palimpsest.ops.bench.peer_runs import measure_all
    from palimpsest.ops.bench.retrieval import DataSet

    results = []
    with contextlib.ExitStack() as undo:
        where = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        kept = (environments or where / "environments").resolve()
        for each in by_name(data):
            settings = Cli(where / "memory" / each.name, cli.config, cli.overrides).settings
            try:
                results.append(asyncio.run(measure_all(settings, DataSet(each, half), kept)))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--data") from error
    if json:
        print_json({"sets": [*results]})
    else:
        _show([cast("Json", result) for result in results])


def _show(results: Sequence[Json]) -> None:
    from palimpsest.ops.bench.found import KS
    from palimpsest.ops.cli.tables import console, table, text

    out = console()
    columns = ("", *(f"R@{k}" for k in KS), "p50 ms", "p95 ms", "turns/s", "bytes a turn")
    for result in results:
        found = cast("dict[str, Json]", result["rows"])
        rows: list[tuple[object, ...]] = []
        for name, means in found.items():
            if "failed" not in means:
                times = cast("Json", means["ms"])
                shares = (means[f"recall@{k}"] for k in KS)
                last = (means["turns_per_second"], means["bytes_a_turn"])
                rows.append((name, *shares, times["p50"], times["p95"], *last))
        out.print(table(columns, rows, f"\n{result['data']}"))
        for name, means in found.items():
            if "failed" in means:
                out.print(f"{name} could not be run: {text(means['failed'])}")
        out.print(
            f"\n{result['turns']} turns, {result['questions']} questions, all asked for the best"
            f" {max(KS)}; embedding {result['embedding']}, for the others over HTTP of this"
            " machine (some 2 ms a question). palimpsest's turns/s are those of its whole pipeline,"
            " facts and decisions included, and its bytes those of its stores, without its log; the"
            " others store turns alone."
        )
