"""Where an embedding model puts labelled pairs: python -m palimpsest.ops.bench.bands

What it prints is what `decide.exact` and `decide.near` are set by: how near two texts that say the
same, that contradict each other, that are about one thing and that have nothing in common are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from palimpsest.streams.models.base import EmbeddingModel, PermanentModelError
from palimpsest.streams.models.late_interaction import LateInteractionModel
from palimpsest.streams.models.local import LocalEmbeddingModel
from palimpsest.streams.text.sameness import same_fact

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
NEAR = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
EXACT = (0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)
STRANGE = 37
"""A statement is also compared with the one so many further on: they have nothing in common."""
Pairs = dict[str, list[tuple[str, str]]]
Cosines = NDArray[np.float64]


def labelled(folder: Path, language: str) -> Pairs:
    """The labelled pairs of a language, by what they are to each other."""
    contradictions = [
        line for line in _lines(folder / "contradictions.jsonl") if line["language"] == language
    ]
    same = [
        line for line in _lines(folder / "same_statements.jsonl") if line["language"] == language
    ]
    pairs: Pairs = {"same": [], "not the same": [], "contradict": [], "agree": [], "strange": []}
    for line in same:
        pairs["same" if line["same"] else "not the same"].append((str(line["a"]), str(line["b"])))
    for line in contradictions:
        name = "contradict" if line["contradicts"] else "agree"
        pairs[name].append((str(line["known"]), str(line["new"])))
    known = [str(line["known"]) for line in contradictions]
    pairs["strange"] = list(zip(known, known[STRANGE:] + known[:STRANGE], strict=True))
    return pairs


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def cosines(model: EmbeddingModel, pairs: Sequence[tuple[str, str]]) -> Cosines:
    """Of each pair of texts, as stored ones."""
    first = np.array(await model.embed_passages([a for a, _ in pairs]), dtype=np.float64)
    second = np.array(await model.embed_passages([b for _, b in pairs]), dtype=np.float64)
    found: Cosines = (first * second).sum(axis=1)
    return found


async def measure(model: EmbeddingModel, pairs: Pairs) -> None:
    found = {name: await cosines(model, some) for name, some in pairs.items() if some}
    _row("", [f"{quantile:.0%}" for quantile in QUANTILES])
    for name, values in found.items():
        _row(name, [f"{value:.3f}" for value in np.quantile(values, QUANTILES)])
    for title, bands in (("at least near", NEAR), ("at least exact", EXACT)):
        _row(title, [f"{band:g}" for band in bands])
        for name, values in found.items():
            _row(name, [f"{(values >= band).mean():.3f}" for band in bands])
    lost = sum(
        value >= 0.9 and same_fact(a, b)
        for name in ("not the same", "contradict")
        for (a, b), value in zip(pairs[name], found.get(name, ()), strict=True)
    )
    sys.stdout.write(f"taken for the same at any band, though they are not: {lost}\n")


def _row(name: str, values: Sequence[str]) -> None:
    sys.stdout.write(f"{name:16}" + "".join(f"{value:>8}" for value in values) + "\n")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=("late", "local"), default="late")
    parser.add_argument("--language", default="en")
    parser.add_argument("--data", type=Path, default=Path("tests/data"))
    given = parser.parse_args()
    model = LateInteractionModel() if given.provider == "late" else LocalEmbeddingModel()
    try:
        await measure(model, labelled(given.data, given.language))
    except PermanentModelError as error:
        sys.exit(str(error))
    finally:
        await model.close()


if __name__ == "__main__":
    asyncio.run(main())
