"""What was drawn from memories, as a batch has left it."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.schemas.rows import EdgeRow, FactRow, OutcomeRow
from palimpsest.stores.database.derivations import (
    SAID_AGAIN,
    Pairs,
    by_memory,
    said_by,
    sources_of,
)
from palimpsest.stores.state import ShardState
from palimpsest.stores.writing.batch_rows import BatchRows


def sources_of_derived(
    shard: ShardState, rows: BatchRows, scope: str, ids: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """All sources, sorted, of every memory that was drawn from one of `ids`, or from another and
    repeated by one."""
    if not ids:
        return {}
    edges = {
        (edge.source_id, edge.target_id)
        for edge in rows.staged(EdgeRow)
        if edge.relation_type == "derived_from" and edge.scope == scope
    }
    facts = _staged_facts(rows, scope)
    wanted = {memory_id for memory_id, source in edges | facts if source in ids}
    with shard.reading() as reader:
        wanted |= said_by(reader, scope, ids)
        drawn, again = sources_of(reader, scope, wanted)
    drawn |= {pair for pair in edges if pair[0] in wanted}
    again |= {pair for pair in facts if pair[0] in wanted}
    return by_memory(drawn, again)


def _staged_facts(rows: BatchRows, scope: str) -> Pairs:
    pairs: Pairs = set()
    for outcome in rows.staged(OutcomeRow):
        if outcome.item_kind != "fact" or outcome.event not in SAID_AGAIN:
            continue
        fact = rows.get(FactRow, (outcome.item_id,))
        if outcome.memory_id is not None and fact is not None and outcome.scope == scope:
            pairs.add((outcome.memory_id, fact.turn_memory_id))
    return pairs
