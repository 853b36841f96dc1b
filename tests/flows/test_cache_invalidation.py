"""Who is told that memory changed, and asks at once, sees the change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from palimpsest.ops.parts import utc_now
from palimpsest.schemas.codec import decode
from palimpsest.schemas.commands import MemoryPatch, ModifyCommand
from palimpsest.schemas.messages import CacheInvalidation
from palimpsest.schemas.topics import CACHE_INVALIDATIONS, MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing, Position
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import outgoing
from tests.flows.program import PATIENCE_S, ROOT, Program, until
from tests.flows.test_http_program import serving
from tests.messages import commanded

EXAMPLE = ROOT / "ops" / "examples" / "context_cache.py"
SCOPE = "home"
MEMORIES, ROUNDS = 3, 4
TEXT = "Ana lives in {}"


def remembered(client: httpx.Client, text: str) -> str:
    body = {"scope": SCOPE, "content": text}
    answer = client.post("/api/memory/remember?wait=60", json=body).raise_for_status()
    return str(answer.json()["id"])


def changes(memory_ids: list[str]) -> Iterator[Outgoing]:
    """Every memory in turn, again and again, each a command of its own."""
    for number in range(MEMORIES * ROUNDS):
        text = f"number {number} of all that was said"
        patch = MemoryPatch(memory_id=memory_ids[number % MEMORIES], content=text)
        command = ModifyCommand(patches=(patch,), reason="said otherwise")
        yield outgoing(MEMORY_COMMANDS, commanded(command, number, SCOPE))


async def test_the_word_never_comes_before_the_row(program: Program) -> None:
    with serving(program) as (_, url):
        with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
            ids = [remembered(client, f"the first text of memory {n}") for n in range(MEMORIES)]
        folder = program.data / "log"
        with EmbeddedLog(folder, None, utc_now, "publish") as log:
            log.append([*changes(ids)])
            told = await read_back(log, url, ids)
    assert {memory_id: told[memory_id] for memory_id in ids} == dict.fromkeys(ids, 1 + ROUNDS)


async def read_back(log: EmbeddedLog, url: str, memory_ids: list[str]) -> Counter[str]:
    """How often each memory was told of; each time the memory was asked for at once, and was as
    new as was told."""
    told: Counter[str] = Counter()
    position = Position("cache", CACHE_INVALIDATIONS.name, 0, 0)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
        while min(told[each] for each in memory_ids) < 1 + ROUNDS:
            assert await log.wait([position], PATIENCE_S), told
            for record in log.read(position.topic, 0, position.next_offset, 100):
                assert record.value is not None
                body = decode(record.value, CACHE_INVALIDATIONS, record.timestamp).body
                assert isinstance(body, CacheInvalidation)
                for memory_id in body.memory_ids:
                    told[memory_id] += 1
                    found = (await client.get(f"/api/memory/{memory_id}")).raise_for_status()
                    assert found.json()["version"] >= told[memory_id]
                position = Position("cache", position.topic, 0, record.offset + 1)
    return told


@contextmanager
def caching(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The example, alone in a process."""
    process = subprocess.Popen(
        [sys.executable, "-I", str(EXAMPLE), *arguments],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(process: subprocess.Popen[str]) -> tuple[bool, str]:
    """Whether the cache knew it, and what it answered."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return answer["known"], answer["context"]


def forgets_what_changes(url: str, process: subprocess.Popen[str]) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
        memory_id = remembered(client, TEXT.format("Lisbon"))
        until(lambda: asked(process)[0])
        assert "Lisbon" in asked(process)[1]
        changed = {"content": TEXT.format("Porto"), "reason": "she moved"}
        client.patch(f"/api/memory/{memory_id}?wait=60", json=changed).raise_for_status()
        # What was known is asked anew once the word has come, and then it is as it is now.
        until(lambda: not asked(process)[0])
        assert "Porto" in asked(process)[1]


def test_the_example_follows_the_events_of_a_scope(program: Program) -> None:
    with (
        serving(program) as (_, url),
        caching(program.folder, url, SCOPE, "where does Ana live?") as process,
    ):
        forgets_what_changes(url, process)
