"""Everything of a shard that searches by vectors, for one embedding model.

A search takes a shard's `space` once and uses nothing else of the shard that depends on the model:
so its query vector and all vectors that it compares are of one model, also when the shard changes
its model meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from palimpsest.stores.database.cursors import Reading
from palimpsest.stores.index.cache import IndexCache
from palimpsest.stores.index.passages import TurnText, TurnTokens, read_passages
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.stored_scopes import StoredScopes
from palimpsest.stores.index.token_reader import HeldTokens, TokenReader
from palimpsest.stores.index.token_vectors import keeps_tokens
from palimpsest.stores.settings import ShardOptions

if TYPE_CHECKING:
    from palimpsest.stores.index.lance import VectorTable

EMBEDDED: Final = (
    "model = $model AND len(vector) = $dimensions AND (tokens IS NOT NULL OR NOT $has_tokens)"
)
"""The condition for a row of `embeddings` to have all that the model makes of a text; see
`embedded_values`."""


def embedded_values(model: str, dimensions: int) -> dict[str, object]:
    """The values of the names in `EMBEDDED`."""
    return {"model": model, "dimensions": dimensions, "has_tokens": keeps_tokens(model)}


@dataclass(slots=True)
class EmbeddingProgress:
    """What this process did for the memories without a vector of a space: how many it embedded in
    `seconds` and failed to embed, and why the last failure happened. It has looked at all that was
    written up to the write sequence `through`; the last run was `complete` unless the provider was
    unavailable or the run was ended."""

    embedded: int = 0
    failed: int = 0
    failure: str | None = None
    seconds: float = 0.0
    model_seconds: float = 0.0
    """What the model took of the batch in progress."""
    through: int = 0
    complete: bool = False
    dropped: bool = False


class VectorSpace:
    """`options` name the model; `table` returns LanceDB's copy of its vectors, if it is in use.
    `began` is the store's write sequence when the shard changed to the model."""

    def __init__(
        self,
        reading: Reading,
        folder: Path,
        options: ShardOptions,
        table: Callable[[str], VectorTable | None],
        began: int = 0,
    ) -> None:
        self._reading = reading
        self.options = options
        self._table = table
        self.began = began
        stored = StoredScopes(reading, options, self._copy)
        self.indexes = IndexCache(reading, options, folder, self._cached_vectors, stored)
        self.tokens = TokenReader(
            reading, options.embedding_model, self.indexes.texts_of, self._copied_tokens
        )
        self.turn_tokens = TurnTokens(reading, options.embedding_model)

    def reading(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """As `ShardState.reading`."""
        return self._reading()

    def packed_tokens(self, memory_ids: Sequence[str]) -> dict[str, bytes]:
        """The packed token vectors of memories by id, of those that have any by this model."""
        return self.tokens.of(memory_ids)

    def packed_turns(self, texts: Sequence[TurnText]) -> dict[TurnText, bytes]:
        """The packed token vectors of all that turns say, of those that have more than those of
        their outline."""
        return self.turn_tokens.of(texts)

    def read_passages(self, index: ScopeIndex) -> None:
        """Gives an index the passages of its long texts, as far as it has not looked them up."""
        if keeps_tokens(self.options.embedding_model):
            read_passages(self._reading, self.options.embedding_model, index)

    def stored_vector(self, embedding_key: str) -> NDArray[np.float32] | None:
        """The stored vector of a text."""
        with self._reading() as reader:
            row = reader.execute(
                "SELECT vector FROM embeddings WHERE embedding_key = ? AND model = ?",
                [embedding_key, self.options.embedding_model],
            ).fetchone()
        return None if row is None else np.asarray(row[0], dtype=np.float32)

    def stored_keys(self, embedding_keys: Sequence[str]) -> set[str]:
        """Returns those texts of which a vector is stored."""
        with self._reading() as reader:
            rows = reader.execute(
                "SELECT embedding_key FROM embeddings WHERE model = ? AND embedding_key IN"
                " (SELECT unnest(?))",
                [self.options.embedding_model, sorted(embedding_keys)],
            ).fetchall()
        return {row[0] for row in rows}

    def _copy(self) -> VectorTable | None:
        return self._table(self.options.embedding_model)

    def _cached_vectors(self, scope: str) -> pa.Table | None:
        """As `stores.index.cache.CopiedVectors`: LanceDB's copy, once open and worth it."""
        table = self._copy()
        return None if table is None else table.held(scope)

    def _copied_tokens(self, memory_ids: Sequence[str]) -> Mapping[str, HeldTokens]:
        table = self._copy()
        return {} if table is None else table.tokens(memory_ids)
