"""A language model sums up what memories say of an entity: the nightly job.

An entity that three or more facts name gets a profile, a memory that was drawn from them; it gets
another once one of them is changed or forgotten. The reply goes into the log as a command, so that
a rebuild calls no model; a reply that was paid for is recorded before, so that a run which is
repeated after a crash does not pay again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from palimpsest.ops.lifecycle.shared import (
    ask,
    command_record,
    due_rows,
    finish_all,
    language_models,
)
from palimpsest.ops.scheduling.jobs import JobContext, JobFailed
from palimpsest.schemas.commands import MemoryVersion, RememberCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.memories import PROFILE, SOURCE_LIST
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.prompting.summaries import profile_prompt, read_summary
from palimpsest.streams.runtime.model_port import ModelPort

PROFILER: Final = Actor(id="profiler", type="system")
LEAST_FACTS: Final = 3
MOST_FACTS: Final = 40
MOST_CHARACTERS: Final = 800
MOST_AT_ONCE: Final = 200
"""Entities of a run on a partition, the most mentioned first."""
_ACTIVE: Final = f"NOT m.is_deleted AND m.type NOT IN {SOURCE_LIST}"
_FACTS: Final = f"""
SELECT n.scope, n.entity_id, m.memory_id, m.version, m.content, m.occurred_at,
    greatest(m.importance, m.pinned::DOUBLE) AS importance
FROM present_mentions n JOIN memory_rows m ON m.memory_id = n.memory_id
WHERE {_ACTIVE} AND coalesce(n.scope = $scope, true)"""
# A profile that stands needs none; one that a person forgot while all its sources stood neither.
_DUE: Final = f"""
WITH facts AS ({_FACTS}), sources AS (
    SELECT p.memory_id, p.source_id, p.scope, p.is_deleted, p.updated_by,
        bool_and(coalesce(NOT m.is_deleted AND m.updated_at <= p.created_at, false)) AS stand
    FROM memory_rows p JOIN memory_edges e ON e.source_id = p.memory_id
            AND e.relation_type = 'derived_from'
        LEFT JOIN memory_rows m ON m.memory_id = e.target_id
    WHERE p.type = '{PROFILE}' GROUP BY ALL)
SELECT f.scope, f.entity_id, any_value(k.name),
    list({{'id': f.memory_id, 'version': f.version, 'content': f.content}}
        ORDER BY f.importance DESC, f.occurred_at DESC, f.memory_id)[:{MOST_FACTS}]
FROM (SELECT DISTINCT * FROM facts) f
    JOIN known_entities k ON k.entity_id = f.entity_id AND k.scope = f.scope
WHERE k.summary IS NULL AND NOT k.archived AND NOT EXISTS (
    SELECT 1 FROM sources s WHERE s.source_id = f.entity_id AND s.scope = f.scope AND s.stand
        AND (NOT s.is_deleted OR s.updated_by <> '{PROFILER.id}'))
GROUP BY f.scope, f.entity_id HAVING count(*) >= {LEAST_FACTS}
ORDER BY count(*) DESC, f.scope, f.entity_id LIMIT {MOST_AT_ONCE}"""


@dataclass(frozen=True, slots=True)
class _Due:
    scope: str
    entity_id: str
    name: str
    facts: tuple[tuple[MemoryVersion, str], ...]


async def profiles(context: JobContext) -> str:
    """Makes the profiles that are due; returns what it did. Raises JobFailed where the model
    answered nothing usable at all."""
    models = language_models(context)
    if models is None:
        return "no language model is set (llm.provider): entities show their facts"
    due = await asyncio.to_thread(_due, context)
    made = await finish_all(_made(context, models, each) for each in due)
    records = [record for record in made if isinstance(record, Outgoing)]
    if records:
        await asyncio.to_thread(context.append, records)
    failed = [why for why in made if isinstance(why, str)]
    if failed and not records:
        raise JobFailed(f"none of {len(failed)} profiles: {failed[0]}")
    return f"{len(records)} profiles" + (f", {len(failed)} failed: {failed[0]}" if failed else "")


def _due(context: JobContext) -> list[_Due]:
    found = []
    for scope, entity_id, name, facts in due_rows(context, _DUE):
        versions = tuple(
            (MemoryVersion(memory_id=each["id"], version=each["version"]), each["content"])
            for each in facts
        )
        found.append(_Due(scope, entity_id, name, versions))
    return found


async def _made(context: JobContext, models: ModelPort, due: _Due) -> Outgoing | str:
    """The command, or why there is none."""
    prompt = profile_prompt(due.name, [text for _, text in due.facts], MOST_CHARACTERS)
    read = partial(read_summary, most_characters=MOST_CHARACTERS)
    try:
        summary, model = await ask(models, prompt, due.scope, read)
    except JobFailed as error:
        return f"{due.name}: {error}"
    command = RememberCommand(
        content=summary,
        type=PROFILE,
        importance=0.5,
        who=PROFILER.id,
        source_type=PROFILE,
        source_id=due.entity_id,
        drawn_from=tuple(version for version, _ in due.facts),
        metadata={"entity": due.name, "model": model},
    )
    versions = [f"{each.memory_id} {each.version}" for each, _ in due.facts]
    return command_record(context, due.scope, command, PROFILER, due.entity_id, *versions)
