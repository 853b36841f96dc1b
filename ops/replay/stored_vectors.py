"""Vectors that were made before, by what they are of, and a model for those that were not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import duckdb
import numpy as np

from palimpsest.schemas.redaction import MARK
from palimpsest.schemas.rows import embedding_key
from palimpsest.stores.database.snapshot import opened
from palimpsest.stores.database.view_columns import quoted
from palimpsest.streams.models.base import Embedding, EmbeddingModel, Vector, embeddings
from palimpsest.streams.models.hashing import hashed


class StoredEmbeddings:
    """An EmbeddingModel, and a TokenEmbeddingModel where the model is one."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, tables: Sequence[str], model: EmbeddingModel
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._model = model
        self.model, self.dimensions = model.model, model.dimensions
        self.made = 0
        """Texts that were embedded because no file has a vector of them."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls, stored: Sequence[Path], model: EmbeddingModel) -> Iterator[Self]:
        """`stored` are files that `copy_shard` wrote, or files of stores that are not open."""
        with opened(":memory:") as connection:
            tables = []
            for number, path in enumerate(stored):
                connection.execute(f"ATTACH {quoted(str(path))} AS stored_{number} (READ_ONLY)")
                rows = connection.execute(
                    "SELECT schema_name FROM duckdb_tables() WHERE database_name = ?"
                    " AND table_name = 'embeddings'",
                    [f"stored_{number}"],
                ).fetchall()
                tables += [f"stored_{number}.{schema}.embeddings" for (schema,) in rows]
            yield cls(connection, tables, model)

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        keys = [embedding_key(text) for text in texts]
        found = self._found(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        for key, text in [*missing.items()]:
            if MARK.search(text):
                # What is left of an erased memory, which is found by nothing: any vector will do.
                found[key] = Embedding(hashed(missing.pop(key), self.dimensions))
        if missing:
            made = await embeddings(self._model, [*missing.values()])
            found |= dict(zip(missing, made, strict=True))
            self.made += len(missing)
        return [found[key] for key in keys]

    def _found(self, keys: Sequence[str]) -> dict[str, Embedding]:
        found: dict[str, Embedding] = {}
        for table in self._tables:
            rows = self._connection.execute(
                f"SELECT embedding_key, vector, tokens FROM {table}"
                " WHERE model = ? AND embedding_key IN (SELECT unnest(?))",
                [self.model, [*keys]],
            ).fetchall()
            for key, vector, tokens in rows:
                found[key] = Embedding(np.asarray(vector, dtype=np.float32), tokens)
        return found

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [each.vector for each in await self.embed_with_tokens(texts)]

    async def embed_query(self, text: str) -> Vector:
        return await self._model.embed_query(text)

    async def check(self) -> str | None:
        return await self._model.check()

    async def close(self) -> None:
        """The model belongs to who gave it."""
