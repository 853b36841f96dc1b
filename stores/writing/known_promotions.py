"""Promotions as a batch has left them."""

from __future__ import annotations

from palimpsest.schemas.promotion_rows import PromotionItemRow, PromotionPartRow, PromotionRow
from palimpsest.schemas.rows import ArchiveRow, FactRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.batch_rows import BatchRows
from palimpsest.stores.writing.stored_rows import StoredRows
from palimpsest.streams.store_port import LoadPromotion, Promotions


def known_promotions(
    shard: ShardState, stored: StoredRows, rows: BatchRows, ask: LoadPromotion
) -> Promotions:
    """What is stored and what the batch has staged, the newest of each."""
    items = _items(shard, stored, rows, ask) if ask.items else ()
    stored.fetch(FactRow, [(key,) for key in ask.fact_ids])
    return Promotions(
        promotion=rows.get(PromotionRow, (ask.promotion_id, ask.scope)),
        newest=_newest(shard, rows, ask.scope),
        parts=_parts(shard, stored, rows, ask),
        items=items,
        states=_states(stored, rows, items),
        facts=frozenset(key for key in ask.fact_ids if rows.get(FactRow, (key,)) is not None),
    )


def _newest(shard: ShardState, rows: BatchRows, scope: str) -> PromotionRow | None:
    where = "scope = ? ORDER BY number DESC LIMIT 1"
    with shard.reading() as reader:
        found = select(reader, PromotionRow, where, [scope])
    known = [rows.get(PromotionRow, row.key) for row in found]
    known += [row for row in rows.staged(PromotionRow) if row.scope == scope]
    return max(filter(None, known), key=lambda row: row.number, default=None)


def _parts(
    shard: ShardState, stored: StoredRows, rows: BatchRows, ask: LoadPromotion
) -> tuple[PromotionPartRow, ...]:
    if ask.plan_id is None:
        return ()
    own = (ask.scope, ask.plan_id)
    with shard.reading() as reader:
        found = select(reader, PromotionPartRow, "scope = ? AND plan_id = ?", own)
    keys = {row.key for row in found}
    keys |= {row.key for row in rows.staged(PromotionPartRow) if (row.scope, row.plan_id) == own}
    stored.fetch(PromotionPartRow, sorted(keys, key=repr))
    known = [rows.get(PromotionPartRow, key) for key in keys]
    return tuple(sorted(filter(None, known), key=lambda row: row.part))


def _items(
    shard: ShardState, stored: StoredRows, rows: BatchRows, ask: LoadPromotion
) -> tuple[PromotionItemRow, ...]:
    own = (ask.promotion_id, ask.scope)
    with shard.reading() as reader:
        found = select(reader, PromotionItemRow, "promotion_id = ? AND scope = ?", own)
    keys = {row.key for row in found}
    staged = rows.staged(PromotionItemRow)
    keys |= {row.key for row in staged if (row.promotion_id, row.scope) == own}
    stored.fetch(PromotionItemRow, sorted(keys, key=repr))
    known = [rows.get(PromotionItemRow, key) for key in keys]
    return tuple(sorted(filter(None, known), key=lambda row: row.memory_id))


def _states(
    stored: StoredRows, rows: BatchRows, items: tuple[PromotionItemRow, ...]
) -> dict[str, ArchiveRow]:
    keys = [
        (item.memory_id, item.version_before)
        for item in items
        if item.version_before is not None and item.change in ("changed", "lost")
    ]
    stored.fetch(ArchiveRow, keys)
    known = [rows.get(ArchiveRow, key) for key in keys]
    return {row.memory_id: row for row in known if row is not None}
