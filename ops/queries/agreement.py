"""How often deciders agree with the live one, and with what people did afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources, from_all, rows

LIVE: Final = "live"
"""How the decider is called that acts."""

AGREEMENT: Final = f"""
WITH shown AS (
    SELECT s.*, v.is_right FROM main.shadow_proposals s
    LEFT JOIN main.decision_verdicts v ON v.scope = s.scope AND v.item_id = s.item_id
        AND s.round = (SELECT max(round) FROM internal.proposals p WHERE p.item_id = s.item_id)
    WHERE coalesce(s.scope = $scope, true))
SELECT scope, decider, count(*) AS proposals, count(*) FILTER (action IS NULL) AS failed,
    count(*) FILTER (same_action) AS same_action, count(*) FILTER (agrees) AS agrees,
    count(*) FILTER (action IS NOT NULL AND is_right IS NOT NULL) AS judged,
    count(*) FILTER (agrees = is_right) AS with_people, false AS earned
FROM shown GROUP BY scope, decider
UNION ALL
SELECT p.scope, '{LIVE}', count(*), 0, count(*), count(*), count(v.is_right),
    count(*) FILTER (v.is_right),
    coalesce((SELECT earned_update_delete FROM internal.scope_flags f WHERE f.scope = p.scope),
        false)
FROM internal.proposals p
LEFT JOIN main.decision_verdicts v ON v.scope = p.scope AND v.item_id = p.item_id
WHERE coalesce(p.scope = $scope, true)
  AND p.round = (SELECT max(round) FROM internal.proposals l WHERE l.item_id = p.item_id)
GROUP BY p.scope
"""


def agreement(sources: Sources, scope: str | None) -> JsonObject:
    """`deciders`: one row a scope and decider, the live one first. Of the `proposals` it was asked
    for, how many `failed`, named the `same_action` as the live one, and `agrees` also in the
    memory; of those a person `judged`, how many it had `with_people`. `earned`: whether the scope
    has earned to update and delete."""
    asked = {"scope": scope}
    if scope is None:
        return joined([[row for _, row in from_all(sources, AGREEMENT, asked)]])
    return joined([rows(sources.shard_of(scope), AGREEMENT, asked)])


def joined(parts: Iterable[Iterable[JsonObject]]) -> JsonObject:
    """The rows of all partitions in one order."""
    found = [row for part in parts for row in part]
    found.sort(key=lambda row: (str(row["scope"]), row["decider"] != LIVE, str(row["decider"])))
    deciders: list[JsonValue] = [*found]
    return {"deciders": deciders}
