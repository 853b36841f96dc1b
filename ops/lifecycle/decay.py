"""Memories fade: the nightly job, and what it would do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from palimpsest.ops.lifecycle.retention import windows_of
from palimpsest.ops.lifecycle.shared import command_record, is_frozen
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import DecayCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.memories import FADING, MemoryRow
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.sweeps import GONE
from palimpsest.streams.fading import EXPONENT, faded, fades_at
from palimpsest.streams.logs.base import Outgoing

DECAY: Final = Actor(id="decay", type="system")
SINCE_STATE: Final = "decay_since"
"""Since when a store fades that was made before memories did."""
_DAYS: Final = (
    "(epoch_us(greatest(coalesce(decayed_at, {begin}), {begin})) - epoch_us({begin})) / 86400e6"
)
_BEGIN: Final = "coalesce(last_accessed, created_at)"
FADES_AT: Final = (
    f"{_BEGIN} + to_microseconds(CAST(86400e6 * least(365000, pow("
    f"pow({_DAYS.format(begin=_BEGIN)}, {EXPONENT})"
    f" + ln(greatest(confidence, $floor, 1e-9) / greatest($floor, 1e-9)) / decay_rate,"
    f" {1 / EXPONENT})) AS BIGINT))"
)
"""`fades_at` in SQL, by `$floor`."""


async def decay(context: JobContext) -> str:
    """Appends one command for every scope in which something fades. A repeat of the same run
    appends them under the same ids, and would change nothing more anyway."""
    records = await asyncio.to_thread(lambda: [*_records(context)])
    if records:
        await asyncio.to_thread(context.append, records)
    return f"{len(records)} scopes to fade"


def _records(context: JobContext) -> Iterator[Outgoing]:
    query = f"SELECT DISTINCT scope FROM memory_rows WHERE {FADING} ORDER BY scope"
    found = context.shard.fetch(query)
    command = DecayCommand(floor=context.settings.decay.floor, since=decay_since(context.shard))
    for (scope,) in found:
        if not is_frozen(context.shard, context.settings, scope):
            yield command_record(context, scope, command, DECAY, context.at.isoformat())


def decay_since(shard: Shard) -> datetime | None:
    """From when on a shard's memories fade: an older store does not lose at once what was not read
    for months. None for a store in which they always did."""
    rows = shard.fetch("SELECT value FROM shard_state WHERE name = ?", [SINCE_STATE])
    return datetime.fromisoformat(rows[0][0]) if rows else None


def fading(
    shard: Shard, scope: str, at: datetime, rate: float | None = None
) -> list[tuple[MemoryRow, MemoryRow]]:
    """The memories of a scope that fade, each as it is and as it is once it has faded up to `at`;
    with `rate` as if that were the rate of all."""
    since = decay_since(shard)
    with shard.reading() as reader:
        rows = select(reader, MemoryRow, f"scope = ? AND {FADING}", [scope])
    if rate is not None:
        rows = [replace(row, decay_rate=rate) for row in rows]
    return [(row, faded(row, at, since)) for row in rows]


def preview(shard: Shard, scope: str, floor: float, at: datetime, limit: int) -> dict[str, Any]:
    """What fading up to `at` would do: counts, and the memories that it weakens most."""
    since = decay_since(shard)
    after = fading(shard, scope, at)
    changed = sorted(
        ((new.confidence, row) for row, new in after if new is not row),
        key=lambda each: (each[0], each[1].memory_id),
    )
    gone = sum(confidence < floor for confidence, _ in changed)
    return {
        "weakened": len(changed) - gone,
        "faded": gone,
        "since": None if since is None else since.isoformat(),
        "memories": [
            {
                "id": row.memory_id,
                "content": row.content,
                "confidence": row.confidence,
                "faded_to": confidence,
                "forgotten": confidence < floor,
            }
            for confidence, row in changed[:limit]
        ],
    }


# ---- simulation ----
_MISSED: Final = """
SELECT r.recall_id, r.kind, r.question, r.asked_at, x.rank, x.memory_id
FROM recalls r JOIN recall_results x USING (recall_id)
WHERE r.scope = $scope AND r.asked_at >= $since
    AND x.scope = $scope AND x.memory_id IN (SELECT unnest($ids))
ORDER BY r.asked_at DESC, r.recall_id, x.rank"""
_ASKED: Final = "SELECT count(*) FROM recalls WHERE scope = ? AND asked_at >= ?"


@dataclass(frozen=True, slots=True)
class Rule:
    """What is simulated. `until`: as of when decay and the sweep run. None: the scope's own window,
    each memory's own rate of decay."""

    until: datetime
    floor: float
    deleted_days: int | None = None
    decay_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A memory that decay forgets (`faded`), or a forgotten one that the sweep removes for good
    (`swept`), and when. A tombstone has no `content`."""

    id: str
    type: str
    content: str | None
    reason: Literal["faded", "swept"]
    at: datetime


def taken(shard: Shard, settings: Settings, scope: str, rule: Rule) -> list[Taken]:
    """Returns what the rule takes of a scope, the first to go first. It is assumed that nothing is
    recalled, changed or forgotten meanwhile."""
    with shard.reading() as reader:
        days = rule.deleted_days
        if days is None:
            days = windows_of(reader, settings, scope)["deleted_days"]
        window = timedelta(days=days)
        tombstones = reader.execute(
            f"SELECT memory_id, type, deleted_at FROM memory_rows WHERE memory_id IN {GONE}",
            {"scope": scope, "before": rule.until - window},
        ).fetchall()
    found = [
        Taken(memory_id, kind, None, "swept", deleted_at.astimezone(UTC) + window)
        for memory_id, kind, deleted_at in tombstones
    ]
    since = decay_since(shard)
    for row, weaker in fading(shard, scope, rule.until, rule.decay_rate):
        if weaker.confidence < rule.floor:
            begin = row.last_accessed or row.created_at
            until = max(begin, row.decayed_at or begin, since or begin)
            at = fades_at(row.confidence, row.decay_rate, begin, until, rule.floor)
            at = rule.until if at is None else min(at, rule.until)
            found.append(Taken(row.memory_id, row.type, row.content, "faded", at))
    return sorted(found, key=lambda each: (each.at, each.id))


def simulate(
    shard: Shard, settings: Settings, scope: str, rule: Rule, since: datetime
) -> dict[str, Any]:
    """Returns what the rule takes, and the recalls recorded since then that returned any of it, the
    newest first; as JSON, whole."""
    gone = taken(shard, settings, scope, rule)
    by_id = {each.id: each for each in gone}
    with shard.reading() as reader:
        [(asked,)] = reader.execute(_ASKED, [scope, since]).fetchall()
        rows = reader.execute(_MISSED, {"scope": scope, "since": since, "ids": [*by_id]}).fetchall()
    recalls: dict[str, dict[str, Any]] = {}
    for recall_id, kind, question, asked_at, rank, memory_id in rows:
        about = {
            "id": recall_id,
            "kind": kind,
            "question": question,
            "asked_at": asked_at.astimezone(UTC).isoformat(),
            "missing": [],
        }
        missing = {"rank": rank, "memory_id": memory_id, "reason": by_id[memory_id].reason}
        recalls.setdefault(recall_id, about)["missing"].append(missing)
    return {
        "until": rule.until.isoformat(),
        "total": len(gone),
        "by_type": dict(sorted(Counter(each.type for each in gone).items())),
        "by_reason": dict(sorted(Counter(each.reason for each in gone).items())),
        "memories": [{**asdict(each), "at": each.at.isoformat()} for each in gone],
        "recalls_recorded": asked,
        "recalls": [*recalls.values()],
    }
