"""What the console's views take in a large store: `python -m tests.soak.console_size FOLDER`.

Fills the folder once by the pipeline itself: made-up turns of one scope, half of them about two
names, 300 changes that wait for review, 1,000 dead letters, a comparison of 10,000 differences.
A second argument is the
number of turns. Prints the median milliseconds of five requests of each view, the first one's, and
its bytes."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import quote

import httpx

from palimpsest.ops.bench.made_up import SEED, Vocabulary, related_records
from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import outgoing
from tests.flows.http_server import BASE, server
from tests.messages import published, turn

SCOPE: Final = "bench-0"
FLAGS: Final = (*BASE[:2], "llm.provider=rules", "jobs.retention=off", "log.partitions=1")
HELD, DEAD, DIFFERENCES, TRIES = 300, 1_000, 10_000, 5
COMPARISON: Final = "20260301T100000-00000002"
PAGE: Final = {"Accept": "text/html"}


def records(turns: int) -> Iterator[Outgoing]:
    yield from related_records(turns, 1, Vocabulary(SEED))
    for number in range(HELD):
        habit = f"drink tea number {number} every morning"
        for place, said in enumerate((f"I {habit}.", f"I don't {habit} anymore.")):
            spoken = published(turn(said, f"ea-{2 * number + place}"), SCOPE)
            yield outgoing(CONVERSATION_TURNS, spoken)
    yield from (Outgoing(CONVERSATION_TURNS.name, SCOPE, b"x", b"{") for _ in range(DEAD))


async def fill(folder: Path, turns: int, is_new: bool) -> None:
    settings = load_settings(FLAGS, folder, None, {}).settings
    async with application(settings) as app:
        if is_new:
            for batch in in_batches(records(turns)):
                app.log.append(batch)
            keep_comparison(folder)
        await app.run(until_drained=True)


def keep_comparison(folder: Path) -> None:
    job = folder / "replays" / COMPARISON
    job.mkdir(parents=True)
    began = {"order": {"kind": "diff", "branch": "b"}, "started_at": "2026-03-01T10:00:00Z"}
    result = {"lines": DIFFERENCES, "totals": {"changed": DIFFERENCES}}
    ended = {"state": "done", "result": result, "ended_at": "2026-03-01T10:00:01Z"}
    (job / "order.json").write_text(json.dumps(began))
    (job / "end.json").write_text(json.dumps(ended))
    words = Vocabulary(SEED)
    with (job / "differences.jsonl").open("w") as file:
        for _ in range(DIFFERENCES):
            live, branch = ({"memory_id": "x", "content": words.sentence()} for _side in range(2))
            line = {"what": "fact", "kind": "changed", "scope": SCOPE, "keep": None}
            line |= {"live": live, "branch": branch}
            file.write(json.dumps(line) + "\n")


def views(client: httpx.Client) -> dict[str, str]:
    """The views by name, with things of the store in them."""

    def first(path: str, kind: str, name: str, **query: object) -> str:
        return quote(str(client.get(path, params=query).json()[kind][0][name]))

    session = first("/api/sessions", "sessions", "session_id", scope=SCOPE)
    fact = first("/api/memories", "memories", "id", scope=SCOPE, types="fact")
    entity = first("/api/entities", "entities", "name", scope=SCOPE)
    dead = first("/api/dead-letters", "dead_letters", "id")
    return {
        "first view": "/pipeline",
        "scopes": "/scopes",
        "sessions": f"/sessions?scope={SCOPE}",
        "session": f"/sessions/{session}?scope={SCOPE}",
        "memories": f"/memories?scope={SCOPE}",
        "memories of all": "/memories",
        "memories, forgotten": f"/memories?scope={SCOPE}&deleted=true",
        "memory": f"/memories/{fact}",
        "recall": f"/recall?scope={SCOPE}&query=who lives in {entity}",
        "recall, why not": f"/recall?scope={SCOPE}&query=who lives in {entity}&why_not=tea",
        "recall, compared": f"/recall?scope={SCOPE}&query=tea number 7&compare=ungrouped",
        "context": f"/recall?scope={SCOPE}&query=who lives in {entity}&view=context",
        "review": f"/review?scope={SCOPE}",
        "graph": f"/graph?scope={SCOPE}",
        "graph of 300": f"/graph?scope={SCOPE}&nodes=300",
        "entity": f"/entities/{entity}?scope={SCOPE}",
        "entity, 3 steps": f"/entities/{entity}?scope={SCOPE}&depth=3",
        "dead letters": "/dead-letters",
        "dead letter": f"/dead-letters/{dead}",
        "replays": "/replay",
        "comparison": f"/replay/{COMPARISON}",
        "documents": f"/documents?scope={SCOPE}",
        "privacy": f"/privacy?scope={SCOPE}",
        "sql": "/sql?query=SELECT type, count(*) FROM memories GROUP BY type",
        "sql, all rows": "/sql?query=SELECT memory_id, type, content FROM memories&from=90000",
    }


def main(folder: Path, turns: int) -> None:
    asyncio.run(fill(folder, turns, not folder.exists()))
    with server(folder, *FLAGS[2:]) as served, served.client() as client:
        served.settle(client)
        print(json.dumps(client.get("/api/stats").json()))
        for name, url in views(client).items():
            took = []
            for _ in range(TRIES):
                began = time.perf_counter()
                answer = client.get(url, headers=PAGE)
                took.append((time.perf_counter() - began) * 1_000)
                assert answer.status_code == 200, (url, answer.text[:400])
            size = len(answer.content)
            print(f"{name:22}{median(took):8.0f} ms{took[0]:8.0f} ms first{size:10,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50_000)
