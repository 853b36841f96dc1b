"""The commands `palimpsest bench …`. What measures is imported when a command runs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from palimpsest.ops.terminal.common import AsJson, Cli, command, print_json

if TYPE_CHECKING:
    from palimpsest.ops.requests import JsonObject

group = typer.Typer(
    help="Measure this machine, from a checkout of the project.", no_args_is_help=True
)
Half: TypeAlias = Literal["choose", "check"]
Folder = Annotated[
    Path | None,
    typer.Option(help="Keep the memories here and reuse them; by default a temporary folder."),
]
Scopes = Annotated[int, typer.Option(min=1, help="Number of scopes.")]


@command(group)
def throughput(
    cli: Cli,
    turns: Annotated[int, typer.Option(min=1, help="Number of turns.")] = 2000,
    scopes: Scopes = 20,
    words: Annotated[int, typer.Option(min=1, help="Words per turn.")] = 14,
    provider: Annotated[
        Literal["instant", "rules"],
        typer.Option(help="instant: a model server without a model, over HTTP."),
    ] = "instant",
    stored: Annotated[
        int, typer.Option(min=0, help="Turns to store before the measurement starts.")
    ] = 0,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Measure turns per second through the whole pipeline with an instant model, and the time by
    stage.

    Example: palimpsest bench throughput --turns 5000 --scopes 50
    """
    from palimpsest.ops.bench.throughput import Load, measure

    with _kept(folder) as place:
        load = Load(turns, scopes, words, provider, stored)
        _print(json, _run(measure(load, cli.overrides, place)))


@command(group)
def rebuild(
    cli: Cli,
    turns: Annotated[int, typer.Option(min=1, help="Number of turns.")] = 2000,
    scopes: Scopes = 20,
    partitions: Annotated[
        int, typer.Option(min=1, help="Number of partitions; each has its own process.")
    ] = 2,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes at a time; by default one per core.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the recording here and reuse it; by default a temporary folder."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Record turns, then measure how fast new stores are rebuilt from the log, and whether they
    have the same content.

    Example: palimpsest bench rebuild --turns 3000 --scopes 30
    """
    from palimpsest.ops.bench.rebuild import Recording, measure

    with _kept(folder) as place:
        recording = Recording(turns, scopes, partitions, processes)
        _print(json, measure(recording, cli.overrides, place))


@command(group)
def latency(
    cli: Cli,
    memories: Annotated[
        list[int] | None, typer.Option(help="Number of memories; repeatable.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Use real texts, in one scope: folder of conversations in LoCoMo's layout, copied"
            " under other names until there are enough; repeatable."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Keep the memories of --data here with their embeddings and reuse them."),
    ] = None,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes of made-up memories.")] = 1,
    writes: Annotated[
        float, typer.Option(help="Made-up memories written per second meanwhile.")
    ] = 50.0,
    seconds: Annotated[
        float, typer.Option(help="How long the readers of made-up memories read.")
    ] = 5.0,
    json: AsJson = False,
) -> None:
    """Measure how long recall and candidate search take.

    Made-up memories have random vectors and are searched alone, then by several readers alongside a
    writer. Those of --data go through the pipeline and are searched as in a worker, including the
    query's embedding; embedding 100,000 of them takes about twenty minutes.

    Example: palimpsest bench latency --memories 100000 --data locomo --folder kept
    """
    results = []
    for count in memories or [1_000, 10_000, 100_000]:
        with _kept(folder if data else None) as place:
            if data:
                from palimpsest.ops.bench import latency_texts

                settings = Cli(place / str(count), cli.config, cli.overrides).settings
                with _data_errors():
                    results.append(_run(latency_texts.measure(settings, data, count)))
            else:
                from palimpsest.ops.bench.latency import Load, measure

                results.append(measure(Load(count, scopes, writes, seconds), place))
    _print(json, {"latency": [*results]})


@command(group)
def retrieval(
    cli: Cli,
    data: Annotated[
        list[Path], typer.Option(help="Folder of conversations in LoCoMo's layout; repeatable.")
    ],
    half: Annotated[
        Half | None,
        typer.Option(
            help="Use only the first three fifths of the conversations, or only the rest."
        ),
    ] = None,
    embedding: Annotated[
        Literal["local", "hashing"] | None,
        typer.Option(help="Embedding provider; by default the one of the settings."),
    ] = None,
    captions: Annotated[
        bool, typer.Option(help="Append the captions of images to their turns.")
    ] = True,
    ablation: Annotated[
        bool, typer.Option(help="Also measure without each part of the ranking.")
    ] = False,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Measure the share of the turns with the answer that recall finds.

    By method, category, half of the conversations, role of the speaker and the data's own type of
    question; with the time of a query, including its embedding, and the bytes of a turn on disk.
    Each folder is measured separately.

    Example: palimpsest bench retrieval --data locomo --data realtalk --ablation
    """
    from palimpsest.ops.bench.data_sets import DataSet
    from palimpsest.ops.bench.retrieval import ABLATIONS, METHODS, measure

    variants = METHODS + (ABLATIONS if ablation else ())
    flags = (
        cli.overrides if embedding is None else (*cli.overrides, f"embedding.provider={embedding}")
    )
    found = {path.resolve().name: path.resolve() for path in data}
    if len(found) < len(data):
        raise typer.BadParameter("two folders have the same name", param_hint="--data")
    sets: list[JsonObject] = []
    with _kept(folder) as place, _data_errors():
        for path in found.values():
            settings = Cli(place / path.name, cli.config, flags).settings
            sets.append(_run(measure(settings, DataSet(path, half, captions), variants)))
    _print(json, {"sets": sets})


@command(group)
def service(
    cli: Cli,
    minutes: Annotated[float, typer.Option(min=0.1, help="Duration of the load.")] = 5.0,
    clients: Annotated[int, typer.Option(min=1, help="Number of concurrent clients.")] = 16,
    scopes: Scopes = 8,
    kills: Annotated[
        int, typer.Option(min=0, help="How often the service is killed and started again.")
    ] = 2,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Measure the HTTP service under load, with kills.

    Several clients remember, recall and modify while the service is killed and an analyst queries.
    Shows times, and whether every acknowledged write is stored.

    Example: palimpsest bench service --minutes 1 --clients 4
    """
    from palimpsest.ops.bench.service_load import ServiceLoad, measure

    with _kept(folder) as place:
        load = ServiceLoad(60 * minutes, clients, scopes, kills)
        _print(json, _run(measure(load, cli.overrides, place)))


def _run(measuring: Coroutine[None, None, JsonObject]) -> JsonObject:
    import asyncio

    return asyncio.run(measuring)


@contextlib.contextmanager
def _data_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from error


@contextlib.contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    """The folder, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def _print(as_json: bool, result: Any) -> None:
    """JSON, or a report."""
    if as_json:
        print_json(result)
        return
    from palimpsest.ops.bench.reports import report

    report(result)
