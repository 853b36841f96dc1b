"""LanceDB's own hybrid search: its full-text index and its vectors, joined by its reciprocal rank
fusion, all as set by default. One table a scope."""

from __future__ import annotations

from typing import Any

import lancedb
from lancedb.index import FTS
from lancedb.rerankers import RRFReranker


class Hybrid:
    def __init__(self, folder: str, embed: Any) -> None:
        self._database = lancedb.connect(folder)
        self._embed = embed
        self._reranker = RRFReranker()
        self._tables: dict[str, Any] = {}

    def add(self, scope: str, turns: list[tuple[str, str]]) -> None:
        vectors = self._embed([text for _, text in turns])
        rows = [
            {"id": id_, "text": text, "vector": vector}
            for (id_, text), vector in zip(turns, vectors, strict=True)
        ]
        table = self._database.create_table(scope, rows)
        table.create_index("text", config=FTS())
        self._tables[scope] = table

    def search(self, scope: str, text: str, limit: int) -> list[str]:
        [vector] = self._embed([text], is_query=True)
        query = self._tables[scope].search(query_type="hybrid").vector(vector).text(text)
        found = query.rerank(self._reranker).limit(limit).select(["id"]).to_list()
        return [row["id"] for row in found]


def make(folder: str, embed: Any, dimensions: int) -> Hybrid:
    return Hybrid(folder, embed)
