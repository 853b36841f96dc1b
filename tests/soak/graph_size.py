"""What the graph costs in a large scope: `python -m tests.soak.graph_size [MEMORIES]`.

50,000 made-up memories that name two of 10,000 entities each, 50,000 relations; entities by Zipf's
law. Prints milliseconds: linking a memory, recall without and with the graph, and context."""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np

from palimpsest.ops.bench.latency import commit
from palimpsest.ops.bench.made_up import FIRST_TURN, SEED, Vocabulary
from palimpsest.ops.bench.measures import ms_since, times
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.normal_forms import content_hash, normalized_content
from palimpsest.schemas.rows.graph import NameRow, RelationRow
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings, ShardOptions
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.command_work import link_writes, load_names
from palimpsest.streams.store_port import KeepVector, Loaded, Put, Write

SCOPE = "bench"
ENTITIES, RELATIONS, BATCH, DIMENSIONS = 10_000, 50_000, 500, 64
KINDS = ("knows", "lives in", "works at", "likes", "visited")


def main(memories: int = 50_000) -> None:
    words, chance = Vocabulary(SEED), random.Random(SEED)
    names = [
        f"{a.title()} {b.title()}" for a, b in itertools.islice(_pairs(words, chance), ENTITIES)
    ]
    weights = [*itertools.accumulate(1 / (rank + 20) for rank in range(ENTITIES))]

    def two() -> list[str]:
        return chance.choices(names, cum_weights=weights, k=2)

    with tempfile.TemporaryDirectory() as folder:
        shard = Shard(Path(folder), ShardOptions("bench", DIMENSIONS))
        _commit(shard, map(_name, names))
        related = {(*two(), chance.choice(KINDS)) for _ in range(RELATIONS + 10_000)}
        _commit(shard, map(_relation, sorted(related)[:RELATIONS]))
        vectors = np.random.default_rng(SEED)
        linking = []
        for first in range(0, memories, BATCH):
            rows = [_memory(n, two(), words) for n in range(first, first + BATCH)]
            writes: list[Write] = []
            unit = shard.unit()
            for row in rows:
                vector = vectors.normal(size=DIMENSIONS).astype(np.float32)
                writes += [KeepVector(row.embedding_key, vector / np.linalg.norm(vector)), Put(row)]
                began = time.thread_time()
                loaded = unit.answer(load_names(SCOPE, [row.content]))
                assert isinstance(loaded, Loaded)
                writes += link_writes(row, loaded.entities)
                linking.append(1000 * (time.thread_time() - began))
            commit(shard, writes)
        shard.indexes.get(SCOPE)
        asked = [_question(two(), words) for _ in range(150)]
        vector = QueryEmbedding(vectors.normal(size=DIMENSIONS).astype(np.float32))
        plain = Retriever(shard, RecallSettings(), graph=False)
        whole = Retriever(shard, RecallSettings(), graph=True)
        with shard.reading() as reader:
            counted = reader.execute("SELECT count(*) FROM mention_rows").fetchall()
        answer = {
            "entities": ENTITIES,
            "relations": RELATIONS,
            "mentions": counted[0][0],
            "linker_ms": times(linking),
            "recall_without_graph_ms": _timed(lambda q: plain.search(q, vector), asked),
            "recall_ms": _timed(lambda q: whole.search(q, vector), asked),
            "context_ms": _timed(lambda q: _context(whole, q, vector), asked),
        }
        print(json.dumps(answer, indent=2))
        shard.close()


def _pairs(words: Vocabulary, chance: random.Random) -> Iterator[tuple[str, str]]:
    seen: set[tuple[str, ...]] = set()
    while True:
        pair = tuple(chance.sample(words.words, 2))
        if pair not in seen:
            seen.add(pair)
            yield pair[0], pair[1]


def _commit(shard: Shard, rows: Iterator[NameRow | RelationRow]) -> None:
    while part := [Put(row) for row in itertools.islice(rows, 5_000)]:
        commit(shard, part)


def _name(name: str) -> NameRow:
    key = entity_id(SCOPE, name.lower())
    about = {"name": name, "canonical_name": name.lower(), "entity_type": "person"}
    at = {"first_seen": FIRST_TURN, "updated_at": FIRST_TURN}
    return NameRow(name_id=key, entity_id=key, scope=SCOPE, **about, **at)  # type: ignore[arg-type]


def _relation(triple: tuple[str, str, str]) -> RelationRow:
    source, target = (entity_id(SCOPE, name.lower()) for name in triple[:2])
    return RelationRow(
        source_name_id=source,
        target_name_id=target,
        relation_type=triple[2],
        scope=SCOPE,
        confidence=0.8,
    )


def _memory(number: int, named: Sequence[str], words: Vocabulary) -> MemoryRow:
    text = f"{named[0]} {words.phrase(5)} {named[1]} {words.phrase(4)} {number}"
    at = FIRST_TURN + timedelta(seconds=number)
    return MemoryRow(
        memory_id=f"m{number:07}",
        scope=SCOPE,
        type="fact",
        content=text,
        normalized_content=normalized_content(text),
        content_hash=content_hash(text),
        dedup_key=None,
        embedding_key=embedding_key(text),
        importance=0.5,
        confidence=0.9,
        source_id=f"m{number:07}",
        occurred_at=at,
        created_at=at,
        updated_at=at,
        updated_by="bench",
        write_seq=number + 1,
    )


def _question(named: Sequence[str], words: Vocabulary) -> Query:
    return Query(SCOPE, f"What did {named[0]} do with {named[1]} at the {words.phrase(2)}?")


def _context(retriever: Retriever, query: Query, vector: QueryEmbedding) -> None:
    import asyncio

    asyncio.run(retriever.context(query, vector, 1_500, frozenset()))


def _timed(ask: Callable[[Query], object], asked: Sequence[Query]) -> dict[str, object]:
    for query in asked[:10]:
        ask(query)
    took = []
    for query in asked:
        began = time.perf_counter()
        ask(query)
        took.append(ms_since(began))
    return dict(times(took))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
