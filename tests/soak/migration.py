"""Migrates the embedding model of many memories while turns come in and recall runs.

    python -m tests.soak.migration --folder FOLDER --data DATA [--data DATA…] [--memories N]
        [--from hashing] [--to local] [--dimensions N] [--kills 3]

Conversations are repeated in scopes of their own, with other speakers, until there are so many
memories; an earlier run's folder is gone on with. A worker process serves, and is killed
(`kill -9`) so many times on the way. Prints R@10, the times and the methods of recall before,
during and after, and after going back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from palimpsest.ops.bench.data_sets import DataSet, Question, publish, records
from palimpsest.ops.bench.measures import judged, ms_since, resident_mib, summary
from palimpsest.ops.errors import RequestError
from palimpsest.ops.log_folder import log_lock
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.lifecycle.embeddings import (
    EmbeddingBack,
    EmbeddingStatus,
    MigrateEmbedding,
)
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.service.announcement import announced
from palimpsest.ops.service.client import NotThereError, RemoteQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.envelope import derived_id
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.logs.file_lock import is_held
from tests.soak.lab import ROOT, told

TURNS_PER_SECOND: Final = 20
QUESTIONS: Final = 150
BLOCK: Final = 2_000
"""Turns that are ingested between two counts of the memories."""
LOOK_SECONDS: Final = 0.2
STATUS_SECONDS: Final = 2.0
"""Between two looks at how far the migration is, which count all vectors that are missing."""
THINK_SECONDS: Final = 0.1
"""Between two questions."""


class Worker:
    """A worker process, started again after each kill, and the answers of the one that runs."""

    def __init__(self, settings: Settings, flags: Sequence[str]) -> None:
        self._settings = settings
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def start(self) -> None:
        program = [sys.executable, "-m", "palimpsest.ops.cli.main", "run", "--data-dir"]
        command = [*program, str(self._settings.data_dir), *(f"--set={x}" for x in self._flags)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        while not is_held(log_lock(self._settings)):
            assert self._process.poll() is None, "the worker has ended"
            time.sleep(LOOK_SECONDS)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.kills += 1
        self.start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(60) == 0

    def memory(self) -> float:
        assert self._process is not None
        return resident_mib(self._process.pid)[0]

    @contextlib.asynccontextmanager
    async def asked(self) -> AsyncIterator[RemoteQueries]:
        """The process that runs now, once it answers. Raises NotThereError when it is killed."""
        while True:
            announcement = announced(self._settings.data_dir)
            process = self._process
            if announcement is not None and process is not None and announcement.pid == process.pid:
                break
            await asyncio.sleep(LOOK_SECONDS)
        remote = RemoteQueries.announced(announcement)
        try:
            yield remote
        finally:
            await remote.close()

    async def answer(self, operation: Read[Any]) -> Any:
        async with self.asked() as own:
            return await own.answer(operation)


@dataclass
class Talk:
    """Turns that come in, so many a second."""

    settings: Settings
    turns: Iterator[Outgoing]
    appended: int = 0

    async def run(self) -> None:
        due = time.monotonic()
        with publisher(self.settings) as append:
            for record in self.turns:
                await asyncio.to_thread(append, [record])
                self.appended += 1
                due += 1 / TURNS_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))


@dataclass
class Rounds:
    """Questions asked again and again; `failed` has what an answer failed with."""

    worker: Worker
    asked: Sequence[Question]
    failed: list[str] = field(default_factory=list)

    async def one(self) -> dict[str, Any]:
        """All questions, one after another, of one connection."""
        found, methods = [], set()
        async with self.worker.asked() as own:
            for question in self.asked:
                began = time.perf_counter()
                query = Recall(question.text, question.scope, 50, asked_at=question.asked_at)
                answer = await own.answer(query)
                methods.add(answer["method"])
                turns = [turn for result in answer["results"] for turn in result["source_ids"]]
                found.append(judged(question, turns, ms_since(began)))
                await asyncio.sleep(THINK_SECONDS)
        means = summary(found)
        return {"recall@10": means["recall@10"], "methods": sorted(methods), "ms": means["ms"]}

    async def until(self, ended: asyncio.Event) -> AsyncIterator[dict[str, Any]]:
        while not ended.is_set():
            try:
                yield await self.one()
            except (RequestError, NotThereError) as error:
                self.failed.append(repr(error))


def turns_of(settings: Settings, chosen: Sequence[DataSet]) -> Iterator[Outgoing]:
    """The turns of all conversations, and then again and again, with other scopes and speakers."""
    for copy in count():
        for each in chosen:
            for record in records(each.files(), settings, each.captions):
                yield _copied(record, copy) if copy else record


def _copied(record: Outgoing, copy: int) -> Outgoing:
    assert record.value is not None
    message = json.loads(record.value)
    scope = f"{message['scope']}-{copy}"
    message |= {"scope": scope, "id": derived_id("copy", message["id"], copy)}
    # Vectors are shared by equal texts of one speaker.
    message["body"]["speaker"] = f"{message['body']['speaker']} {copy}"
    value = json.dumps(message, ensure_ascii=False).encode()
    return replace(record, key=scope.encode(), value=value, scope=scope)


async def ingest(settings: Settings, turns: Iterator[Outgoing], memories: int) -> int:
    """Ingests until there are so many memories, from where an earlier run has come to; returns how
    many there are."""
    known = False
    while True:
        async with application(settings) as app:
            await app.run(until_drained=True)
            with app.shards[0].reading() as reader:
                [(accepted,)] = reader.execute("SELECT count(*) FROM accepted_turns").fetchall()
                query = "SELECT count(*) FROM memory_rows WHERE NOT is_deleted"
                [(there,)] = reader.execute(query).fetchall()
        if not known:
            known = not deque(islice(turns, accepted), 0)
        sys.stderr.write(f"{there} memories of {accepted} turns\n")
        if there >= memories:
            return int(there)
        publish(settings, islice(turns, BLOCK))


async def migrated(worker: Worker, to: MigrateEmbedding, kills: int) -> dict[str, Any]:
    """Migrates; kills the worker at equal parts of the way. Returns seconds and the last state."""
    own = (await worker.answer(EmbeddingStatus()))["partitions"][0]["live"]
    began, last, most = time.monotonic(), 0.0, 0.0
    await worker.answer(to)
    while True:
        state = (await worker.answer(EmbeddingStatus()))["partitions"][0]
        if state["live"] != own:
            break
        share = (state["made"] or 0) / state["memories"]
        most = max(most, worker.memory())
        if time.monotonic() - last > 10:
            sys.stderr.write(f"{state['made']} of {state['memories']} vectors\n")
            last = time.monotonic()
        if worker.kills < kills and share > (worker.kills + 1) / (kills + 1):
            await asyncio.to_thread(worker.kill)
        await asyncio.sleep(STATUS_SECONDS)
    return {"seconds": round(time.monotonic() - began, 1), "resident_mib": most, "state": state}


async def drained(worker: Worker) -> None:
    while True:
        pipeline = await worker.answer(Status())
        if not any(stage["lag"] for stage in pipeline["stages"]):
            return
        await asyncio.sleep(LOOK_SECONDS)


async def measure(
    settings: Settings,
    flags: Sequence[str],
    chosen: Sequence[DataSet],
    memories: int,
    to: MigrateEmbedding,
    kills: int,
) -> dict[str, Any]:
    asked = [question for each in chosen for question in each.questions()]
    turns = turns_of(settings, chosen)
    report: dict[str, Any] = {"memories": await ingest(settings, turns, memories)}
    worker = Worker(settings, flags)
    worker.start()
    rounds = Rounds(worker, asked[:: max(1, len(asked) // QUESTIONS)])
    with contextlib.ExitStack() as stack:
        stack.callback(worker.stop)
        await rounds.one()  # loads the scopes
        report["before"] = await rounds.one()
        talk, ended = Talk(settings, turns), asyncio.Event()
        talking = asyncio.create_task(talk.run())

        async def during() -> list[dict[str, Any]]:
            return [each async for each in rounds.until(ended)]

        asking = asyncio.create_task(during())
        report["migration"] = await migrated(worker, to, kills)
        ended.set()
        report["during"] = await asking
        report["after_at_once"] = await rounds.one()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        await drained(worker)
        report["after"] = await rounds.one()
        live = (await worker.answer(EmbeddingStatus()))["partitions"][0]["live"]
        await worker.answer(EmbeddingBack())
        while (await worker.answer(EmbeddingStatus()))["partitions"][0]["live"] == live:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        report["back"] = await rounds.one()
        report |= {"turns_meanwhile": talk.appended, "kills": worker.kills}
        report |= {"failed": rounds.failed, "status": await worker.answer(EmbeddingStatus())}
    return report


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--folder", type=Path, default=None)
    given.add_argument("--data", type=Path, action="append", required=True)
    given.add_argument("--memories", type=int, default=20_000)
    given.add_argument("--from", dest="own", default="hashing")
    given.add_argument("--to", default="local")
    given.add_argument("--dimensions", type=int)
    given.add_argument("--kills", type=int, default=0)
    asked = given.parse_args()
    flags = [f"embedding.provider={asked.own}", "llm.provider=rules"]
    folder = asked.folder or Path(tempfile.mkdtemp())
    settings = load_settings(flags, folder, None, {}).settings
    chosen = [DataSet(each) for each in asked.data]
    to = MigrateEmbedding(to=asked.to, dimensions=asked.dimensions, switch=True)
    told(asyncio.run(measure(settings, flags, chosen, asked.memories, to, asked.kills)))


if __name__ == "__main__":
    main()
