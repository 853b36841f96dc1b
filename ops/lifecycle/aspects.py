"""Recalls weigh aspects: the job.

The aspects whose memories a session recalled gain weight once the session has ended; aspects that
nothing recalled for two weeks lose some of it every night. The changes go into the log as commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from palimpsest.ops.lifecycle.shared import command_record, due_rows
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.aspects import AspectChange, WeighAspectsCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.graph import LEAST_WEIGHT
from palimpsest.streams.text.counts import counted

WEIGHER: Final = Actor(id="weigher", type="system")
GAIN: Final = 0.02
"""What an aspect gains by each of its memories that a session recalled."""
LOSS: Final = 0.005
"""What an aspect loses a night that nothing recalled for STALE."""
STALE: Final = timedelta(days=14)
NIGHT: Final = timedelta(hours=20)
COUNTED: Final = timedelta(days=7)
"""How long after a recall it may be counted. Shorter than results of commands are kept
(`retention.completed_days` is 14): they tell up to where a session's recalls were counted."""
FIRST_RESULTS: Final = 10
"""The results of a recall that count: the later ones are there because there was room."""
MOST_ASPECTS: Final = 500
"""Maximum number of aspects of a command."""
# A session has ended where the store knows it, or where neither turns nor recalls have come for as
# long as silence lasts.
_RECALLED: Final = f"""
WITH counted AS (
    SELECT scope, result->>'session_id' AS session_id,
        max(CAST(result->>'through' AS TIMESTAMPTZ)) AS through
    FROM command_results WHERE command = 'weigh-aspects' AND error IS NULL GROUP BY ALL),
recalled AS (
    SELECT r.scope, r.session_id, h.memory_id, s.ended_at, s.last_recorded_at,
        max(r.recorded_at) OVER (PARTITION BY r.scope, r.session_id) AS through
    FROM recalls r JOIN recall_results h USING (recall_id)
        LEFT JOIN counted c ON c.scope = r.scope AND c.session_id = r.session_id
        LEFT JOIN session_rows s ON s.scope = r.scope AND s.session_id = r.session_id
    WHERE r.session_id <> '' AND h.rank <= {FIRST_RESULTS}
        AND r.recorded_at > greatest($since, coalesce(c.through, $since))
        AND coalesce(r.scope = $scope, true))
SELECT r.scope, r.session_id, any_value(r.through), t.aspect_id, count(DISTINCT t.memory_id)
FROM recalled r JOIN attribute_rows t ON t.memory_id = r.memory_id AND t.scope = r.scope
    JOIN memory_rows m ON m.memory_id = t.memory_id
WHERE NOT m.is_deleted AND (t.text_key IS NULL OR t.text_key = m.embedding_key)
    AND (r.ended_at IS NOT NULL OR greatest(r.through, coalesce(r.last_recorded_at, r.through))
        <= $silent)
GROUP BY r.scope, r.session_id, t.aspect_id
QUALIFY row_number() OVER (PARTITION BY r.scope, r.session_id ORDER BY t.aspect_id)
    <= {MOST_ASPECTS}
ORDER BY r.scope, r.session_id, t.aspect_id"""
_STALE: Final = f"""
SELECT a.scope, list(a.aspect_id ORDER BY a.aspect_id)[:{MOST_ASPECTS}]
FROM aspect_rows a LEFT JOIN aspect_weights w USING (aspect_id)
WHERE greatest(a.updated_at, coalesce(w.used_at, a.updated_at)) < $stale
    AND coalesce(w.decayed_at <= $night, true) AND coalesce(a.scope = $scope, true)
    AND coalesce(w.gain, 0) > {LEAST_WEIGHT} - a.weight
GROUP BY a.scope ORDER BY a.scope"""


async def aspects(context: JobContext) -> str:
    """Appends the commands; returns what it did."""
    commands = await asyncio.to_thread(lambda: [*_recalled(context), *_stale(context)])
    records = []
    for scope, command in commands:
        # Of one session up to one recall, or of one day and these aspects, there is one command.
        if command.session_id:
            keys = [command.session_id, str(command.through)]
        else:
            keys = [str(context.at.date()), *(each.aspect_id for each in command.aspects)]
        records.append(command_record(context, scope, command, WEIGHER, *keys))
    if records:
        await asyncio.to_thread(context.append, records)
    by_session = [len(each.aspects) for _, each in commands if each.session_id]
    faded = sum(len(each.aspects) for _, each in commands if not each.session_id)
    gaining = counted(sum(by_session), "aspects gain")
    return f"{gaining} by {counted(len(by_session), 'sessions')}, {faded} lose"


def _recalled(context: JobContext) -> Iterator[tuple[str, WeighAspectsCommand]]:
    silence = timedelta(minutes=context.settings.sessions.silence_minutes)
    at = context.at
    rows = due_rows(context, _RECALLED, since=at - COUNTED, silent=at - silence)
    changes: dict[tuple[str, str, datetime], list[AspectChange]] = {}
    for scope, session_id, through, aspect_id, count in rows:
        change = AspectChange(
            aspect_id=aspect_id, change=min(1.0, GAIN * count), confirmations=count
        )
        changes.setdefault((scope, session_id, through), []).append(change)
    for (scope, session_id, through), some in changes.items():
        command = WeighAspectsCommand(session_id=session_id, through=through, aspects=tuple(some))
        yield scope, command


def _stale(context: JobContext) -> Iterator[tuple[str, WeighAspectsCommand]]:
    rows = due_rows(context, _STALE, stale=context.at - STALE, night=context.at - NIGHT)
    for scope, aspect_ids in rows:
        some = tuple(AspectChange(aspect_id=each, change=-LOSS) for each in aspect_ids)
        yield scope, WeighAspectsCommand(aspects=some)
