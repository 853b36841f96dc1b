"""All scheduled jobs, in the order in which those of the same time run."""

from __future__ import annotations

from functools import partial
from typing import Final

from palimpsest.ops.health.recording import record_scores
from palimpsest.ops.health.repairs import maintain
from palimpsest.ops.lifecycle.archive import archive
from palimpsest.ops.lifecycle.aspects import aspects
from palimpsest.ops.lifecycle.causes import causes
from palimpsest.ops.lifecycle.classification import classification
from palimpsest.ops.lifecycle.consolidation import consolidation
from palimpsest.ops.lifecycle.decay import decay
from palimpsest.ops.lifecycle.profiles import profiles
from palimpsest.ops.lifecycle.retention import sweep
from palimpsest.ops.scheduling.jobs import Job

JOBS: Final = (
    Job("decay", decay),
    Job("retention", sweep),
    Job("archive", archive),
    Job("profiles", profiles),
    Job("causes", causes),
    Job("consolidation", consolidation),
    Job("classification", classification),
    Job("aspects", aspects),
    Job("maintenance", partial(maintain, sweep=sweep)),
    Job("health", record_scores),
)
