"""Queries of held-back changes, which a person may apply or dismiss."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import SHORTEST_ID, Sources, from_all

HELD = f"""
SELECT h.item_id AS id, h.scope, h.action, h.target_id AS memory_id, m.content AS memory,
    h.content AS fact, h.reason, h.confidence, h.occurred_at, h.recorded_at AS held_at,
    CASE WHEN m.memory_id IS NULL OR m.is_deleted THEN 'target_gone'
         WHEN m.version IS DISTINCT FROM h.target_version THEN 'version_conflict'
         WHEN m.pinned THEN 'pinned' ELSE 'ready' END AS state
FROM held_proposals h
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = h.item_id AND o.event = 'blocked'
LEFT JOIN memory_rows m ON m.memory_id = h.target_id
WHERE coalesce(h.scope = $scope, true)
  AND (len($ids) = 0 OR list_contains($ids, h.item_id) OR len(list_filter($ids,
      lambda given: len(given) >= {SHORTEST_ID} AND starts_with(h.item_id, given))) > 0)
ORDER BY h.occurred_at, h.item_id LIMIT $limit
"""


def list_held(sources: Sources, scope: str | None, ids: Sequence[str], limit: int) -> JsonObject:
    """`proposals`, in the order in which their facts were stated. `state` is `ready`, or why one
    cannot be applied as it is: the memory is gone, changed since, or pinned."""
    found = from_all(
        sources,
        HELD,
        {"scope": scope, "ids": [*ids], "limit": limit},
    )
    held = sorted((row for _, row in found), key=lambda r: (str(r["occurred_at"]), str(r["id"])))
    oldest: list[JsonValue] = [*held[:limit]]
    return {"proposals": oldest}
