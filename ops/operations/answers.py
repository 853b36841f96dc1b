"""Answers shared by several subjects: a memory with all its fields, the effect of a write, and what
became of commands and published turns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from palimpsest.ops.errors import reasons_of, was_applied
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import Answer, Doc, Json, Read, Surface, Texts
from palimpsest.ops.reading.rows import Row, all_rows, rows
from palimpsest.ops.sql.values import rfc3339
from palimpsest.stores.recall.query import Mark

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources


class PastRecall(Answer):
    """A read that returned a memory at this rank: a recall, a context or a get. `question` is None
    of a get, and where it is not kept."""

    kind: str
    question: str | None
    session_id: str
    asked_by: str | None
    rank: int
    score: float | None
    asked_at: datetime


class StoredMemory(Answer):
    """A memory with all its fields. The type `episodic` is a turn, and `role` the role of its
    speaker (empty when unknown). `marks` list what no longer holds. `shown_importance` is the
    importance less what it lost since the last access, 1 where pinned; `fades_at` is when the
    memory will have faded without a further one, None if it does not fade. `recalls`, of a single
    memory: the newest reads that returned it, newest first."""

    id: str
    scope: str
    type: str
    content: str
    who: str
    role: str
    session_id: str
    source_id: str | None
    occurred_at: datetime
    created_at: datetime
    updated_at: datetime
    updated_by: str
    importance: float
    confidence: float
    decay_rate: float
    pinned: bool
    tags: tuple[str, ...]
    categories: tuple[str, ...]
    why: str | None
    project: str | None
    source_type: str
    extraction_model: str | None
    temporal_kind: str
    valid_from: datetime | None
    valid_until: datetime | None
    version: int
    is_deleted: bool
    deleted_at: datetime | None
    last_accessed: datetime | None
    access_count: int
    content_hash: str
    metadata: dict[str, Any]
    marks: tuple[Mark, ...] = ()
    shown_importance: float = 0.0
    fades_at: datetime | None = None
    recalls: tuple[PastRecall, ...] = ()


DONE: Final = frozenset(
    {"updated", "no_changes", "forgotten", "recovered", "confirmed", "set"}
    | {"deduped", "dismissed", "added", "merged", "already", "ended", "erased", "removed"}
    | {"separated", "still_joined", "kept_apart", "said_before"}
)
"""Statuses of a change that was applied or not needed. `deleted` is one of them for a document and
a proposal; for a memory it means that the memory was already forgotten."""


class Applied(Answer, kw_only=True):
    """An executed command. If it erased texts, `erasure` says whether files may still hold them
    (`pending`) or not (`done`), and `left` lists where other copies remain."""

    command_id: str
    applied: bool = True
    erasure: Literal["pending", "done"] | None = None
    left: tuple[str, ...] = ()


class Dedup(Answer):
    """What became of a remembered text. `duplicate_exact`: a memory with the same text is there, or
    one with the same `source_id`, and it stays as it is; `updated_existing`: it got what the
    request wishes of it; `stored_new`: a new memory. `existing_id` is the id of the memory that was
    there."""

    action: Literal["duplicate_exact", "updated_existing", "stored_new"]
    existing_id: str | None


class MemoryChange(Answer, kw_only=True):
    """The effect of a command on one memory. `status` is the outcome, empty for a new memory.

    `version` is the memory's version now, which `if_version` takes; `current_version` the one that
    the command found, `new_version` the one that it made, null if it changed nothing.
    `content_changed`, of a modification; `embedded`: whether the new text has its vector already.

    Of a remembered text: `deduped`: it already existed; `dedup`: what became of it; `importance`,
    `categories`, `temporal_kind` and `valid_until` are those of the memory now, null if it is gone.

    `protected`: machines may no longer change it; `why`: what changed, or why it was left
    unchanged; `lowered`: what a machine requested and was not granted; `hidden_in`: the texts in
    which the forgotten statement is hidden, or the recovered one is shown again."""

    id: str
    version: int | None = None
    current_version: int | None = None
    new_version: int | None = None
    status: str = ""
    content_changed: bool | None = None
    embedded: bool | None = None
    deduped: bool = False
    dedup: Dedup | None = None
    importance: float | None = None
    categories: tuple[str, ...] | None = None
    temporal_kind: str | None = None
    valid_until: datetime | None = None
    protected: bool = False
    why: str = ""
    duplicate_of: str | None = None
    lowered: str = ""
    hidden_in: tuple[str, ...] = ()


_OF_MEMORIES: Final = frozenset({"remember", "modify", "forget", "recover", "confirm"})
_NEXT_VERSION: Final = frozenset({"updated", "forgotten", "recovered", "confirmed"})
_SAME_VERSION: Final = frozenset({"", "no_changes", "version_conflict"})


def completed(command: str, result: Json) -> Json:
    """Returns a command's stored result with what follows from it: nothing is stored twice, and
    results of earlier releases have it, too."""
    if command not in _OF_MEMORIES:
        return result
    if isinstance(result, list):
        return [completed(command, each) for each in result]
    if not isinstance(result, dict) or "id" not in result:
        return result
    found, status, version = {**result}, result.get("status", ""), result.get("version")
    is_new = result.get("deduped") is False
    if version is not None and (is_new or status in _NEXT_VERSION):
        found |= {"current_version": None if is_new else version - 1, "new_version": version}
    elif version is not None and status in _SAME_VERSION:
        found |= {"current_version": version, "new_version": None}
    if command == "modify" and status in ("updated", "no_changes"):
        # Only where the text changed is there anything to embed.
        found["content_changed"] = "embedded" in result
    if "deduped" in result:
        known = "updated_existing" if status == "updated" else "duplicate_exact"
        action = "stored_new" if is_new else known
        found["dedup"] = {"action": action, "existing_id": None if is_new else result["id"]}
    return found


class Change(MemoryChange, Applied, kw_only=True):
    """The effect of a command on its memory."""


class Changes(Applied, kw_only=True):
    """The effect of a command on each of several memories, in order."""

    changes: tuple[MemoryChange, ...]


class CommandState(Answer):
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


class CommandResult(Read[CommandState | None]):
    """Show the result of a command, from here or another program; null while it is pending.

    Example: palimpsest result 0b9e7c1a-6a53-4c0e-9f3e-5d1f6b0c7a11
    """

    command_id: Annotated[
        str,
        Doc(
            "the command's id",
            min_length=1,
            max_length=256,
            lower=True,
            argument=True,
            metavar="ID",
        ),
    ]
    scope: shared.ScopeOfId = None

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


RESULTS = """
SELECT command_id, scope, command, error, result, recorded_at, digest FROM command_results
WHERE command_id IN (SELECT unnest($ids)) AND (error IS NOT NULL OR result <> 'null')
UNION ALL
SELECT id AS command_id, scope, '' AS command, 'failed: ' || reason AS error, '{}' AS result,
    last_failed_at AS recorded_at, NULL AS digest
FROM (
    SELECT unnest(item_ids) AS id, * FROM dead_letter_rows
    WHERE item_kind = 'command' AND status <> 'redriven' AND list_has_any(item_ids, $ids)
)
WHERE list_contains($ids, id) AND id NOT IN (
    SELECT command_id FROM command_results WHERE command_id IN (SELECT unnest($ids))
)"""
"""The results of the commands `$ids` that have one: a result that a later stage will give is null,
and commands that failed at apply-writes leave only their dead letters."""

_RECENT = """
SELECT command_id, scope, command, error, result FROM command_results
WHERE recorded_at >= $since AND (error IS NOT NULL OR result LIKE '%"status"%')
ORDER BY recorded_at, command_id"""


def refused_since(sources: Sources, since: datetime) -> list[Row]:
    """Returns the commands of records appended since then that changed nothing because they were
    refused, with `why`."""
    refused = []
    for row in all_rows(sources, _RECENT, {"since": since}):
        result = json.loads(row.pop("result"))
        error = row.pop("error")
        if not was_applied(error, result):
            changes = result if isinstance(result, list) else [result]
            refused.append(row | {"why": error or reasons_of(changes)})
    return refused


_STORED = """
SELECT memory_id AS id, importance, categories, temporal_kind, valid_until FROM memory_rows
WHERE memory_id IN (SELECT unnest($ids)) AND NOT is_deleted"""
_ERASURES = "SELECT erasure_id, phase FROM erasures WHERE erasure_id IN (SELECT unnest($ids))"


def command_results(sources: Sources, command_ids: Sequence[str]) -> dict[str, Row]:
    """Returns the results of the executed commands, by id."""
    found: dict[str, Row] = {}
    for row in all_rows(sources, RESULTS, {"ids": [*command_ids]}):
        row["result"] = completed(row["command"], json.loads(row["result"]))
        found[row["command_id"]] = row
    # How a memory is stored is not kept with a result: an erasure would have to find it there.
    remembered = [row["result"] for row in found.values() if row["command"] == "remember"]
    named = {each["id"] for each in remembered if "id" in each}
    stored = {}
    for row in all_rows(sources, _STORED, {"ids": [*named]}) if named else ():
        end = row["valid_until"]
        stored[row["id"]] = {**row, "valid_until": None if end is None else rfc3339(end)}
    for each in remembered:
        each.update(stored.get(each.get("id"), {}))
    if found:
        for shard in sources.shards.values():
            shard.wait_until_shown()
    # Most commands remember something: a query less, of the three that a result takes.
    others = [key for key, row in found.items() if row["command"] != "remember"]
    for erasure in all_rows(sources, _ERASURES, {"ids": others}) if others else ():
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


class TurnResult(Answer):
    """The outcome of a published turn: stored as the memory `memory_id`, rejected, or a dead
    letter, with the `reason`."""

    item_id: str
    status: Literal["stored", "rejected", "dead_letter"]
    memory_id: str | None
    reason: str


class SettledTurns(Answer):
    """The settled turns."""

    turns: tuple[TurnResult, ...]


class TurnResults(Read[SettledTurns]):
    """Return the outcomes of published turns, without those that are pending."""

    item_ids: Annotated[
        Texts, Doc("their ids in the balance (view `pipeline_items`)", max_length=1_000)
    ]
    scope: shared.Scope = ""

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
