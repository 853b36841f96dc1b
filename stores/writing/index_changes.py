"""What a batch changes in the indexes that are kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from palimpsest.schemas.rows import (
    EdgeRow,
    HeldRow,
    MemoryRow,
    MentionRow,
    NameRow,
    OutcomeRow,
    RelationRow,
)
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.writing.batch_rows import BatchRows
from palimpsest.streams.store_port import Vector

if TYPE_CHECKING:
    from palimpsest.stores.state import ShardState


def note_in_indexes(
    shard: ShardState, rows: BatchRows, vector_of: Callable[[MemoryRow], Vector | None]
) -> None:
    """Change what is resident of the scopes that the committed rows are of."""
    language = shard.options.search.language
    for memory in rows.staged(MemoryRow):
        vector = vector_of(memory)
        if vector is None and not memory.is_deleted:
            shard.may_lack_vectors = True
        if shard.indexes.wanted(memory.scope):
            change = (
                partial(ScopeIndex.put_row, row=memory, vector=vector, language=language)
                if rows.is_text_changed(memory)
                else partial(ScopeIndex.update_row, row=memory, vector=vector)
            )
            shard.indexes.change(memory.scope, change)
    for edge in rows.staged(EdgeRow):
        shard.indexes.change(edge.scope, partial(ScopeIndex.link, edge=edge))
    for held in rows.staged(HeldRow):
        shard.indexes.change(held.scope, ScopeIndex.note_changes)
    settled = (row for row in rows.staged(OutcomeRow) if row.item_kind == "fact")
    for scope in {row.scope for row in settled if row.event != "created"}:
        shard.indexes.change(scope, partial(ScopeIndex.note_changes, is_first=False))
    told: list[NameRow | RelationRow | MentionRow] = [
        *rows.staged(NameRow),
        *rows.staged(RelationRow),
        *rows.staged(MentionRow),
    ]
    for row in told:
        shard.indexes.change(row.scope, partial(ScopeIndex.tell, row=row))
