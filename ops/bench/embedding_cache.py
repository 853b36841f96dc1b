"""Embeddings of texts kept in a file, so that a large store is filled again in minutes."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from palimpsest.streams.models.base import Vector

Made: TypeAlias = tuple[Vector, bytes | None]
"""A text's unit vector and, from a model that has them, the packed vectors of its tokens."""
FETCHED = 500
"""Texts asked of the file at once: SQLite takes that many parameters anywhere."""


@dataclass(slots=True)
class EmbeddingCache:
    """Of one model. `made` counts the texts that were not in the file."""

    file: Path
    model: str
    make: Callable[[Sequence[str]], Awaitable[Sequence[Made]]]
    made: int = 0

    async def of(self, texts: Sequence[str]) -> dict[str, Made]:
        """The embedding of each text, made and kept where it is not known."""
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
