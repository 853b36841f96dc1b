"""bench latency: how fast recall is."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json

if TYPE_CHECKING:
    from palimpsest.ops.requests import JsonObject

Json = dict[str, object]


def register(group: typer.Typer) -> None:
    command(group)(latency)


def latency(
    cli: Cli,
    memories: Annotated[
        list[int] | None, typer.Option(help="Memories in all; may be given several times.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Of real texts, in one scope: folder of conversations in LoCoMo's layout, repeated"
            " with other names; may be given several times."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Keep the memories of --data here with their embeddings, and use what is there."
        ),
    ] = None,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes of made-up memories.")] = 1,
    writes: Annotated[
        float, typer.Option(help="Made-up memories written a second meanwhile.")
    ] = 50.0,
    seconds: Annotated[
        float, typer.Option(help="How long the readers of made-up memories read.")
    ] = 5.0,
    json: AsJson = False,
) -> None:
    """How long recall and candidate search take. Of made-up memories with random vectors: searching
    alone, and by several readers beside a writer. Of --data: with the question's embedding, as in
    a worker; every text is really embedded, which takes a hundred thousand some twenty minutes.

    Example: palimpsest bench latency --memories 100000 --data locomo --folder kept
    """
    sizes = memories or [1_000, 10_000, 100_000]
    if data:
        results = _of_texts(cli, sizes, data, folder)
    else:
        from palimpsest.ops.bench.latency import Load, measure

        results = [measure(Load(size, scopes, writes, seconds)) for size in sizes]
    if json:
        print_json({"latency": [*results]})
    else:
        show = _show_texts if data else _show_latency
        show([cast("Json", result) for result in results])


def _of_texts(
    cli: Cli, sizes: Sequence[int], data: Sequence[Path], folder: Path | None
) -> list[JsonObject]:
    import asyncio

    from palimpsest.ops.bench.latency_texts import TextLoad, measure

    results = []
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        for size in sizes:
            settings = Cli(where / str(size), cli.config, cli.overrides).settings
            load = TextLoad(tuple(data), size, where / "embeddings.sqlite")
            try:
                results.append(asyncio.run(measure(settings, load)))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--data") from error
    return results


def _show_texts(results: list[Json]) -> None:
    from palimpsest.ops.cli.tables import console, table

    rows: list[tuple[object, ...]] = []
    for result in results:
        for what, name in (
            ("first recall", "first_recall_ms"),
            ("recall, the question's embedding included", "recall_ms"),
            ("the embedding alone", "question_embedding_ms"),
            ("candidates of 20 facts", "candidates_ms"),
        ):
            found = cast("Json", result[name])
            rows.append((result["memories"], what, *(found[f"p{q}"] for q in (50, 95, 99))))
    out = console()
    out.print(table(("memories", "what", "p50 ms", "p95 ms", "p99 ms"), rows))
    for result in results:
        disk = cast("Json", result["bytes_a_memory"])
        out.print(
            f"{result['memories']} memories of conversations told {result['rounds']} times with"
            f" other names, each text embedded by {result['embedding']} ({result['embedded_now']}"
            f" when the store was filled, the others before): index {result['index_mib']} MiB,"
            f" processor {result['recall_processor_ms']} ms a recall, all threads together;"
            f" resident {result['resident_mib']} MiB (of it {result['mapped_mib']} in mapped files,"
            f" which the system may drop), {disk['each']} bytes a memory on disk ({disk['duckdb']}"
            f" DuckDB, {disk['lancedb']} LanceDB)"
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
