"""The job `retention`: removes what is past its window, step by step, by commands in the log.

Every command is one step in one scope, up to a point in time that makes it remove about `MOST_ROWS`
rows, so that writers wait for a short transaction only. A step begins when those before it have
nothing left. What is in flight is never removed: the store has applied the whole log, and completed
items go up to the oldest turn without an outcome.

Vectors of earlier texts of memories that are still there are derived data, which a rebuild does not
make: no command removes them, the job itself does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, get_args

import duckdb

from palimpsest.ops.lifecycle.shared import is_frozen
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import SweepCommand, SweepStep
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import UNREADABLE_SCOPE
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.sweeps import BY_TIME
from palimpsest.streams.apply.upkeep import WINDOWS
from palimpsest.streams.runtime.offload import in_thread
from palimpsest.streams.runtime.output import null_values, own_command
from palimpsest.streams.store_port import OF_TOMBSTONES

SWEEPER: Final = Actor(id="retention", type="system")
STEPS: Final[tuple[SweepStep, ...]] = get_args(SweepStep)
_EVENTS: Final = "SELECT event_id FROM history_rows WHERE scope = ? AND created_at <= ?"
_TICK: Final = timedelta(microseconds=1)


async def sweep(context: JobContext) -> str:
    """Sweeps all scopes of the partition, or the one of the context."""
    removed: dict[str, int] = {}
    for scope in await asyncio.to_thread(scopes_of, context.shard, context.settings, context.scope):
        for step in STEPS:
            while (found := await asyncio.to_thread(next_step, context, scope, step)) is not None:
                if step == "history":
                    await asyncio.to_thread(purge_topic, context, scope, found.before)
                command = SweepCommand(step=step, before=found.before)
                await context.execute([own_command(scope, command, SWEEPER, context.at)])
                removed[step] = removed.get(step, 0) + found.rows
    dropped = 0 if context.scope is not None else await drop_earlier_vectors(context)
    if dropped:
        removed["earlier vectors"] = dropped
    return ", ".join(f"{step}: {rows}" for step, rows in removed.items()) or "nothing to remove"


async def drop_earlier_vectors(context: JobContext) -> int:
    """Removes the vectors of texts that no memory has now, nor had within the window of its scope,
    in which a person may bring one back. Returns how many texts they were of."""
    shard = context.shard
    keys = await asyncio.to_thread(_earlier_keys, context)
    for first in range(0, len(keys), MOST_ROWS):
        async with shard.lock:
            await in_thread(_drop_vectors, shard, keys[first : first + MOST_ROWS])
        shard.vectors_changed += 1
        # A stage may have counted on the vector of a text that it is about to write again.
        shard.may_lack_vectors = True
    return len(keys)


def _earlier_keys(context: JobContext) -> list[str]:
    days = configured(context.settings, "deleted_days")
    with context.shard.reading() as reader:
        unused = reader.execute(_UNUSED).fetchall()
        if not unused:
            return []
        recent = reader.execute(_RECENT, {"at": context.at, "days": days}).fetchall()
    return sorted({key for (key,) in unused} - {key for (key,) in recent})


def _drop_vectors(shard: Shard, keys: list[str]) -> None:
    with shard.writing() as connection:
        connection.execute(_DROP, [keys])


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step up to a point in time, and about how many rows it removes."""

    before: datetime
    rows: int


def scopes_of(shard: Shard, settings: Settings, scope: str | None) -> list[str]:
    """The scopes that may be swept, in alphabetical order; without those that are frozen."""
    if scope is not None:
        return [scope]
    found = shard.fetch(SCOPES)
    return [scope for (scope,) in found if not is_frozen(shard, settings, scope)]


def next_step(context: JobContext, scope: str, step: str) -> NextStep | None:
    """The next command of a step; None when nothing is left."""
    with context.shard.reading() as reader:
        windows = windows_of(reader, context.settings, scope)
        swept = {
            name: when.astimezone(UTC) for name, when in reader.execute(SWEPT, [scope]).fetchall()
        }
        until = _until(reader, scope, step, windows, context.at, swept)
        if until is None:
            return None
        values = {"scope": scope, "until": until, "after": swept.get(step), "most": MOST_ROWS}
        row = reader.execute(LEFT[step], values).fetchone()
    assert row is not None
    return None if row[0] is None else NextStep(row[0].astimezone(UTC), int(row[1]))


def _until(
    reader: duckdb.DuckDBPyConnection,
    scope: str,
    step: str,
    windows: Mapping[str, int],
    at: datetime,
    swept: Mapping[str, datetime],
) -> datetime | None:
    """The point in time up to which a step may go now; None for not at all."""
    if step == "vectors":
        return swept.get("mentions")
    if step == "memories":
        return swept.get("vectors")
    until = at - timedelta(days=windows[WINDOW_OF[step]])
    if step == "dead-letters":
        # An item leaves the balance no later than its dead letter.
        return min(until, swept["completed"]) if "completed" in swept else None
    if step == "completed":
        [oldest] = reader.execute(OLDEST_OPEN, [scope]).fetchall()
        return until if oldest[0] is None else min(until, oldest[0].astimezone(UTC) - _TICK)
    return until


def left(
    shard: Shard, settings: Settings, at: datetime, only: str | None
) -> Iterator[tuple[str, str, int]]:
    """Yields scope, step and how many rows it would remove, for a dry run."""
    for scope in scopes_of(shard, settings, only):
        with shard.reading() as reader:
            windows = windows_of(reader, settings, scope)
            for step in STEPS:
                until = at - timedelta(days=windows[WINDOW_OF[step]])
                given = {"scope": scope, "until": until, "after": None, "most": 2**62}
                row = reader.execute(LEFT[step], given).fetchone()
                if row is not None and row[1]:
                    yield scope, step, int(row[1])


def purge_topic(context: JobContext, scope: str, before: datetime) -> None:
    """Removes the events from the compacted topic, by null values. Before the command: a crash in
    between repeats both."""
    rows = context.shard.fetch(_EVENTS, [scope, before])
    keys = [str(event_id).encode() for (event_id,) in rows]
    if keys:
        context.append(null_values(context.partition, scope, keys))


# ---- vectors of earlier texts ----
_UNUSED: Final = """
SELECT DISTINCT embedding_key FROM embeddings ANTI JOIN memory_rows USING (embedding_key)"""
_RECENT: Final = """
SELECT json_extract_string(state, '$.embedding_key') FROM archived_states
LEFT JOIN scope_retention USING (scope)
WHERE archived_at > $at - to_days(coalesce(deleted_days, $days)::INTEGER)"""
_DROP: Final = """
DELETE FROM embeddings WHERE embedding_key IN (SELECT unnest(?))
    AND embedding_key NOT IN (SELECT embedding_key FROM memory_rows)"""

# ---- steps ----
MOST_ROWS: Final = 500
"""About how many rows a step removes. Rows of one moment go together."""

_TABLES: Final = ("memory_rows", *(row.TABLE for all_ in BY_TIME.values() for row, _, _ in all_))
SCOPES: Final = f"""
SELECT scope FROM ({" UNION ".join(f"SELECT scope FROM {table}" for table in _TABLES)})
WHERE scope NOT IN ('', '{UNREADABLE_SCOPE}') ORDER BY scope"""
"""Without records that nobody could read, which belong to no scope."""
SWEPT: Final = "SELECT step, before FROM scope_sweeps WHERE scope = ?"
OLDEST_OPEN: Final = """
SELECT min(a.recorded_at) FROM accepted_turns a
ANTI JOIN outcomes o ON o.item_kind = 'turn' AND o.item_id = a.item_id
WHERE a.scope = $1 AND a.item_id NOT IN (SELECT unnest(item_ids) FROM dead_letter_rows
    WHERE item_kind = 'turn' AND status <> 'redriven')"""
"""When the oldest turn without an outcome was taken; NULL without one."""

# The newest time of the oldest `most` rows, and how many rows are not later than that.
_NEXT: Final = """
WITH due AS ({due}), counted AS (
    SELECT due_at, sum(weight) OVER (ORDER BY due_at RANGE UNBOUNDED PRECEDING) AS so_far FROM due
)
SELECT max(due_at), max(so_far) FROM counted
WHERE so_far <= $most OR due_at = (SELECT min(due_at) FROM due)"""
_TOMBSTONES: Final = """
SELECT m.deleted_at AS due_at, {weight} AS weight FROM memory_rows m
WHERE m.scope = $scope AND m.is_deleted AND m.deleted_at <= $until
    AND ($after IS NULL OR m.deleted_at > $after)"""
_MENTIONS: Final = "1 + (SELECT count(*) FROM mention_rows n WHERE n.memory_id = m.memory_id)"


def _by_time(step: str, weight: int = 1) -> str:
    return " UNION ALL ".join(
        f"SELECT {column} AS due_at, {weight} AS weight FROM {row.TABLE} WHERE scope = $scope"
        f" AND {column} <= $until AND {which} AND ($after IS NULL OR {column} > $after)"
        for row, column, which in BY_TIME[step]
    )


_DUE: Final = {
    **dict.fromkeys(OF_TOMBSTONES, _TOMBSTONES.format(weight="1")),
    "mentions": _TOMBSTONES.format(weight=_MENTIONS),
    **{step: _by_time(step) for step in BY_TIME},
    # Dead letters wait for this step, which does not remove them.
    "completed": f"{_by_time('completed')} UNION ALL {_by_time('dead-letters', weight=0)}",
}
LEFT: Final = {step: _NEXT.format(due=due) for step, due in _DUE.items()}
"""By step: given `scope`, `until`, `after` (how far it has come, or NULL) and `most`."""


_OWN: Final = f"SELECT {', '.join(WINDOWS)} FROM scope_retention WHERE scope = ?"
WINDOW_OF: Final = {
    **dict.fromkeys(OF_TOMBSTONES, "deleted_days"),
    "history": "history_days",
    "completed": "completed_days",
    "dead-letters": "dead_letter_days",
    "recalls": "recall_days",
}
"""By step of the sweep."""


def windows_of(reader: duckdb.DuckDBPyConnection, settings: Settings, scope: str) -> dict[str, int]:
    """The windows in effect for a scope, in days."""
    own = own_windows(reader, scope).items()
    return {name: configured(settings, name) if days is None else days for name, days in own}


def own_windows(reader: duckdb.DuckDBPyConnection, scope: str) -> dict[str, int | None]:
    """Those that commands have set for a scope; None for the others."""
    found = reader.execute(_OWN, [scope]).fetchone()
    return dict(zip(WINDOWS, found or (None,) * len(WINDOWS), strict=True))


def configured(settings: Settings, name: str) -> int:
    """A window as the settings have it."""
    if name == "deleted_days":
        return settings.pipeline.recovery_days
    return int(getattr(settings.retention, name))
