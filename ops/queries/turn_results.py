"""Queries of what became of published turns."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, rows

_RESULTS = """
SELECT item_id, if(event = 'created', 'stored', 'rejected') AS status, memory_id, reason
FROM outcomes WHERE item_kind = 'turn' AND scope = $scope AND item_id IN (SELECT unnest($ids))
UNION ALL
SELECT unnest(item_ids) AS item_id, 'dead_letter' AS status, NULL, reason FROM dead_letter_rows
WHERE item_kind = 'turn' AND scope = $scope AND status <> 'redriven'
    AND list_has_any(item_ids, $ids)"""


def turn_results(sources: Sources, scope: str, item_ids: Sequence[str]) -> JsonObject:
    """`turns`: what became of those that are settled; a turn that was stored has no dead letter
    that counts."""
    found: JsonObject = {}
    for row in rows(sources.shard_of(scope), _RESULTS, {"scope": scope, "ids": [*item_ids]}):
        known = found.setdefault(str(row["item_id"]), row)
        if row["status"] != "dead_letter" and known is not row:
            found[str(row["item_id"])] = row
    return {"turns": [*found.values()]}
