"""What a memory takes on disk, once nothing is left to be merged or thrown away."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.stores.index import lance
from palimpsest.stores.shard import DATABASE_FILE


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def settled(shards: Sequence[Path], memories: int) -> JsonObject:
    """Bytes of the folders of shards, which are closed and so checkpointed, by store and for each
    of `memories`. LanceDB's former versions, which an open shard keeps for some minutes, go."""
    import lancedb

    tables = [path for folder in shards for path in (folder / lance.FOLDER).glob("*")]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "optimize")  # of readers that there might be
        for path in tables:
            lancedb.connect(path).open_table(lance.TABLE).optimize(cleanup_older_than=timedelta(0))
    database = sum(size(folder / DATABASE_FILE) for folder in shards)
    vectors = sum(size(folder / lance.FOLDER) for folder in shards)
    return {
        "duckdb": database,
        "lancedb": vectors,
        "each": round((database + vectors) / max(memories, 1)),
    }
