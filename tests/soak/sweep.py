"""Measures a retention sweep of many tombstones while turns come in and readers recall:

    python -m tests.soak.sweep [--tombstones 100000] [--turns 50] [--readers 4] [--think 0.25]

Readers think for so many seconds between two questions: without, four of them take all of a
processor, and turns wait for them, sweep or none. The tombstones are written into the tables of a
new store, each with an archived state, a vector, postings, a mention and a history event;
everything else goes through the running program.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from palimpsest.ops.bench.made_up import SEED, Vocabulary
from palimpsest.ops.bench.measures import times
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import turn_item_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.runtime.output import published

SCOPE: Final = "swept"
DAYS: Final = 200
POLL_SECONDS: Final = 0.01
THINK_SECONDS: Final = 0.25
_ROWS: Final = (
    """INSERT INTO memory_rows BY NAME SELECT 'gone-' || i AS memory_id, $scope AS scope,
    'fact' AS type, 'gone text ' || i AS content, 'gone text ' || i AS normalized_content,
    md5(i::VARCHAR) AS content_hash, 'key-' || i AS embedding_key, 0.8 AS importance,
    0.9 AS confidence, 0.1 AS decay_rate, false AS pinned, [] AS tags, [] AS categories,
    'ana' AS who, 'extracted-fact' AS why, '' AS session_id, 'extraction' AS source_type,
    'persistent' AS temporal_kind, made_at AS occurred_at, made_at AS created_at,
    made_at AS updated_at, made_at AS deleted_at, 'local' AS updated_by, 2 AS version,
    true AS is_deleted, '{}' AS metadata, 0 AS write_seq, 0 AS access_count FROM made""",
    """INSERT INTO memory_archive BY NAME SELECT 'gone-' || i AS memory_id, 1 AS version,
    $scope AS scope, 'fact' AS type, 'gone text ' || i AS content,
    json_object('embedding_key', 'key-' || i, 'occurred_at', made_at) AS state,
    'forgotten' AS reason, made_at AS archived_at FROM made""",
    """INSERT INTO mention_rows BY NAME SELECT 'gone-' || i AS memory_id, 'key-' || i AS text_key,
    'name-' || (i % 5000) AS name_id, $scope AS scope, 'Name' AS mention_text, 1.0 AS confidence
    FROM made""",
    """INSERT INTO name_rows BY NAME SELECT DISTINCT ON (i % 5000) 'name-' || (i % 5000) AS name_id,
    $scope AS scope, 'Name ' || (i % 5000) AS name, 'name ' || (i % 5000) AS canonical_name,
    'name-' || (i % 5000) AS entity_id, false AS is_alias, 'person' AS entity_type, 20 AS mentions,
    false AS pinned, made_at AS first_seen, made_at AS updated_at FROM made""",
    "INSERT INTO fts_docs SELECT 'gone-' || i, $scope, 3 FROM made",
    """INSERT INTO fts_postings SELECT $scope, unnest(['gone', 'text', i::VARCHAR]), 'gone-' || i, 1
    FROM made""",
    """INSERT INTO embeddings BY NAME SELECT 'key-' || i AS embedding_key, $model AS model,
    list_resize([0.05], $dimensions, 0.05)::FLOAT[] AS vector FROM made""",
    """INSERT INTO history_rows BY NAME SELECT 'event-' || i AS event_id, $scope AS scope,
    'gone-' || i AS memory_id, 'deleted' AS event, 'gone text ' || i AS old_content,
    'local' AS changed_by, 'human' AS actor_type, 'over' AS reason, '{}' AS metadata,
    '' AS session_id, 'none' AS correlation_id, made_at AS created_at FROM made""",
)
_LEFT: Final = {
    table: f"SELECT count(*) FROM {table} WHERE {column} LIKE '{like}'"
    for table, column, like in (
        ("memory_rows", "memory_id", "gone-%"),
        ("memory_archive", "memory_id", "gone-%"),
        ("mention_rows", "memory_id", "gone-%"),
        ("name_rows", "name_id", "name-%"),
        ("fts_docs", "memory_id", "gone-%"),
        ("fts_postings", "memory_id", "gone-%"),
        ("embeddings", "embedding_key", "key-%"),
        ("history_rows", "event_id", "event-%"),
    )
}


@dataclass(slots=True)
class Load:
    """Turns that come in, and readers; what each waited, in milliseconds."""

    app: Application
    scope: str
    first: str = "turn"
    waited: list[float] = field(default_factory=list)
    recalled: list[float] = field(default_factory=list)
    pending: dict[str, float] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def write(self, per_second: float) -> None:
        words = Vocabulary(SEED)
        due = time.monotonic()
        while True:
            turn_id = f"{self.first}-{next(self.numbers)}"
            turn = ConversationTurn(turn_id=turn_id, speaker="Ana", content=words.sentence(14))
            message_id = derived_id("soak", self.scope, turn_id)
            record = published(CONVERSATION_TURNS, message_id, self.scope, datetime.now(UTC), turn)
            self.pending[turn_item_id(self.scope, turn)] = time.monotonic()
            await asyncio.to_thread(self.app.log.append, [record])
            due += 1 / per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def watch(self) -> None:
        query = "SELECT item_id FROM outcomes WHERE item_id IN (SELECT unnest(?))"

        def settled() -> list[str]:
            with self.app.shards[0].reading() as reader:
                found = reader.execute(query, [[*self.pending]]).fetchall()
            return [item_id for (item_id,) in found]

        while True:
            for item_id in await asyncio.to_thread(settled):
                self.waited.append((time.monotonic() - self.pending.pop(item_id)) * 1_000)
            await asyncio.sleep(POLL_SECONDS)

    async def read(self, queries: DirectQueries, think: float) -> None:
        words = Vocabulary(SEED + 1)
        while True:
            began = time.monotonic()
            await queries.answer(Recall(words.sentence(4), self.scope))
            self.recalled.append((time.monotonic() - began) * 1_000)
            await asyncio.sleep(think)

    @contextlib.asynccontextmanager
    async def running(
        self, turns: float, readers: int, before: float, think: float = THINK_SECONDS
    ) -> AsyncIterator[JsonObject]:
        """Runs the program under this load; gives the waits of the last half of `before` seconds,
        with nothing else."""
        working = asyncio.create_task(self.app.run(until_drained=False))
        queries = DirectQueries(sources_of(self.app))
        reading = [self.read(queries, think) for _ in range(readers)]
        tasks = [self.write(turns), self.watch(), *reading]
        under_way = [asyncio.create_task(task) for task in tasks]
        await asyncio.sleep(before / 2)
        self.told()  # the first recalls load the scope
        await asyncio.sleep(before / 2)
        yield self.told()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self.app.stop()
        await working

    def told(self) -> JsonObject:
        found: JsonObject = {"write_wait_ms": times(self.waited), "recall_ms": times(self.recalled)}
        self.waited, self.recalled = [], []
        return found


async def measure(
    folder: Path,
    tombstones: int,
    turns: float = 50.0,
    readers: int = 4,
    before: float = 10.0,
    think: float = THINK_SECONDS,
) -> JsonObject:
    """Returns the waits without a sweep (for `before` seconds) and during it, how long the sweep
    took, and what it left."""
    flags = ["embedding.provider=hashing", "llm.provider=rules", "jobs.retention=off"]
    settings = load_settings(flags, folder, None, {}).settings
    async with application(settings) as app:
        _make(app, tombstones)
    async with application(settings) as app:
        load = Load(app, SCOPE)
        async with load.running(turns, readers, before, think) as calm:
            began = time.monotonic()
            [run] = await app.scheduler.run_now("retention", 3_600)
            took = time.monotonic() - began
            during = load.told()
        with app.shards[0].reading() as reader:
            left = {name: reader.execute(query).fetchall()[0][0] for name, query in _LEFT.items()}
    return {
        "tombstones": tombstones,
        "sweep_seconds": round(took, 1),
        "outcome": run.outcome,
        "detail": run.detail,
        "without": calm,
        "during": during,
        "left": left,
    }


def _make(app: Application, tombstones: int) -> None:
    shard = app.shards[0]
    first = datetime.now(UTC) - timedelta(days=DAYS)
    model = {"model": shard.options.embedding_model, "dimensions": shard.options.dimensions}
    with shard.writing() as connection:
        connection.execute(
            "CREATE TEMP TABLE made AS SELECT i, ?::TIMESTAMPTZ + to_milliseconds(i) AS made_at"
            " FROM range(?) r(i)",
            [first, tombstones],
        )
        for statement in _ROWS:
            known = {"scope": SCOPE, **model}
            named = {name: value for name, value in known.items() if f"${name}" in statement}
            connection.execute(statement, named)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a retention sweep under load.")
    parser.add_argument("--tombstones", type=int, default=10_000)
    parser.add_argument("--turns", type=float, default=50.0, help="a second")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--think", type=float, default=THINK_SECONDS, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load = (given.turns, given.readers, 20.0, given.think)
        measuring = measure(Path(folder), given.tombstones, *load)
        print(json.dumps(asyncio.run(measuring), indent=2))


if __name__ == "__main__":
    main()
