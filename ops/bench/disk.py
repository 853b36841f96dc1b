"""What a memory takes on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palimpsest.ops.requests import JsonObject
from palimpsest.stores.index import lance
from palimpsest.stores.shard import DATABASE_FILE


def size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def settled(shards: Sequence[Path], memories: int, log: Path | None = None) -> JsonObject:
    """Bytes of the folders of shards, which are closed, and of the embedded log where its folder is
    named: by store, and in all for each of `memories`."""
    sizes: dict[str, int] = {} if log is None else {"log": size(log)}
    sizes["duckdb"] = sum(size(folder / DATABASE_FILE) for folder in shards)
    sizes["lancedb"] = sum(size(folder / lance.FOLDER) for folder in shards)
    return {**sizes, "each": round(sum(sizes.values()) / max(memories, 1))}
