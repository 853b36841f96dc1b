"""What the settings of stores and of recall change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from palimpsest.ops.embedding.models import EmbeddingModels
from palimpsest.ops.embedding.tracker import EmbeddingTracker
from palimpsest.ops.errors import SqlTooLargeError, SqlTooSlowError
from palimpsest.ops.lifecycle.archive import archive
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameRow
from palimpsest.stores.database.archive import files_of
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.memory_rows import archived
from palimpsest.streams.settings import Flags
from tests.memory_rows import memory
from tests.messages import BEGIN
from tests.setting_lab import PATIENCE_S, REMOTE_VECTORS, Case, Lab, recall_of
from tests.token_model import WordModel

LONG_VECTORS = ("embedding.dimensions=2048",)


async def setting_of_database(lab: Lab, name: str) -> object:
    with lab.shard() as shard, shard.reading() as reader:
        return reader.execute(f"SELECT current_setting('{name}')").fetchone()[0]


async def memory_of_database(lab: Lab) -> object:
    return await setting_of_database(lab, "memory_limit")


async def threads_of_database(lab: Lab) -> object:
    return await setting_of_database(lab, "threads")


async def sorted_in_memory(lab: Lab) -> object:
    """Whether a query may hold some 100 MB."""
    query = "SELECT len(string_agg(range::VARCHAR, '')) AS n FROM range(12000000)"
    try:
        async with queries_of(lab) as asked:
            return (await asked.table(SqlRequest(query, seconds=PATIENCE_S))).num_rows == 1
    except SqlTooLargeError:
        return False


async def queries_at_once(lab: Lab) -> object:
    """How many of three queries find a place."""
    query = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    # Who waits gives up long before a place is free: a query that has one uses all of its time.
    lab.patch.setattr("palimpsest.ops.sql.processes.PLACE_SECONDS", 0.2)
    async with queries_of(lab) as asked:
        given = [asked.table(SqlRequest(query, seconds=1.2)) for _ in range(3)]
        found = await asyncio.gather(*given, return_exceptions=True)
        return sum(isinstance(each, SqlTooSlowError) for each in found)


@asynccontextmanager
async def queries_of(lab: Lab) -> AsyncIterator[DirectQueries]:
    async with application(lab.settings) as app:
        sources = sources_of(app)
        yield DirectQueries(sources)
        sources.sql.close()


async def resident_scopes(lab: Lab) -> object:
    """Scopes that stay in memory of three that are asked for, a megabyte each and more."""
    rows = [
        memory(f"{scope}{n}", f"note {n}", n, scope=scope) for scope in "abc" for n in range(200)
    ]
    with lab.shard(*rows) as shard:
        for scope in "abc":
            shard.indexes.get(scope)
        return len([scope for scope in "abc" if shard.indexes.resident(scope) is not None])


async def states_in_files(lab: Lab) -> object:
    """What the job moves of a state that was archived yesterday."""
    row = memory("m", "Ana lives in Ghent", version=2)
    state = archived(memory("m", "Ana lives in Paris"), "modified", BEGIN)
    with lab.shard(row, state) as shard, EmbeddedLog(lab.folder / "l", 1, lab.clock) as log:
        at = BEGIN + timedelta(days=1)
        context = JobContext(shard, 0, at, lab.settings, log, log.append)
        await archive(context)
        with shard.reading() as reader:
            return sum(each.rows for each in files_of(reader))


async def found_by_stem(lab: Lab) -> object:
    rows = [memory("m", "Wir haben viele Häuser gesehen")]
    found = (await lab.recalled("Haus", rows))["results"]
    return sum(not result["unlikely"] for result in found)


TEAS: list[Row] = [
    memory(f"m{n:02}", f"Ana drinks tea number {n}", n, importance=n / 40) for n in range(1, 41)
]
NAMED: list[Row] = [
    *TEAS,
    NameRow(
        name_id="lima", entity_id="lima", scope="ana", name="Lima", canonical_name="lima",
        entity_type="place", first_seen=BEGIN, updated_at=BEGIN,
    ),
    MentionRow(
        memory_id="m07", text_key=embedding_key("Ana drinks tea number 7"), name_id="lima",
        scope="ana", mention_text="Lima", confidence=0.9,
    ),
]  # fmt: skip


async def method(lab: Lab) -> object:
    async with lab.ran("Ana drinks tea", "Ana grows mint") as seen:
        return (await recall_of(seen.app, "tea"))["method"]


async def parts_of_score(lab: Lab) -> dict[str, Any]:
    async with lab.ran("Ana drinks tea", "Ana grows mint") as seen:
        answer = await recall_of(seen.app, "the tea that Ana drinks", explain=True)
    parts: dict[str, Any] = answer["results"][0]["explanation"]["parts"]
    return parts


async def legs_of_score(lab: Lab) -> object:
    parts = await parts_of_score(lab)
    return parts["keyword"] > 0.0, parts["vector"] > 0.0


async def recency_counts(lab: Lab) -> object:
    return "profile" in await parts_of_score(lab)


async def best_of_pool(lab: Lab) -> object:
    return [r["id"] for r in (await lab.recalled("tea", TEAS, limit=1))["results"]]


async def results_of_a_recall(lab: Lab) -> object:
    return len((await lab.recalled("tea and something else", TEAS))["results"])


async def raised_by_graph(lab: Lab) -> object:
    answer = await lab.recalled("tea number 7 in Lima", NAMED, limit=50)
    return [r["id"] for r in answer["results"] if r["explanation"]["parts"].get("graph")]


async def graph_timed_out(lab: Lab) -> object:
    return (await lab.recalled("tea in Lima", NAMED))["understood"]["boost_timed_out"]


async def use_of_times(lab: Lab) -> object:
    answer = await lab.recalled("Ana's tea on 2026-03-01", TEAS)
    return answer["understood"]["times_used"]


async def first_of_when(lab: Lab) -> object:
    texts = {"fond": "Ana's garden party was fun", "told": "Ana's garden party was fun, in June"}
    rows = [memory(name, text, n) for n, (name, text) in enumerate(texts.items())]
    answer = await lab.recalled("When was Ana's garden party?", rows)
    return "when" in answer["results"][-1]["explanation"]["parts"], answer["results"][0]["id"]


async def intent_of_a_question(lab: Lab) -> object:
    understood = (await lab.recalled("How come they left?", TEAS))["understood"]
    return understood["intent"], understood["intent_by"]


async def looked_at_again(lab: Lab) -> object:
    """The method, and how many of the first results have another score."""
    async with lab.ran(*(f"Ana drinks tea number {n}" for n in range(4))) as seen:
        answer = await recall_of(seen.app, "does Ana drink tea", explain=True)
    parts = [result["explanation"]["parts"] for result in answer["results"]]
    return answer["method"], sum("rerank" in each for each in parts)


async def end_of_second_look(lab: Lab) -> object:
    lab.server._latency_s = 0.2
    return (await lab.recalled("tea", TEAS))["understood"]["reranked"]


async def passages_of_an_answer(lab: Lab) -> object:
    answer = memory("answer", "word " * 100, 1, type="episodic", role="assistant")
    with lab.shard(answer) as shard:
        models = EmbeddingModels(lab.settings, WordModel(), lambda: {0: shard})
        await EmbeddingTracker(lambda: {0: shard}, models, Flags()).track_turns(0, shard)
        return shard.fetch("SELECT count(*) FROM turn_passages")[0][0]


CASES: dict[str, Case] = {
    "search.language": Case(
        found_by_stem, ("english", "german"), (0, 1), ("recall.fusion=keyword",)
    ),
    "search.assistant_passages": Case(passages_of_an_answer, ("false", "true"), (0, 1)),
    "recall.fusion": Case(method, ("hybrid", "keyword"), ("hybrid", "keyword")),
    "recall.alpha": Case(legs_of_score, (0.0, 1.0), ((True, False), (False, True))),
    "recall.profile": Case(recency_counts, ("relevance", "balanced"), (False, True)),
    "recall.pool": Case(
        best_of_pool, (10, 100), (["m10"], ["m40"]),
        ("recall.fusion=keyword", "recall.profile=balanced"),
    ),
    "recall.graph_weight": Case(raised_by_graph, (0.0, 0.5), ([], ["m07"])),
    "recall.graph_timeout_ms": Case(graph_timed_out, (0.000001, 60_000), (True, False)),
    "recall.min_score": Case(results_of_a_recall, ("0.0", "0.99"), (10, 0)),
    "recall.time_words": Case(use_of_times, ("off", "prefer"), ("none", "prefer")),
    "recall.when_weight": Case(first_of_when, (0.0, 1.0), ((False, "fond"), (True, "told"))),
    "recall.intent": Case(
        intent_of_a_question, ("words", "exemplars"), (("general", "default"), ("why", "exemplar"))
    ),
    "recall.rerank": Case(
        looked_at_again, ("off", "cosine"), (("hybrid", 0), ("hybrid+cosine", 4))
    ),
    "recall.rerank_top_n": Case(
        looked_at_again, (1, 20), (("hybrid+cosine", 1), ("hybrid+cosine", 4)),
        ("recall.rerank=cosine",),
    ),
    "recall.rerank_timeout_ms": Case(
        end_of_second_look, (20, 60_000), ("longer than 20 ms", "cosine"),
        (*REMOTE_VECTORS, "recall.rerank=cosine"),
    ),
    "recall.mmr": Case(method, ("false", "true"), ("hybrid", "hybrid+mmr")),
    "store.memory_limit": Case(memory_of_database, (64, 256), ("64.0 MiB", "256.0 MiB")),
    "archive.after_days": Case(states_in_files, (0, 30), (1, 0)),
    "store.threads": Case(threads_of_database, (1, 2), (1, 2)),
    "store.sql_memory_limit": Case(sorted_in_memory, (64, 1024), (False, True)),
    "store.sql_processes": Case(queries_at_once, (1, 2), (1, 2)),
    "store.index_bytes": Case(resident_scopes, (1_048_576, 536_870_912), (1, 3), LONG_VECTORS),
}  # fmt: skip
