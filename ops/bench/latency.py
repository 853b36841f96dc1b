"""How long recall takes, by size of the scope, with readers beside a writer; and what it costs.

Memories are written through the store's own unit of work, as the stages do it, without log and
models: made-up turns of words by Zipf's law, each with a random unit vector (as far from each
other as vectors can be, and of the size of the default model's).
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np

from palimpsest.ops.bench.disk import size
from palimpsest.ops.bench.resident import MIB, resident
from palimpsest.ops.bench.throughput import vocabulary
from palimpsest.ops.requests import JsonObject
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.normal_forms import content_hash, normalized_content
from palimpsest.schemas.rows import EdgeRow, MemoryRow
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.candidates import CandidateSearch
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import SEARCH_THREADS, Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings, ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.settings import DecisionSettings
from palimpsest.streams.store_port import FindCandidates, KeepVector, Progress, Put, Write

BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)
DIMENSIONS: Final = 384
BATCH: Final = 500
TURNS_PER_SESSION: Final = 20
WORDS: Final = 14
QUERY_WORDS: Final = 8
FACTS: Final = 20
"""Of a message whose candidates are looked for."""
SEED: Final = 20_260_301
SEARCH: Final = RecallSettings(time_words="off")
"""The search and its ranking alone: what is made up has no graph."""
DECISION: Final = DecisionSettings()


@dataclass(frozen=True, slots=True)
class Load:
    """`memories` in all over `scopes`; half of them facts, each drawn from one of the turns.
    `writes` turns a second go on while readers search."""

    memories: int
    scopes: int = 1
    writes: float = 50.0
    seconds: float = 5.0
    readers: tuple[int, ...] = (1, 4, 16)


@dataclass(slots=True)
class Times:
    """Milliseconds of single calls."""

    ms: list[float] = field(default_factory=list)

    def told(self) -> JsonObject:
        found = np.array(self.ms or [0.0])
        quantiles = {f"p{q}": round(float(np.percentile(found, q)), 2) for q in (50, 95, 99)}
        return {"calls": len(self.ms), **quantiles}


class _Made:
    """Made-up memories, the same every time."""

    def __init__(self) -> None:
        self._chance = random.Random(SEED)
        self._vectors = np.random.default_rng(SEED)
        self._words = vocabulary()
        weights = (1.0 / rank for rank in range(1, len(self._words) + 1))
        self._weights = [*itertools.accumulate(weights)]

    def text(self, words: int) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=words))

    def vector(self) -> Vector:
        drawn = self._vectors.normal(size=DIMENSIONS)
        unit: Vector = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        return unit

    def writes(self, number: int, scope: str, place: int) -> list[Write]:
        """A turn (even places) or a fact drawn from the turn before (odd ones)."""
        is_turn = place % 2 == 0
        text = f"{self.text(WORDS)} {number}"
        memory_id = f"{scope}-{place:07}"
        at = BEGIN + timedelta(seconds=number)
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
            session_id=f"s{place // 2 // TURNS_PER_SESSION}" if is_turn else "",
            source_id=memory_id,
            occurred_at=at,
            created_at=at,
            updated_at=at,
            updated_by="bench",
            write_seq=number + 1,
        )
        made: list[Write] = [KeepVector(row.embedding_key, self.vector()), Put(row)]
        other = f"{scope}-{place - (2 if is_turn else 1):07}"
        if not is_turn or place // 2 % TURNS_PER_SESSION:
            source, target = (other, memory_id) if is_turn else (memory_id, other)
            relation = "temporal" if is_turn else "derived_from"
            made.append(
                Put(
                    EdgeRow(source_id=source, target_id=target, relation_type=relation, scope=scope)
                )
            )
        return made


def measure(load: Load, folder: Path | None = None) -> JsonObject:
    """Fill a shard, then search it: alone, and by several readers while writes go on."""
    with tempfile.TemporaryDirectory() as temporary:
        made = _Made()
        shard = Shard(Path(folder or temporary), ShardOptions("bench", DIMENSIONS))
        try:
            began = time.perf_counter()
            _fill(shard, made, load)
            filled = time.perf_counter() - began
            shard.vector_table().sync()  # as a worker's upkeep does all the time
            queries = _queries(made, load)
            return {
                "memories": load.memories,
                "scopes": load.scopes,
                "dimensions": DIMENSIONS,
                "written_per_second": round(load.memories / filled, 1),
                "first_load_ms": _loads(shard, queries),
                "recall_ms": _alone(shard, queries, with_vectors=True),
                "keyword_recall_ms": _alone(shard, queries, with_vectors=False),
                "candidates_ms": _candidates(shard, made, load),
                "readers": {
                    str(count): _together(shard, made, load, queries, count)
                    for count in load.readers
                },
                "index_mib": round(shard.indexes.bytes_used() / MIB, 1),
                **resident(),
                "disk_mib": round(size(shard.folder) / MIB, 1),
            }
        finally:
            shard.close()


def _fill(shard: Shard, made: _Made, load: Load) -> None:
    for first in range(0, load.memories, BATCH):
        numbers = range(first, min(first + BATCH, load.memories))
        commit(shard, [w for number in numbers for w in _next(made, load, number)])


def _next(made: _Made, load: Load, number: int) -> list[Write]:
    return made.writes(number, f"bench-{number % load.scopes}", number // load.scopes)


def commit(shard: Shard, writes: Sequence[Write]) -> None:
    unit = shard.unit()
    unit.stage(writes)
    unit.commit(Progress("bench", {}, (), (), 0))


def _queries(made: _Made, load: Load) -> list[tuple[Query, Vector]]:
    chance = random.Random(SEED + 1)
    return [
        (Query(f"bench-{chance.randrange(load.scopes)}", made.text(QUERY_WORDS)), made.vector())
        for _ in range(100)
    ]


def _loads(shard: Shard, queries: Sequence[tuple[Query, Vector]]) -> JsonObject:
    """Of the scopes that the queries will ask for, each for the first time."""
    times = Times()
    for scope in sorted({query.scope for query, _ in queries}):
        began = time.perf_counter()
        shard.indexes.get(scope)
        times.ms.append(1000 * (time.perf_counter() - began))
    return times.told()


def _alone(shard: Shard, queries: Sequence[tuple[Query, Vector]], with_vectors: bool) -> JsonObject:
    recall = Retriever(shard, SEARCH, graph=False)
    times = Times()
    for query, vector in queries:
        began = time.perf_counter()
        recall.search(query, QueryEmbedding(vector) if with_vectors else None)
        times.ms.append(1000 * (time.perf_counter() - began))
    return times.told()


def _candidates(shard: Shard, made: _Made, load: Load) -> JsonObject:
    messages = [
        (
            f"bench-{number % load.scopes}",
            [(made.text(WORDS), made.vector()) for _ in range(FACTS)],
        )
        for number in range(10)
    ]
    return candidates_ms(shard, messages)


def candidates_ms(
    shard: Shard, messages: Sequence[tuple[str, Sequence[tuple[str, Vector]]]]
) -> JsonObject:
    """How long the facts of one message take, by scope with their vectors, as decide asks for
    them."""
    times = Times()
    for scope, facts in messages:
        search = CandidateSearch(shard)
        began = time.perf_counter()
        for text, vector in facts:
            ask = FindCandidates(scope, text, vector, DECISION.candidates, DECISION.min_score)
            search.candidates(ask, 0)
        times.ms.append(1000 * (time.perf_counter() - began))
    return {"facts": FACTS, **times.told()}


def _together(
    shard: Shard,
    made: _Made,
    load: Load,
    queries: Sequence[tuple[Query, Vector]],
    count: int,
) -> JsonObject:
    """Readers one after another query each, for some seconds, while a writer keeps its pace; the
    searches share the threads that a worker has for them."""
    done = threading.Event()
    times = [Times() for _ in range(count)]

    def read(own: Times, first: int) -> None:
        recall = Retriever(shard, SEARCH, graph=False)
        number = first
        while not done.is_set():
            query, vector = queries[number % len(queries)]
            began = time.perf_counter()
            SEARCH_THREADS.submit(recall.search, query, QueryEmbedding(vector)).result()
            own.ms.append(1000 * (time.perf_counter() - began))
            number += 1

    threads = [
        threading.Thread(target=read, args=(own, 7 * number)) for number, own in enumerate(times)
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    written = _keep_writing(shard, made, load, began)
    seconds = time.perf_counter() - began
    done.set()
    for thread in threads:
        thread.join()
    together = Times([ms for own in times for ms in own.ms])
    return {
        **together.told(),
        "queries_per_second": round(len(together.ms) / seconds, 1),
        "writes_per_second": round(written / seconds, 1),
    }


def _keep_writing(shard: Shard, made: _Made, load: Load, began: float) -> int:
    """Turns at the load's pace, in the batches that this makes; gives how many they were."""
    written = 0
    numbers = _new_numbers(shard)
    while (passed := time.perf_counter() - began) < load.seconds:
        due = int(passed * load.writes) - written
        if due > 0:
            commit(shard, [w for _ in range(due) for w in _next(made, load, next(numbers))])
            written += due
        time.sleep(0.02)
    return written


def _new_numbers(shard: Shard) -> Iterator[int]:
    number = shard.write_seq
    while True:
        yield number
        number += 1
