"""Measures latency and cost of recall by size of the scope, with readers alongside a writer.

Memories are written through the store's own unit of work, as the stages do, without log and models:
made-up turns of words by Zipf's law, each with a random unit vector (as far from each other as
vectors can be, and of the size of the default model's).
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from palimpsest.ops.bench.made_up import FIRST_TURN, SEED, SESSION_TURNS, Vocabulary
from palimpsest.ops.bench.measures import MIB, memory, ms_since, size, times
from palimpsest.ops.requests import JsonObject
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.normal_forms import content_hash, normalized_content
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import SEARCH_THREADS, Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings, ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.stores.writing.candidates import CandidateSearch
from palimpsest.streams.settings import DecisionSettings
from palimpsest.streams.store_port import FindCandidates, KeepVector, Progress, Put, Write

DIMENSIONS: Final = 384
BATCH: Final = 500
WORDS: Final = 14
QUERY_WORDS: Final = 8
FACTS: Final = 20
"""Facts per message to find candidates for."""
SEARCH: Final = RecallSettings(time_words="off")
"""Search and ranking alone: the made-up memories have no graph."""
Queries: TypeAlias = Sequence[tuple[Query, Vector]]


@dataclass(frozen=True, slots=True)
class Load:
    """`memories` over `scopes`; half of them facts, each derived from one of the turns. A writer
    stores `writes` memories a second while readers search."""

    memories: int
    scopes: int = 1
    writes: float = 50.0
    seconds: float = 5.0
    readers: tuple[int, ...] = (1, 4, 16)


class _Generator:
    """Made-up memories and vectors."""

    def __init__(self, scopes: int) -> None:
        self._scopes = scopes
        self._vectors = np.random.default_rng(SEED)
        self.phrase = Vocabulary(SEED).phrase
        self._numbers = itertools.count()

    def vector(self) -> Vector:
        drawn = self._vectors.normal(size=DIMENSIONS)
        unit: Vector = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        return unit

    def batch(self, count: int) -> list[Write]:
        """The next memories, scopes in rotation."""
        return [w for n in itertools.islice(self._numbers, count) for w in self._memory(n)]

    def _memory(self, number: int) -> list[Write]:
        """A turn at an even position of its scope; at an odd one a fact from the turn before."""
        scope, place = f"bench-{number % self._scopes}", number // self._scopes
        is_turn = place % 2 == 0
        text = f"{self.phrase(WORDS)} {number}"
        memory_id = f"{scope}-{place:07}"
        at = FIRST_TURN + timedelta(seconds=number)
        row = MemoryRow(
            memory_id=memory_id,
            scope=scope,
            type="episodic" if is_turn else "fact",
            content=text,
            normalized_content=normalized_content(text),
            content_hash=content_hash(text),
            dedup_key=None,
            embedding_key=embedding_key(memory_id),
            importance=0.5,
            confidence=0.9,
            who=("Ana", "Ben")[place // 2 % 2] if is_turn else "pipeline",
            session_id=f"s{place // 2 // SESSION_TURNS}" if is_turn else "",
            source_id=memory_id,
            occurred_at=at,
            created_at=at,
            updated_at=at,
            updated_by="bench",
            write_seq=number + 1,
        )
        writes: list[Write] = [KeepVector(row.embedding_key, self.vector()), Put(row)]
        other = f"{scope}-{place - (2 if is_turn else 1):07}"
        if not is_turn or place // 2 % SESSION_TURNS:
            source, target = (other, memory_id) if is_turn else (memory_id, other)
            relation = "temporal" if is_turn else "derived_from"
            edge = EdgeRow(source_id=source, target_id=target, relation_type=relation, scope=scope)
            writes.append(Put(edge))
        return writes


def measure(load: Load, folder: Path) -> JsonObject:
    """Fills a shard, then searches it: alone, and by several readers while a writer works."""
    generator = _Generator(load.scopes)
    shard = Shard(folder, ShardOptions("bench", DIMENSIONS))
    try:
        began = time.perf_counter()
        for first in range(0, load.memories, BATCH):
            commit(shard, generator.batch(min(BATCH, load.memories - first)))
        seconds = time.perf_counter() - began
        shard.vector_table().sync()  # as a worker's maintenance does continuously
        chance = random.Random(SEED + 1)
        queries = [
            (
                Query(f"bench-{chance.randrange(load.scopes)}", generator.phrase(QUERY_WORDS)),
                generator.vector(),
            )
            for _ in range(100)
        ]
        messages = [
            (
                f"bench-{number % load.scopes}",
                [(generator.phrase(WORDS), generator.vector()) for _ in range(FACTS)],
            )
            for number in range(10)
        ]
        return {
            "memories": load.memories,
            "scopes": load.scopes,
            "dimensions": DIMENSIONS,
            "written_per_second": round(load.memories / seconds, 1),
            "first_load_ms": _loads(shard, queries),
            "recall_ms": _searches(shard, queries, with_vectors=True),
            "keyword_recall_ms": _searches(shard, queries, with_vectors=False),
            "candidates_ms": candidates_ms(shard, messages),
            "readers": {
                str(count): _readers(shard, generator, load, queries, count)
                for count in load.readers
            },
            "index_mib": round(shard.indexes.bytes_used() / MIB, 1),
            **memory(),
            "disk_mib": round(size(shard.folder) / MIB, 1),
        }
    finally:
        shard.close()


def commit(shard: Shard, writes: Sequence[Write]) -> None:
    unit = shard.unit()
    unit.stage(writes)
    unit.commit(Progress("bench", {}, (), (), 0))


def _loads(shard: Shard, queries: Queries) -> JsonObject:
    """The first load of each scope of the queries."""
    took = []
    for scope in sorted({query.scope for query, _ in queries}):
        began = time.perf_counter()
        shard.indexes.get(scope)
        took.append(ms_since(began))
    return times(took)


def _searches(shard: Shard, queries: Queries, with_vectors: bool) -> JsonObject:
    retriever = Retriever(shard, SEARCH, graph=False)
    took = []
    for query, vector in queries:
        began = time.perf_counter()
        retriever.search(query, QueryEmbedding(vector) if with_vectors else None)
        took.append(ms_since(began))
    return times(took)


def candidates_ms(
    shard: Shard, messages: Sequence[tuple[str, Sequence[tuple[str, Vector]]]]
) -> JsonObject:
    """The time for all facts of a message, given by scope with their vectors, as decide searches
    for them."""
    decision = DecisionSettings()
    took = []
    for scope, facts in messages:
        search = CandidateSearch(shard)
        began = time.perf_counter()
        for text, vector in facts:
            ask = FindCandidates(scope, text, vector, decision.candidates, decision.min_score)
            search.candidates(ask, 0)
        took.append(ms_since(began))
    return {"facts": FACTS, **times(took)}


def _readers(
    shard: Shard, generator: _Generator, load: Load, queries: Queries, count: int
) -> JsonObject:
    """`count` readers, each with one query after another, for some seconds, while a writer keeps
    its pace; the searches share a worker's search threads."""
    done = threading.Event()
    took: list[float] = []

    def read(first: int) -> None:
        retriever = Retriever(shard, SEARCH, graph=False)
        for number in itertools.count(first):
            if done.is_set():
                return
            query, vector = queries[number % len(queries)]
            began = time.perf_counter()
            SEARCH_THREADS.submit(retriever.search, query, QueryEmbedding(vector)).result()
            took.append(ms_since(began))

    threads = [threading.Thread(target=read, args=(7 * number,)) for number in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    written = 0
    while (passed := time.perf_counter() - began) < load.seconds:
        due = int(passed * load.writes) - written
        if due > 0:
            commit(shard, generator.batch(due))
            written += due
        time.sleep(0.02)
    seconds = time.perf_counter() - began
    done.set()
    for thread in threads:
        thread.join()
    return {
        **times(took),
        "queries_per_second": round(len(took) / seconds, 1),
        "writes_per_second": round(written / seconds, 1),
    }
