"""export, import: a whole scope as a file; embeddings: its vectors."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palimpsest.ops.cli.common import (
    AsJson,
    Cli,
    Scope,
    Wait,
    command,
    echo,
    print_json,
    usage_error,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from palimpsest.ops.importing import Imported
    from palimpsest.ops.service.queries import Queries

BLOCK_BYTES = 256 * 1024


def register(app: typer.Typer) -> None:
    command(app, reads=True)(export)
    command(app, "import")(import_scope)
    command(app)(embeddings)


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
        await queries.export_scope(ExportRequest(scope, deleted), partial)

    try:
        cli.with_queries(exporting)
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
    size = file.stat().st_size
    if json:
        print_json({"scope": scope, "file": str(file), "bytes": size})
    else:
        echo(f"{file}: scope {scope}, {size} bytes")


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
    _print(imported, json)


async def _taken(cli: Cli, file: BinaryIO, scope: str, wait: float) -> Imported:
    from palimpsest.ops.commanding import commands_of
    from palimpsest.ops.importing import Importer
    from palimpsest.ops.opening import publisher
    from palimpsest.schemas.commands import Actor

    settings = cli.settings
    with publisher(settings) as append:
        commands = commands_of(settings, append)
        importer = Importer(commands, scope, Actor(), wait, settings.log.max_record_bytes)
        return await importer.take(_blocks(file))


async def _blocks(file: BinaryIO) -> AsyncIterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _print(imported: Imported, json: bool) -> None:
    """Prints the result of an import. Raises Exit if part of the file was refused."""
    if json:
        print_json(imported.as_json())
    else:
        for line in imported.refused:
            warn(f"line {line.number}: {line.why}")
        if imported.taken or imported.refused_lines or not imported.pending:
            echo(
                f"{imported.taken} lines taken, {imported.memories} new memories,"
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
