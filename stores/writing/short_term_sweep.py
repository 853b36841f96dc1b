"""Deletes expired short-term memories, without a query when there are none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from palimpsest.schemas.rows import ShortTermRow
from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.database.tables import Tables


class ShortTermSweep:
    """Tracks a time before which no stored row of a shard ends."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._earliest = self._read()

    def _read(self) -> datetime | None:
        with self._reading() as reader:
            row = reader.execute("SELECT min(expires_at) FROM short_term_rows").fetchone()
        assert row is not None
        earliest: datetime | None = row[0]
        return earliest

    def sweep(self, tables: Tables, at: datetime | None) -> None:
        """Deletes the rows that end by then, as part of the running transaction."""
        if self._is_due(at):
            tables.run("DELETE FROM short_term_rows WHERE expires_at <= ?", [at])

    def note(self, swept: datetime | None, written: Sequence[ShortTermRow]) -> None:
        """After a commit that swept through a time, and then wrote these."""
        if self._is_due(swept):
            self._earliest = self._read()
        ends = [row.expires_at for row in written]
        if self._earliest is not None:
            ends.append(self._earliest)
        self._earliest = min(ends, default=None)

    def _is_due(self, at: datetime | None) -> bool:
        return at is not None and self._earliest is not None and self._earliest <= at
