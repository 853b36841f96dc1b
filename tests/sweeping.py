"""The retention sweep on a pipeline that runs by hand."""

from __future__ import annotations

from collections.abc import Callable

from palimpsest.ops.lifecycle.retention import STEPS, SWEEPER, next_step, purge_topic, scopes_of
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.commands import SweepCommand
from palimpsest.streams.runtime.output import own_command
from tests.harness import Pipeline


def context_of(pipeline: Pipeline, scope: str | None = None) -> JobContext:
    known = (pipeline.settings, pipeline.log, pipeline.log.append)
    return JobContext(pipeline.shard, 0, pipeline.clock(), *known, scope)


def swept(
    pipeline: Pipeline,
    after: Callable[[], object] = lambda: None,
    scope: str | None = None,
) -> list[str]:
    """As the job does it; returns the steps. `after` is called after each command."""
    done = []
    context = context_of(pipeline, scope)
    for each in scopes_of(context.shard, context.settings, context.scope):
        for step in STEPS:
            while (found := next_step(context_of(pipeline), each, step)) is not None:
                if step == "history":
                    purge_topic(context_of(pipeline), each, found.before)
                command = SweepCommand(step=step, before=found.before)
                pipeline.log.append([own_command(each, command, SWEEPER, pipeline.clock())[1]])
                pipeline.run_through()
                done.append(f"{each}: {step}")
                after()
    return done
