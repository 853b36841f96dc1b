"""The rows as a batch sees them: staged rows over anticipated ones over stored ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TypeVar, cast

from palimpsest.schemas.audit_rows import DeadLetterRow
from palimpsest.schemas.privacy import PrivacyRow
from palimpsest.schemas.promotion_rows import PromotionItemRow, PromotionPartRow, PromotionRow
from palimpsest.schemas.rows import (
    CategoriesRow,
    CommandRow,
    DocumentRow,
    FlagsRow,
    MemoryRow,
    MentionRow,
    NameRow,
    OpenSessionsRow,
    RelationRow,
    Row,
    SessionRow,
    ShortTermRow,
)
from palimpsest.stores.database.tables import Tables
from palimpsest.stores.writing.stored_rows import Key, StoredRows

REWRITTEN = frozenset(
    (
        *(MemoryRow, SessionRow, OpenSessionsRow, ShortTermRow),
        *(NameRow, RelationRow, FlagsRow, PrivacyRow, CommandRow, DocumentRow, CategoriesRow),
        *(PromotionRow, PromotionItemRow, PromotionPartRow, DeadLetterRow),
    )
)
"""Rows that stages read before they write them: the newest one counts. Of all other types the first
one counts unless it was read, so that a repeat under another message id changes nothing."""

RowT = TypeVar("RowT", bound=Row)
LATEST = datetime.max.replace(tzinfo=UTC)


class BatchRows:
    """Rows by type and key. Whether a staged row is stored decides between insert and update."""

    def __init__(self, stored: StoredRows) -> None:
        self._stored = stored
        self._staged: dict[type[Row], dict[Key, Row]] = defaultdict(dict)
        self._anticipated: dict[Key, MemoryRow] = {}
        self._relations_from: dict[str, set[Key]] = defaultdict(set)
        self.expired: datetime | None = None
        """Short-term memories that end at or before this time are deleted, except those staged
        since."""
        self._first = LATEST
        self._ends_of = -1
        """The number of stored rows for which `_first` was computed; -1 if it must be computed
        again."""

    def get(self, row_type: type[RowT], key: Key) -> RowT | None:
        """Returns the row including the batch's changes; reads it unless it was read before."""
        staged = self._staged[row_type].get(key)
        if staged is None and row_type is MemoryRow:
            staged = self._anticipated.get(key)
        if staged is not None:
            return cast("RowT", staged)
        if key not in self._stored.rows[row_type]:
            self._stored.fetch(row_type, [key])
            if row_type is ShortTermRow:
                self._drop_expired()
        return cast("RowT | None", self._stored.rows[row_type][key])

    def privacy_of(self, scope: str) -> dict[str, PrivacyRow]:
        """The privacy levels of a scope by person key, including the batch's changes."""
        stored = self._stored.privacy_of(scope)
        staged = {row.person_key: row for row in self.staged(PrivacyRow) if row.scope == scope}
        return {**stored, **staged}

    def known(self, row_type: type[RowT]) -> list[RowT]:
        """All rows of a type that were read or staged."""
        rows = {**self._stored.rows[row_type], **self._staged[row_type]}.values()
        return [cast("RowT", row) for row in rows if row is not None]

    def relations_among(self, name_ids: Collection[str]) -> list[RelationRow]:
        """All relations between these names that were read or staged."""
        keys = {
            key
            for name_id in name_ids
            for known in (self._stored.relations_from, self._relations_from)
            for key in known.get(name_id, ())
            if key[1] in name_ids
        }
        found = (self.get(RelationRow, key) for key in sorted(keys, key=str))
        return [row for row in found if row is not None]

    def staged(self, row_type: type[RowT]) -> list[RowT]:
        return [cast("RowT", row) for row in self._staged[row_type].values()]

    def categories(self, scope: str) -> tuple[str, ...]:
        """All categories of a scope."""
        row = self.get(CategoriesRow, (scope,))
        return () if row is None else row.names

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged."""
        return not any(self._staged.values())

    def with_text(self, scope: str) -> set[str]:
        """Ids of all memories of a scope that are not known to be erased."""
        staged = {row.memory_id for row in self.staged(MemoryRow) if row.scope == scope}
        return staged.union(self._stored.with_text(scope))

    def before(self, row: MemoryRow) -> MemoryRow | None:
        """The memory as it was read."""
        return cast("MemoryRow | None", self._stored.rows[MemoryRow].get(row.key))

    def is_text_changed(self, row: MemoryRow) -> bool:
        before = self.before(row)
        return before is None or (before.content, before.who, before.is_deleted) != (
            row.content,
            row.who,
            row.is_deleted,
        )

    def anticipate(self, row: MemoryRow) -> None:
        self._anticipated[row.key] = row

    def expire(self, at: datetime) -> None:
        """Deletes the short-term memories that end at or before this time."""
        self.expired = at if self.expired is None else max(at, self.expired)
        if self._first_end() > at:
            return
        self._ends_of = -1
        staged = self._staged[ShortTermRow]
        for key in [key for key, row in staged.items() if _ends_by(row, at)]:
            del staged[key]
        self._drop_expired()

    def _first_end(self) -> datetime:
        """The earliest end of a short-term memory that was read or staged, or an earlier time;
        cached because every turn needs it."""
        stored = self._stored.rows[ShortTermRow]
        if self._ends_of != len(stored):
            self._ends_of = len(stored)
            # Includes a stored row that a staged one replaces: the sweep will delete it.
            rows = (*stored.values(), *self._staged[ShortTermRow].values())
            ends = [row.expires_at for row in rows if isinstance(row, ShortTermRow)]
            self._first = min(ends, default=LATEST)
        return self._first

    def _drop_expired(self) -> None:
        stored = self._stored.rows[ShortTermRow]
        if self.expired is not None:
            for key in [key for key, row in stored.items() if _ends_by(row, self.expired)]:
                stored[key] = None

    def stage(self, row: Row) -> None:
        row_type, key = type(row), row.key
        rows = self._staged[row_type]
        if row_type in REWRITTEN or key in self._stored.rows[row_type]:
            rows[key] = row
        elif isinstance(row, MentionRow):
            known = rows.get(key)
            if known is None or row.mention_text < cast("MentionRow", known).mention_text:
                rows[key] = row
        else:
            rows.setdefault(key, row)
        if isinstance(row, ShortTermRow):
            self._first = min(self._first, row.expires_at)
        elif isinstance(row, RelationRow):
            self._relations_from[row.source_name_id].add(key)
        elif isinstance(row, MemoryRow):
            self._stored.rows[MemoryRow].setdefault(key, None)

    def write(self, tables: Tables, may_be_there: bool) -> None:
        """Writes the staged rows, as part of the running transaction. `may_be_there`: rows that
        were not looked up may be repeats."""
        for row_type, rows in self._staged.items():
            self._write_rows(tables, row_type, rows, may_be_there)

    def _write_rows(
        self, tables: Tables, row_type: type[Row], rows: dict[Key, Row], may_be_there: bool
    ) -> None:
        stored = self._stored.rows[row_type]
        known = [row for key, row in rows.items() if stored.get(key) is not None]
        absent = [row for key, row in rows.items() if key in stored and stored[key] is None]
        blind = [row for key, row in rows.items() if key not in stored]
        if known:
            tables.replace(known)
        if not may_be_there:
            absent += blind
            blind = []
        if absent:
            tables.insert(absent)
        if blind and row_type is MentionRow:
            tables.insert_least(blind, "mention_text")
        elif blind:
            tables.insert_new(blind)


def _ends_by(row: Row | None, at: datetime) -> bool:
    return isinstance(row, ShortTermRow) and row.expires_at <= at
