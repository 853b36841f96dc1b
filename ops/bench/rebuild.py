"""Measures how fast new stores are rebuilt from a recorded log, and where the time goes."""

from __future__ import annotations

import asyncio
import resource
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.ops.bench.data_sets import publish
from palimpsest.ops.bench.made_up import SEED, Vocabulary, related_records
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import shard_folder
from palimpsest.ops.replay.fold import FoldJob, fold_partitions
from palimpsest.ops.replay.live_stores import opened_store
from palimpsest.ops.replay.log_reading import everything
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.migrations import use_tables
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.stores.shard import DATABASE_FILE

REBUILT = "folded"
OFFLINE = ("embedding.provider=hashing", "llm.provider=rules")


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording, made once before the measurement: `turns` over `scopes` and `partitions`."""

    turns: int
    scopes: int
    partitions: int
    processes: int | None = None


def measure(recording: Recording, overrides: Sequence[str], folder: Path) -> JsonObject:
    """Records, unless `folder` has a recording, rebuilds new stores next to it and reports: turns
    and records per second, seconds by stage, the memory of the largest process, and whether the
    stores have the same content."""
    chosen = [*OFFLINE, f"log.partitions={recording.partitions}", *overrides]
    settings = load_settings(chosen, folder).settings
    if not (folder / "log").exists():
        asyncio.run(_record(settings, recording))
    new = folder / REBUILT
    shutil.rmtree(new, ignore_errors=True)
    own = settings.model_copy(update={"data_dir": new})
    with open_log(settings, "read") as log:
        partitions = range(log.partitions(CONVERSATION_TURNS.name))
        turns = sum(log.end_offset(CONVERSATION_TURNS.name, each) for each in partitions)
        jobs = [
            FoldJob(settings, own, each, everything(settings, log, each), (_file(settings, each),))
            for each in partitions
        ]
    began = time.perf_counter()
    rebuilt = fold_partitions(jobs, processes=recording.processes)
    seconds = time.perf_counter() - began
    records = sum(result.records for result in rebuilt)
    processes = resource.getrusage(resource.RUSAGE_CHILDREN)
    same = all(_hash(_file(own, each)) == _hash(_file(settings, each)) for each in partitions)
    return {
        "turns": turns,
        "scopes": recording.scopes,
        "partitions": len(partitions),
        "seconds": round(seconds, 3),
        "turns_per_second": round(turns / seconds, 1),
        "same_state": same,
        "cpu_seconds": round(processes.ru_utime + processes.ru_stime, 3),
        "records": records,
        "records_per_second": round(records / seconds, 1),
        "peak_mib": round(processes.ru_maxrss / 2**10),
        "embedded": sum(result.embedded for result in rebuilt),
        "stages": {
            name: {
                "records": sum(result.by_stage[name] for result in rebuilt),
                "seconds": round(sum(result.seconds[name] for result in rebuilt), 3),
            }
            for name in rebuilt[0].by_stage
        },
    }


async def _record(settings: Settings, recording: Recording) -> None:
    publish(settings, related_records(recording.turns, recording.scopes, Vocabulary(SEED)))
    async with application(settings) as app:
        await app.run(until_drained=True)


def _file(settings: Settings, partition: int) -> Path:
    return shard_folder(settings, partition) / DATABASE_FILE


def _hash(file: Path) -> str:
    with opened_store(file) as store:
        use_tables(store)
        return state_hash(store, times=True)
