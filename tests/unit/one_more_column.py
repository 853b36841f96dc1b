"""Run as a program: the package with a line more in `MemoryRow`, and a migration for it. Prints
where the column is."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import palimpsest.schemas

NAME = "mood"
LINE = f'    {NAME}: Annotated[str, "how it was said", Since(99)] = "plain"\n'


def load_rows() -> None:
    """Loads `schemas.rows.memories` with LINE as the last of the class."""
    name = "palimpsest.schemas.rows.memories"
    spec = importlib.util.spec_from_file_location(
        name, Path(palimpsest.schemas.__path__[0], "rows", "memories.py")
    )
    assert spec is not None
    assert spec.origin is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before, mark, after = Path(spec.origin).read_text("utf-8").partition("class MemoryRow(")
    own, end, rest = after.partition("\n\n\n")
    source = f"{before}{mark}{own}\n{LINE}{end}{rest}"
    exec(compile(source, spec.origin, "exec", dont_inherit=True), module.__dict__)


def main() -> None:
    load_rows()
    from palimpsest.ops.service.exporting import exported_columns
    from palimpsest.schemas.identity import ImportedIds
    from palimpsest.schemas.portable import PortableMemory
    from palimpsest.schemas.rows.memories import MemoryRow
    from palimpsest.stores.database import migrations
    from palimpsest.stores.database.migrations import Migration, migrate
    from palimpsest.stores.database.state_hash import state_hash
    from palimpsest.stores.database.tables import FEW_ROWS, Tables, select
    from palimpsest.stores.database.views import install_views
    from palimpsest.streams.imported_rows import memory_row
    from tests.unit.small_store import empty_store, made, memory

    old = empty_store()
    old.execute("INSERT INTO scope_flags BY NAME SELECT 's' AS scope")
    migrations.MIGRATIONS = (*migrations.MIGRATIONS, Migration(99, "moods"))  # type: ignore[misc]
    assert migrate(old) == ["0099-moods"]
    made.cache_clear()
    new = empty_store()
    found = {}
    for key, store in (("a new store", new), ("an old store", old)):
        install_views(store, "SELECT 1")
        found[key] = store.execute(
            "SELECT data_type, column_default, comment FROM duckdb_columns()"
            f" WHERE column_name = '{NAME}' ORDER BY schema_name"
        ).fetchall()
    glad = replace(memory("m1"), **{NAME: "glad"})
    many = [replace(glad, memory_id=f"m{number}") for number in range(FEW_ROWS + 1)]
    for rows in ([glad], many):
        store = empty_store()
        Tables(store).insert(rows)
        assert (
            sorted(select(store, MemoryRow, "true", []), key=lambda row: int(row.key[0][1:]))
            == (  # type: ignore[index]
                sorted(rows, key=lambda row: int(row.memory_id[1:]))
            )
        )
        hashed = state_hash(store)
        store.execute(f"UPDATE memory_rows SET {NAME} = 'sad'")
        found["the state hash"] = [(hashed != state_hash(store),)]
    found["exported"] = [(NAME in {each.name for each in exported_columns(MemoryRow)},)]
    line = PortableMemory.model_validate(
        {"id": "m1", "type": "fact", "content": "x", "importance": 0.5, "confidence": 0.5}
        | dict.fromkeys(("occurred_at", "created_at", "updated_at"), glad.created_at)
        | {NAME: "glad"}
    )
    found["imported"] = [(getattr(memory_row(ImportedIds("s", "s"), line), NAME),)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
