"""Which scopes are resident: loaded from the shard on first use, the least used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import duckdb
import numpy as np

from stores.scope_index import Document, ScopeIndex


class IndexOptions(Protocol):
    @property
    def embedding_model(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...


class IndexCache:
    """Scope indexes by scope, bounded in bytes. The newest used scope always stays."""

    def __init__(
        self, reader: Callable[[], duckdb.DuckDBPyConnection], options: IndexOptions
    ) -> None:
        self._reader = reader
        self._options = options
        self._resident: OrderedDict[str, ScopeIndex] = OrderedDict()

    def get(self, scope: str) -> ScopeIndex:
        """The index of a scope, loaded when it is not resident."""
        index = self._resident.get(scope)
        if index is None:
            index = self._load(scope)
            self._resident[scope] = index
            self._make_room()
        self._resident.move_to_end(scope)
        return index

    def resident(self, scope: str) -> ScopeIndex | None:
        """The index if it is resident: what is not need not be kept current."""
        return self._resident.get(scope)

    def forget(self, scope: str) -> None:
        self._resident.pop(scope, None)

    def clear(self) -> None:
        self._resident.clear()

    def _make_room(self) -> None:
        while len(self._resident) > 1 and (
            sum(index.bytes_used() for index in self._resident.values())
            > self._options.index_bytes
        ):
            self._resident.popitem(last=False)

    def _load(self, scope: str) -> ScopeIndex:
        connection = self._reader()
        index = ScopeIndex(self._options.dimensions)
        terms = self._terms(connection, scope)
        rows = connection.execute(
            "SELECT m.memory_id, m.version, m.type, m.content, m.content_hash, m.write_seq,"
            " coalesce(m.decision_order, -1), d.length, e.vector"
            " FROM memory_rows m JOIN fts_docs d USING (memory_id)"
            " LEFT JOIN embeddings e ON e.embedding_key = m.embedding_key AND e.model = ?"
            " WHERE m.scope = ? AND NOT m.is_deleted ORDER BY m.write_seq, m.memory_id",
            [self._options.embedding_model, scope],
        )
        for memory_id, version, kind, content, digest, seq, order, length, vector in rows.fetchall():
            index.put(
                Document(
                    memory_id=memory_id,
                    terms=terms.get(memory_id, {}),
                    length=length,
                    vector=None if vector is None else np.asarray(vector, dtype=np.float32),
                    version=version,
                    type=kind,
                    content="" if kind == "episodic" else content,
                    content_hash=digest,
                    write_seq=seq,
                    decision_order=order,
                )
            )
        return index

    @staticmethod
    def _terms(
        connection: duckdb.DuckDBPyConnection, scope: str
    ) -> dict[str, dict[str, int]]:
        terms: dict[str, dict[str, int]] = {}
        rows = connection.execute(
            "SELECT memory_id, term, tf FROM fts_postings WHERE scope = ?", [scope]
        )
        for memory_id, term, count in rows.fetchall():
            terms.setdefault(memory_id, {})[term] = count
        return terms
