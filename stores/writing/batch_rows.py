"""The rows as a batch sees them: staged rows over anticipated ones over stored ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeVar, cast

from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.memory_texts import dedup_key, index_text
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, RelationRow
from palimpsest.schemas.rows.memories import FADING, PROFILE, WEIGHTS, ArchiveRow, MemoryRow, fades
from palimpsest.schemas.rows.pipeline import (
    CategoriesRow,
    DocumentMemoryRow,
    DocumentRow,
    FactRow,
    FlagsRow,
    PrivacyRow,
    PromotionItemRow,
    PromotionPartRow,
    PromotionRow,
    SweepRow,
)
from palimpsest.schemas.rows.sessions import ShortTermRow
from palimpsest.stores.database.membership import DEDUP_KEYS, SOURCE_IDS, joined, keys_of
from palimpsest.stores.database.tables import Tables, select
from palimpsest.stores.state import ShardState
from palimpsest.streams.store_port import Documents, Load, LoadDocuments, LoadPromotion, Promotions

LISTED_KEYS = 64

Key = tuple[object, ...]
Found = dict[tuple[str, str], str | None]
"""Ids of memories by scope and what they were looked for by; None where there is none."""


RowT = TypeVar("RowT", bound=Row)


def among(column: str, values: Sequence[object]) -> tuple[str, list[object]]:
    """A condition on a column and its parameters. DuckDB looks up a short list in the column's
    index, if there is one; a long one it joins."""
    if len(values) <= LISTED_KEYS:
        return f"{column} IN ({', '.join('?' * len(values))})", [*values]
    return f"{column} IN (SELECT unnest(?))", [[*values]]


class BatchRows:
    """Rows by type and key: what the batch has read of a shard, and staged. Whether a staged row is
    stored decides between insert and update."""

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard
        self._read: dict[type[Row], dict[Key, Row | None]] = defaultdict(dict)
        """None: looked for and not there."""
        self._staged: dict[type[Row], dict[Key, Row]] = defaultdict(dict)
        self._anticipated: dict[Key, MemoryRow] = {}
        self.anticipated_sources: set[tuple[str, str]] = set()
        """Anticipated memories with each memory that they rest on."""
        self._relations_from: dict[str, set[Key]] = defaultdict(set)
        """Keys of the relations that were read or staged, by their source name."""
        self._related: set[str] = set()
        self.expired: datetime | None = None
        """Short-term memories that end at or before this time are deleted, except those staged
        since."""
        self._weighed: set[Key] = set()

    def get(self, row_type: type[RowT], key: Key) -> RowT | None:
        """Returns the row including the batch's changes; reads it unless it was read before."""
        staged = self._staged[row_type].get(key)
        if staged is None and row_type is MemoryRow:
            staged = self._anticipated.get(key)
        if staged is not None:
            return cast("RowT", staged)
        if key not in self._read[row_type]:
            self.fetch(row_type, [key])
        return cast("RowT | None", self._read[row_type][key])

    def fetch(self, row_type: type[Row], keys: Sequence[Key]) -> None:
        """Reads rows at once that `get` would else read one by one."""
        if not keys:
            return
        known = self._read[row_type]
        missing = list(dict.fromkeys(key for key in keys if key not in known))
        for key in missing:
            known[key] = None
        if row_type is SweepRow:
            swept = self._shard.swept
            known.update((key, swept.get((str(key[0]), str(key[1])))) for key in missing)
            return
        if row_type is FlagsRow:
            known.update((key, self._shard.flags.get(str(key[0]))) for key in missing)
            return
        keys_of_type = keys_of(row_type)
        if keys_of_type is not None:
            maybe = self._shard.known.among(keys_of_type, list(map(joined, missing)))
            missing = [key for key in missing if joined(key) in maybe] if maybe else []
        if not missing:
            return
        if len(row_type.KEY) == 1:
            where, parameters = among(row_type.KEY[0], [key[0] for key in missing])
        else:
            listed = ", ".join(f"unnest(?) AS {name}" for name in row_type.KEY)
            where = f"({', '.join(row_type.KEY)}) IN (SELECT ({', '.join(row_type.KEY)}) FROM"
            where += f" (SELECT {listed}))"
            parameters = [list(column) for column in zip(*missing, strict=True)]
        for row in self._select(row_type, where, parameters):
            known[row.key] = row
        if row_type is ShortTermRow:
            self._drop_expired()

    def fetch_memories(
        self,
        column: Literal["dedup_key", "source_id"],
        found: Found,
        wanted: Sequence[tuple[str, str]],
    ) -> None:
        """Active memories, no turns, by scope and content hash or source; adds to `found`."""
        if not wanted:
            return
        missing = [pair for pair in wanted if pair not in found]
        for pair in missing:
            found[pair] = None
        keys = [dedup_key(*pair) if column == "dedup_key" else pair[1] for pair in missing]
        known = DEDUP_KEYS if column == "dedup_key" else SOURCE_IDS
        maybe = self._shard.known.among(known, keys)
        if not maybe:
            return
        where, parameters = among(column, sorted(maybe))
        if column == "source_id":
            # Active, and no turn or chunk.
            where += f" AND (dedup_key IS NOT NULL OR (type = '{PROFILE}' AND NOT is_deleted))"
        for row in self._select(MemoryRow, where, parameters):
            self._read[MemoryRow].setdefault(row.key, row)
            key = row.content_hash if column == "dedup_key" else row.source_id or ""
            if (row.scope, key) in found:
                found[(row.scope, key)] = row.memory_id

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
            self._read[RelationRow].setdefault(row.key, row)
            self._relations_from[row.source_name_id].add(row.key)

    def get_all(self, row_type: type[RowT], keys: Sequence[Key]) -> list[RowT]:
        """Returns those of the rows that there are, including the batch's changes; reads the others
        at once."""
        self.fetch(row_type, keys)
        return [row for key in keys if (row := self.get(row_type, key)) is not None]

    def matching(
        self,
        row_type: type[RowT],
        where: str,
        parameters: Sequence[object],
        matches: Callable[[RowT], bool],
    ) -> list[RowT]:
        """Returns the rows that meet a condition, including the batch's changes: `where` finds the
        stored ones, and `matches` decides for each as it is now."""
        stored = self._read[row_type]
        for row in self._select(row_type, where, parameters):
            stored.setdefault(row.key, row)
        return [row for row in self.known(row_type) if matches(row)]

    def privacy_of(self, scope: str) -> dict[str, PrivacyRow]:
        """The privacy levels of a scope by person key, including the batch's changes."""
        levels = self._shard.privacy.get(scope, {})
        self._read[PrivacyRow].update((row.key, row) for row in levels.values())
        staged = {row.person_key: row for row in self.staged(PrivacyRow) if row.scope == scope}
        return {**levels, **staged}

    def known(self, row_type: type[RowT]) -> list[RowT]:
        """All rows of a type that were read or staged."""
        rows = {**self._read[row_type], **self._staged[row_type]}.values()
        return [cast("RowT", row) for row in rows if row is not None]

    def relations_among(self, name_ids: Collection[str]) -> dict[tuple[str, str, str], RelationRow]:
        """All relations between these names that were read or staged, by their keys."""
        keys = {
            key
            for name_id in name_ids
            for key in self._relations_from.get(name_id, ())
            if key[1] in name_ids
        }
        return {
            (row.source_name_id, row.target_name_id, row.relation_type): row
            for row in self.get_all(RelationRow, sorted(keys, key=str))
        }

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
        """Ids of all memories of a scope that are not known to be erased, forgotten ones too."""
        rows = self._shard.fetch(
            "SELECT memory_id FROM memory_rows WHERE scope = ? AND content_hash <> ''", [scope]
        )
        staged = {row.memory_id for row in self.staged(MemoryRow) if row.scope == scope}
        return staged.union(memory_id for (memory_id,) in rows)

    def fading(self, ask: Load) -> tuple[str, ...]:
        """The ids that `Load.fading_after` requests, whatever of them this batch has changed."""
        after, limit = ask.fading_after, ask.fading_limit
        if after is None:
            return ()
        staged = [
            row.memory_id
            for row in self.staged(MemoryRow)
            if row.scope == ask.scope and row.memory_id > after
        ]
        # As many more as may fade no longer.
        found = self._shard.fetch(
            f"SELECT memory_id FROM memory_rows WHERE scope = ? AND memory_id > ? AND {FADING}"
            " ORDER BY memory_id LIMIT ?",
            [ask.scope, after, limit + len(staged)],
        )
        ids = sorted({memory_id for (memory_id,) in found}.union(staged))
        rows = self.get_all(MemoryRow, [(key,) for key in ids])
        return tuple(row.memory_id for row in rows if fades(row))[:limit]

    def is_weighed_only(self, row: MemoryRow) -> bool:
        """Whether a staged row differs from the stored one in `WEIGHTS` alone."""
        return row.key in self._weighed

    def before(self, row: MemoryRow) -> MemoryRow | None:
        """The memory as it was read."""
        return cast("MemoryRow | None", self._read[MemoryRow].get(row.key))

    def is_text_changed(self, row: MemoryRow) -> bool:
        before = self.before(row)
        return before is None or _indexed(before) != _indexed(row)

    def anticipate(self, row: MemoryRow, sources: Sequence[str] = ()) -> None:
        self._anticipated[row.key] = row
        self.anticipated_sources |= {(row.memory_id, source) for source in sources}

    def expire(self, at: datetime) -> None:
        """Deletes the short-term memories that end at or before this time."""
        self.expired = at if self.expired is None else max(at, self.expired)
        staged = self._staged[ShortTermRow]
        for key in [key for key, row in staged.items() if _ends_by(row, at)]:
            del staged[key]
        self._drop_expired()

    def _drop_expired(self) -> None:
        stored = self._read[ShortTermRow]
        if self.expired is not None:
            for key in [key for key, row in stored.items() if _ends_by(row, self.expired)]:
                stored[key] = None

    def stage(self, row: Row) -> None:
        row_type, key = type(row), row.key
        rows = self._staged[row_type]
        if isinstance(row, MemoryRow):
            before = self.before(row)
            self._weighed.discard(key)
            if before is not None and row.write_seq == before.write_seq:
                weights = {name: getattr(row, name) for name in WEIGHTS}
                if replace(before, **weights) == row:
                    self._weighed.add(key)
        counts = row_type.REWRITTEN or key in self._read[row_type]
        if counts or key not in rows or _is_less(row, rows[key]):
            rows[key] = row
        if isinstance(row, RelationRow):
            self._relations_from[row.source_name_id].add(key)
        elif isinstance(row, MemoryRow):
            self._read[MemoryRow].setdefault(key, None)

    def drop_repeats(self) -> None:
        """Drops the staged rows that were not looked up and are stored already."""
        for row_type, rows in self._staged.items():
            stored = self._read[row_type]
            blind = [key for key in rows if key not in stored]
            self.fetch(row_type, blind)
            for key in blind:
                if (known := stored[key]) is not None and not _is_less(rows[key], known):
                    del rows[key]

    def write(self, tables: Tables) -> None:
        """Writes the staged rows, as part of the running transaction."""
        for row_type, rows in self._staged.items():
            stored = self._read[row_type]
            known = [row for key, row in rows.items() if stored[key] is not None]
            absent = [row for key, row in rows.items() if stored[key] is None]
            if row_type is MemoryRow and self._weighed:
                weighed = [row for row in known if row.key in self._weighed]
                if weighed:
                    tables.replace(weighed, WEIGHTS)
                known = [row for row in known if row.key not in self._weighed]
            if known:
                tables.replace(known)
            if absent:
                tables.insert(absent)

    def inserted_keys(self) -> Iterator[tuple[type[Row], list[Key]]]:
        """The keys of the rows that were not stored before, by type."""
        for row_type, rows in self._staged.items():
            stored = self._read[row_type]
            yield row_type, [key for key in rows if stored[key] is None]

    def _select(self, row_type: type[RowT], where: str, parameters: Sequence[object]) -> list[RowT]:
        # Not by the writing connection: other stages may be committing while this one reads.
        with self._shard.reading() as reader:
            return select(reader, row_type, where, parameters)


def _is_less(row: Row, known: Row) -> bool:
    """Whether a repeat takes the place of the first row: of mentions the least one stays."""
    return (
        isinstance(row, MentionRow)
        and isinstance(known, MentionRow)
        and row.mention_text < known.mention_text
    )


def _indexed(row: MemoryRow) -> tuple[str, str, bool]:
    """What the indexes of texts hold of a memory; of a turn also its day."""
    said_at = local_time(row.occurred_at, row.utc_offset_minutes or 0)
    return index_text(row.type, row.who, row.content, said_at), row.who, row.is_deleted


def _ends_by(row: Row | None, at: datetime) -> bool:
    return isinstance(row, ShortTermRow) and row.expires_at <= at


def known_promotions(rows: BatchRows, ask: LoadPromotion) -> Promotions:
    """What is stored and what the batch has staged, the newest of each."""
    newest = rows.matching(
        PromotionRow,
        "scope = ? ORDER BY number DESC LIMIT 1",
        [ask.scope],
        lambda row: row.scope == ask.scope,
    )
    parts: list[PromotionPartRow] = []
    if ask.plan_id is not None:
        plan = (ask.scope, ask.plan_id)
        parts = rows.matching(
            PromotionPartRow,
            "scope = ? AND plan_id = ?",
            plan,
            lambda row: (row.scope, row.plan_id) == plan,
        )
    items: list[PromotionItemRow] = []
    if ask.items:
        own = (ask.promotion_id, ask.scope)
        items = rows.matching(
            PromotionItemRow,
            "promotion_id = ? AND scope = ?",
            own,
            lambda row: (row.promotion_id, row.scope) == own,
        )
    before = [
        (item.memory_id, item.version_before)
        for item in items
        if item.version_before is not None and item.change in ("changed", "lost")
    ]
    return Promotions(
        promotion=rows.get(PromotionRow, (ask.promotion_id, ask.scope)),
        newest=max(newest, key=lambda row: row.number, default=None),
        parts=tuple(sorted(parts, key=lambda row: row.part)),
        items=tuple(sorted(items, key=lambda row: row.memory_id)),
        states={row.memory_id: row for row in rows.get_all(ArchiveRow, before)},
        facts=frozenset(
            row.item_id for row in rows.get_all(FactRow, [(key,) for key in ask.fact_ids])
        ),
    )


def known_documents(rows: BatchRows, ask: LoadDocuments) -> Documents:
    """Returns the stored and staged rows, the newest of each."""
    by_id = rows.get_all(DocumentRow, [(key,) for key in ask.ids])
    by_key: list[DocumentRow] = []
    if ask.same_keys:
        by_key = rows.matching(
            DocumentRow,
            "scope = ? AND same_key IN (SELECT unnest(?))",
            [ask.scope, list(ask.same_keys)],
            lambda row: row.scope == ask.scope and row.same_key in ask.same_keys,
        )
    chunks: list[DocumentMemoryRow] = []
    if ask.chunks_of is not None:
        chunks = rows.matching(
            DocumentMemoryRow,
            "document_id = ? AND scope = ? AND position > ? ORDER BY position LIMIT ?",
            [ask.chunks_of, ask.scope, ask.after, ask.limit],
            lambda row: (
                (row.document_id, row.scope) == (ask.chunks_of, ask.scope)
                and row.position > ask.after
            ),
        )
    return Documents(
        {row.document_id: row for row in by_id if row.scope == ask.scope},
        {str(row.same_key): row for row in by_key},
        tuple(sorted((row.position, row.memory_id) for row in chunks)[: ask.limit]),
    )
