"""What a model drew for a branch from memories whose texts were erased from the live one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palimpsest.ops.replay.branches import branch_folder
from palimpsest.ops.replay.counterparts import Counterparts
from palimpsest.ops.replay.erased_stores import Erased
from palimpsest.ops.replay.ledger import Ledger
from palimpsest.ops.replay.live_log import LiveLog
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, partition_for
from palimpsest.streams.models.base import EmbeddingModel, ModelError, Vector

_FORGOTTEN: Final = """
SELECT m.memory_id FROM memory_rows m
WHERE m.scope = $scope AND m.is_deleted AND m.content_hash <> '' AND EXISTS (
    FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
    WHERE o.item_kind = 'fact' AND o.memory_id = m.memory_id
        AND f.turn_memory_id IN (SELECT unnest($ids)))
    AND NOT EXISTS (
    FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
    WHERE o.item_kind = 'fact' AND o.memory_id = m.memory_id
        AND f.turn_memory_id NOT IN (SELECT unnest($ids)))
ORDER BY 1"""
"""Forgotten in the branch, with their texts still there, and drawn from nothing else."""


async def drawn_from_erased(
    settings: Settings,
    name: str,
    shard: Shard,
    log: LogReader,
    model: EmbeddingModel,
    erased: Sequence[Erased],
) -> list[Erased]:
    """The erasures with all memories of a branch's store that they concern: the same ones as in
    the live memory, the counterparts of its facts, and what the branch alone drew from erased
    turns. `settings` are the live ones, `log` is the live log. Where the embedding model is not to
    be had, facts are distinguished by their words alone, and rather more goes than less."""

    async def embed(texts: Sequence[str]) -> Sequence[Vector | None]:
        try:
            return await model.embed_passages(texts)
        except ModelError:
            return [None] * len(texts)

    with Ledger.opened(branch_folder(settings, name)) as ledger:
        live = LiveLog(log, ledger)
        for partition in sorted({partition_for(e.scope, live.partitions) for e in erased}):
            live.scan(partition)
        found = Counterparts(live, shard, embed, settings.near)
        return [await _with_drawn(each, found, live) for each in erased]


async def _with_drawn(erased: Erased, counterparts: Counterparts, live: LiveLog) -> Erased:
    scope = erased.scope
    end = live.ledger.scanned(MEMORY_CHANGES.name, partition_for(scope, live.partitions))
    ids = dict.fromkeys(erased.memory_ids)
    for live_id in erased.memory_ids:
        known = live.ledger.curated("live_id = ? AND scope = ?", live_id, scope)
        ids |= dict.fromkeys(row.branch_id for row in known if row.branch_id is not None)
        same = await counterparts.of_fact(scope, live_id, end)
        ids |= dict.fromkeys(each.branch_id for each in same)
    others = await counterparts.unaccounted(scope, erased.memory_ids, end)
    ids |= dict.fromkeys(each.branch_id for each in others)
    ids |= dict.fromkeys(_forgotten(counterparts.shard, erased))
    return Erased(erased.erasure_id, scope, tuple(ids))


def _forgotten(shard: Shard, erased: Erased) -> list[str]:
    with shard.reading() as reader:
        rows = reader.execute(
            _FORGOTTEN, {"scope": erased.scope, "ids": [*erased.memory_ids]}
        ).fetchall()
    return [memory_id for (memory_id,) in rows]
