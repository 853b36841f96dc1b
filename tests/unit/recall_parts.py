"""What tests of recall ask with."""

from __future__ import annotations

from dataclasses import replace

from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.vector_column import Vector
from palimpsest.stores.recall.query import Query, RecallAnswer
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.shard import Shard
from palimpsest.streams.memory_rows import with_content
from tests.memory_rows import BEGIN


def ids(answer: RecallAnswer) -> list[str]:
    return [result.id for result in answer.results]


def answer(shard: Shard, query: Query, vector: Vector | None = None) -> RecallAnswer:
    embedding = None if vector is None else QueryEmbedding(vector)
    return Retriever(shard, clock=lambda: BEGIN).search(query, embedding).answer


def said_anew(row: MemoryRow, text: str) -> MemoryRow:
    return replace(with_content(row, text), dedup_key=None)
