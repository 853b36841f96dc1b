"""What the inline linker costs a memory: python -m palimpsest.ops.bench.linker [--entities 10000]

Budget: 1 ms a memory at 10,000 known entities (spec: apply-writes links while it writes).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from datetime import UTC, datetime

import duckdb

from palimpsest.schemas.identity import entity_id
from palimpsest.schemas.rows import NameRow
from palimpsest.stores.writing.known_names import NameCache, NameView
from palimpsest.streams.text.linker import candidate_names, names_in, unspaced_part

SCOPE = "bench"
WORDS = "we met in spring and talked about work music food the harbour and a long walk".split()


def _names(chance: random.Random, count: int) -> list[str]:
    """Distinct two-word names, one in ten in a script without word spaces."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names: dict[str, None] = {}
    while len(names) < count:
        if chance.random() < 0.1:
            name = "".join(chr(chance.randint(0x4E00, 0x9FA5)) for _ in range(3))
        else:
            first, last = ("".join(chance.choices(letters, k=6)) for _ in range(2))
            name = f"{first} {last}"
        names[name] = None
    return list(names)


def _texts(chance: random.Random, names: list[str], count: int) -> list[str]:
    texts = []
    for _ in range(count):
        words = chance.choices(WORDS, k=30)
        for name in chance.sample(names, 3):
            words.insert(chance.randrange(len(words)), name.title())
        texts.append(" ".join(words))
    return texts


def measure(entities: int, texts: int, seed: int = 0) -> dict[str, float]:
    """Milliseconds a memory: median, 99th percentile, most."""
    chance = random.Random(seed)
    names = _names(chance, entities)
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE name_rows (name_id VARCHAR, canonical_name VARCHAR, scope VARCHAR)"
    )
    cache = NameCache(connection.cursor)
    cache.of(SCOPE)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for name in names:
        cache.add(
            NameRow(
                name_id=entity_id(SCOPE, name),
                entity_id=entity_id(SCOPE, name),
                scope=SCOPE,
                name=name,
                canonical_name=name,
                entity_type="unknown",
                first_seen=moment,
                updated_at=moment,
            )
        )
    took = []
    found = 0
    for text in _texts(chance, names, texts):
        # Of this process only: a busy machine is not the linker's cost.
        started = time.process_time()
        known = NameView(cache).match(SCOPE, tuple(candidate_names(text)), unspaced_part(text))
        found += sum(names_in(text, name) is not None for name in known)
        took.append((time.process_time() - started) * 1_000)
    took.sort()
    return {
        "entities": entities,
        "memories": texts,
        "names_found_per_memory": found / texts,
        "median_ms": round(statistics.median(took), 4),
        "p99_ms": round(took[int(len(took) * 0.99)], 4),
        "most_ms": round(took[-1], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="what the inline linker costs a memory")
    parser.add_argument("--entities", type=int, default=10_000)
    parser.add_argument("--memories", type=int, default=2_000)
    chosen = parser.parse_args()
    sys.stdout.write(json.dumps(measure(chosen.entities, chosen.memories)) + "\n")


if __name__ == "__main__":
    main()
