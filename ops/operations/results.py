"""Results of commands and of published turns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from palimpsest.ops.operations.operation import (
    Doc,
    Json,
    Read,
    Scope,
    ScopeOfId,
    Surface,
    Texts,
)
from palimpsest.ops.operations.rows import all_rows, rows

if TYPE_CHECKING:
    from palimpsest.ops.operations.rows import Row
    from palimpsest.ops.sources import Sources


@dataclass(frozen=True, slots=True)
class CommandState:
    """The state of a command. `applied` is false while it is pending and if it was refused; then
    `error` begins with the kind of error and a colon. If it erased texts, `erasure` says whether
    files may still hold them."""

    command_id: str
    scope: str
    applied: bool
    command: str | None = None
    error: str | None = None
    result: Any = None
    recorded_at: datetime | None = None
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult(Read[CommandState | None]):
    """Show the result of a command, from here or another program; null while it is pending.

    Example: palimpsest result 0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11
    """

    command_id: Annotated[
        str, Doc("the command's id", min_length=1, max_length=256, argument=True, metavar="ID")
    ]
    scope: ScopeOfId = None

    surface: ClassVar = Surface(
        ("GET", "/api/commands/{command_id}"),
        tag="commands",
        command="result",
        panel="Explain and review",
        routing="any",
    )

    def read(self, sources: Sources) -> Json:
        return command_results(sources, [self.command_id]).get(self.command_id)

    def merge(self, answers: Sequence[Json]) -> Json:
        return next((answer for answer in answers if answer is not None), None)


_RESULTS = """
SELECT command_id, scope, command, error, result, recorded_at, digest FROM command_results
WHERE command_id IN (SELECT unnest($ids)) AND (error IS NOT NULL OR result <> 'null')"""
# Commands that failed at apply-writes leave only their dead letters.
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


def command_results(sources: Sources, command_ids: Sequence[str]) -> dict[str, Row]:
    """Returns the results of the executed commands, by id."""
    found: dict[str, Row] = {}
    for row in all_rows(sources, f"{_RESULTS} UNION ALL {_FAILED}", {"ids": [*command_ids]}):
        row["result"] = json.loads(row["result"])
        found[row["command_id"]] = row
    if found:
        for shard in sources.shards.values():
            shard.wait_until_shown()
    for erasure in all_rows(sources, _ERASURES, {"ids": [*found]}) if found else ():
        row = found[erasure["erasure_id"]]
        row["erasure"] = "done" if erasure["phase"] == "done" else "pending"
        row["left"] = [*_not_reached(sources.settings.log.kind == "kafka")]
    return found


def _not_reached(is_kafka: bool) -> Iterator[str]:
    """Where an erased text may remain, and what to do about it."""
    if is_kafka:
        yield (
            "records of the kept topics that were sent before the command still hold the texts,"
            " until their retention ends or `palimpsest topics delete-records` removes them"
        )
    yield "snapshots, exports and backups that were made before: delete them where they lie"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The outcome of a published turn: stored as the memory `memory_id`, rejected, or a dead
    letter, with the `reason`."""

    item_id: str
    status: Literal["stored", "rejected", "dead_letter"]
    memory_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class SettledTurns:
    """The settled turns."""

    turns: tuple[TurnResult, ...]


@dataclass(frozen=True, slots=True)
class TurnResults(Read[SettledTurns]):
    """Return the outcomes of published turns, without those that are pending."""

    item_ids: Annotated[
        Texts, Doc("their ids in the balance (view `pipeline_items`)", max_length=1_000)
    ]
    scope: Scope = ""

    surface: ClassVar = Surface()

    def read(self, sources: Sources) -> Json:
        # Dead letters come first, so that the stored outcome of a turn replaces its dead letter.
        parameters = {"scope": self.scope, "ids": [*self.item_ids]}
        shard = sources.shard_of(self.scope)
        found = rows(shard, _TURNS, parameters)
        shard.wait_until_shown()
        return {"turns": [*{row["item_id"]: row for row in found}.values()]}


_TURNS = """
SELECT * EXCLUDE rank FROM (
    SELECT unnest(item_ids) AS item_id, 'dead_letter' AS status, NULL AS memory_id, reason,
        0 AS rank
    FROM dead_letter_rows WHERE item_kind = 'turn' AND scope = $scope AND status <> 'redriven'
        AND list_has_any(item_ids, $ids)
    UNION ALL
    SELECT item_id, if(event = 'created', 'stored', 'rejected'), memory_id, reason, 1
    FROM outcomes WHERE item_kind = 'turn' AND scope = $scope
) WHERE list_contains($ids, item_id) ORDER BY rank"""
