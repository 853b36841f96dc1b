"""bench retrieval: how well recall finds."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.bench.halves import Half
from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

Json = dict[str, object]
Data = Annotated[
    list[Path],
    typer.Option(help="Folder of conversations in LoCoMo's layout; may be given several times."),
]
HalfOption = Annotated[
    Half | None,
    typer.Option(help="Ask the first three fifths of the conversations alone, or the others."),
]


class Embedding(StrEnum):
    local = "local"
    hashing = "hashing"


def register(group: typer.Typer) -> None:
    command(group)(retrieval)


def retrieval(
    cli: Cli,
    data: Data,
    half: HalfOption = None,
    embedding: Annotated[
        Embedding | None, typer.Option(help="Who makes vectors; else as set.")
    ] = None,
    captions: Annotated[
        bool, typer.Option(help="Append what is said of an image to its turn.")
    ] = True,
    ablation: Annotated[bool, typer.Option(help="Also with each part of the ranking off.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the memories here, and use what is there; else a temporary one."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG (needs the extra bench).")] = None,
    json: AsJson = False,
) -> None:
    """Which share of the turns that answer a question is found, by method, category and half of the
    conversations, by the role of the speaker and the data's own type of question; how long a
    question takes, its embedding included; and what a turn takes on disk.
    Each folder is measured apart.

    Example: palimpsest bench retrieval --data locomo --data realtalk --ablation --plot recall.png
    """
    import asyncio

    from palimpsest.ops.bench.retrieval import DataSet, measure
    from palimpsest.ops.bench.variants import ABLATIONS, METHODS

    overrides = list(cli.overrides)
    if embedding is not None:
        overrides.append(f"embedding.provider={embedding.value}")
    variants = METHODS + (ABLATIONS if ablation else ())
    results = []
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        for each in by_name(data):
            settings = Cli(where / each.name, cli.config, tuple(overrides)).settings
            try:
                chosen = DataSet(each, half, captions)
                results.append(asyncio.run(measure(settings, chosen, variants)))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--data") from error
    if plot is not None:
        from palimpsest.ops.bench.plot import write_plot

        write_plot(results, plot)
    if json:
        print_json({"sets": [*results]})
    else:
        _show([cast("Json", result) for result in results])


def by_name(data: Sequence[Path]) -> list[Path]:
    """The folders, which are told apart by their names. Raises typer.BadParameter for two of one
    name."""
    found = {path.resolve().name: path.resolve() for path in data}
    if len(found) < len(data):
        raise typer.BadParameter("two folders have the same name", param_hint="--data")
    return list(found.values())


def _show(results: Sequence[Json]) -> None:
    from palimpsest.ops.bench.found import KS
    from palimpsest.ops.cli.tables import console, table

    out = console()
    columns = (
        *("method", "questions of", "number", *(f"R@{k}" for k in KS), "hit@10", "MRR"),
        *("p50 ms", "p95 ms", "bytes a turn"),
    )
    for result in results:
        settings = cast("Json", result["settings"])
        out.print(table(columns, _rows(result), f"\n{settings['data']}"))
        took = cast("Json", result["query_embedding_ms"])
        disk = cast("Json", result["bytes_a_turn"])
        out.print(
            f"\nconversations {', '.join(cast('list[str]', settings['conversations']))}; embedding"
            f" {settings['embedding']}, of a question p50 {took['p50']} and p95 {took['p95']} ms,"
            f" part of each method's time; extraction {settings['extraction']}, captions"
            f" {'on' if settings['captions'] else 'off'}; {result['turns_per_second']} turns/s"
            f" ingested, {result['turns_per_processor_second']} a second of processor time,"
            f" memories: {result['memories']}; on disk {disk['log']} bytes of log,"
            f" {disk['duckdb']} of DuckDB and {disk['lancedb']} of LanceDB"
        )


def _rows(result: Json) -> list[tuple[object, ...]]:
    from palimpsest.ops.bench.found import KS

    rows: list[tuple[object, ...]] = []
    bytes_a_turn = cast("Json", result["bytes_a_turn"])["each"]
    for name, found in cast("dict[str, Json]", result["methods"]).items():
        groups = {"all": found}
        groups |= cast("dict[str, Json]", found["by_category"])
        groups |= {
            f"{half} half": means
            for half, means in cast("dict[str, Json]", found["by_half"]).items()
        }
        groups |= {
            f"said by {role}": means
            for role, means in cast("dict[str, Json]", found["by_role"]).items()
        }
        groups |= cast("dict[str, Json]", found["by_type"])
        for group, means in groups.items():
            if not means["questions"]:
                continue
            shares = (means.get(f"recall@{k}") for k in KS)
            row = (name, group, means["questions"], *shares, means.get("hit@10"), means.get("mrr"))
            if group == "all":
                times = cast("Json", means["ms"])
                row += (times["p50"], times["p95"], bytes_a_turn)
            rows.append(row if group == "all" else ("", *row[1:], "", "", ""))
    return rows
