"""snapshot, restore: copies of the stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from palimpsest.ops.cli.common import AsJson, Cli, command, echo, print_json, usage_error

Kind: TypeAlias = Literal["duckdb", "parquet"]


def register(app: typer.Typer) -> None:
    command(app, reads=True)(snapshot)
    command(app)(restore)


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
    from palimpsest.ops.maintenance.snapshots import partitions_of, take_snapshot
    from palimpsest.ops.service.queries import Queries

    kind = _kind(format, out)

    async def taking(queries: Queries) -> list[int]:
        count = partitions_of(settings)
        if partition is not None and partition >= count:
            raise usage_error(f"there is no partition {partition}; there are {count}")
        numbers = [*range(count)] if partition is None else [partition]
        await take_snapshot(queries, numbers, count, out.absolute(), kind == "parquet")
        return numbers

    settings = cli.settings
    numbers = cli.with_queries(taking)
    if json:
        print_json({"snapshot": str(out), "format": kind, "partitions": numbers})
    else:
        echo(f"{out}: partition {', '.join(map(str, numbers))}")


def _kind(chosen: Kind | None, out: Path) -> Kind:
    named: Kind | None = "duckdb" if out.suffix == ".duckdb" else None
    if chosen is None and named is None and out.suffix:
        raise usage_error(f"{out.name} is neither a .duckdb nor a folder; add --format")
    if chosen == "parquet" and named is not None:
        raise usage_error(f"{out.name} is named as a DuckDB file, but --format says parquet")
    return chosen or named or "parquet"


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
    from palimpsest.ops.maintenance.snapshots import restore_snapshot

    if not snapshot.exists():
        raise usage_error(f"there is no {snapshot}")
    shards = restore_snapshot(cli.settings, snapshot)
    if json:
        listed = [
            {"partition": shard.partition, "taken_at": shard.taken_at.isoformat()}
            for shard in shards
        ]
        print_json({"restored": listed})
    else:
        echo(f"{len(shards)} partitions restored; `palimpsest run` goes on from the log")
