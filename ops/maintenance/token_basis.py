"""The directions that token vectors are kept in: python -m palimpsest.ops.maintenance.token_basis,
in the folder of the project.

They are learned from the tokens of the project's own texts: its pages, its demo and the labelled
statements of its tests. Measured on two sets of conversations they find as much as directions
learned from such conversations (R@10 .787 and .640 against .787 and .654).

Other directions give stored bytes another meaning, and the texts change with the project: made
again, they need another name of the model, so that stores of the old ones are embedded again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from palimpsest.stores.index.token_vectors import learned
from palimpsest.streams.models.base import PermanentModelError
from palimpsest.streams.models.late_interaction import MODEL, LateInteractionModel

DIRECTIONS = 128
LEAST_CHARACTERS = 40
"""Of a line of a page."""
FIELDS = ("content", "known", "new")


def _texts(root: Path) -> Iterator[str]:
    """Yields texts in order, some more than once."""
    for name in ("ops/demo/conversation.jsonl", "tests/data/contradictions.jsonl"):
        for line in (root / name).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            yield from (record[field] for field in FIELDS if field in record)
    for folder in ("ops/docs", "ops/decisions"):
        for page in sorted((root / folder).glob("*.md")):
            lines = page.read_text(encoding="utf-8").splitlines()
            yield from (line for line in lines if len(line) > LEAST_CHARACTERS and "|" not in line)


async def write_basis(root: Path, target: Path) -> None:
    model = LateInteractionModel()
    try:
        found = await model.embed_passage_tokens([*dict.fromkeys(_texts(root))])
    finally:
        await model.close()
    codec = learned(np.concatenate([each.tokens for each in found]), DIRECTIONS)
    target.parent.mkdir(exist_ok=True)
    basis, low, step = (kept.astype("<f2") for kept in (codec.basis, codec.low, codec.step))
    np.savez_compressed(target, basis=basis, low=low, step=step)


if __name__ == "__main__":
    try:
        asyncio.run(write_basis(Path(), Path("stores", "index", "data", f"{MODEL}.tokens.npz")))
    except PermanentModelError as error:
        sys.exit(str(error))
