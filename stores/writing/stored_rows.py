"""The rows that a batch looks for: read in bulk, and each only once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from palimpsest.schemas.memory_texts import dedup_key
from palimpsest.schemas.privacy import PrivacyRow
from palimpsest.schemas.rows import FlagsRow, MemoryRow, NameRow, OutcomeRow, RelationRow, Row
from palimpsest.stores.database.membership import Column
from palimpsest.stores.database.tables import select
from palimpsest.stores.state import ShardState

KNOWN: Mapping[type[Row], Column] = {MemoryRow: "memory_id", OutcomeRow: "item_id"}
"""Rows that are mostly not there when they are looked for, by a column of their key."""

LISTED_KEYS = 64

RowT = TypeVar("RowT", bound=Row)
Key = tuple[object, ...]
Found = dict[tuple[str, str], str | None]
"""Ids of memories by scope and what they were looked for by; None where there is none."""


class StoredRows:
    """What one batch has read of a shard. `rows` are by type and key; None: looked for and not
    there."""

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard
        self.rows: dict[type[Row], dict[Key, Row | None]] = defaultdict(dict)
        self.relations_from: dict[str, set[Key]] = defaultdict(set)
        """Keys of the relations that were read, by their source name."""
        self._related: set[str] = set()

    def fetch(self, row_type: type[Row], keys: Sequence[Key]) -> None:
        """Rows of a type by their keys."""
        known = self.rows[row_type]
        missing = list(dict.fromkeys(key for key in keys if key not in known))
        for key in missing:
            known[key] = None
        if row_type is FlagsRow:
            known.update((key, self._shard.flags.get(str(key[0]))) for key in missing)
            return
        column = KNOWN.get(row_type)
        if column is not None:
            maybe = self._shard.known.among(column, [str(key[-1]) for key in missing])
            missing = [key for key in missing if key[-1] in maybe]
        if not missing:
            return
        if len(row_type.KEY) == 1:
            where, parameters = _among(row_type.KEY[0], [key[0] for key in missing])
        else:
            listed = ", ".join(f"unnest(?) AS {name}" for name in row_type.KEY)
            where = f"({', '.join(row_type.KEY)}) IN (SELECT ({', '.join(row_type.KEY)}) FROM"
            where += f" (SELECT {listed}))"
            parameters = [list(column) for column in zip(*missing, strict=True)]
        for row in self._select(row_type, where, parameters):
            known[row.key] = row

    def privacy_of(self, scope: str) -> Mapping[str, PrivacyRow]:
        """The stored privacy levels of a scope by person key."""
        levels = self._shard.privacy.get(scope, {})
        self.rows[PrivacyRow].update((row.key, row) for row in levels.values())
        return levels

    def fetch_memories(
        self,
        column: Literal["dedup_key", "source_id"],
        found: Found,
        wanted: Sequence[tuple[str, str]],
    ) -> None:
        """Active memories, no turns, by scope and content hash or source; adds to `found`."""
        missing = [pair for pair in wanted if pair not in found]
        for pair in missing:
            found[pair] = None
        keys = [dedup_key(*pair) if column == "dedup_key" else pair[1] for pair in missing]
        maybe = self._shard.known.among(column, keys)
        if not maybe:
            return
        where, parameters = _among(column, sorted(maybe))
        if column == "source_id":
            where += " AND dedup_key IS NOT NULL"  # active, and no turn or chunk
        for row in self._select(MemoryRow, where, parameters):
            self.rows[MemoryRow].setdefault(row.key, row)
            key = row.content_hash if column == "dedup_key" else row.source_id or ""
            if (row.scope, key) in found:
                found[(row.scope, key)] = row.memory_id

    def with_text(self, scope: str) -> list[str]:
        """Ids of all memories of a scope that are not erased, forgotten ones too."""
        with self._shard.reading() as reader:
            rows = reader.execute(
                "SELECT memory_id FROM memory_rows WHERE scope = ? AND content_hash <> ''", [scope]
            ).fetchall()
        return [memory_id for (memory_id,) in rows]

    def fetch_relations(self, name_ids: Sequence[str]) -> None:
        """Relations between names that were not read before."""
        if set(name_ids) <= self._related:
            return
        self._related.update(name_ids)
        pool = list(self._related)
        between = "{0} IN (SELECT unnest(?))"
        for row in self._select(
            RelationRow,
            f"{between.format('source_name_id')} AND {between.format('target_name_id')}",
            [pool, pool],
        ):
            self.rows[RelationRow].setdefault(row.key, row)
            self.relations_from[row.source_name_id].add(row.key)

    def fetch_names_of(self, entity_ids: Sequence[str]) -> None:
        """All names that are stored as names of these entities."""
        where, parameters = _among("entity_id", entity_ids)
        for row in self._select(NameRow, where, parameters):
            if self.rows[NameRow].get(row.key) is None:
                self.rows[NameRow][row.key] = row

    def _select(self, row_type: type[RowT], where: str, parameters: Sequence[object]) -> list[RowT]:
        # Not by the writing connection: other stages may be committing while this one reads.
        with self._shard.reading() as reader:
            return select(reader, row_type, where, parameters)


def _among(column: str, values: Sequence[object]) -> tuple[str, list[object]]:
    """A condition on a column and its parameters. DuckDB looks up a short list in the column's
    index, if there is one; a long one it joins."""
    if len(values) <= LISTED_KEYS:
        return f"{column} IN ({', '.join('?' * len(values))})", [*values]
    return f"{column} IN (SELECT unnest(?))", [[*values]]
