"""Queries of what became of commands."""

from __future__ import annotations

import json
from collections.abc import Sequence

from palimpsest.ops.queries.requests import CommandRequest, JsonObject
from palimpsest.ops.queries.sources import Sources, from_all

_RESULTS = """
SELECT command_id, scope, command, error, result, recorded_at, digest FROM command_results
WHERE command_id IN (SELECT unnest($ids)) AND (error IS NOT NULL OR result <> 'null')"""
# Those that failed at apply-writes: their dead letters are all that is left of them.
_FAILED = """
SELECT id AS command_id, scope, '' AS command, 'failed: ' || reason AS error, '{}' AS result,
    last_failed_at AS recorded_at, NULL AS digest
FROM (
    SELECT unnest(item_ids) AS id, * FROM dead_letter_rows
    WHERE item_kind = 'command' AND status <> 'redriven' AND list_has_any(item_ids, $ids)
)
WHERE list_contains($ids, id) AND id NOT IN (
    SELECT command_id FROM command_results WHERE command_id IN (SELECT unnest($ids))
)"""


def command_result(sources: Sources, request: CommandRequest) -> JsonObject | None:
    """What became of a command; None while it is on its way. `error` begins with what kind it is;
    `digest` tells the command from another one under its id."""
    return command_results(sources, [request.command_id]).get(request.command_id)


def command_results(sources: Sources, command_ids: Sequence[str]) -> dict[str, JsonObject]:
    """What became of those that are carried out, by id."""
    found: dict[str, JsonObject] = {}
    for _, row in from_all(sources, f"{_RESULTS} UNION ALL {_FAILED}", {"ids": [*command_ids]}):
        row["result"] = json.loads(str(row["result"]))
        found[str(row["command_id"])] = row
    return found
