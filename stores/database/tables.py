"""Rows to Arrow and back, for bulk reads and writes of DuckDB tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar, cast

import duckdb
import numpy as np
import pyarrow as pa

from palimpsest.schemas.rows.columns import Row, columns_of
from palimpsest.schemas.rows.row_types import ROW_TYPES

RowT = TypeVar("RowT", bound=Row)


FEW_ROWS = 128
"""Up to this number, rows are passed as parameters, which is faster than by Arrow."""

PARSED = 1_000
"""Parsed statements cached: many more than the program has, but for key lists of each length."""
_parsed: dict[str, duckdb.Statement] = {}

COLUMNS: dict[type[Row], tuple[str, ...]] = {
    row_type: tuple(columns_of(row_type)) for row_type in ROW_TYPES
}
"""The columns of every row type, in order."""

_LISTS: dict[type[Row], frozenset[int]] = {
    row_type: frozenset(
        number for number, column in enumerate(columns_of(row_type).values()) if column.is_list
    )
    for row_type in ROW_TYPES
}


def parsed(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.Statement:
    """Parses a frequent statement once: for a small one parsing takes a third of the time. It may
    be run on any connection and by any thread."""
    known = _parsed.get(query)
    if known is None:
        if len(_parsed) >= PARSED:
            _parsed.clear()
        known = _parsed[query] = connection.extract_statements(query)[0]
    return known


class Tables:
    """Bulk access to the tables of one connection. Not for use by two threads at once."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._schemas: dict[str, pa.Schema] = {}
        self._types: dict[str, dict[str, str]] = {}
        self._batches: dict[tuple[str, bool], str] = {}

    def arrow_schema(self, table: str) -> pa.Schema:
        """The table's own column types, read from DuckDB once."""
        known = self._schemas.get(table)
        if known is None:
            empty = self._connection.sql(f"SELECT * FROM {table} LIMIT 0")
            known = self._schemas[table] = empty.to_arrow_table().schema
        return known

    def run(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """One statement that is run often."""
        self._connection.execute(parsed(self._connection, statement), list(parameters))

    def insert(self, rows: Sequence[Row]) -> None:
        """Insert rows of one type whose keys are known to be new."""
        self.insert_columns(type(rows[0]).TABLE, _columns(rows))

    def insert_new(self, rows: Sequence[Row]) -> None:
        """Insert rows of one type, no key twice, ignoring those whose key exists: a unit of work
        knows that already. The caller tells `KnownKeys` of them after the commit."""
        row_type = type(rows[0])
        same = " AND ".join(f"stored.{name} = batch.{name}" for name in row_type.KEY)
        known = f"WHERE NOT EXISTS (SELECT 1 FROM {row_type.TABLE} stored WHERE {same})"
        self.insert_columns(row_type.TABLE, _columns(rows), known)

    def insert_columns(self, table: str, values: Mapping[str, list[Any]], unless: str = "") -> None:
        """Insert given columns of equal length; `unless` is a condition on `batch`, or an ON
        CONFLICT clause, which takes DuckDB several times as long to plan as the rest."""
        self._with_batch(
            f"INSERT INTO {table} ({', '.join(values)}) SELECT * FROM {{batch}} {unless}",
            table,
            values,
        )

    def replace(self, rows: Sequence[Row], names: Sequence[str] = ()) -> None:
        """Updates columns of rows of one type that are there already, by key: all, or these. DuckDB
        writes rows again whose lists or unique columns are set, but changes others in place."""
        row_type = type(rows[0])
        others = names or [name for name in COLUMNS[row_type] if name not in row_type.KEY]
        known = {*row_type.KEY, *others}
        sets = ", ".join(f"{name} = batch.{name}" for name in others)
        where = " AND ".join(f"{row_type.TABLE}.{name} = batch.{name}" for name in row_type.KEY)
        self._with_batch(
            f"UPDATE {row_type.TABLE} SET {sets} FROM {{batch}} WHERE {where}",
            row_type.TABLE,
            {name: values for name, values in _columns(rows).items() if name in known},
        )

    def _with_batch(self, statement: str, table: str, values: Mapping[str, list[Any]]) -> None:
        """Run a statement over `values`, columns of `table`, which it knows as {batch}."""
        count = len(next(iter(values.values())))
        if count > FEW_ROWS:
            schema = self.arrow_schema(table)
            arrays = {
                name: pa.array(column, schema.field(name).type) for name, column in values.items()
            }
            self._connection.register("batch", pa.table(arrays))
            try:
                self._connection.execute(statement.format(batch="batch"))
            except BaseException:
                # The transaction is aborted now: this fails too, and must not hide the first error.
                with contextlib.suppress(duckdb.Error):
                    self._connection.unregister("batch")
                raise
            self._connection.unregister("batch")
            return
        columns = [  # DuckDB takes vectors as parameters only if they are lists
            [value.tolist() if isinstance(value, np.ndarray) else value for value in column]
            for column in values.values()
        ]
        is_one = count == 1
        query = self._batches.get((statement, is_one))
        if query is None:
            if not self._types:  # those of all tables at once, in the time of those of one
                found = self._connection.execute(
                    "SELECT table_name, column_name, data_type FROM duckdb_columns()"
                    " WHERE schema_name = 'internal'"
                )
                for each, name, data_type in found.fetchall():
                    self._types.setdefault(each, {})[name] = data_type
            types = self._types[table]
            # A parameter a column: a list, or the value itself of a single row, which DuckDB plans
            # in half the time.
            form = "?::{0} AS {1}" if is_one else "unnest(?::{0}[]) AS {1}"
            listed = ", ".join(form.format(types[name], name) for name in values)
            query = statement.format(batch=f"(SELECT {listed}) AS batch")
            self._batches[statement, is_one] = query
        self.run(query, [row for (row,) in columns] if is_one else columns)


def select(
    connection: duckdb.DuckDBPyConnection,
    row_type: type[RowT],
    where: str,
    parameters: Sequence[object],
) -> list[RowT]:
    """Rows of a type by a condition over the table's columns, with `?` for the parameters."""
    names = ", ".join(COLUMNS[row_type])
    query = f"SELECT {names} FROM {row_type.SOURCE} WHERE {where}"
    result = connection.execute(parsed(connection, query), list(parameters))
    return [from_tuple(row_type, values) for values in result.fetchall()]


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    names = COLUMNS[type(rows[0])]
    # Read by one call a row: all that is stored goes through here.
    columns = zip(*map(attrgetter(*names), rows), strict=True)
    return dict(zip(names, map(list, columns), strict=True))


def from_tuple(row_type: type[RowT], values: Iterable[object]) -> RowT:
    """A row from a fetched tuple: lists become tuples, times become UTC of the standard library."""
    lists = _LISTS[row_type]
    plain = [
        tuple(cast("list[str]", value))
        if number in lists
        else value.astimezone(UTC)
        if isinstance(value, datetime)
        else value
        for number, value in enumerate(values)
    ]
    return row_type(**dict(zip(COLUMNS[row_type], plain, strict=True)))
