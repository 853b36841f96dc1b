"""sql: read-only SQL over everything."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ops.cli.common import Cli, command, print_json, wrong_use

if TYPE_CHECKING:
    import pyarrow as pa


class Form(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"
    parquet = "parquet"


def register(app: typer.Typer) -> None:
    command(app)(sql)


def sql(
    cli: Cli,
    query: Annotated[str, typer.Argument(help="One SELECT; - reads it from stdin.")],
    format: Annotated[Form, typer.Option(help="How the result is written.")] = Form.table,  # noqa: A002
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Which partition, where there are several.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time that the query may take.")] = 30.0,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Query memories, decisions, history, graph and balance with SQL, also while a worker runs.

    Nothing can be changed. Views: memories, memories_all, turns, facts, proposals,
    memory_history, entities, relations, mentions, edges, sessions, dead_letters, model_calls,
    pipeline_balance, pipeline_items; and match_bm25(scope, query).

    Example: palimpsest sql "SELECT type, count(*) FROM memories GROUP BY type"
    """
    from ops.queries import Queries
    from ops.requests import SqlRequest

    form = Form.json if json else format
    binary = form in (Form.arrow, Form.parquet)
    if binary and output is None and sys.stdout.isatty():
        raise wrong_use(f"{form} is no text: name a file with --output, or pipe it on")
    statement = sys.stdin.read() if query == "-" else query

    async def asking(queries: Queries) -> pa.Table:
        return await queries.table(SqlRequest(statement, partition, seconds))

    table = cli.with_queries(asking)
    if output is not None:
        with output.open("wb") as file:
            _write(table, form, file)
    elif form is Form.json:
        print_json(_plain_rows(table))
    elif form is Form.table:
        _print(table)
    else:
        _write(table, form, sys.stdout.buffer)


def _write(table: pa.Table, form: Form, file: BinaryIO) -> None:
    import json

    if form is Form.csv:
        from pyarrow import csv

        csv.write_csv(_flat(table), file)
    elif form is Form.parquet:
        from pyarrow import parquet

        parquet.write_table(table, file)
    elif form is Form.arrow:
        import pyarrow as pa

        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        file.write(json.dumps(_plain_rows(table), indent=2, ensure_ascii=False).encode() + b"\n")


def _flat(table: pa.Table) -> pa.Table:
    """Lists and structs as JSON text: CSV has no other way to hold them."""
    import json

    import pyarrow as pa

    columns = [
        pa.array([None if v is None else json.dumps(v, default=str) for v in column.to_pylist()])
        if pa.types.is_nested(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _plain_rows(table: pa.Table) -> list[dict[str, object]]:
    from ops.reading.sources import plain

    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _print(table: pa.Table) -> None:
    from ops.cli.tables import console
    from ops.cli.tables import table as drawn

    rows = _plain_rows(table)
    names = tuple(table.column_names)
    out = console()
    out.print(drawn(names, [tuple(row[name] for name in names) for row in rows]))
    out.print(f"({len(rows)} row{'' if len(rows) == 1 else 's'})")
