"""What is known of embedding models: one table, each line a set of defaults that settings beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EmbeddingDefaults:
    """What a model needs to be used well.

    `exact` and `near` are cosines: from `exact` on two facts in the same telling words are one,
    below `near` they have nothing to do with each other, and in between it must be decided.
    Prefixes are put before a text of that kind, for models trained with them.
    """

    dimensions: int
    exact: float = 0.98
    near: float = 0.70
    query_prefix: str = ""
    passage_prefix: str = ""


GENERAL: Final = EmbeddingDefaults(dimensions=0)
"""For a model that is not in the table: its dimensions must be set."""

KNOWN: Final[dict[str, EmbeddingDefaults]] = {
    # Measured on pairs of facts: paraphrases .977 to .995, updates and contradictions .905 to
    # .999, the same subject .81 to .90, unrelated ones .76 to .79.
    "multilingual-e5-small-q4": EmbeddingDefaults(384, exact=0.975, near=0.88),
    # Means of token vectors, measured on pairs in English: those that say the same from .970 on,
    # contradictions from .916, about one thing from .894, half of the unrelated ones below .85.
    "answerai-colbert-small-int8": EmbeddingDefaults(384, exact=0.97, near=0.85),
    # Counts words and pieces of words: opposites share most of them.
    "hashing-1": EmbeddingDefaults(256, exact=0.999, near=0.45),
    "nomic-embed-text": EmbeddingDefaults(
        768, query_prefix="search_query: ", passage_prefix="search_document: "
    ),
    "mxbai-embed-large": EmbeddingDefaults(
        1024, query_prefix="Represent this sentence for searching relevant passages: "
    ),
    "all-minilm": EmbeddingDefaults(384),
    "bge-m3": EmbeddingDefaults(1024),
    "text-embedding-3-small": EmbeddingDefaults(1536),
    "text-embedding-3-large": EmbeddingDefaults(3072),
}


def defaults_for(model: str) -> EmbeddingDefaults:
    """The defaults of a model by its name, with or without a tag (`bge-m3:latest`)."""
    return KNOWN.get(model) or KNOWN.get(model.partition(":")[0]) or GENERAL
