"""`bench service` beside the work of operators, on a memory of many turns.

    python -m tests.soak.operating MINUTES [STORED]

STORED turns (20,000) are stored before the load. During it turns are imported and erased, dead
letters redriven, and the turns of another scope extracted again, all at the same time: by a process
of its own, with a third one as language model. Prints JSON; `beside` has the milliseconds by kind
of work, and what was answered instead of a success. What is begun is told on standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
from pydantic import JsonValue

from palimpsest.ops.bench import instant_provider
from palimpsest.ops.bench.made_up import SEED, Vocabulary
from palimpsest.ops.bench.measures import times
from palimpsest.ops.bench.service_clients import client_of
from palimpsest.ops.bench.service_load import ServiceLoad, measure
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.envelope import derived_id
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.runtime.output import published

SCOPE: Final = "operated"
AGAIN: Final = "extracted-again"
"""Of so many turns as are extracted again within seconds."""
SETTINGS: Final = ("embedding.provider=hashing",)
STORED: Final = 20_000
IMPORTED: Final = 50
EXTRACTED: Final = 300
DEAD: Final = 20
UNREADABLE: Final = "unreadable"
"""The model's answer to a turn with this word has no fact."""
PAUSE_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.2


async def operate(url: str, token: str, seconds: float) -> JsonObject:
    """Works on a service from another process; returns what was measured by kind of work."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.soak.operating", url, str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(token.encode())
    told("the operators have ended")
    found: JsonObject = json.loads(output)
    return found


# --- in the process of the operators ----------------------------------------------------------


class Operators:
    """Work until the monotonic time `until`, each kind one after another."""

    def __init__(self, url: str, token: str, until: float) -> None:
        self._http = client_of(url, token)
        self._until = until
        self._numbers = itertools.count()
        self._words = Vocabulary(SEED + 2)
        self._ms: dict[str, list[float]] = {}
        self._failures: Counter[str] = Counter()

    async def run(self) -> JsonObject:
        kinds = (self._import, self._erase, self._redrive, self._extract_again)
        async with self._http:
            await asyncio.gather(*map(self._repeat, kinds))
        return {
            "ms": {kind: times(took) for kind, took in sorted(self._ms.items())},
            "failures": {**self._failures},
        }

    async def _repeat(self, work: Callable[[int], Awaitable[None]]) -> None:
        while time.monotonic() < self._until:
            try:
                await work(next(self._numbers))
            except httpx.HTTPError as error:
                self._failures[f"{type(error).__name__}: {error}"[:200]] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _asked(
        self, kind: str, method: str, path: str, body: JsonValue = None, **query: str
    ) -> JsonObject:
        began = time.monotonic()
        answer = await self._http.request(method, path, json=body, params=query)
        self._ms.setdefault(kind, []).append((time.monotonic() - began) * 1_000)
        found: JsonObject = answer.raise_for_status().json()
        return found

    async def _import(self, number: int) -> None:
        turns: list[JsonValue] = [self._turn(f"{number}-{n}") for n in range(IMPORTED)]
        await self._asked("import", "POST", "/api/turns", turns)

    async def _erase(self, number: int) -> None:
        gone: list[JsonValue] = [turn_memory_id(SCOPE, f"stored-{number}")]
        body: JsonObject = {
            "scope": SCOPE,
            "memory_ids": gone,
            "cascade": True,
            "reason": "asked for",
        }
        began = time.monotonic()
        answer = await self._asked("erase", "POST", "/api/memory/erase", body)
        command = f"/api/commands/{answer['command_id']}"
        while answer.get("erasure") != "done" and time.monotonic() < self._until:
            await asyncio.sleep(POLL_SECONDS)
            answer = await self._asked("poll", "GET", command)
        if answer.get("erasure") == "done":
            took = (time.monotonic() - began) * 1_000
            self._ms.setdefault("erase, files too", []).append(took)

    async def _redrive(self, number: int) -> None:
        """A redriven dead letter is one again: the model has not learned anything."""
        turns: list[JsonValue] = [self._turn(f"{number}-{n}", UNREADABLE) for n in range(DEAD)]
        await self._asked("turns without facts", "POST", "/api/turns", turns, wait="30")
        answer = await self._asked("redrive", "POST", "/api/dead-letters/redrive", {"all": True})
        if not answer["redriven"]:
            self._failures["nothing was redriven"] += 1

    async def _extract_again(self, number: int) -> None:
        branch = f"branch-{number}"
        for kind in ("reextract", "diff"):
            order: JsonObject = {"kind": kind, "branch": branch}
            order |= {"provider": "rules", "scope": AGAIN} if kind == "reextract" else {}
            job = await self._asked(f"start of a {kind}", "POST", "/api/replays", order)
            began = time.monotonic()
            while job["state"] == "running":
                if time.monotonic() > self._until:
                    await self._asked("stop", "POST", f"/api/replays/{job['id']}/stop", {})
                    return
                await asyncio.sleep(POLL_SECONDS)
                job = await self._asked("poll", "GET", f"/api/replays/{job['id']}")
            self._ms.setdefault(kind, []).append((time.monotonic() - began) * 1_000)
            if job["state"] != "done":
                self._failures[f"{kind}: {job['state']}: {job['error']}"[:200]] += 1
                return
        await self._asked("drop of a branch", "DELETE", f"/api/branches/{branch}")

    def _turn(self, name: str, word: str = "") -> JsonObject:
        text = f"{self._words.sentence(14)} {word}"
        return {"turn_id": name, "speaker": "Ana", "content": text, "scope": SCOPE}


# --- the language model -----------------------------------------------------------------------


async def serve_model() -> None:
    async def reply(body: bytes) -> JsonValue:
        if UNREADABLE.encode() not in body:
            return await instant_provider.reply(body)
        text = json.dumps({"facts": [{"said": "this is not the form that was asked for"}]})
        message: JsonValue = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message}], "usage": {}}

    server, url = await instant_provider.started(reply)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextlib.contextmanager
def running_model() -> Iterator[str]:
    """The base URL of a process that ends with the block."""
    command = [sys.executable, "-m", "tests.soak.operating", "model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


# --- the load ---------------------------------------------------------------------------------


async def store(data: Path, counts: Mapping[str, int]) -> None:
    """By scope."""
    words, now = Vocabulary(SEED), datetime.now(UTC)
    turns = [
        (scope, ConversationTurn(turn_id=f"stored-{n}", speaker="Ana", content=words.sentence(14)))
        for scope, count in counts.items()
        for n in range(count)
    ]
    settings = load_settings([*SETTINGS, "llm.provider=rules"], data, None, {}).settings
    async with application(settings) as app:
        app.log.append(
            [
                published(CONVERSATION_TURNS, derived_id(scope, body.turn_id), scope, now, body)
                for scope, body in turns
            ]
        )
        await app.drain()


async def run(seconds: float, stored: int) -> JsonObject:
    with tempfile.TemporaryDirectory() as made, running_model() as model:
        folder = Path(made)
        told(f"storing {stored} turns")
        await store(folder / "data", {SCOPE: stored, AGAIN: EXTRACTED})
        flags = [*SETTINGS, "llm.provider=openai", f"llm.base_url={model}", "llm.model=instant"]
        load = ServiceLoad(seconds, clients=16, scopes=8, kills=0)
        told(f"{seconds:.0f} seconds of load")
        return {"stored": stored, **await measure(load, flags, folder, operate)}


def told(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def main() -> None:
    if sys.argv[1] == "model":
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve_model())
        return
    if sys.argv[1].startswith("http"):
        url, seconds = sys.argv[1], float(sys.argv[2])
        faulthandler.dump_traceback_later(seconds + 60, exit=True)
        operators = Operators(url, sys.stdin.read().strip(), time.monotonic() + seconds)
        sys.stdout.write(json.dumps(asyncio.run(operators.run())))
        return
    stored = int(sys.argv[2]) if len(sys.argv) > 2 else STORED
    print(json.dumps(asyncio.run(run(60 * float(sys.argv[1]), stored)), indent=2))


if __name__ == "__main__":
    main()
