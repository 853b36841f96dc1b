"""What a sample request to the HTTP service is about: made anew for each."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import httpx

from palimpsest.ops.replay.branches import Branch
from tests.flows.http_samples import Sample

BRANCH = Branch(
    name="made", kind="rebuild", created_at=datetime(2026, 3, 1, tzinfo=UTC), partitions=1
)
COMPARED = "20260301T100000-00000001"
"""The replay of `keep_comparison`."""
NUMBERS = itertools.count(1)


def fresh(client: httpx.Client, scope: str, sample: Sample | None = None) -> dict[str, str]:
    """A memory and a command of the scope, and a text that nobody said yet."""
    said = {"content": f"The {scope}fish ate {next(NUMBERS)} shrimps.", "scope": scope}
    answer = client.post("/api/memory/remember", json=said).json()
    memory_id = str(answer["result"]["id"])
    if sample is not None and sample.before == "forget":
        gone = client.delete(f"/api/memory/{memory_id}", params={"reason": "x"})
        assert gone.status_code == 200
    text = f"The {scope}fish has {next(NUMBERS)} fins."
    found = {"scope": scope, "id": memory_id, "command": answer["command_id"], "text": text}
    if sample is not None and "{document}" in sample.path:
        given = {"text": f"A document of the {scope}fish, {next(NUMBERS)}.", "scope": scope}
        added = client.post("/api/documents", json=given).json()
        found["document"] = str(added["result"]["id"])
    if sample is not None and "{replay}" in sample.path:
        found["replay"] = replay_of(client)
    found["branch"] = BRANCH.name
    found["compared"] = COMPARED
    return found


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
