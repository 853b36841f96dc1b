"""The age of the newest fact of every scope: mostly nothing else is needed of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palimpsest.schemas.rows import SOURCE_TYPES, MemoryRow
from palimpsest.stores.database.cursors import Reading
from palimpsest.streams.store_port import NearDuplicates


@dataclass(slots=True)
class Newest:
    """Of a set of memories, the highest write sequence of those that a command wrote, and the
    highest order of those that were decided; -1 if there are none."""

    commanded: int = -1
    decided: int = -1

    def note(self, row: MemoryRow) -> None:
        if row.decision_order is None:
            self.commanded = max(self.commanded, row.write_seq)
        else:
            self.decided = max(self.decided, row.decision_order)

    def may_be_unseen(self, ask: NearDuplicates) -> bool:
        """Returns whether any may be one that the decision could not have seen; never wrongly
        False."""
        return self.commanded > ask.as_of or self.decided >= ask.decision_order


class NewestFacts:
    """For all memories of a shard except turns and chunks, by scope. Read at the first request; the
    caller must `note` what it has committed."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scopes: dict[str, Newest] | None = None

    def of(self, scope: str) -> Newest:
        if self._scopes is None:
            self._scopes = self._read()
        return self._scopes.get(scope, Newest())

    def note(self, rows: Iterable[MemoryRow]) -> None:
        if self._scopes is not None:
            for row in rows:
                if row.type not in SOURCE_TYPES:
                    self._scopes.setdefault(row.scope, Newest()).note(row)

    def _read(self) -> dict[str, Newest]:
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT scope, coalesce(max(write_seq) FILTER (decision_order IS NULL), -1),"
                " coalesce(max(decision_order), -1) FROM memory_rows"
                " WHERE type NOT IN (SELECT unnest(?)) GROUP BY scope",
                [[*SOURCE_TYPES]],
            ).fetchall()
        return {scope: Newest(commanded, decided) for scope, commanded, decided in rows}
