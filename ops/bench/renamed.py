"""Conversations told again with other names: texts of real people, as many as are wanted.

What was said goes through the pipeline once, with its rules; the memories that it made are then
repeated, in each round under other names of persons and places and four weeks earlier.
"""

from __future__ import annotations

import itertools
import random
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.conversations import conversation_files, questions, records
from palimpsest.ops.bench.throughput import SYLLABLES
from palimpsest.ops.bootstrap import publisher
from palimpsest.ops.embedded import application
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.rows import MONTHS, EdgeRow, MemoryRow, NameRow, RelationRow, Row
from palimpsest.stores.database.tables import select
from palimpsest.stores.shard import Shard
from palimpsest.streams.apply.outcomes import link_writes
from palimpsest.streams.memory_rows import with_content
from palimpsest.streams.store_port import Put, Write
from palimpsest.streams.text.linker import canonical_name

APART: Final = timedelta(weeks=4)
_CAPITAL = re.compile(r"\b[A-Z][a-z]{2,}\b")
_INSIDE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b")
"""Where no sentence begins."""
_SMALL = re.compile(r"\b[a-z]{3,}\b")
_OF_TIME: Final = frozenset(
    (*MONTHS, *"Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
)


@dataclass(frozen=True, slots=True)
class Told:
    """The memories of a conversation with what the graph knows of them, its questions, and the
    names in it."""

    memories: tuple[MemoryRow, ...]
    edges: tuple[EdgeRow, ...]
    entities: tuple[NameRow, ...]
    relations: tuple[RelationRow, ...]
    questions: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retold:
    """A memory of a copy, and all that is written with it: its links, and the edges to memories
    before it."""

    row: MemoryRow
    writes: tuple[Write, ...]


async def told(data: Sequence[Path]) -> list[Told]:
    """The conversations of the folders, in turn. Raises ValueError for a folder without any."""
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
    """Words that begin with a capital inside a sentence, and stand nowhere in lower case."""
    found = {name for text in texts for name in _INSIDE.findall(text)}
    small = {word for text in texts for word in _SMALL.findall(text)}
    return tuple(sorted(name for name in found - _OF_TIME if name.lower() not in small))


def other_names(names: Sequence[str], number: int) -> dict[str, str]:
    """In round `number`, every name's; in the first their own."""
    if not number:
        return {name: name for name in names}
    return {name: _made_up(f"{number} {name}") for name in names}


def _made_up(seed: str) -> str:
    chance = random.Random(seed)
    return "".join(chance.choices(SYLLABLES, k=chance.choice((2, 2, 3)))).capitalize()


def renamed(text: str, names: Mapping[str, str]) -> str:
    return _CAPITAL.sub(lambda match: names.get(match[0], match[0]), text)


def retold(conversations: Sequence[Told], scope: str) -> Iterator[Retold]:
    """Memories without an end, all of one scope, each after those that its edges lead to. What
    says the same as a memory before it, as a fact without a name does, is left out."""
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
    """The rows of the names and relations, and the ids of the names by how they are known."""
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
