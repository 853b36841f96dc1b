"""How fast a recorded log is folded into new stores, and where the time goes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from palimpsest.ops.bench.throughput import FIRST_TURN, SEED, SESSION_TURNS, WORDS, vocabulary
from palimpsest.ops.embedded import application
from palimpsest.ops.ingest.records import in_batches, turn_id_of_message
from palimpsest.ops.opening import open_log, publisher
from palimpsest.ops.parts import shard_folder
from palimpsest.ops.replay.fold import Ends
from palimpsest.ops.replay.fold_processes import FoldedPartition, FoldJob, fold_partitions
from palimpsest.ops.replay.progress import Report, unreported
from palimpsest.ops.replay.stored_embeddings import opened
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.migrations import use_tables
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogReader, Outgoing
from palimpsest.streams.runtime.output import published
from palimpsest.streams.topology import stages

NAMES = 800
VERBS = ("works at", "lives in", "visited", "bought", "studies", "plays", "joined", "went to")
FOLDED = "folded"
OFFLINE = ("embedding.provider=hashing", "llm.provider=rules")


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded, once, before anything is measured: `turns` over `scopes` and
    `partitions`."""

    turns: int
    scopes: int
    partitions: int
    processes: int | None = None


def told_turns(recording: Recording) -> Iterator[Outgoing]:
    """Turns in turn of every scope: every second one tells of two names, for the graph."""
    chance = random.Random(SEED)
    words = vocabulary()
    weights = [1.0 / rank for rank in range(1, WORDS + 1)]
    names = [word.capitalize() for word in words[:NAMES]]
    for number in range(recording.turns):
        scope = f"bench-{number % recording.scopes}"
        place = number // recording.scopes
        if place % 2:
            said = f"I keep {' '.join(chance.choices(words, weights, k=10))}."
        else:
            one, other = chance.choices(names, weights[:NAMES], k=2)
            said = f"{one} {chance.choice(VERBS)} {other} {words[place % WORDS]}."
        turn = ConversationTurn(
            turn_id=f"t{place}",
            session_id=f"s{place // SESSION_TURNS}",
            speaker=("Ana", "Ben")[place % 2],
            content=said,
        )
        yield published(
            CONVERSATION_TURNS,
            turn_id_of_message(scope, turn),
            scope,
            FIRST_TURN + timedelta(seconds=number),
            turn,
        )


def measure(
    recording: Recording,
    overrides: Sequence[str],
    folder: Path | None,
    report: Report = unreported,
) -> JsonObject:
    """Record, unless `folder` holds a recording, fold into new stores beside, and tell: turns and
    records a second, seconds by stage, the memory of the largest process, and whether the stores
    hold the same."""
    with contextlib.ExitStack() as undo:
        where = folder or Path(undo.enter_context(tempfile.TemporaryDirectory()))
        chosen = [*OFFLINE, f"log.partitions={recording.partitions}", *overrides]
        settings = load_settings(chosen, where).settings
        if not (where / "log").exists():
            asyncio.run(_record(settings, recording))
        return _fold(settings, recording, where, report)


async def _record(settings: Settings, recording: Recording) -> None:
    with publisher(settings) as append:
        for batch in in_batches(told_turns(recording)):
            append(batch)
    async with application(settings) as app:
        await app.run(until_drained=True)


def _fold(settings: Settings, recording: Recording, where: Path, report: Report) -> JsonObject:
    new = where / FOLDED
    shutil.rmtree(new, ignore_errors=True)
    own = settings.model_copy(update={"data_dir": new})
    with open_log(settings, "read") as log:
        count = log.partitions(CONVERSATION_TURNS.name)
        ends = [_ends(settings, log, partition) for partition in range(count)]
        turns = sum(log.end_offset(CONVERSATION_TURNS.name, each) for each in range(count))
    files = [_file(settings, partition) for partition in range(count)]
    jobs = [
        FoldJob(settings, own, partition, ends[partition], (files[partition],))
        for partition in range(count)
    ]
    began = time.perf_counter()
    folded = fold_partitions(jobs, report, processes=recording.processes)
    seconds = time.perf_counter() - began
    same = [_hash(_file(own, each)) == _hash(files[each]) for each in range(count)]
    return _told(turns, recording, count, seconds, folded, all(same))


def _ends(settings: Settings, log: LogReader, partition: int) -> Ends:
    return {
        stage.name: {topic.name: log.end_offset(topic.name, partition) for topic in stage.reads}
        for stage in stages(settings)
        if stage.stateful
    }


def _file(settings: Settings, partition: int) -> Path:
    return shard_folder(settings, partition) / DATABASE_FILE


def _hash(file: Path) -> str:
    with opened(file) as store:
        use_tables(store)
        return state_hash(store, times=True)


def _told(
    turns: int,
    recording: Recording,
    partitions: int,
    seconds: float,
    folded: Sequence[FoldedPartition],
    is_same: bool,
) -> JsonObject:
    results = [each.result for each in folded]
    records = sum(result.records for result in results)
    names = [*results[0].by_stage]
    return {
        "turns": turns,
        "scopes": recording.scopes,
        "partitions": partitions,
        "seconds": round(seconds, 3),
        "cpu_seconds": round(sum(each.processor_seconds for each in folded), 3),
        "turns_per_second": round(turns / seconds, 1),
        "records": records,
        "records_per_second": round(records / seconds, 1),
        "peak_mib": round(max(each.peak_bytes for each in folded) / 2**20),
        "embedded": sum(result.embedded for result in results),
        "same_state": is_same,
        "stages": {
            name: {
                "records": sum(result.by_stage[name] for result in results),
                "seconds": round(sum(result.seconds[name] for result in results), 3),
            }
            for name in names
        },
    }
