"""The demo: a conversation through the whole pipeline, then what is remembered, and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.resources import files

from pydantic import JsonValue

from palimpsest.ops.ingest.lines import read_turns
from palimpsest.ops.ingest.parsers.base import Bad, ReadOptions
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.maintenance.embedded import Application
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.lifecycle.pipeline import balance
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.parts import utc_now
from palimpsest.ops.reading.rows import rows
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.terminal.tables import Json, console, print_balance, print_result, text
from palimpsest.ops.worker.bootstrap import application
from palimpsest.ops.worker.local import serving_reads
from palimpsest.stores.database.derivations import told_word
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
LEFT JOIN archived_states a ON a.memory_id = p.target_id AND a.content <> f.content
    AND o.event IN ('modified', 'deleted')
WHERE o.event NOT IN ('created', 'skipped', 'reconsidered')
QUALIFY row_number() OVER (PARTITION BY p.item_id ORDER BY a.version DESC, p.round DESC) = 1
ORDER BY f.occurred_at, p.item_id
"""


def conversation(settings: Settings) -> list[Outgoing]:
    """The turns that come with the program."""
    policy = Policy.of(settings.pii)
    options = ReadOptions(SCOPE, settings.log.max_record_bytes, utc_now(), policy=policy)
    with (files("palimpsest.ops.demo") / "conversation.jsonl").open("rb") as file:
        found = [item for item, _ in read_turns(file, "conversation.jsonl", options)]
    bad = [item for item in found if isinstance(item, Bad)]
    assert not bad, bad
    return [item for item in found if not isinstance(item, Bad)]


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
        counted = rows(
            sources.shard_of(SCOPE),
            "SELECT type, count(*) AS n FROM memory_rows WHERE NOT is_deleted GROUP BY type"
            " ORDER BY n DESC, type",
        )
        return {
            "folder": str(settings.data_dir),
            "scope": SCOPE,
            "turns": len(turns),
            "memories": {str(row["type"]): row["n"] for row in counted},
            "recalls": recalls,
            "decisions": [*rows(sources.shard_of(SCOPE), _DECIDED)],
            "balance": balance(sources),
            "processed_seconds": round(processed, 2),
            "seconds": round(time.perf_counter() - began, 2),
        }


MEANING = {
    "updated": "updated: the new statement contradicts the known one, which went to the archive",
    "blocked": "held back: changing memory is only proposed as the flags are set",
    "none": "known already: nothing to do",
    "deduped": "known already: the same words",
    "deleted": "forgotten: the state before went to the archive",
    "dropped": "dropped: the decision could not be used",
    "shadowed": "recorded only: shadow mode",
}


def print_demo(result: Json) -> None:
    """Memories, recalls, decisions, the balance, and what to try next."""
    out = console()
    memories = result["memories"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in memories.items())
    out.print(
        f"\n[bold]{result['turns']} turns became memory[/] in {result['processed_seconds']} s:"
        f" {kinds}"
    )
    for recall in result["recalls"]:
        out.rule(f"[bold]{text(recall['query'])}", align="left")
        for number, found in enumerate(recall["results"], 1):
            print_result(out, number, found)
    out.rule("[bold]What was decided, and why", align="left")
    for decision in result["decisions"]:
        outcome = str(decision["outcome"])
        out.print(f"[bold]{text(decision['said'])}[/]")
        out.print(f"   [dim]{text(decision['speaker'])}, {text(decision['session'])}[/]")
        if decision["known"] not in (None, decision["said"]):
            out.print(f"   known before: {text(decision['known'])}")
        out.print(
            f"   proposed {text(decision['action'])} because: {text(decision['reason'])}"
            f" → {MEANING.get(outcome, outcome)}"
        )
    out.rule("[bold]Nothing got lost", align="left")
    print_balance(out, result["balance"])
    folder = result["folder"]
    known = [d for d in result["decisions"] if d["memory_id"]]
    example = str(known[0]["memory_id"])[:8] if known else "ID"
    out.rule("[bold]Try next", align="left")
    for line in (
        f'palimpsest recall "where does Tom live?" --scope demo --data-dir {folder}',
        f"palimpsest explain {example} --data-dir {folder}",
        f'palimpsest sql "SELECT type, count(*) FROM memories GROUP BY type" --data-dir {folder}',
        f"palimpsest status --data-dir {folder}",
        f'palimpsest remember "Maya plays the harp" --scope demo --data-dir {folder}',
        f"palimpsest serve --data-dir {folder}    (the console, in a browser)",
    ):
        out.print(f"  {line}", soft_wrap=True)
    out.print(f"[dim]Done in {result['seconds']} s. All of it lies in {folder}.[/]")
