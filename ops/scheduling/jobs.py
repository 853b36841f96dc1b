"""What a scheduled job is: named work that runs by time on every open partition.

A job changes memories only by commands that it appends to the log, with ids that are derived from
the scheduled time: a run that is repeated after a crash publishes nothing twice, and a rebuild
repeats what the commands did without the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from weakref import WeakKeyDictionary

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.operations.answers import RESULTS
from palimpsest.ops.operations.awaited_results import AwaitedResults
from palimpsest.ops.operations.lifecycle.jobs import RUNS, JobRun, Outcome, run_of
from palimpsest.ops.scheduling.periodic import PartitionTimer
from palimpsest.ops.settings.sections import Settings, schedule_of
from palimpsest.stores.database.cursors import StoreClosed
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.runtime.offload import in_thread

PATIENCE_SECONDS: Final = 120.0
"""How long a run waits for its commands to be executed, before it fails and is tried again."""


class JobFailed(Exception):
    """A run that did not finish; the text says why."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """One run on one partition. `at` is the scheduled time that it is for (UTC), not the current
    time: a missed run happens later, once. `scope`: only this one, where a person says so."""

    shard: Shard
    partition: int
    at: datetime
    settings: Settings
    log: LogReader
    append: Callable[[Sequence[Outgoing]], object]
    scope: str | None = None
    models: ModelPort | None = None

    async def execute(self, commands: Sequence[tuple[str, Outgoing]]) -> list[str]:
        """Appends commands, as ids and records (`own_command`), and waits for their results, which
        it returns as JSON in order. One that was executed before, by a run that did not get to its
        end, is not appended again. Raises JobFailed for a command that is refused, or has no result
        in time."""
        ids = [command_id for command_id, _ in commands]

        async def find(ids: Sequence[str]) -> dict[str, str]:
            return await asyncio.to_thread(self._results, ids)

        results = AwaitedResults(find, [self.shard])
        found = await find(ids)
        new = [record for command_id, record in commands if command_id not in found]
        if new:
            await asyncio.to_thread(self.append, new)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.gather(*map(results.of, ids))
        except TimeoutError:
            raise JobFailed(
                f"{len(ids)} commands had no result after {PATIENCE_SECONDS:g} s;"
                " `palimpsest status` shows what the stages wait for"
            ) from None

    def _results(self, ids: Sequence[str]) -> dict[str, str]:
        query = f"SELECT command_id, error, result FROM ({RESULTS})"
        rows = self.shard.fetch(query, {"ids": [*ids]})
        refused = [error for _, error, _ in rows if error is not None]
        if refused:
            raise JobFailed(refused[0])
        return {command_id: result for command_id, _, result in rows}


@dataclass(frozen=True, slots=True)
class Job:
    """`name` is the job's name in the settings (`jobs.<name>`) and in `status`. `run` returns what
    it did, in a short sentence, and raises what kept it from it."""

    name: str
    run: Callable[[JobContext], Awaitable[str]]


# --- schedules ------------------------------------------------------------------------------------
# Runs scheduled jobs on every open partition, each at the times of its setting (`jobs.<name>`).
#
# The newest run of a job is a row of the partition's store. A job is due when its newest scheduled
# time is later than that of the row: however many times were missed, it runs once. A new store
# begins with the rows of the present, so that its first runs are at the first times to come.
#
# Whoever owns a partition runs its jobs. Two workers that own one for a moment, as while it moves,
# have the same scheduled times, so their commands have the same ids and are executed once.

logger = logging.getLogger(__name__)

_KEEP: Final = "INSERT OR REPLACE INTO job_runs VALUES (?, ?, ?, ?, ?, ?, ?)"
MOST_CHARACTERS: Final = 2_000


@dataclass(eq=False)
class Scheduler(PartitionTimer[dict[str, datetime]]):
    """Runs `jobs`, in order, on all open shards. A failed run is recorded and tried again after a
    pause that doubles up to an hour. While `autonomous_frozen` is set for all scopes, nothing
    runs by itself."""

    what = "scheduled jobs"
    seconds = 10.0

    jobs: Sequence[Job] = field(kw_only=True)
    models: ModelPort | None = field(default=None, kw_only=True)
    _locks: dict[int, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock), init=False
    )
    _asked: set[asyncio.Task[JobRun]] = field(default_factory=set, init=False)
    _known: WeakKeyDictionary[Shard, dict[str, JobRun]] = field(
        default_factory=WeakKeyDictionary, init=False
    )
    """The newest runs, by job: nobody else writes the table of a shard that is open here."""

    async def look(self, partition: int, shard: Shard) -> None:
        # Stores from when on each new job runs.
        known = await asyncio.to_thread(self._runs, shard)
        for job in self.jobs:
            schedule = schedule_of(getattr(self.settings.jobs, job.name))
            if job.name not in known and schedule is not None:
                at = schedule.latest(self.clock())
                await self._keep(shard, JobRun(job.name, 0, at))
        await super().look(partition, shard)

    async def act(self, partition: int, shard: Shard, due: dict[str, datetime]) -> None:
        for job in self.jobs:
            if job.name in due:
                await self._run(partition, shard, job, due[job.name])

    async def run_now(self, name: str, seconds: float, scope: str | None = None) -> list[JobRun]:
        """Runs a job on every open partition, also one that is off; for one scope only, if one is
        named. Returns its runs after that many seconds; one without an outcome goes on. Raises
        NotFoundError."""
        job = next((each for each in self.jobs if each.name == name), None)
        if job is None:
            known = ", ".join(each.name for each in self.jobs)
            raise NotFoundError(f"there is no job {name}; the jobs are {known}")
        now = self.clock()
        runs = {
            partition: asyncio.create_task(self._run(partition, shard, job, now, scope))
            for partition, shard in self.shards().items()
        }
        for run in runs.values():
            self._asked.add(run)
            run.add_done_callback(self._asked.discard)
        if runs:
            await asyncio.wait(runs.values(), timeout=seconds)
        return [
            run.result() if run.done() else JobRun(name, partition, now, started_at=now)
            for partition, run in runs.items()
        ]

    def due(self, shard: Shard) -> dict[str, datetime]:
        """Returns the jobs to run, with the scheduled time of each."""
        if self.settings.pipeline.autonomous_frozen:
            return {}
        now, runs = self.clock(), self._runs(shard)
        due = {}
        for job in self.jobs:
            schedule = schedule_of(getattr(self.settings.jobs, job.name))
            run = runs.get(job.name)
            if schedule is None or run is None:
                continue
            at = max(schedule.latest(now), run.scheduled_for)
            again = run.again_at
            if (at > run.scheduled_for) if again is None else (again <= now):
                due[job.name] = at
        return due

    def _runs(self, shard: Shard) -> dict[str, JobRun]:
        if shard not in self._known:
            self._known[shard] = {row[0]: run_of(0, row) for row in shard.fetch(RUNS)}
        return self._known[shard]

    async def _run(
        self, partition: int, shard: Shard, job: Job, at: datetime, scope: str | None = None
    ) -> JobRun:
        """Runs a job that nobody else runs on the partition, and stores how it ended."""
        async with self._locks[partition]:
            before = (await asyncio.to_thread(self._runs, shard)).get(job.name)
            if before is not None and before.outcome == "ok" and before.scheduled_for >= at:
                return replace(before, partition=partition)  # it was run meanwhile
            started, failures = self.clock(), 0
            context = JobContext(
                shard, partition, at, self.settings, self.log, self.append, scope, self.models
            )
            try:
                detail = await job.run(context)
            except StoreClosed:
                raise
            except Exception as error:
                # Whatever it is, it must not end the worker: it is shown, and tried again.
                detail = str(error) or type(error).__name__
                failures = 1 if before is None else before.failures + 1
                logger.warning("job %s of partition %d: %s", job.name, partition, detail)
            run = JobRun(job.name, partition, at, started, self.clock())
            outcome: Outcome = "failed" if failures else "ok"
            detail = detail[:MOST_CHARACTERS]
            run = replace(run, outcome=outcome, detail=detail, failures=failures)
            await self._keep(shard, run)
            return run

    async def _keep(self, shard: Shard, run: JobRun) -> None:
        def write() -> None:
            values = (run.started_at, run.ended_at, run.outcome, run.detail, run.failures)
            with shard.writing() as connection:
                connection.execute(_KEEP, [run.job, run.scheduled_for, *values])

        async with shard.lock:
            await in_thread(write)
        self._runs(shard)[run.job] = run
