"""What a write costs while the embedding provider hangs, answers with an error or is not there.

    python -m tests.soak.embedding_outage [--texts 60]

Each way of failing has a store of its own. Told are the milliseconds of each `remember`, how many
of the texts a recall finds at once by their words, and how long after the provider is back all
vectors are there and a recall uses them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from palimpsest import AsyncMemory
from palimpsest.ops.bench.measures import ms_since, times
from palimpsest.ops.requests import JsonObject
from tests.servers import Behaviour, Call, Late, Raw, ScriptedProvider, Text

FAILS: Final = ("hangs", "answers 500", "is not there", "answers")
"""The last is what the others are compared with."""


async def measure(folder: Path, way: str, texts: int) -> JsonObject:
    released = asyncio.Event()
    failing = {"hangs": Late(released, Text("")), "answers 500": Raw(500, b"{}")}.get(way)

    def behaves(call: Call) -> Behaviour | None:
        return None if released.is_set() else failing

    provider = ScriptedProvider(dimensions=64, refusing=behaves)
    await provider.start()
    port = int(provider.url.rpartition(":")[2])
    if way == "is not there":
        await provider.stop()
    settings = {
        "embedding.provider": "openai",
        "embedding.base_url": provider.url,
        "embedding.model": "scripted",
        "embedding.dimensions": 64,
    }
    took: list[float] = []
    found = 0
    async with AsyncMemory(folder, settings=settings, wait_seconds=120.0) as memory:
        for number in range(texts):
            text = f"The key of room {number} hangs beside the boiler of house {number}."
            began = time.perf_counter()
            await memory.remember(text)
            took.append(ms_since(began))
            [best, *_] = (await memory.recall(f"key of room {number}")).results
            found += best.content == text
        began = time.perf_counter()
        if way == "is not there":
            await provider.start(port)
        released.set()
        while any(each.missing for each in (await memory.status()).embeddings):
            pass
        embedded = time.perf_counter() - began
        while (await memory.recall("key of room 3")).method != "hybrid":
            pass
        used = time.perf_counter() - began
    await provider.stop()
    return {
        "the provider": way,
        "remember_ms": times(took),
        "found_by_words_at_once": f"{found} of {texts}",
        "embedded_after_seconds": round(embedded, 1),
        "recall_uses_vectors_after_seconds": round(used, 1),
    }


async def run(texts: int) -> None:
    for way in FAILS:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(await measure(Path(folder), way, texts)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=60)
    asyncio.run(run(parser.parse_args().texts))


if __name__ == "__main__":
    main()
