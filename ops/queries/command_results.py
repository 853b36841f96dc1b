"""Queries of what became of commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from palimpsest.ops.queries.requests import JsonObject
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

_ERASURES = "SELECT erasure_id, phase FROM erasures WHERE erasure_id IN (SELECT unnest($ids))"


def command_result(sources: Sources, command_id: str) -> JsonObject | None:
    """What became of a command; None while it is on its way. `error` begins with what kind it is;
    `digest` tells the command from another one under its id; `erasure`, of one that erased texts,
    whether files may still have them (`pending`) or not (`done`), and `left`, where nothing was
    erased."""
    return command_results(sources, [command_id]).get(command_id)


def command_results(sources: Sources, command_ids: Sequence[str]) -> dict[str, JsonObject]:
    """What became of those that are carried out, by id."""
    found: dict[str, JsonObject] = {}
    for _, row in from_all(sources, f"{_RESULTS} UNION ALL {_FAILED}", {"ids": [*command_ids]}):
        row["result"] = json.loads(str(row["result"]))
        found[str(row["command_id"])] = row
    for _, erasure in from_all(sources, _ERASURES, {"ids": [*found]}) if found else ():
        row = found[str(erasure["erasure_id"])]
        row["erasure"] = "done" if erasure["phase"] == "done" else "pending"
        row["left"] = [*_not_reached(sources.settings.log.kind == "kafka")]
    return found


def _not_reached(is_kafka: bool) -> Iterator[str]:
    """Where an erasure leaves texts, and what to do about it."""
    if is_kafka:
        yield (
            "records of the kept topics that were sent before the command still hold the texts,"
            " until their retention ends or `palimpsest topics delete-records` removes them"
        )
    yield "snapshots, exports and backups that were made before: delete them where they lie"
