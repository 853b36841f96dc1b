"""A laboratory: one broker, any number of worker processes, and what became of what was sent.

For the soak, the throughput figures and the tests on a real broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from palimpsest.ops.ingest.records import in_batches
from palimpsest.ops.kafka.broker import Broker
from palimpsest.ops.kafka.topics import create_topics
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import publisher
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.requests import JsonObject, SqlRequest
from palimpsest.ops.service.client import NotThereError
from palimpsest.ops.service.queries import queries
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.stores.database.migrations import use_tables
from palimpsest.stores.database.state_hash import table_hashes
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.logs.base import Outgoing
from tests.warm_program import WarmProcess

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.2
States = dict[str, dict[str, str]]
"""Hashes by table, by scope."""


MakeLab = Callable[..., "Lab"]
"""From partitions, seconds of a session and settings."""


class LabError(Exception):
    """What was waited for did not happen; the text has the end of the workers' output."""


@dataclass
class Lab:
    """One installation on a broker: topics with a prefix of their own, and a data folder. `forks`:
    its workers are forks of a process that has the program imported (`tests.warm_program`), not
    processes of `program`."""

    folder: Path
    broker: Broker
    prefix: str
    partitions: int = 8
    session_seconds: float = 6.0
    overrides: tuple[str, ...] = ()
    forks: bool = False
    program: tuple[str, ...] = (sys.executable, "-m", "palimpsest.ops.cli.main")
    workers: dict[str, subprocess.Popen[bytes] | WarmProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.choose()
        create_topics(self.settings.cluster, 1)
        self.log = KafkaLog.open(self.settings.cluster)

    def _flags(self) -> list[str]:
        return [
            "log.kind=kafka",
            f"log.partitions={self.partitions}",
            f"kafka.bootstrap_servers={self.broker.bootstrap_servers}",
            f"kafka.topic_prefix={self.prefix}-",
            f"kafka.group={self.prefix}",
            f"kafka.session_seconds={self.session_seconds}",
            "embedding.provider=hashing",
            "store.memory_limit=256",
            "store.threads=1",
            *self.overrides,
        ]

    def choose(self, *overrides: str) -> None:
        """Further settings, for what begins from now on."""
        self.overrides += overrides
        chosen = load_settings(self._flags(), self.folder / "data", environment={})
        self.settings: Settings = chosen.settings

    # --- workers -----------------------------------------------------------------------------

    def start(self, name: str, *stages: str) -> None:
        """A worker process for these stages (all when none is named)."""
        self.begin(name, "run", *((f"--stages={','.join(stages)}",) if stages else ()))

    def serve(self, name: str, seconds: float = 60.0) -> str:
        """A process of the HTTP service, the gateway; its address."""
        self.begin(name, "serve", "--port=0")
        began = time.monotonic()
        while time.monotonic() - began < seconds and self.workers[name].poll() is None:
            found = re.search(r"serving at (http://\S+);", self.tail(name))
            if found:
                return found[1]
            time.sleep(LOOK_SECONDS)
        raise LabError(f"{name} does not serve\n{self.tail(name)}")

    def begin(self, name: str, *command: str) -> None:
        """A process of the program with this command."""
        flags = (f"--set={flag}" for flag in self._flags())
        arguments = [*command, "--data-dir", str(self.folder / "data"), *flags]
        with self.output(name).open("ab") as out:
            if self.forks:
                self.workers[name] = WarmProcess(arguments, ROOT, os.environ, output=out)
                return
            self.workers[name] = subprocess.Popen(
                [*self.program, *arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def signal(self, name: str, number: signal.Signals) -> None:
        self.workers[name].send_signal(number)

    def kill(self, name: str) -> None:
        """At once, as a crash does."""
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def stop(self, name: str, seconds: float = 60.0) -> float:
        """By SIGTERM; the seconds it took. Raises LabError when it fails."""
        worker = self.workers.pop(name)
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        try:
            code = worker.wait(seconds)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
            raise LabError(f"{name} did not stop within {seconds} s\n{self.tail(name)}") from None
        if code not in (0, -signal.SIGTERM):  # the latter before it had begun to work
            raise LabError(f"{name} ended with {code}\n{self.tail(name)}")
        return time.monotonic() - began

    def tail(self, name: str) -> str:
        """The end of what the worker printed."""
        try:
            return self.output(name).read_text(errors="replace")[-4000:]
        except OSError:
            return ""

    def close(self) -> None:
        for worker in self.workers.values():
            worker.kill()
            worker.wait()
        self.workers.clear()
        self.log.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what goes in, and what became of it -------------------------------------------------

    def publish(self, records: Iterable[Outgoing]) -> int:
        count = 0
        for batch in in_batches(records):
            count += len(self.log.append(batch))
        return count

    def until_drained(self, seconds: float = 120.0) -> float:
        """The seconds until every stage had acknowledged everything. Raises LabError, also when
        a worker ends by itself."""
        began = time.monotonic()
        while not self.log.drained():
            self._check_workers()
            if time.monotonic() - began > seconds:
                raise LabError(f"not drained within {seconds} s: {self.lag()}\n{self._tails()}")
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - began

    def _check_workers(self) -> None:
        for name, worker in self.workers.items():
            if worker.poll() is not None:
                raise LabError(f"{name} ended with {worker.returncode}\n{self.tail(name)}")

    def _tails(self) -> str:
        return "\n".join(f"--- {name}\n{self.tail(name)}" for name in self.workers)

    def members(self, role: str) -> int:
        """The present number of workers in the role's group."""
        group = self.settings.cluster.group_of(role)
        described = self.log.ask(lambda admin: admin.describe_groups([group]))
        return len(described[group]["members"])

    def lag(self) -> dict[str, int]:
        """Records that are not acknowledged, by role."""
        return self.log.lag()

    def status(self, wait_for_broker: bool = True) -> JsonObject:
        """What the workers say, all together: once each of them reaches the broker, or at once,
        which raises UnavailableError where one doesn't."""

        async def ask() -> JsonObject:
            routed = RoutedQueries(self.settings, self.partitions)
            try:
                while wait_for_broker and await routed.waiting("broker"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # no event tells it
                answer = await routed.answer(Status())
            finally:
                await routed.close()
            assert isinstance(answer, dict)
            return answer

        return asyncio.run(ask())

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The answer of all workers to a query of SQL."""

        async def ask() -> list[dict[str, Any]]:
            async with queries(self.settings) as workers:
                found: list[dict[str, Any]] = (await workers.table(SqlRequest(query))).to_pylist()
            return found

        return asyncio.run(ask())

    def owners(self) -> dict[int, int]:
        """Partition to process id, for the partitions that are open now."""

        async def ask() -> dict[int, int]:
            routed = RoutedQueries(self.settings, self.partitions)
            try:
                owners = await routed.owners()
                pids = {id(c): int(str((await c.ping())["pid"])) for c in owners.values()}
                return {number: pids[id(client)] for number, client in owners.items()}
            except NotThereError:
                return {}  # killed between the two questions
            finally:
                await routed.close()

        return asyncio.run(ask())

    def until_owned(self, workers: int, seconds: float = 60.0) -> float:
        """The seconds until every partition is open at one of this many workers."""
        began = time.monotonic()
        while True:
            owners = self.owners()
            if len(owners) == self.partitions and len(set(owners.values())) == workers:
                return time.monotonic() - began
            self._check_workers()
            if time.monotonic() - began > seconds:
                raise LabError(f"partitions are with {owners} after {seconds} s\n{self._tails()}")
            time.sleep(LOOK_SECONDS)

    def states(self) -> States:
        """The state of every scope, from the closed stores of all partitions."""
        return states_of(self.folder / "data")


def states_of(data_dir: Path) -> States:
    """The state of every scope in the stores of a folder that no worker has open."""
    found: States = {}
    for file in sorted(data_dir.glob("shards/*/memory.duckdb")):
        with opened(file) as connection:
            rows = connection.execute(
                "SELECT scope FROM accepted_turns UNION SELECT scope FROM memory_rows"
            ).fetchall()
            for (scope,) in rows:
                if scope in found:
                    raise LabError(f"scope {scope} is in more than one shard")
                found[scope] = table_hashes(connection, scope=scope)
    return found


@contextmanager
def opened(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(file), read_only=True)
    use_tables(connection)
    try:
        yield connection
    finally:
        connection.close()


def embedded_states(
    folder: Path, records: Sequence[Outgoing], overrides: Sequence[str] = ()
) -> States:
    """The same records through the embedded log, in one process without any fault."""
    chosen = ["embedding.provider=hashing", *overrides]
    settings = load_settings(chosen, folder, environment={}).settings
    with publisher(settings) as append:
        for batch in in_batches(records):
            append(batch)

    async def run() -> None:
        async with application(settings) as app:
            await app.run(until_drained=True)

    asyncio.run(run())
    return states_of(folder)


def different(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Scopes in which two states differ, with the tables; empty when they are the same."""
    found = []
    for scope in sorted(a.keys() | b.keys()):
        one, other = a.get(scope, {}), b.get(scope, {})
        tables = sorted(t for t in one.keys() | other.keys() if one.get(t) != other.get(t))
        if tables:
            found.append(f"{scope}: {', '.join(tables)}")
    return found


def told(figures: Mapping[str, object]) -> None:
    """Print figures as JSON on stdout."""
    sys.stdout.write(json.dumps(figures, indent=2, default=str) + os.linesep)
    sys.stdout.flush()
