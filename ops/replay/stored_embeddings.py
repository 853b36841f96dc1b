"""Embeddings out of copies of stores, by what the texts say; a model only for texts in none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import duckdb
import numpy as np

from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.redaction import is_mark
from palimpsest.stores.database.snapshot import WRITTEN
from palimpsest.streams.models.base import Embedding, EmbeddingModel, Vector, embeddings
from palimpsest.streams.models.hashing import hashed

_EMBEDDINGS = (
    "SELECT embedding_key, vector, tokens FROM {table} WHERE model = ?"
    " AND embedding_key IN (SELECT unnest(?))"
)


class StoredEmbeddings:
    """An EmbeddingModel that looks each text up first: in the stores at `files`, the first that
    has it, then asks `model`. No one may have the files open for writing. One that cannot be read
    has nothing, and is listed in `unread`."""

    def __init__(self, model: EmbeddingModel, files: Sequence[Path]) -> None:
        self._asked = model
        self.model = model.model
        self.dimensions = model.dimensions
        self.made = 0
        """Texts that the model was called with."""
        self._stores: dict[Path, duckdb.DuckDBPyConnection] = {}
        self._unread: list[Path] = []
        for file in files:
            try:
                self._stores[file] = opened(file)
            except duckdb.Error:
                self._unread.append(file)

    @property
    def unread(self) -> tuple[Path, ...]:
        return tuple(self._unread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._stores.values():
            store.close()

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        keys = [embedding_key(text) for text in texts]
        found = self.stored(keys)
        missing = []
        for text, key in zip(texts, keys, strict=True):
            if key not in found and is_mark(text):
                # It says nothing, and its memory is erased: any vector will do.
                found[key] = Embedding(hashed(text, self.dimensions))
            elif key not in found:
                missing.append(text)
        missing = list(dict.fromkeys(missing))
        if missing:
            made = await embeddings(self._asked, missing)
            self.made += len(missing)
            found.update(zip(map(embedding_key, missing), made, strict=True))
        return [found[key] for key in keys]

    def stored(self, keys: Iterable[str]) -> dict[str, Embedding]:
        """The embeddings that any of the stores has, by key."""
        wanted = set(keys)
        found: dict[str, Embedding] = {}
        for file in [*self._stores]:
            left = sorted(wanted - found.keys())
            if left:
                found.update(self._read(file, left))
        return found

    def _read(self, file: Path, keys: Sequence[str]) -> dict[str, Embedding]:
        try:
            store = self._stores[file]
            query = _EMBEDDINGS.format(table=table_in(store, "embeddings"))
            rows = store.sql(query, params=[self.model, list(keys)]).to_arrow_table()
        except duckdb.Error:
            self._stores.pop(file).close()
            self._unread.append(file)
            return {}
        vectors = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        shaped = vectors.astype(np.float32, copy=False).reshape(-1, self.dimensions)
        return {
            key: Embedding(vector, tokens)
            for key, vector, tokens in zip(
                rows["embedding_key"].to_pylist(), shaped, rows["tokens"].to_pylist(), strict=True
            )
        }

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [found.vector for found in await self.embed_with_tokens(texts)]

    async def embed_query(self, text: str) -> Vector:
        return await self._asked.embed_query(text)

    async def check(self) -> str | None:
        return await self._asked.check()

    async def close(self) -> None:
        self.__exit__()
        await self._asked.close()


def opened(file: Path) -> duckdb.DuckDBPyConnection:
    """A store's file to read from. Raises duckdb.Error."""
    return duckdb.connect(str(file), read_only=True, config={"threads": 1, **WRITTEN})


def table_in(store: duckdb.DuckDBPyConnection, name: str) -> str:
    """A table of a store's file with its schema, which is another in a copy. Raises duckdb.Error
    where there is none."""
    found = store.execute(
        "SELECT schema_name FROM duckdb_tables() WHERE table_name = ?", [name]
    ).fetchall()
    if not found:
        return name
    schema = str(found[0][0]).replace('"', '""')
    return f'"{schema}".{name}'
