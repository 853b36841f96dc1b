"""A language model infers which turns led to others: the nightly job.

It is shown pairs of consecutive turns that came within the last week, once each, 50 at most a
scope and run. What it infers goes into the log as a command, so that a rebuild calls no model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from palimpsest.ops.lifecycle.shared import ask, command_record, due_rows, language_models
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.commands import CausalPair, LinkCausesCommand, MemoryVersion
from palimpsest.schemas.envelope import Actor
from palimpsest.streams.prompting.summaries import causes_prompt, read_causes

REASONER: Final = Actor(id="reasoner", type="system")
CONFIDENCE: Final = 0.7
MOST_PAIRS: Final = 50
PAIRS_PER_CALL: Final = 10
DAYS: Final = 7
"""Shorter than results of commands are kept (`retention.completed_days` is 14): they tell up to
where the model has looked."""
# Pairs after the last one that was looked at, of each scope.
_PAIRS: Final = f"""
WITH looked AS (SELECT scope, max(CAST(result->>'through' AS BIGINT)) AS through
    FROM command_results WHERE command = 'link-causes' AND error IS NULL GROUP BY scope)
SELECT e.scope, a.memory_id, a.version, a.who || ': ' || a.content, b.memory_id, b.version,
    b.who || ': ' || b.content, b.write_seq
FROM memory_edges e JOIN memory_rows a ON a.memory_id = e.source_id
    JOIN memory_rows b ON b.memory_id = e.target_id LEFT JOIN looked l ON l.scope = e.scope
WHERE e.relation_type = 'temporal' AND NOT a.is_deleted AND NOT b.is_deleted
    AND coalesce(e.scope = $scope, true) AND b.created_at > $since
    AND b.write_seq > coalesce(l.through, 0)
QUALIFY row_number() OVER (PARTITION BY e.scope ORDER BY b.write_seq) <= {MOST_PAIRS}
ORDER BY e.scope, b.write_seq"""


@dataclass(frozen=True, slots=True)
class _Pair:
    seen: CausalPair
    texts: tuple[str, str]
    write_seq: int


async def causes(context: JobContext) -> str:
    """Looks at the pairs that are due; returns what it did. Raises JobFailed where the model's
    answer could not be used; the pairs are looked at again."""
    models = language_models(context)
    if models is None:
        return "no language model is set (llm.provider)"
    due = await asyncio.to_thread(_due, context)
    linked = unread = 0
    for scope, pairs in due.items():
        model = ""
        found: list[CausalPair] = []
        for first in range(0, len(pairs), PAIRS_PER_CALL):
            some = pairs[first : first + PAIRS_PER_CALL]
            prompt = causes_prompt([pair.texts for pair in some])
            places, model = await ask(models, prompt, scope, partial(read_causes, count=len(some)))
            if places is None:
                unread += 1
            else:
                found += [some[place].seen for place in places]
        linked += len(found)
        command = LinkCausesCommand(
            model=model,
            confidence=CONFIDENCE,
            examined=len(pairs),
            through=pairs[-1].write_seq,
            pairs=tuple(found),
        )
        ends = ((pair.seen.cause, pair.seen.effect) for pair in pairs)
        keys = (" ".join(f"{each.memory_id} {each.version}" for each in both) for both in ends)
        record = command_record(context, scope, command, REASONER, *keys)
        await asyncio.to_thread(context.append, [record])
    done = f"{linked} causes in {sum(map(len, due.values()))} pairs"
    return done + (f", {unread} replies that named most pairs not used" if unread else "")


def _due(context: JobContext) -> dict[str, list[_Pair]]:
    rows = due_rows(context, _PAIRS, since=context.at - timedelta(days=DAYS))
    due: dict[str, list[_Pair]] = {}
    for scope, cause, cause_version, first, effect, effect_version, second, write_seq in rows:
        pair = CausalPair(
            cause=MemoryVersion(memory_id=cause, version=cause_version),
            effect=MemoryVersion(memory_id=effect, version=effect_version),
        )
        due.setdefault(scope, []).append(_Pair(pair, (first, second), write_seq))
    return due
