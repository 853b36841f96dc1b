"""Rows to tables and back: the same by either way of handing them over."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from palimpsest import schemas
from palimpsest.schemas.extraction import Fact
from palimpsest.schemas.rows.columns import Row, row_of
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import FactRow, FlagsRow
from palimpsest.stores.database import tables
from palimpsest.stores.database.tables import Tables, select
from tests.unit.small_store import empty_store, memory

NEW_YEAR = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
ROWS: tuple[Row, ...] = (
    memory("plain"),
    memory(
        "full",
        "quote ' \" ; -- \u0000 emoji \U0001f600 \u0627\u0644",
        tags=("a", "b, c"),
        categories=("x",),
        project="p",
        valid_until=NEW_YEAR,
        deleted_at=NEW_YEAR - timedelta(days=400),
        is_deleted=True,
        decision_order=2**40,
        importance=1 / 3,
    ),
    FlagsRow(scope="s", enabled=True),
)


@pytest.mark.parametrize("few", [0, tables.FEW_ROWS])
@pytest.mark.parametrize("row", ROWS)
def test_a_row_comes_back_as_it_was(row: Row, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FEW_ROWS", few)
    store = empty_store()
    table = Tables(store)
    table.insert([row])
    assert select(store, type(row), "true", []) == [row]


@pytest.mark.parametrize("few", [0, tables.FEW_ROWS])
def test_all_but_the_key_is_replaced(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FEW_ROWS", few)
    store = empty_store()
    table = Tables(store)
    rows = [memory(f"m{n}") for n in range(3)]
    table.insert(rows)
    changed = [
        replace(row, content=f"now {row.memory_id}", tags=("t",), valid_until=NEW_YEAR)
        for row in rows[:2]
    ]
    table.replace(changed)
    found = {row.memory_id: row for row in select(store, MemoryRow, "true", [])}
    assert found == {row.memory_id: row for row in [*changed, rows[2]]}


@pytest.mark.parametrize("few", [0, tables.FEW_ROWS])
def test_what_is_there_already_stays(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FEW_ROWS", few)
    store = empty_store()
    table = Tables(store)
    first = FlagsRow(scope="s", enabled=True)
    table.insert([first])
    other = FlagsRow(scope="t")
    table.insert_new([replace(first, enabled=False), other])
    assert {row.scope: row for row in select(store, FlagsRow, "true", [])} == {
        "s": first,
        "t": other,
    }


def test_a_row_takes_the_columns_that_its_source_has() -> None:
    fact = Fact(item_id="f", content="Ana likes tea", confidence=0.5, categories=("tea",))
    given = {"turn_memory_id": "t", "model": "m", "prompt_version": "p", "occurred_at": NEW_YEAR}
    row = row_of(FactRow, fact, scope="s", content="given", correlation_id="c", **given)
    assert (row.item_id, row.confidence, row.categories) == ("f", 0.5, ("tea",))
    assert (row.content, row.scope, row.occurred_at) == ("given", "s", NEW_YEAR)
    assert row_of(FactRow, row, scope="other") == replace(row, scope="other")
    with pytest.raises(TypeError, match="correlation_id"):
        row_of(FactRow, fact, scope="s", **given)


def test_every_row_type_has_its_table() -> None:
    for found in pkgutil.iter_modules(schemas.__path__, "palimpsest.schemas."):
        importlib.import_module(found.name)
    defined = {row_type.__name__ for row_type in Row.__subclasses__()}
    assert defined == {row_type.__name__ for row_type in tables.COLUMNS}
    store = empty_store()
    table = Tables(store)
    for row_type in tables.COLUMNS:
        names = table.arrow_schema(row_type.TABLE).names
        assert set(tables.COLUMNS[row_type]) <= set(names), row_type
