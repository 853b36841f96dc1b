"""What recording of accesses costs a recall and a context block.

    python -m tests.soak.access_cost FOLDER [--rounds 10]

Stores a conversation of a folder of data (`palimpsest.ops.bench.data_sets`) and asks its questions
in turns with and without a record, each question both ways within a moment of each other, while
what was recorded becomes commands as in any worker. Prints p50 and p95 in milliseconds of each way,
their ratios, and how many accesses the store counts in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from palimpsest import AsyncMemory
from palimpsest.ops.bench.data_sets import conversation_files, publish, questions, records
from palimpsest.ops.settings.sources import load_settings

QUESTIONS = 60
ACCESSES = "SELECT coalesce(sum(access_count), 0) FROM memories"


async def measure(data: Path, folder: Path, rounds: int) -> dict[str, object]:
    """Milliseconds by call and way, and what was counted."""
    file = conversation_files(data)[0]
    settings = load_settings([], folder, environment={}).settings
    publish(settings, records([file], settings, captions=True))
    asked = questions(file)[:QUESTIONS]
    took: dict[str, list[float]] = defaultdict(list)
    async with AsyncMemory(folder, scope=asked[0].scope, wait_seconds=600) as memory:
        await memory.wait_until_processed(1_800)
        for each in asked:  # what is read for the first time is not what is measured
            await memory.recall(each.text, record=False)
        for number in range(rounds):
            for place, each in enumerate(asked):
                ways = (True, False) if (number + place) % 2 else (False, True)
                for record in ways:
                    for name, call in (("recall", memory.recall), ("context", memory.context)):
                        began = time.perf_counter()
                        await call(each.text, record=record)
                        ms = 1_000 * (time.perf_counter() - began)
                        took[f"{name}_{'on' if record else 'off'}"].append(ms)
        await memory.wait_until_processed(600)
        counted = (await memory.sql(ACCESSES)).column(0)[0].as_py()
    figures: dict[str, object] = {"questions": len(asked), "accesses": int(counted)}
    for name in ("recall", "context"):
        for share in (50, 95):
            on, off = (float(np.percentile(took[f"{name}_{way}"], share)) for way in ("on", "off"))
            figures[f"{name}_p{share}"] = {
                "on_ms": round(on, 2),
                "off_ms": round(off, 2),
                "ratio": round(on / off, 3),
            }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(given.data, Path(folder), given.rounds)), indent=2))


if __name__ == "__main__":
    main()
