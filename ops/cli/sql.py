"""sql: read-only SQL over everything."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from palimpsest.ops.terminal.common import Cli, command, usage_error, visible, visible_json

if TYPE_CHECKING:
    import pyarrow as pa


Form: TypeAlias = Literal["table", "json", "csv", "arrow", "parquet"]
SUFFIXES: Final[dict[str, Form]] = {
    ".json": "json",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".parquet": "parquet",
    ".txt": "table",
}
COMMANDS = ".tables, .schema VIEW, .queries and .run NAME"
LISTED = """
SELECT view_name AS "view", comment AS meaning FROM duckdb_views()
WHERE schema_name = 'main' AND NOT internal ORDER BY 1"""


def register(app: typer.Typer) -> None:
    command(app, reads=True)(sql)


def sql(
    cli: Cli,
    query: Annotated[
        str, typer.Argument(help=f"One SELECT, or {COMMANDS}; - reads it from stdin.")
    ],
    format: Annotated[  # noqa: A002
        Form | None,
        typer.Option(help="Output format; by default from the file's name, or a table."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of stdout.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Maximum duration of the query.")] = 30.0,
    rows: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 1_000_000,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Query memories, decisions, history, graph and balance with SQL, even while a worker is
    running.

    Access is read-only. `.tables` lists the views (memories, turns, facts, proposals,
    memory_history, entities, pipeline_balance …) and `.schema memories` explains the columns of
    one; match_bm25(scope, query) searches by words. `.queries` lists the built-in queries,
    `.run balance` runs one. The views have the rows of all partitions, with the column partition.
    Rows that are too wide are printed with one line per column.

    Example: palimpsest sql "SELECT type, count(*) FROM memories GROUP BY type"
    """
    from palimpsest.ops.requests import SqlRequest
    from palimpsest.ops.service.queries import Queries

    form = _form("json" if json else format, output)
    binary = form in ("arrow", "parquet")
    if binary and output is None and sys.stdout.isatty():
        raise usage_error(f"{form} is no text: name a file with --output, or pipe it on")
    statement = _statement(sys.stdin.read() if query == "-" else query)

    async def asking(queries: Queries) -> pa.Table:
        return await queries.table(SqlRequest(statement, partition, seconds, rows))

    table = cli.with_queries(asking)
    if output is not None:
        output.write_bytes(_written(table, form))
    elif form == "table":
        _print(table)
    else:
        sys.stdout.buffer.write(_shown(_written(table, form), form))


def _shown(written: bytes, form: Form) -> bytes:
    """Prints a result on stdout, with control sequences escaped; in CSV only on a terminal."""
    if form == "json":
        return visible_json(written.decode()).encode()
    is_text = form == "csv" and sys.stdout.isatty()
    return visible(written.decode()).encode() if is_text else written


def _form(chosen: Form | None, output: Path | None) -> Form:
    """The requested format, or that of the file's name. Refuses contradictory ones, so that a
    file's name matches its content."""
    if output is None:
        return chosen or "table"
    named = SUFFIXES.get(output.suffix.lower())
    if chosen is not None and named in (None, chosen):
        return chosen
    if named is None:
        known = ", ".join(SUFFIXES)
        raise usage_error(f"what format is {output.name}? End it in {known}, or add --format")
    if chosen is not None:
        raise usage_error(f"{output.name} is named as {named}, but --format says {chosen}")
    return named


def _statement(query: str) -> str:
    """The query; expands a command that begins with a dot."""
    from palimpsest.ops.sql.saved_queries import COLUMNS, SAVED_QUERIES
    from palimpsest.stores.database.view_columns import PARTITION, quoted
    from palimpsest.stores.database.views import VIEWS

    command, _, name = query.strip().rstrip(";").partition(" ")
    name = name.strip()
    if command == ".tables":
        return LISTED
    if command == ".schema":
        if name and name not in VIEWS:
            near = difflib.get_close_matches(name, VIEWS, n=1)
            meant = f"; did you mean {near[0]}?" if near else "; .tables lists them"
            raise usage_error(f"there is no view {name}{meant}")
        named = f' WHERE "view" = {quoted(name)}' if name else ""
        return COLUMNS.format(partition=PARTITION, named=named)
    if command == ".queries":
        rows = ", ".join(
            f"({quoted(name)}, {quoted(saved.meaning)}, {quoted(saved.sql)})"
            for name, saved in SAVED_QUERIES.items()
        )
        return f"FROM (VALUES {rows}) AS saved(query, meaning, sql)"
    if command == ".run":
        if name not in SAVED_QUERIES:
            raise usage_error(f"there is no query {name}; there are {', '.join(SAVED_QUERIES)}")
        return SAVED_QUERIES[name].sql
    if command.startswith("."):
        raise usage_error(f"there is no {command} here; there are {COMMANDS}")
    return query


def _written(table: pa.Table, form: Form) -> bytes:
    from palimpsest.ops.sql.output import FORMS, json_rows
    from palimpsest.ops.terminal.tables import printed_rows

    if form == "table":
        rows = json_rows(table)
        return printed_rows(_columns(table, rows), rows).encode()
    _, write = FORMS[form]
    return write(table)


def _print(table: pa.Table) -> None:
    from palimpsest.ops.sql.output import json_rows
    from palimpsest.ops.terminal.tables import print_rows

    rows = json_rows(table)
    print_rows(_columns(table, rows), rows)


def _columns(table: pa.Table, rows: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """The column names as in the rows, which distinguish columns with the same name."""
    return tuple(rows[0] if rows else table.column_names)
