"""The demo: a conversation through the whole pipeline, then what is remembered, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import cast

from pydantic import JsonValue

from palimpsest.ops.bootstrap import application
from palimpsest.ops.embedded import Application
from palimpsest.ops.ingest.base import Bad
from palimpsest.ops.ingest.lines import read_turns
from palimpsest.ops.ingest.records import RecordOptions, in_batches
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.operations.pipeline import balance
from palimpsest.ops.operations.rows import rows
from palimpsest.ops.parts import utc_now
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.queries import DirectQueries
from palimpsest.ops.service.running import serving_reads
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sources import Sources
from palimpsest.stores.database.outcome_words import told_word
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.sensitive.policy import Policy

SCOPE = "demo"
QUESTIONS = (
    "What does Maya drink in the morning?",
    "When is the wedding of Tom's sister?",
    "What is Maya allergic to?",
)
RESULTS = 3

_DECIDED = f"""
SELECT f.content AS said, t.who AS speaker, t.session_id AS session, p.action, p.reason,
    {told_word("o.event")} AS outcome, o.reason AS outcome_reason,
    coalesce(o.memory_id, p.target_id) AS memory_id,
    coalesce(a.content, m.content) AS known
FROM proposals p JOIN fact_rows f USING (item_id)
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = p.item_id
LEFT JOIN memory_rows t ON t.memory_id = f.turn_memory_id
LEFT JOIN memory_rows m ON m.memory_id = coalesce(p.target_id, o.memory_id)
LEFT JOIN memory_archive a ON a.memory_id = p.target_id AND a.content <> f.content
    AND o.event IN ('modified', 'deleted')
WHERE o.event NOT IN ('created', 'skipped', 'reconsidered')
QUALIFY row_number() OVER (PARTITION BY p.item_id ORDER BY a.version DESC, p.round DESC) = 1
ORDER BY f.occurred_at, p.item_id
"""


def conversation(settings: Settings) -> list[Outgoing]:
    """The turns that come with the program."""
    policy = Policy.of(settings.pii)
    options = RecordOptions(SCOPE, settings.log.max_record_bytes, utc_now(), policy=policy)
    with (files("palimpsest.ops.demo") / "conversation.jsonl").open("rb") as file:
        found = [item for item, _ in read_turns(file, "conversation.jsonl", options)]
    bad = [item for item in found if isinstance(item, Bad)]
    assert not bad, bad
    return cast("list[Outgoing]", found)


async def perform(
    settings: Settings, watched: Callable[[Application], AbstractContextManager[None]]
) -> JsonObject:
    """Publish, process, recall; all results as plain data. `watched` shows the
    progress. Publishing again doubles nothing, so the demo can be repeated in its folder."""
    began = time.perf_counter()
    turns = conversation(settings)
    with publisher(settings) as append:
        for batch in in_batches(turns):
            append(batch)
    async with application(settings) as app, serving_reads(app) as sources:
        with watched(app):
            await app.run(until_drained=True)
        processed = time.perf_counter() - began
        queries = DirectQueries(sources)
        recalls: list[JsonValue] = [
            await queries.answer(Recall(question, SCOPE, RESULTS, explain=True))
            for question in QUESTIONS
        ]
        return {
            "folder": str(settings.data_dir),
            "scope": SCOPE,
            "turns": len(turns),
            "memories": _memories(sources),
            "recalls": recalls,
            "decisions": [*rows(sources.shard_of(SCOPE), _DECIDED)],
            "balance": balance(sources),
            "processed_seconds": round(processed, 2),
            "seconds": round(time.perf_counter() - began, 2),
        }


def _memories(sources: Sources) -> JsonObject:
    counted = rows(
        sources.shard_of(SCOPE),
        "SELECT type, count(*) AS n FROM memory_rows WHERE NOT is_deleted GROUP BY type"
        " ORDER BY n DESC, type",
    )
    return {str(row["type"]): row["n"] for row in counted}
