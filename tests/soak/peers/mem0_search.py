"""mem0's memory and search, turns added as they are (`infer=False`: no language model), its default
local store (Qdrant in the process) and its keyword leg, which its extras switch on.

That leg's package would download its stop words: it gets those of the package stop-words instead,
whether there is a network or not. Words are not lemmatized, as spaCy's English model is no package
of the index; the keyword leg stems them. A user a scope.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastembed import SparseTextEmbedding
from mem0 import Memory
from stop_words import get_stop_words

NOTHING = 0.0
"""Least cosine of a result: with the default of .1, a question may have fewer than were asked."""


class Mem0:
    def __init__(self, folder: str, embed: Any, dimensions: int) -> None:
        place = Path(folder)
        embedder = {"api_key": "none", "openai_base_url": embed.url, "model": "passage"}
        store = {"path": str(place / "qdrant"), "on_disk": True, "collection_name": "turns"}
        self._memory = Memory.from_config(
            {
                "embedder": {"provider": "openai", "config": embedder},
                "vector_store": {
                    "provider": "qdrant",
                    "config": {**store, "embedding_model_dims": dimensions},
                },
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "history_db_path": str(place / "history.db"),
            }
        )
        self._memory.vector_store._bm25_encoder = SparseTextEmbedding(
            "Qdrant/bm25", specific_model_path=folder, stopwords=set(get_stop_words("english"))
        )

    def add(self, scope: str, turns: list[tuple[str, str]]) -> None:
        self._memory.embedding_model.config.model = "passage"
        for id_, text in turns:
            self._memory.add(
                [{"role": "user", "content": text}],
                user_id=scope,
                infer=False,
                metadata={"turn": id_},
            )

    def search(self, scope: str, text: str, limit: int) -> list[str]:
        self._memory.embedding_model.config.model = "query"
        found = self._memory.search(
            text, filters={"user_id": scope}, top_k=limit, threshold=NOTHING
        )
        return [item["metadata"]["turn"] for item in found["results"]]


def make(folder: str, embed: Any, dimensions: int) -> Mem0:
    return Mem0(folder, embed, dimensions)
