"""BM25 by bm25s, with Snowball's stemmer: words alone, no vectors. One index a scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bm25s
import Stemmer


class Bm25:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._stemmer = Stemmer.Stemmer("english")
        self._indexes: dict[str, Any] = {}

    def add(self, scope: str, turns: list[tuple[str, str]]) -> None:
        tokens = self._tokens([text for _, text in turns])
        index = bm25s.BM25(corpus=[{"id": id_} for id_, _ in turns])
        index.index(tokens, show_progress=False)
        index.save(self._folder / scope)
        self._indexes[scope] = index

    def search(self, scope: str, text: str, limit: int) -> list[str]:
        index = self._indexes[scope]
        found, scores = index.retrieve(
            self._tokens([text]), k=min(limit, len(index.corpus)), show_progress=False
        )
        return [hit["id"] for hit, score in zip(found[0], scores[0], strict=True) if score > 0]

    def _tokens(self, texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stemmer=self._stemmer, show_progress=False)


def make(folder: str, embed: Any, dimensions: int) -> Bm25:
    return Bm25(folder)
