"""bench latency: how fast recall is."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

Json = dict[str, object]


def register(group: typer.Typer) -> None:
    command(group)(latency)


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
