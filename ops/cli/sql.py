"""sql: read-only SQL over everything."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from palimpsest.ops.cli.common import Cli, command, print_json, wrong_use

if TYPE_CHECKING:
    import pyarrow as pa


class Form(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"
    parquet = "parquet"


SUFFIXES = {
    ".json": Form.json,
    ".csv": Form.csv,
    ".arrow": Form.arrow,
    ".arrows": Form.arrow,
    ".parquet": Form.parquet,
    ".txt": Form.table,
}
LISTED = """
SELECT view_name AS "view", comment AS meaning FROM duckdb_views()
WHERE schema_name = 'main' AND NOT internal ORDER BY 1"""
COLUMNS = """
SELECT table_name AS "view", column_name AS "column", data_type AS type, comment AS meaning
FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal{} ORDER BY 1, column_index"""


def register(app: typer.Typer) -> None:
    command(app)(sql)


def sql(
    cli: Cli,
    query: Annotated[
        str, typer.Argument(help="One SELECT, .tables or .schema VIEW; - reads it from stdin.")
    ],
    format: Annotated[  # noqa: A002
        Form | None,
        typer.Option(help="How the result is written; else as the file is named, or as a table."),
    ] = None,
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

    Nothing can be changed. `.tables` lists the views (memories, turns, facts, proposals,
    memory_history, entities, pipeline_balance …) and `.schema memories` explains the columns of
    one; match_bm25(scope, query) searches by words. Rows that are too wide are printed a line a
    column.

    Example: palimpsest sql "SELECT type, count(*) FROM memories GROUP BY type"
    """
    from palimpsest.ops.queries.dispatch import Queries
    from palimpsest.ops.queries.requests import SqlRequest

    form = _form(Form.json if json else format, output)
    binary = form in (Form.arrow, Form.parquet)
    if binary and output is None and sys.stdout.isatty():
        raise wrong_use(f"{form} is no text: name a file with --output, or pipe it on")
    statement = _statement(sys.stdin.read() if query == "-" else query)

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


def _form(given: Form | None, output: Path | None) -> Form:
    """The format that was asked for, or that the file's name says. Two that differ are refused: a
    file should be what it is called."""
    if output is None:
        return given or Form.table
    named = SUFFIXES.get(output.suffix.lower())
    if given is not None and named in (None, given):
        return given
    if named is None:
        known = ", ".join(SUFFIXES)
        raise wrong_use(f"what format is {output.name}? End it in {known}, or add --format")
    if given is not None:
        raise wrong_use(f"{output.name} is named as {named}, but --format says {given}")
    return named


def _statement(query: str) -> str:
    """The query; `.tables` and `.schema` are short for queries of the catalog."""
    command, _, name = query.strip().rstrip(";").partition(" ")
    if command == ".tables":
        return LISTED
    if command == ".schema":
        quoted = name.strip().replace("'", "''")
        return COLUMNS.format(f" AND table_name = '{quoted}'" if quoted else "")
    if command.startswith("."):
        raise wrong_use(f"there is no {command} here; there are .tables and .schema VIEW")
    return query


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
    elif form is Form.table:
        from palimpsest.ops.cli.tables import printed_rows

        file.write(printed_rows(tuple(table.column_names), _plain_rows(table)).encode())
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
    from palimpsest.ops.queries.sources import plain

    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _print(table: pa.Table) -> None:
    from palimpsest.ops.cli.tables import print_rows

    print_rows(tuple(table.column_names), _plain_rows(table))
