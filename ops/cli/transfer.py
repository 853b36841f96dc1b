"""export, import: a whole scope as a file; embeddings: its vectors; snapshot, restore: copies of
the stores."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from palimpsest.ops.terminal.common import (
    AsJson,
    Cli,
    Scope,
    Wait,
    command,
    echo,
    print_json,
    show,
    usage_error,
    warn,
)
from palimpsest.streams.text.counts import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from palimpsest.ops.service.importing import ImportProgress
    from palimpsest.ops.service.queries import Queries

BLOCK_BYTES = 256 * 1024


def register(app: typer.Typer) -> None:
    command(app, reads=True)(export)
    command(app, "import")(import_scope)
    command(app)(embeddings)
    command(app, reads=True)(snapshot)
    command(app)(restore)


def export(
    cli: Cli,
    scope: Annotated[str, typer.Argument(help="The memory space.")],
    file: Annotated[Path, typer.Argument(help="A new file.")],
    deleted: Annotated[bool, typer.Option("--deleted", help="Include forgotten memories.")] = False,
    json: AsJson = False,
) -> None:
    """Write everything that a scope remembers to a file, from a consistent snapshot.

    Writes one JSON object per line: memories with their earlier states, history, sources and
    decisions, and the graph. `palimpsest import` reads it, also into another scope. Vectors are not
    included: the importing store computes its own.

    Example: palimpsest export support support.ndjson
    """
    from palimpsest.ops.requests import ExportRequest

    if file.exists():
        raise usage_error(f"{file} is there already; name another file, or remove it")
    partial = file.with_name(f".{file.name}.partial")

    async def exporting(queries: Queries) -> None:
        await queries.write_file(ExportRequest(scope, deleted), partial)

    try:
        cli.with_queries(exporting)
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
    size = file.stat().st_size
    result = {"scope": scope, "file": str(file), "bytes": size}
    show(json, result, f"{file}: scope {scope}, {size} bytes")


def import_scope(
    cli: Cli,
    file: Annotated[Path, typer.Argument(help="Output of `palimpsest export`; - is stdin.")],
    scope: Annotated[str, typer.Option("--scope", "-s", help="The memory space to import into.")],
    wait: Wait = 60.0,
    json: AsJson = False,
) -> None:
    """Import a file of `palimpsest export` into a scope, without calling a model.

    Existing memories stay unchanged, so the same file may be imported again. Refused lines are
    reported by number, and the others are imported. In a scope with another name, memories get new
    ids, the same on every import.

    Example: palimpsest import support.ndjson --scope support
    """
    import asyncio

    if str(file) == "-":
        imported = asyncio.run(_taken(cli, sys.stdin.buffer, scope, wait or 0.0))
    elif not file.is_file():
        raise usage_error(f"there is no file {file}")
    else:
        with file.open("rb") as opened:
            imported = asyncio.run(_taken(cli, opened, scope, wait or 0.0))
    if json:
        print_json(imported.as_json())
    else:
        for line in imported.refused:
            warn(f"line {line.number}: {line.why}")
        if imported.taken or imported.refused_lines or not imported.pending:
            echo(
                f"{counted(imported.taken, 'lines')} taken, {imported.memories} new memories,"
                f" {imported.refused_lines} refused"
            )
        if imported.pending:
            waiting = "batch waits" if len(imported.pending) == 1 else "batches wait"
            echo(
                f"{len(imported.pending)} {waiting} for the next `palimpsest run`; after it,"
                " `palimpsest result ID` shows what became of:"
            )
            for command_id in imported.pending:
                echo(f"  {command_id}")
    if imported.refused_lines:
        raise typer.Exit(1)


async def _taken(cli: Cli, file: BinaryIO, scope: str, wait: float) -> ImportProgress:
    from palimpsest.ops.opening import publisher
    from palimpsest.ops.service.commanding import commands_of
    from palimpsest.ops.service.importing import Importer
    from palimpsest.schemas.envelope import Actor

    settings = cli.settings
    with publisher(settings) as append:
        commands = commands_of(settings, append)
        importer = Importer(commands, scope, Actor(), wait, settings.log.max_record_bytes)
        return await importer.take(_blocks(file))


async def _blocks(file: BinaryIO) -> AsyncIterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def embeddings(cli: Cli, scope: Scope = "default") -> None:
    """Print the vectors of a scope's active memories, one JSON object per line.

    Example: palimpsest embeddings --scope support
    """
    from palimpsest.ops.operations.memories import Embeddings

    cursor: str | None = None
    while True:
        page = cli.execute(Embeddings(scope, cursor=cursor))
        for row in page["embeddings"]:
            echo(json_module.dumps(row))
        cursor = page["next_cursor"]
        if cursor is None:
            return


# ---- snapshots ----
Kind: TypeAlias = Literal["duckdb", "parquet"]


def snapshot(
    cli: Cli,
    out: Annotated[Path, typer.Argument(help="A file that ends in .duckdb, or a folder.")],
    format: Annotated[  # noqa: A002
        Kind | None,
        typer.Option(help="A DuckDB file or a folder of Parquet; by default from the name OUT."),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    json: AsJson = False,
) -> None:
    """Copy the stores to a file for any DuckDB client, even while a worker is running.

    Each partition is copied from a consistent snapshot. The file has the views of all partitions,
    with the column partition; as Parquet, it is a folder with one file per view. OUT appears when
    it is complete; an interrupted copy leaves only a folder .OUT.….partial. `palimpsest restore`
    turns it into stores again.

    Example: palimpsest snapshot memory.duckdb
    """
    from palimpsest.ops.service.snapshots import partitions_of, take_snapshot

    named: Kind | None = "duckdb" if out.suffix == ".duckdb" else None
    if format is None and named is None and out.suffix:
        raise usage_error(f"{out.name} is neither a .duckdb nor a folder; add --format")
    if format == "parquet" and named is not None:
        raise usage_error(f"{out.name} is named as a DuckDB file, but --format says parquet")
    kind = format or named or "parquet"

    async def taking(queries: Queries) -> list[int]:
        count = partitions_of(settings)
        if partition is not None and partition >= count:
            raise usage_error(f"there is no partition {partition}; there are {count}")
        numbers = [*range(count)] if partition is None else [partition]
        await take_snapshot(queries, numbers, count, out.absolute(), kind == "parquet")
        return numbers

    settings = cli.settings
    numbers = cli.with_queries(taking)
    result = {"snapshot": str(out), "format": kind, "partitions": numbers}
    show(json, result, f"{out}: partition {', '.join(map(str, numbers))}")


def restore(
    cli: Cli,
    snapshot: Annotated[Path, typer.Argument(help="Output of `palimpsest snapshot`.")],
    json: AsJson = False,
) -> None:
    """Restore the stores of a snapshot in a data folder, to continue from its log.

    The folder must have the log of the stores, or a later copy of it, and no stores of these
    partitions. The next run processes the log's records after the snapshot; model calls for the
    content of the snapshot are not repeated.

    Example: palimpsest restore memory.duckdb --data-dir restored
    """
    from palimpsest.ops.service.snapshots import restore_snapshot

    if not snapshot.exists():
        raise usage_error(f"there is no {snapshot}")
    shards = restore_snapshot(cli.settings, snapshot)
    listed = [{"partition": s.partition, "taken_at": s.taken_at.isoformat()} for s in shards]
    told = f"{len(shards)} partitions restored; `palimpsest run` goes on from the log"
    show(json, {"restored": listed}, told)
