"""The result of a query as JSON, CSV, Arrow and Parquet."""

from __future__ import annotations

import io
import json

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from palimpsest.ops.sql.output import FORMS, json_rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(SELECT sum(x) FROM (VALUES (1), (2)) t(x))", 3),
        ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1),
        ("1.5::DECIMAL(5, 2)", 1.5),
        ("'NaN'::DOUBLE", None),
        ("'-inf'::DOUBLE", None),
        ("NULL", None),
        ("true", True),
        ("'é\"\n,'", 'é"\n,'),
        ("'\\x00\\xFF'::BLOB", "AP8="),
        ("TIMESTAMPTZ '2026-03-01 10:00:00+02'", "2026-03-01T08:00:00Z"),
        ("TIMESTAMP '2026-03-01 10:00:00'", "2026-03-01T10:00:00"),
        ("DATE '2026-03-01'", "2026-03-01"),
        ("{'a': [1, 2], 'b': {'c': NULL}}", {"a": [1, 2], "b": {"c": None}}),
        ("['x', NULL]", ["x", None]),
        ("MAP {'k': 1}", [["k", 1]]),
    ],
)
def test_every_type_has_a_value_in_json_and_csv(value: str, expected: object) -> None:
    table = of(f"SELECT {value} AS v")
    assert json_rows(table) == [{"v": expected}]
    assert json.loads(FORMS["json"][1](table)) == [{"v": expected}]
    assert FORMS["csv"][1](table).startswith(b'"v"')


def test_the_forms_hold_the_same_rows() -> None:
    table = of("SELECT range AS n, 'line\n' || range AS text FROM range(3)")
    media = {name: kind for name, (kind, _) in FORMS.items()}
    written = {name: write(table) for name, (_, write) in FORMS.items()}
    assert media["arrow"] == "application/vnd.apache.arrow.stream"
    with pa.ipc.open_stream(written["arrow"]) as stream:
        assert stream.read_all() == table
    assert parquet.read_table(io.BytesIO(written["parquet"])) == table
    options = csv.ParseOptions(newlines_in_values=True)
    assert csv.read_csv(io.BytesIO(written["csv"]), parse_options=options) == table
    assert json.loads(written["json"]) == table.to_pylist()


def test_two_columns_of_one_name_are_told_apart() -> None:
    table = of("SELECT 1 AS a, 2 AS a, 3 AS a_1")
    assert json_rows(table) == [{"a": 1, "a_1": 2, "a_1_1": 3}]
    assert parquet.read_table(io.BytesIO(FORMS["parquet"][1](table))).num_columns == 3


def of(query: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(query).to_arrow_table()
