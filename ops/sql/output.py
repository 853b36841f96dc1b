"""Serializes the result of a SQL query as JSON, CSV, an Arrow stream or Parquet."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from palimpsest.ops.sql.values import plain

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows as JSON objects. Times are RFC 3339, whole decimals integers, other decimals
    floats, bytes base64; NaN and infinity, which JSON lacks, are null."""
    named = table.rename_columns(_apart(table.column_names))
    return [{name: json_value(value) for name, value in row.items()} for row in named.to_pylist()]


def as_json(table: pa.Table) -> bytes:
    """Returns the rows as a JSON array of `json_rows`."""
    return json.dumps(json_rows(table), indent=2, ensure_ascii=False).encode() + b"\n"


FORMULA: Final = r"^[=+\-@\t\r\n＝＋－＠]"
"""Characters that start a formula in a spreadsheet; a formula may access data outside the sheet."""


def as_csv(table: pa.Table) -> bytes:
    """Returns CSV with a header; lists and structs are JSON text, bytes base64, as CSV has no type
    for them. Text that a spreadsheet would evaluate gets a leading quotation mark (')."""
    sink = pa.BufferOutputStream()
    columns = [_in_csv(column) for column in table.columns]
    csv.write_csv(pa.table(columns, names=table.column_names), sink)
    return _bytes(sink)


def _in_csv(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([json_value(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        begins = pc.match_substring_regex(column, FORMULA)
        return pc.if_else(begins, pc.binary_join_element_wise("'", column, ""), column)
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        return _as_text(column)
    return column


def _as_text(column: pa.ChunkedArray) -> pa.Array:
    """The values as JSON text; an interval is [months, days, nanoseconds]."""
    values = (json_value(value) for value in column.to_pylist())
    texts = [value if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    return pa.array(texts, pa.string())


def as_arrow(table: pa.Table) -> bytes:
    """Returns an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _bytes(sink)


def as_parquet(table: pa.Table) -> bytes:
    """Returns Parquet; intervals, which it lacks, are JSON text."""
    sink = pa.BufferOutputStream()
    columns = [_as_text(c) if pa.types.is_interval(c.type) else c for c in table.columns]
    parquet.write_table(pa.table(columns, names=_apart(table.column_names)), sink)
    return _bytes(sink)


FORMS: Final[Mapping[str, tuple[str, Callable[[pa.Table], bytes]]]] = {
    "json": ("application/json", as_json),
    "csv": ("text/csv; charset=utf-8", as_csv),
    "arrow": (ARROW_TYPE, as_arrow),
    "parquet": ("application/vnd.apache.parquet", as_parquet),
}
"""Media type and serializer by name."""


def _bytes(sink: pa.BufferOutputStream) -> bytes:
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _apart(names: list[str]) -> list[str]:
    """Returns unique names: a repeated name gets a number."""
    found: list[str] = []
    for name in names:
        number, unlike = 1, name
        while unlike in found:
            unlike, number = f"{name}_{number}", number + 1
        found.append(unlike)
    return found


def json_value(value: object) -> Any:
    """Returns a value of a result as JSON; see `json_rows`."""
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if whole else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    return plain(value)
