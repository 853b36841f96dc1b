"""The scheduler: what is due on a partition, what is recorded, and what happens after errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.errors import NotFoundError
from palimpsest.ops.scheduling.jobs import Job, JobContext, Scheduler
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import RememberCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import own_command
from tests.harness import Pipeline, pipeline_settings

SYSTEM = Actor(id="nightly", type="system")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


@dataclass
class Nightly:
    """A job that notes the times it ran for. `error` is what it raises."""

    ran: list[datetime] = field(default_factory=list)
    error: Exception | None = None

    async def __call__(self, context: JobContext) -> str:
        self.ran.append(context.at)
        if self.error is not None:
            raise self.error
        return f"{len(self.ran)} done"


def scheduler(pipeline: Pipeline, job: Any, schedule: str = "03:00", **flags: Any) -> Scheduler:
    settings = pipeline_settings()
    settings = settings.model_copy(
        update={
            "jobs": settings.jobs.model_copy(update={"retention": schedule}),
            "pipeline": settings.pipeline.model_copy(update=flags),
        }
    )
    return of(pipeline, settings, job)


def of(pipeline: Pipeline, settings: Settings, job: Any) -> Scheduler:
    shards = {0: pipeline.shard}
    known = (pipeline.log, pipeline.log.append, settings, pipeline.clock)
    return Scheduler(lambda: shards, *known, jobs=(Job("retention", job),))


def tick(made: Scheduler) -> None:
    asyncio.run(made.once())


def run_row(pipeline: Pipeline) -> dict[str, Any]:
    [row] = pipeline.rows("SELECT * FROM internal.job_runs")
    return row


def test_missed_runs_are_caught_up_once(pipeline: Pipeline) -> None:
    pipeline.clock.time = datetime.fromisoformat("2026-03-01T12:00+00:00")
    job = Nightly()
    made = scheduler(pipeline, job)
    tick(made)
    tick(made)
    assert job.ran == []  # a new store waits for the first time to come
    assert run_row(pipeline)["outcome"] is None
    pipeline.clock.advance(hours=15)
    tick(made)
    tick(made)
    assert job.ran == [datetime.fromisoformat("2026-03-02T03:00+00:00")]
    row = run_row(pipeline)
    assert (row["outcome"], row["detail"], row["failures"]) == ("ok", "1 done", 0)
    # Closed for days, and opened by another process.
    pipeline.clock.advance(days=5)
    pipeline.reopen()
    made = scheduler(pipeline, job)
    for _ in range(3):
        tick(made)
    assert job.ran[1:] == [datetime.fromisoformat("2026-03-07T03:00+00:00")]
    assert not made.busy()


def test_a_failed_run_is_tried_again_after_a_growing_pause(pipeline: Pipeline) -> None:
    job = Nightly(error=RuntimeError("no room"))
    made = scheduler(pipeline, job, "every 6 h")
    tick(made)
    pipeline.clock.advance(hours=6)
    tick(made)
    tick(made)
    assert len(job.ran) == 1
    row = run_row(pipeline)
    assert (row["outcome"], row["detail"], row["failures"]) == ("failed", "no room", 1)
    for seconds, runs in ((29, 1), (2, 2), (31, 2), (30, 3)):
        pipeline.clock.advance(seconds=seconds)
        tick(made)
        assert len(job.ran) == runs
    assert len({*job.ran}) == 1  # for the same scheduled time, so with the same commands
    job.error = None
    pipeline.clock.advance(hours=1)
    tick(made)
    row = run_row(pipeline)
    assert (row["outcome"], row["failures"], len(job.ran)) == ("ok", 0, 4)


def test_nothing_runs_while_everything_is_frozen_or_the_job_is_off(pipeline: Pipeline) -> None:
    job = Nightly()
    tick(scheduler(pipeline, job))
    pipeline.clock.advance(days=2)
    tick(scheduler(pipeline, job, autonomous_frozen=True))
    tick(scheduler(pipeline, job, "off"))
    assert job.ran == []
    # A person may run it all the same.
    made = scheduler(pipeline, job, "off")
    [run] = asyncio.run(made.run_now("retention", 5))
    assert (run.outcome, run.detail, job.ran) == ("ok", "1 done", [pipeline.clock()])
    with pytest.raises(NotFoundError, match="there is no job tidy; the jobs are retention"):
        asyncio.run(made.run_now("tidy", 5))


def test_a_run_that_takes_long_goes_on(pipeline: Pipeline) -> None:
    async def flow() -> None:
        end = asyncio.Event()

        async def slow(context: JobContext) -> str:
            await end.wait()
            return "at last"

        made = scheduler(pipeline, slow)
        [run] = await made.run_now("retention", 0.01)
        assert (run.outcome, run.started_at) == (None, pipeline.clock())
        again = asyncio.create_task(made.run_now("retention", 5))  # waits for the first
        end.set()
        [run] = await again
        assert (run.outcome, run.detail) == ("ok", "at last")

    asyncio.run(flow())


def command_of(context: JobContext) -> tuple[str, Outgoing]:
    command = RememberCommand(content=f"the run of {context.at:%Y-%m-%d}")
    return own_command("ana", command, SYSTEM, context.at)


async def remember(context: JobContext) -> str:
    await context.execute([command_of(context)])
    return "remembered"


async def with_stages(pipeline: Pipeline, *timers: Scheduler) -> None:
    """Ticks while the stages work."""
    ticks = asyncio.gather(*(each.once() for each in timers))
    while not ticks.done():
        await pipeline.drain()
        await asyncio.sleep(0.01)
    await ticks


def test_a_run_that_is_repeated_after_a_crash_changes_nothing_twice(pipeline: Pipeline) -> None:
    tick(scheduler(pipeline, remember))
    pipeline.clock.advance(days=1)

    async def killed(context: JobContext) -> str:
        context.append([command_of(context)[1]])
        raise asyncio.CancelledError  # before the run was recorded

    with pytest.raises(asyncio.CancelledError):
        tick(scheduler(pipeline, killed))
    pipeline.run()
    asyncio.run(with_stages(pipeline, scheduler(pipeline, remember)))
    assert run_row(pipeline)["outcome"] == "ok"
    assert len(pipeline.records(MEMORY_COMMANDS)) == 1
    assert pipeline.values("SELECT count(*) FROM memory_rows") == [1]


def test_two_workers_with_one_partition_do_the_work_once(pipeline: Pipeline) -> None:
    """As while a partition moves on Kafka: both append, and the ids make it harmless."""
    tick(scheduler(pipeline, remember))
    pipeline.clock.advance(days=1)
    neither_has_appended = threading.Barrier(2)

    def append(records: Sequence[Outgoing]) -> None:
        neither_has_appended.wait(timeout=60)
        pipeline.log.append(records)

    async def remember_at_once(context: JobContext) -> str:
        return await remember(replace(context, append=append))

    both = scheduler(pipeline, remember_at_once), scheduler(pipeline, remember_at_once)
    asyncio.run(with_stages(pipeline, *both))
    assert len(pipeline.records(MEMORY_COMMANDS)) == 2
    assert pipeline.values("SELECT content FROM memory_rows") == ["the run of 2026-03-02"]
    assert pipeline.values("SELECT count(*) FROM dead_letter_rows") == [0]


def test_a_refused_command_fails_the_run(pipeline: Pipeline) -> None:
    frozen = pipeline_settings()
    frozen = frozen.model_copy(
        update={"pipeline": frozen.pipeline.model_copy(update={"mutations_frozen": True})}
    )
    pipeline.settings = frozen
    pipeline.reopen()
    tick(scheduler(pipeline, remember))
    pipeline.clock.advance(days=1)
    asyncio.run(with_stages(pipeline, scheduler(pipeline, remember)))
    row = run_row(pipeline)
    assert row["outcome"] == "failed"
    assert row["detail"].startswith("frozen: ")


def test_runs_are_not_part_of_the_state(pipeline: Pipeline) -> None:
    before = pipeline.state()
    tick(scheduler(pipeline, Nightly()))
    pipeline.clock.advance(days=1)
    tick(scheduler(pipeline, Nightly()))
    assert run_row(pipeline)["ended_at"] - run_row(pipeline)["started_at"] == timedelta()
    assert pipeline.state() == before
