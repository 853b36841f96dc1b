"""Scheduled jobs: their newest runs, and a run on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from palimpsest.ops.errors import UnavailableError
from palimpsest.ops.operations import shared
from palimpsest.ops.operations.operation import OPERATING, Answer, Doc, Json, Read

if TYPE_CHECKING:
    from palimpsest.ops.reading.sources import Sources

Outcome = Literal["ok", "failed"]
RUNS: Final = (
    "SELECT job, scheduled_for, started_at, ended_at, outcome, detail, failures FROM job_runs"
)
_FIRST_PAUSE: Final = timedelta(seconds=30)
_LONGEST_PAUSE: Final = timedelta(hours=1)


class JobRun(Answer):
    """The newest run of a job on a partition. `scheduled_for` is the time that it was for. Without
    an `outcome` it is running, or (also without `started_at`) has not run yet. `detail` says what
    it did, or why it failed; `failures` counts the failed runs since the last good one."""

    job: str
    partition: int
    scheduled_for: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    detail: str = ""
    failures: int = 0

    @property
    def again_at(self) -> datetime | None:
        """When a failed run is tried again."""
        if self.ended_at is None or not self.failures:
            return None
        doublings = min(self.failures - 1, 10)
        return self.ended_at + min(_FIRST_PAUSE * (1 << doublings), _LONGEST_PAUSE)


def run_of(partition: int, row: Sequence[Any]) -> JobRun:
    """The run of a row of `RUNS`."""
    job, *times, outcome, detail, failures = row
    at, started, ended = (each and each.astimezone(UTC) for each in times)
    return JobRun(job, partition, at, started, ended, outcome, detail, failures)


class JobState(Answer):
    """A scheduled job on a partition: its schedule, its newest run and the next. `next_run` is null
    for one that is off."""

    job: str
    partition: int
    schedule: str
    last_run: JobRun | None
    next_run: datetime | None


def job_states(sources: Sources) -> list[Json]:
    """Returns the state of every job on every open partition, as JSON."""
    from palimpsest.ops.settings.sections import schedule_of
    from palimpsest.ops.sql.values import plain

    found = []
    for partition, shard in sources.shards.items():
        rows = shard.fetch(f"{RUNS} ORDER BY job")
        for run in (run_of(partition, row) for row in rows):
            text = getattr(sources.settings.jobs, run.job, "off")
            schedule = schedule_of(text)
            next_run = None if schedule is None else schedule.following(sources.now())
            if next_run is not None and run.again_at is not None:
                next_run = max(run.again_at, sources.now())
            last = None if run.started_at is None else asdict(run)
            state = JobState(run.job, partition, text, None, next_run)
            found.append(plain({**asdict(state), "last_run": last}))
    return found


async def run_on_request(
    sources: Sources, name: str, seconds: float, scope: str | None = None
) -> list[Json]:
    """Runs a job on the open partitions, and returns its runs as JSON. Raises UnavailableError
    where no stages run, NotFoundError for an unknown job."""
    from palimpsest.ops.sql.values import plain

    if sources.run_job is None:
        raise UnavailableError(
            "no worker runs on this memory, and a job needs one: start it with `palimpsest run`"
        )
    return [plain(asdict(each)) for each in await sources.run_job(name, seconds, scope)]


class JobRuns(Answer):
    """The runs of a job, by partition."""

    runs: tuple[JobRun, ...]


class RunJob(Read[JobRuns]):
    """Run a scheduled job now, on every partition, and show how it ended. `palimpsest status` lists
    the jobs.

    Example: palimpsest jobs run retention
    """

    name: Annotated[
        str, Doc("the job, for example `retention`", min_length=1, max_length=64, argument=True)
    ]
    timeout: shared.Timeout = 20.0

    surface: ClassVar = OPERATING(
        ("POST", "/api/jobs/{name}/run"), command="jobs run", needs_stages=True
    )

    async def read(self, sources: Sources) -> Json:
        return {"runs": await run_on_request(sources, self.name, self.timeout)}
