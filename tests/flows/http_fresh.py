"""What a sample request to the HTTP service is about: made anew for each."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx

from palimpsest.ops.http.service import Service
from palimpsest.ops.replay.branches import BranchManifest
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import Outgoing
from tests.flows.http_samples import Sample
from tests.flows.program import until

BRANCH = BranchManifest(
    name="made", kind="rebuild", created_at=datetime(2026, 3, 1, tzinfo=UTC), partitions=1
)
COMPARED = "20260301T100000-00000001"
"""The replay of `keep_comparison`."""
NUMBERS = itertools.count(1)


def fresh(client: httpx.Client, scope: str, sample: Sample | None = None) -> dict[str, str]:
    """A memory and a command of the scope, and a text that nobody said yet."""
    made = _MADE.setdefault((str(client.base_url), scope), [])
    if not made:
        made += _several(client, scope)
    answer = made.pop()
    memory_id = str(answer["id"])
    if sample is not None and sample.before == "forget":
        gone = client.delete(f"/api/memory/{memory_id}", params={"reason": "x"})
        assert gone.status_code == 200
    text = f"The {scope}fish has {next(NUMBERS)} fins."
    found = {"scope": scope, "id": memory_id, "command": answer["command_id"], "text": text}
    if sample is not None and "{document}" in sample.path:
        given = {"text": f"A document of the {scope}fish, {next(NUMBERS)}.", "scope": scope}
        added = client.post("/api/documents", json=given).json()
        found["document"] = str(added["id"])
    if sample is not None and "{replay}" in sample.path:
        found["replay"] = replay_of(client)
    if sample is not None and sample.path.startswith("/api/proposals/"):
        keep_proposal(client, scope)
    if sample is not None and "dead-letters" in sample.path:
        found["dead"] = str(client.get("/api/dead-letters").json()["dead_letters"][0]["id"])
    if sample is not None and sample.path.startswith("/api/entities/Oslo"):
        names = {"alias": "Christiania", "scope": scope}
        client.post("/api/entities/Oslo/aliases", json=names)
    if sample is not None and sample.path == "/api/embedding/cancel":
        client.post("/api/embedding/migrate", json={"to": "hashing", "dimensions": 96})
    if sample is not None and sample.path == "/api/embedding/switch":
        client.post("/api/embedding/cancel", json={})
    found["branch"] = BRANCH.name
    found["compared"] = COMPARED
    return found


_MADE: dict[tuple[str, str], list[dict[str, str]]] = {}
"""Answers about memories that no test had yet, by service and scope."""


def _several(client: httpx.Client, scope: str) -> list[dict[str, str]]:
    """Remembered at once, which takes the stages about as long as one does."""

    def one(number: int) -> dict[str, str]:
        said = {"content": f"The {scope}fish ate {number} shrimps.", "scope": scope}
        answer: dict[str, str] = client.post("/api/memory/remember", json=said).json()
        return answer

    with ThreadPoolExecutor(8) as together:
        return [*together.map(one, itertools.islice(NUMBERS, 8))]


def needs_more(sample: Sample) -> bool:
    """Whether the sample is about more than a memory that is there."""
    things = (
        "{document}",
        "{replay}",
        "/api/proposals/",
        "dead-letters",
        "/aliases",
        "/embedding/",
    )
    return bool(sample.before) or any(each in sample.path for each in things)


def keep_proposal(client: httpx.Client, scope: str) -> None:
    """An update that waits for review, beside those of earlier tests that are still there."""
    number = next(NUMBERS)
    habit = f"drink tea number {number} every morning."
    for said in (f"I {habit}", f"I don't {habit[:-1]} anymore."):
        turn = {"turn_id": f"p{next(NUMBERS)}", "content": said, "speaker": "Ana", "scope": scope}
        assert client.post("/api/turns", json=turn).status_code == 202
    listing = partial(client.get, "/api/proposals", params={"scope": scope, "limit": 100})
    until(lambda: f"tea number {number} " in listing().text)


def dead_letters(service: Service, count: int) -> None:
    """Records that no stage can read."""
    garbage = [Outgoing(CONVERSATION_TURNS.name, "ben", b"ben", b"{") for _ in range(count)]
    service.append(garbage)


def keep_comparison(data_dir: Path) -> None:
    """Differences that a replay found, of a kind that is not forgotten when something is erased, as
    the other requests here do."""
    folder = data_dir / "replays" / COMPARED
    folder.mkdir(parents=True)
    order = {"kind": "rebuild", "name": BRANCH.name}
    began = {"order": order, "started_at": "2026-03-01T10:00:00Z"}
    ended = {"state": "done", "result": {"lines": 1}, "ended_at": "2026-03-01T10:00:01Z"}
    (folder / "order.json").write_text(json.dumps(began))
    (folder / "end.json").write_text(json.dumps(ended))
    line = {"what": "entity", "scope": "ana", "kind": "gained", "name": "Oslo"}
    (folder / "differences.jsonl").write_text(json.dumps(line) + "\n")


def replay_of(client: httpx.Client) -> str:
    """The first that was started."""
    started = client.get("/api/replays").json()["replays"]
    if not started:
        order = {"kind": "diff", "branch": "nothing"}
        started = [client.post("/api/replays", json=order).json()]
    return str(started[-1]["id"])
