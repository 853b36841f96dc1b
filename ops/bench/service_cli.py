"""bench service: the HTTP service under load."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, print_json


def register(group: typer.Typer) -> None:
    command(group)(service)
    command(group)(attack)


def service(
    cli: Cli,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load lasts.")] = 5.0,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 16,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes that they are spread over.")] = 8,
    kills: Annotated[
        int, typer.Option(min=0, help="How often the service is killed and started again.")
    ] = 2,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the memory here; else a temporary folder.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Remember, recall and modify over HTTP by several clients at once, while the service is
    killed and an analyst queries. Tells times, and whether every acknowledged write is there.

    Example: palimpsest bench service --minutes 1 --clients 4
    """
    import asyncio

    from palimpsest.ops.bench.service_load import ServiceLoad, measure

    load = ServiceLoad(60 * minutes, clients, scopes, kills)
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        where.mkdir(parents=True, exist_ok=True)
        result: dict[str, Any] = asyncio.run(measure(load, cli.overrides, where))
    if json:
        print_json(result)
    else:
        _show(result)


def attack(
    cli: Cli,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long the load lasts.")] = 5.0,
    clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = 16,
    scopes: Annotated[int, typer.Option(min=1, help="Scopes that they are spread over.")] = 8,
    attacker: Annotated[
        bool, typer.Option(help="Attack at all; without, the same load for comparison.")
    ] = True,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the memory here; else a temporary folder.")
    ] = None,
) -> None:
    """Remember, recall and modify over HTTP by several clients at once, while somebody else sends
    large bad turns, heavy SQL, idle connections, streams and pages that unpack to hundreds of
    megabytes. Tells times, errors, losses and memory as JSON.

    Example: palimpsest bench attack --minutes 1 --clients 4
    """
    import asyncio

    from palimpsest.ops.bench.attack import Attack, measure

    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        where.mkdir(parents=True, exist_ok=True)
        load = Attack(60 * minutes, clients, scopes, attacker)
        print_json(asyncio.run(measure(load, cli.overrides, where)))


def _show(result: dict[str, Any]) -> None:
    from palimpsest.ops.cli.tables import console, table

    rows: list[tuple[object, ...]] = [
        (name, found["count"], found["p50"], found["p95"], found["most"])
        for name, found in (
            *result["operations"].items(),
            ("SQL by the analyst", result["analyst"] | {"count": result["analyst"]["queries"]}),
        )
    ]
    out = console()
    out.print(table(("what", "answered", "p50 ms", "p95 ms", "most ms"), rows))
    for name in ("recall_over_http_ms", "recall_in_library_ms"):
        found = result[name]
        where = "over HTTP" if "http" in name else "by the library"
        out.print(f"recall {where}, nothing else going on: p50 {found['p50']}, p95 {found['p95']}")
    analyst, memory = result["analyst"], result["memory_mib"]
    out.print(
        f"writes a second {analyst['writes_per_second_without']} without the analyst,"
        f" {analyst['writes_per_second_with']} with; memory {memory['first_third']} MiB in the"
        f" first third after the last start, {memory['last_third']} in the last"
    )
    out.print(
        f"{result['acknowledged']} memories acknowledged over {result['kills']} kills:"
        f" {result['lost']} lost, {result['other_text']} with another text; the balance"
        f" {'holds' if result['balance']['holds'] else 'does not hold'};"
        f" starts {', '.join(map(str, result['start_seconds']))} s"
    )
    for what, count in result["errors"].items():
        out.print(f"[red]{count} times[/] {what}")
    for what in result["analyst"]["failures"]:
        out.print(f"[red]query failed[/] {what}")
