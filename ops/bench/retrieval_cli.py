"""bench retrieval, bench latency: how well recall finds, and how fast."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

Json = dict[str, object]


class Embedding(StrEnum):
    local = "local"
    hashing = "hashing"


def register(group: typer.Typer) -> None:
    command(group)(retrieval)
    command(group)(latency)


def retrieval(
    cli: Cli,
    data: Annotated[Path, typer.Option(help="Folder of conversations in LoCoMo's layout.")],
    embedding: Annotated[
        Embedding | None, typer.Option(help="Who makes vectors; else as set.")
    ] = None,
    captions: Annotated[
        bool, typer.Option(help="Append what is said of an image to its turn.")
    ] = True,
    ablation: Annotated[bool, typer.Option(help="Also with each part of the ranking off.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the memory here, and use what is there; else a temporary folder."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG (needs the extra bench).")] = None,
    json: AsJson = False,
) -> None:
    """Which share of the turns that answer a question is found, by method and category.

    Example: palimpsest bench retrieval --data locomo --embedding local --plot recall.png
    """
    from palimpsest.ops.bench.retrieval import ABLATIONS, METHODS, measure

    overrides = list(cli.overrides)
    if embedding is not None:
        overrides.append(f"embedding.provider={embedding.value}")
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        settings = Cli(where, cli.config, tuple(overrides)).settings
        variants = METHODS + (ABLATIONS if ablation else ())
        try:
            result = asyncio.run(measure(settings, data, captions, variants))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--data") from error
    if plot is not None:
        from palimpsest.ops.bench.plot import write_plot

        write_plot(result, plot)
    if json:
        print_json(result)
    else:
        _show_retrieval(cast("Json", result))


def latency(
    cli: Cli,
    memories: Annotated[
        list[int] | None, typer.Option(help="Memories in all; may be given several times.")
    ] = None,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes that they are spread over.")] = 1,
    writes: Annotated[float, typer.Option(help="Memories written a second meanwhile.")] = 50.0,
    seconds: Annotated[float, typer.Option(help="How long the readers read.")] = 5.0,
    json: AsJson = False,
) -> None:
    """How long recall and candidate search take, alone and by several readers beside a writer.

    Example: palimpsest bench latency --memories 1000 --memories 100000
    """
    from palimpsest.ops.bench.latency import Load, measure

    sizes = memories or [1_000, 10_000, 100_000]
    results = [measure(Load(size, scopes, writes, seconds)) for size in sizes]
    if json:
        print_json({"latency": [*results]})
    else:
        _show_latency([cast("Json", result) for result in results])


def _show_retrieval(result: Json) -> None:
    from palimpsest.ops.cli.tables import console, table

    rows: list[tuple[object, ...]] = []
    for name, found in cast("dict[str, Json]", result["methods"]).items():
        by_category = cast("dict[str, Json]", found["by_category"])
        means = (found.get(key) for key in ("recall@1", "recall@5", "recall@10", "recall@50"))
        each = (category.get("recall@10") for category in by_category.values())
        rows.append((name, *means, found.get("hit@10"), found.get("mrr"), *each))
    categories = tuple(f"{name} R@10" for name in ("multi-hop", "temporal", "open", "single-hop"))
    out = console()
    out.print(
        table(
            (
                "method",
                "R@1",
                "R@5",
                "R@10",
                "R@50",
                "hit@10",
                "MRR",
                *tuple(f"R@10 {name}" for name in categories),
            ),
            rows,
        )
    )
    settings = cast("Json", result["settings"])
    out.print(
        f"\n{result['questions']} questions; embedding {settings['embedding']}, extraction"
        f" {settings['extraction']}, captions {'on' if settings['captions'] else 'off'};"
        f" memories: {result['memories']}"
    )


def _show_latency(results: list[Json]) -> None:
    from palimpsest.ops.cli.tables import console, table

    rows: list[tuple[object, ...]] = []
    for result in results:
        size = result["memories"]
        shown = [("first load of a scope", result["first_load_ms"])]
        shown += [("recall", result["recall_ms"]), ("by keywords", result["keyword_recall_ms"])]
        shown.append(("candidates of 20 facts", result["candidates_ms"]))
        readers = cast("dict[str, Json]", result["readers"])
        shown += [(f"recall, {count} readers + writer", r) for count, r in readers.items()]
        for name, times in shown:
            found = cast("Json", times)
            quantiles = (found["p50"], found["p95"], found["p99"])
            rows.append((size, name, *quantiles, found.get("queries_per_second")))
    out = console()
    out.print(table(("memories", "what", "p50 ms", "p95 ms", "p99 ms", "queries/s"), rows))
    for result in results:
        out.print(
            f"{result['memories']} memories, {result['scopes']} scopes: index"
            f" {result['index_mib']} MiB, resident {result['resident_mib']} MiB (of it"
            f" {result['mapped_mib']} in mapped files, which the system may drop), disk"
            f" {result['disk_mib']} MiB"
        )
