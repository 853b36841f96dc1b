"""How long recall takes its users in one scope of real texts, and what it costs.

The memories are those of `ops.bench.renamed`, written through the store's own unit of work, each
text embedded by the model in use. What is measured is a worker that has opened them: a question's
way from its text, its embedding included, to its results.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, cast

from palimpsest.ops.bench.disk import settled
from palimpsest.ops.bench.embedding_cache import EmbeddingCache, Made
from palimpsest.ops.bench.latency import BATCH, FACTS, SEED, Times, candidates_ms, commit
from palimpsest.ops.bench.renamed import Retold, other_names, renamed, retold, told
from palimpsest.ops.bench.resident import MIB, resident
from palimpsest.ops.embedded import application
from palimpsest.ops.queries.recall import retrieved
from palimpsest.ops.queries.requests import JsonObject
from palimpsest.ops.queries.sources import Sources
from palimpsest.ops.service.running import sources_of
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.rows import embedding_text
from palimpsest.stores.recall.query import Query
from palimpsest.streams.models.base import Vector, embeddings
from palimpsest.streams.store_port import KeepVector, Write

SCOPE: Final = "bench"
QUESTIONS: Final = 200
MESSAGES: Final = 10
"""Of `FACTS` facts each, whose candidates are looked for."""
FILLED: Final = "filled.json"


@dataclass(frozen=True, slots=True)
class TextLoad:
    """`memories` in one scope, of the conversations of these folders; embeddings are kept in the
    file `cache`."""

    data: tuple[Path, ...]
    memories: int
    cache: Path


class Filled(TypedDict):
    """What was written, and what may be asked of it. `rounds` tells how often the conversations
    were begun, `embedded` how many texts were not in the cache."""

    memories: int
    rounds: int
    embedded: int
    seconds: float
    questions: list[str]
    facts: list[str]


async def measure(settings: Settings, load: TextLoad) -> JsonObject:
    """Fill the settings' folder, unless it is filled, and search it. Raises ValueError for a folder
    without conversations."""
    filled = await _filled(settings, load)
    async with application(settings) as app:
        await app.run(until_drained=True)  # LanceDB follows, as in any worker
        sources = sources_of(app)
        shard = sources.shard_of(SCOPE)
        first = await _recalled(sources, filled["questions"][:1])
        result: JsonObject = {
            "memories": filled["memories"],
            "rounds": filled["rounds"],
            "embedded_now": filled["embedded"],
            "fill_seconds": filled["seconds"],
            "embedding": app.embedding.model,
            "first_recall_ms": first.told(),
            **await _recalls(sources, filled["questions"]),
            "question_embedding_ms": (await _embedded(sources, filled["questions"])).told(),
            "candidates_ms": candidates_ms(shard, await _messages(sources, filled["facts"])),
            "index_mib": round(shard.indexes.bytes_used() / MIB, 1),
            **resident(),
        }
    result["bytes_a_memory"] = settled([shard.folder], filled["memories"])
    return result


async def _filled(settings: Settings, load: TextLoad) -> Filled:
    """By a process of its own: what it needs must not count as the worker's."""
    note = settings.data_dir / FILLED
    if not note.exists():
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawning) as process:
            loop = asyncio.get_running_loop()
            filled = await loop.run_in_executor(process, fill, settings, load)
        note.write_text(json.dumps(filled), encoding="utf-8")
    return cast("Filled", json.loads(note.read_text(encoding="utf-8")))


def fill(settings: Settings, load: TextLoad) -> Filled:
    """Write the memories. The same every time."""
    return asyncio.run(_fill(settings, load))


async def _fill(settings: Settings, load: TextLoad) -> Filled:
    began = time.perf_counter()
    conversations = await told(load.data)
    async with application(settings) as app:

        async def make(texts: Sequence[str]) -> list[Made]:
            return [(each.vector, each.tokens) for each in await embeddings(app.embedding, texts)]

        cache = EmbeddingCache(load.cache, app.embedding.model, make)
        shard = sources_of(app).shard_of(SCOPE)
        coming = itertools.islice(retold(conversations, SCOPE), load.memories)
        while batch := [*itertools.islice(coming, BATCH)]:
            commit(shard, await _writes(batch, cache))
    rounds = 1 + load.memories // sum(len(each.memories) for each in conversations)
    chance = random.Random(SEED)
    questions = [
        renamed(text, other_names(each.names, chance.randrange(rounds)))
        for each in conversations
        for text in each.questions
    ]
    facts = [
        renamed(row.content, other_names(each.names, rounds))
        for each in conversations
        for row in each.memories
        if row.type != "episodic"
    ]
    return {
        "memories": load.memories,
        "rounds": rounds,
        "embedded": cache.made,
        "seconds": round(time.perf_counter() - began, 1),
        "questions": chance.sample(questions, min(QUESTIONS, len(questions))),
        "facts": chance.sample(facts, min(MESSAGES * FACTS, len(facts))),
    }


async def _writes(batch: Sequence[Retold], cache: EmbeddingCache) -> list[Write]:
    rows = [each.row for each in batch]
    texts = [embedding_text(row.type, row.who, row.content, row.occurred_at) for row in rows]
    found = await cache.of(texts)
    writes: list[Write] = []
    for each, text in zip(batch, texts, strict=True):
        vector, tokens = found[text]
        writes += [KeepVector(each.row.embedding_key, vector, tokens), *each.writes]
    return writes


async def _recalls(sources: Sources, questions: Sequence[str]) -> JsonObject:
    """Also the processor time of one, which a busy machine changes less."""
    used = time.process_time()
    times = await _recalled(sources, questions)
    each = 1000 * (time.process_time() - used) / len(questions)
    return {"recall_ms": times.told(), "recall_processor_ms": round(each, 1)}


async def _recalled(sources: Sources, questions: Sequence[str]) -> Times:
    times = Times()
    for text in questions:
        began = time.perf_counter()
        await retrieved(sources, Query(SCOPE, text))
        times.ms.append(1000 * (time.perf_counter() - began))
    return times


async def _embedded(sources: Sources, questions: Sequence[str]) -> Times:
    times = Times()
    for text in questions:
        began = time.perf_counter()
        await sources.embedding.embed_query(text)
        times.ms.append(1000 * (time.perf_counter() - began))
    return times


async def _messages(
    sources: Sources, facts: Sequence[str]
) -> list[tuple[str, list[tuple[str, Vector]]]]:
    """New facts, embedded: decide has their vectors when it asks."""
    vectors = await sources.embedding.embed_passages(facts)
    pairs = [*zip(facts, vectors, strict=True)]
    return [(SCOPE, pairs[first : first + FACTS]) for first in range(0, len(pairs), FACTS)]
