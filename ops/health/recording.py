"""The job `health`: records the scores of a partition once a day, by a command in the log."""

from __future__ import annotations

import asyncio
from typing import Final

from palimpsest.ops.embedding.tracker import partition_scope
from palimpsest.ops.health.checkup import Checkup
from palimpsest.ops.health.domains import DOMAINS, composite, score_of
from palimpsest.ops.health.repairs import MAINTENANCE
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.commands import RecordHealthCommand
from palimpsest.schemas.topics import MEMORY_COMMANDS
from palimpsest.streams.runtime.model_port import Usage
from palimpsest.streams.runtime.output import own_command

ABOUT: Final = "health"


async def record_scores(context: JobContext) -> str:
    """Returns the composite score, and the worst domains."""
    if context.scope is not None:
        return "a trend is of all scopes: nothing was recorded"
    models = context.models
    checkup = Checkup(
        context.shard,
        context.partition,
        context.settings,
        context.log,
        context.at,
        silent={name.partition(":")[0] for name in (models.outages if models else ())},
        usage=models.usage if models else Usage(),
    )
    scores = {
        name: score_of(name, await asyncio.to_thread(checkup.counts, name)) for name in DOMAINS
    }
    scope = partition_scope(context.partition, context.log.partitions(MEMORY_COMMANDS.name), ABOUT)
    command = RecordHealthCommand(scores=scores, at=context.at)
    await context.execute([own_command(scope, command, MAINTENANCE, context.at)])
    low = [f"{name} {score:g}" for name, score in scores.items() if score < 1]
    return f"score {composite(scores):g}" + (f": {', '.join(low)}" if low else "")
