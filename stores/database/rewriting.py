"""Writing a store's file again, so that nothing is left of what its tables do not hold any more.

DuckDB keeps freed blocks, with what was in them, until it needs them.
"""

from __future__ import annotations

import os
from pathlib import Path

from palimpsest.stores.database.migrations import migrate
from palimpsest.stores.database.snapshot import TABLES, fill, opened
from palimpsest.stores.database.view_columns import quoted
from palimpsest.stores.durable_files import synced

SUFFIX = ".new"


def rewrite(path: Path) -> None:
    """Put a copy of the tables of a closed store in the place of its file, at once: a crash leaves
    the one or the other, and perhaps a half-made copy alongside it, which the next call removes."""
    new = path.with_name(path.name + SUFFIX)
    discard_half(path)
    with opened(new) as target:
        target.execute(f"ATTACH {quoted(str(path))} AS source (READ_ONLY)")
        known = target.execute("SELECT name FROM source.internal.migrations").fetchall()
        rows = target.execute(
            TABLES.replace("WHERE", "WHERE database_name = 'source' AND"), ["internal"]
        ).fetchall()
        migrate(target, [name for (name,) in known])
        fill(target, {name: f"source.internal.{name}" for (name,) in rows})
    synced(new)
    for left in _logs(path):
        left.unlink(missing_ok=True)
    os.replace(new, path)
    synced(path.parent)


def discard_half(path: Path) -> None:
    """Remove what an interrupted `rewrite` left alongside the store's file."""
    new = path.with_name(path.name + SUFFIX)
    for left in (new, *_logs(new)):
        left.unlink(missing_ok=True)


def _logs(path: Path) -> tuple[Path, ...]:
    """DuckDB's write-ahead logs of a file: that in use, and that of a checkpoint under way."""
    return tuple(path.with_name(path.name + end) for end in (".wal", ".wal.checkpoint"))
