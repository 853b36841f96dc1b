"""Whether stores of one number of partitions hold of every scope what those of another hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb

from palimpsest.ops.replay.live_stores import attached
from palimpsest.schemas.audit_rows import AcceptedRow, DeadLetterRow
from palimpsest.schemas.identity import UNREADABLE_SCOPE
from palimpsest.schemas.row_types import ROW_TYPES
from palimpsest.schemas.rows import ArchiveRow, Row, ShortTermRow
from palimpsest.stores.database.state_hash import differing_rows, row_count, state_hash
from palimpsest.stores.database.tables import COLUMNS
from palimpsest.stores.database.view_columns import quoted
from palimpsest.streams.logs.base import partition_for

_UNREADABLE: Final = quoted(UNREADABLE_SCOPE)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file that no one writes to, and the schema in which the tables of one store lie."""

    path: Path
    schema: str = "internal"


@dataclass(frozen=True, slots=True)
class ComparedStore:
    """What a new store holds: `rows` of all tables, with the append times in their `state_hash`,
    and by table how many rows only it or only the old stores have of its scopes."""

    rows: int
    state_hash: str
    differing: dict[str, int]


def compared(
    old: Sequence[StoreFile], new: Sequence[StoreFile], ended: datetime
) -> list[ComparedStore]:
    """Compare, by partition of the new stores, with append times, apart from places in the log.
    Short-term memories that were over by `ended`, the last time of the log, do not count: when
    they are swept depends on what else lies in their partition."""
    files = {f"old_{number}": each.path for number, each in enumerate(old)}
    files |= {f"new_{number}": each.path for number, each in enumerate(new)}
    with attached(files) as connection:
        olds = [f"old_{number}.{each.schema}" for number, each in enumerate(old)]
        news = [f"new_{number}.{each.schema}" for number, each in enumerate(new)]
        comparing = _Comparing(connection, ended)
        comparing.know_scopes([*olds, *news], len(new))
        found = []
        for number, store in enumerate(news):
            wanted = f"IN (FROM memory.main.wanted_{number})"
            differing = comparing.differing(olds, wanted, [store], f"<> {_UNREADABLE}")
            rows = row_count(connection, store)
            connection.execute(f"USE {store}")
            digest = state_hash(connection, times=True)
            connection.execute("USE memory.main")
            found.append(ComparedStore(rows, digest, differing))
        # What is of no scope lies where its record lay.
        unread = f"= {_UNREADABLE}"
        for table, rows in comparing.differing(olds, unread, news, unread).items():
            found[0].differing[table] = found[0].differing.get(table, 0) + rows
        return found


@dataclass(frozen=True, slots=True)
class _Comparing:
    connection: duckdb.DuckDBPyConnection
    ended: datetime

    def know_scopes(self, stores: Sequence[str], partitions: int) -> None:
        """A table of the scopes of each new partition."""
        every = " UNION ".join(
            f"SELECT DISTINCT scope FROM {store}.{each.TABLE}"
            for store in stores
            for each in ROW_TYPES
        )
        scopes = [scope for (scope,) in self.connection.execute(every).fetchall()]
        by_partition: list[list[str]] = [[] for _ in range(partitions)]
        for scope in scopes:
            if scope != UNREADABLE_SCOPE:
                by_partition[partition_for(scope, partitions)].append(scope)
        for number, wanted in enumerate(by_partition):
            table = f"memory.main.wanted_{number}"
            self.connection.execute(
                f"CREATE TABLE {table} AS SELECT unnest($1::VARCHAR[]) AS scope", [wanted]
            )

    def differing(
        self, old: Sequence[str], of_old: str, new: Sequence[str], of_new: str
    ) -> dict[str, int]:
        """As `differing_rows`, of all stores of a side together and these scopes of theirs."""
        self._show("old", old, of_old)
        self._show("new", new, of_new)
        return differing_rows(self.connection, "memory.old", "memory.new")

    def _show(self, side: str, stores: Sequence[str], scopes: str) -> None:
        self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS memory.{side}")
        for row_type in ROW_TYPES:
            union = " UNION ALL ".join(self._query(row_type, store, scopes) for store in stores)
            self.connection.execute(
                f"CREATE OR REPLACE VIEW memory.{side}.{row_type.TABLE} AS {union}"
            )

    def _query(self, row_type: type[Row], store: str, scopes: str) -> str:
        columns = ", ".join(_PLACELESS.get((row_type, name), name) for name in COLUMNS[row_type])
        query = f"SELECT {columns} FROM {store}.{row_type.TABLE} WHERE scope {scopes}"
        if row_type is ShortTermRow:
            query += f" AND expires_at > TIMESTAMPTZ {quoted(self.ended.isoformat())}"
        return query.replace("{store}", store)


# An archived state has the places that rows have, and a turn that cannot be read counts by its own.
_PLACELESS: Final[dict[tuple[type[Row], str], str]] = {
    (ArchiveRow, "state"): "CAST(json_merge_patch(state,"
    """ '{"write_seq": null, "decision_order": null}') AS VARCHAR) AS state""",
    (AcceptedRow, "item_id"): f"CASE WHEN scope = {_UNREADABLE} THEN scope ELSE item_id END"
    " AS item_id",
    (DeadLetterRow, "item_ids"): "CASE WHEN item_ids[1] IN (SELECT item_id FROM"
    f" {{store}}.{AcceptedRow.TABLE} WHERE scope = {_UNREADABLE})"
    f" THEN [{_UNREADABLE}] ELSE item_ids END AS item_ids",
}
