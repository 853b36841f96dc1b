"""Measures latency and cost of recall in one scope of real texts.

The memories are renamed copies of conversations, written through the store's own unit of work and
embedded by the model in use. The benchmark measures a worker that has opened them, from the text of
a query, its embedding included, to the results.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import multiprocessing
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias, TypedDict, cast

import numpy as np

from palimpsest.ops.bench.conversations import conversation_files, questions, records
from palimpsest.ops.bench.disk import settled
from palimpsest.ops.bench.latency import BATCH, FACTS, SEED, Times, candidates_ms, commit
from palimpsest.ops.bench.resident import MIB, resident
from palimpsest.ops.bench.throughput import SYLLABLES
from palimpsest.ops.embedded import application
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.recalling import retrieved
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.running import sources_of
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.sources import Sources
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.memory_texts import MONTHS, embedding_text
from palimpsest.schemas.normal_forms import canonical_name
from palimpsest.schemas.rows import EdgeRow, MemoryRow, NameRow, RelationRow, Row
from palimpsest.stores.database.tables import select
from palimpsest.stores.recall.query import Query
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.outcomes import link_writes
from palimpsest.streams.memory_rows import with_content
from palimpsest.streams.models.base import Vector, embeddings
from palimpsest.streams.store_port import KeepVector, Put, Write

SCOPE: Final = "bench"
QUESTIONS: Final = 200
MESSAGES: Final = 10
"""Number of messages, of `FACTS` facts each, to find candidates for."""
FILLED: Final = "filled.json"


@dataclass(frozen=True, slots=True)
class TextLoad:
    """`memories` in one scope, from the conversations in these folders; the file `cache` stores
    embeddings."""

    data: tuple[Path, ...]
    memories: int
    cache: Path


class Filled(TypedDict):
    """What was written, and queries for it. `rounds` counts the passes over the conversations,
    `embedded` the texts that were not in the cache."""

    memories: int
    rounds: int
    embedded: int
    seconds: float
    questions: list[str]
    facts: list[str]


async def measure(settings: Settings, load: TextLoad) -> JsonObject:
    """Fills the settings' folder, unless it is filled, and searches it. Raises ValueError for a
    folder without conversations."""
    filled = await _filled(settings, load)
    async with application(settings) as app:
        await app.run(until_drained=True)  # LanceDB catches up, as in any worker
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
    """Fills the folder in a separate process: its resources must not count as the worker's."""
    note = settings.data_dir / FILLED
    if not note.exists():
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawning) as process:
            loop = asyncio.get_running_loop()
            filled = await loop.run_in_executor(process, fill, settings, load)
        note.write_text(json.dumps(filled), encoding="utf-8")
    return cast("Filled", json.loads(note.read_text(encoding="utf-8")))


def fill(settings: Settings, load: TextLoad) -> Filled:
    """Writes the memories; deterministic."""
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
    """Measures recalls, and the processor time of one, which a busy machine affects less."""
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
    """Embeds new facts: decide has their vectors when it searches."""
    vectors = await sources.embedding.embed_passages(facts)
    pairs = [*zip(facts, vectors, strict=True)]
    return [(SCOPE, pairs[first : first + FACTS]) for first in range(0, len(pairs), FACTS)]


# Caches embeddings in a file, so that filling a large store again takes minutes.

Made: TypeAlias = tuple[Vector, bytes | None]
"""A text's unit vector and, from a model that has them, the packed vectors of its tokens."""
FETCHED = 500
"""Texts per lookup: every SQLite build accepts that many parameters."""


@dataclass(slots=True)
class EmbeddingCache:
    """A cache for one model. `made` counts the texts that were not in the file."""

    file: Path
    model: str
    make: Callable[[Sequence[str]], Awaitable[Sequence[Made]]]
    made: int = 0

    async def of(self, texts: Sequence[str]) -> dict[str, Made]:
        """Returns the embedding of each text; computes and stores missing ones."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.file)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS embeddings"
                " (text_key BLOB PRIMARY KEY, vector BLOB NOT NULL, tokens BLOB)"
            )
            keys = {self._key(text): text for text in texts}
            found = _read(connection, keys)
            missing = [text for text in keys.values() if text not in found]
            if missing:
                new = dict(zip(missing, await self.make(missing), strict=True))
                self.made += len(new)
                connection.executemany(
                    "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)",
                    [(self._key(text), v.tobytes(), tokens) for text, (v, tokens) in new.items()],
                )
                connection.commit()
                found |= new
            return found
        finally:
            connection.close()

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.model}\n{text}".encode(), digest_size=16).digest()


def _read(connection: sqlite3.Connection, keys: dict[bytes, str]) -> dict[str, Made]:
    found: dict[str, Made] = {}
    listed = list(keys)
    for first in range(0, len(listed), FETCHED):
        part = listed[first : first + FETCHED]
        marks = ", ".join("?" * len(part))
        rows = connection.execute(
            f"SELECT text_key, vector, tokens FROM embeddings WHERE text_key IN ({marks})", part
        )
        for key, vector, tokens in rows:
            found[keys[key]] = (np.frombuffer(vector, dtype=np.float32), tokens)
    return found


# Conversations told again with other names: texts of real people, as many as are wanted. What was
# said goes through the pipeline once, with its rules; the memories that it made are then
# repeated, in each round under other names of persons and places and four weeks earlier.

APART: Final = timedelta(weeks=4)
_CAPITAL = re.compile(r"\b[A-Z][a-z]{2,}\b")
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b")
"""A capitalized word inside a sentence."""
_SMALL = re.compile(r"\b[a-z]{3,}\b")
_OF_TIME: Final = frozenset(
    (*MONTHS, *"Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
)


@dataclass(frozen=True, slots=True)
class Told:
    """The memories of a conversation with their part of the graph, its questions and its names."""

    memories: tuple[MemoryRow, ...]
    edges: tuple[EdgeRow, ...]
    entities: tuple[NameRow, ...]
    relations: tuple[RelationRow, ...]
    questions: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retold:
    """A memory of a copy, and everything written with it: its links, and the edges to earlier
    memories."""

    row: MemoryRow
    writes: tuple[Write, ...]


async def told(data: Sequence[Path]) -> list[Told]:
    """Reads the conversations of the folders, in order. Raises ValueError for a folder without
    any."""
    files = [file for each in data for file in conversation_files(each)]
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["embedding.provider=hashing", "llm.provider=rules", "log.partitions=1"]
        settings = load_settings(chosen, Path(folder)).settings
        with publisher(settings) as append:
            for batch in in_batches(records(files, settings, captions=True)):
                append(batch)
        async with application(settings) as app:
            await app.run(until_drained=True)
            return [_told(app.shards[0], file) for file in files]


def _told(shard: Shard, file: Path) -> Told:
    scope = [file.stem]
    with shard.reading() as reader:
        memories = select(reader, MemoryRow, "scope = ? AND NOT is_deleted ORDER BY 1", scope)
        edges = select(reader, EdgeRow, "scope = ? ORDER BY 1, 2, 3", scope)
        entities = select(reader, NameRow, "scope = ? ORDER BY 1", scope)
        relations = select(reader, RelationRow, "scope = ? ORDER BY 1, 2, 3", scope)
    memories.sort(key=lambda row: row.write_seq)
    asked = tuple(question.text for question in questions(file))
    names = names_of([*(f"{row.who}, {row.who}: {row.content}" for row in memories), *asked])
    return Told(tuple(memories), tuple(edges), tuple(entities), tuple(relations), asked, names)


def names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the words that are capitalized inside a sentence and never appear in lower case."""
    found = {name for text in texts for name in _INSIDE.findall(text)}
    small = {word for text in texts for word in _SMALL.findall(text)}
    return tuple(sorted(name for name in found - _OF_TIME if name.lower() not in small))


def other_names(names: Sequence[str], number: int) -> dict[str, str]:
    """Returns the replacement of every name in round `number`; the first round keeps the names."""
    if not number:
        return {name: name for name in names}
    return {name: _made_up(f"{number} {name}") for name in names}


def _made_up(seed: str) -> str:
    chance = random.Random(seed)
    return "".join(chance.choices(SYLLABLES, k=chance.choice((2, 2, 3)))).capitalize()


def renamed(text: str, names: Mapping[str, str]) -> str:
    return _CAPITAL.sub(lambda match: names.get(match[0], match[0]), text)


def retold(conversations: Sequence[Told], scope: str) -> Iterator[Retold]:
    """Yields memories endlessly, all of one scope, each after the targets of its edges. Skips a
    memory with the same text as an earlier one, for example a fact without a name."""
    known: set[str] = set()
    sequence = itertools.count(1)
    for number in itertools.count():
        for conversation in conversations:
            for each in _copy(conversation, scope, number, known):
                row = replace(each.row, write_seq=next(sequence))
                yield Retold(row, (*each.writes, Put(row)))


def _copy(told: Told, scope: str, number: int, known: set[str]) -> Iterator[Retold]:
    names = other_names(told.names, number)
    graph, ids = _graph(told, scope, names)
    edges: dict[str, list[EdgeRow]] = {}
    for edge in told.edges:
        edges.setdefault(edge.source_id, []).append(edge)
        edges.setdefault(edge.target_id, []).append(edge)
    there: dict[str, str] = {}
    for row in told.memories:
        copy = _row(row, scope, number, names)
        if copy.dedup_key in known:
            continue
        if copy.dedup_key is not None:
            known.add(copy.dedup_key)
        there[row.memory_id] = copy.memory_id
        linked = [
            replace(
                edge, scope=scope, source_id=there[edge.source_id], target_id=there[edge.target_id]
            )
            for edge in edges.get(row.memory_id, ())
            if edge.source_id in there and edge.target_id in there
        ]
        yield Retold(copy, (*map(Put, graph), *link_writes(copy, ids), *map(Put, linked)))
        graph = ()


def _row(row: MemoryRow, scope: str, number: int, names: Mapping[str, str]) -> MemoryRow:
    moved = replace(
        row,
        memory_id=derived_id("copy", number, row.memory_id),
        scope=scope,
        who=renamed(row.who, names),
        session_id=row.session_id and f"{row.scope}-{number}-{row.session_id}",
        source_id=row.source_id and f"{row.scope}-{number}-{row.source_id}",
        occurred_at=row.occurred_at - number * APART,
    )
    return with_content(moved, renamed(row.content, names))


def _graph(
    told: Told, scope: str, names: Mapping[str, str]
) -> tuple[tuple[Row, ...], dict[str, str]]:
    """Returns the rows of the names and relations, and the new ids of the names by their old
    ones."""
    called = {row.name_id: renamed(row.name, names) for row in told.entities}
    ids = {old: entity_id(scope, canonical_name(name)) for old, name in called.items()}
    rows = {
        ids[row.name_id]: replace(
            row,
            name_id=ids[row.name_id],
            scope=scope,
            name=called[row.name_id],
            canonical_name=canonical_name(called[row.name_id]),
            entity_id=ids.get(row.entity_id, ids[row.name_id]),
        )
        for row in told.entities
    }
    relations = {
        (row.source_name_id, row.target_name_id, row.relation_type): replace(
            row,
            scope=scope,
            source_name_id=ids[row.source_name_id],
            target_name_id=ids[row.target_name_id],
        )
        for row in told.relations
        if row.source_name_id in ids and row.target_name_id in ids
    }
    return (*rows.values(), *relations.values()), {
        row.canonical_name: row.name_id for row in rows.values()
    }
