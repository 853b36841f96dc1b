"""Labelled pairs of statements, and how near an embedding model puts them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from palimpsest.streams.models.base import EmbeddingModel

UNRELATED = 37
"""A statement is also compared with the one this many lines further on."""
Pairs = dict[str, list[tuple[str, str]]]


def labelled(folder: Path, language: str) -> Pairs:
    """The labelled pairs of a language, by how they are related."""
    contradictions = _lines(folder / "contradictions.jsonl", language)
    pairs: Pairs = {"same": [], "not the same": [], "contradict": [], "agree": []}
    for line in _lines(folder / "same_statements.jsonl", language):
        pairs["same" if line["same"] else "not the same"].append((str(line["a"]), str(line["b"])))
    for line in contradictions:
        name = "contradict" if line["contradicts"] else "agree"
        pairs[name].append((str(line["known"]), str(line["new"])))
    known = [str(line["known"]) for line in contradictions]
    pairs["unrelated"] = list(zip(known, known[UNRELATED:] + known[:UNRELATED], strict=True))
    return pairs


def _lines(path: Path, language: str) -> list[dict[str, object]]:
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["language"] == language]


async def cosines(
    model: EmbeddingModel, pairs: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, NDArray[np.float64]]:
    """Of each pair of texts, as stored ones; each text is embedded once."""
    texts = [*dict.fromkeys(text for each in pairs.values() for pair in each for text in pair)]
    made = np.array(await model.embed_passages(texts), dtype=np.float64)
    vectors = dict(zip(texts, made, strict=True))
    return {
        name: np.array([vectors[a] @ vectors[b] for a, b in each]) for name, each in pairs.items()
    }
