"""Whether a live memory has nothing left to do, and as of when it is."""

from __future__ import annotations

import hashlib
from typing import Final

import duckdb

from palimpsest.ops.maintenance.shadow_deciding import STATE as SHADOW_STATE
from palimpsest.ops.parts import shard_folder
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.replay.exchanging import shards_locked
from palimpsest.ops.replay.live_stores import attached
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_WRITES
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.view import LogView
from palimpsest.streams.topology import stages

_FINISH: Final = "Run `palimpsest run --once`, then this again"
_UNFINISHED: Final = "SELECT count(*) FROM live.internal.erasures WHERE phase <> 'done'"
_STATE: Final = "SELECT value FROM live.internal.shard_state WHERE name = ?"


def check_processed(settings: Settings, log: LogView) -> None:
    """While no worker runs. Raises RequestError where records of the log wait for a stage, texts
    for their erasure, or decisions for further deciders."""
    for stage in stages(settings):
        for topic in stage.reads:
            for partition in range(log.partitions(topic.name)):
                left = log.end_offset(topic.name, partition) - log.position(
                    stage.name, topic.name, partition
                )
                if left > 0:
                    raise RequestError(
                        f"{left} records of {topic.name}[{partition}] wait for {stage.name}, and"
                        f" only what is processed can be dealt out anew. {_FINISH}"
                    )
    partitions = range(log.partitions(MEMORY_WRITES.name))
    with shards_locked(settings, partitions):
        for partition in partitions:
            _check_store(settings, log, partition)


def _check_store(settings: Settings, log: LogView, partition: int) -> None:
    file = shard_folder(settings, partition) / DATABASE_FILE
    try:
        with attached({"live": file}) as connection:
            unfinished = connection.execute(_UNFINISHED).fetchall()
            state = connection.execute(_STATE, [SHADOW_STATE]).fetchone()
    except duckdb.Error:
        return  # who makes the stores again tells what is wrong with this one
    if unfinished != [(0,)]:
        raise RequestError(f"erased texts are still in files of partition {partition}. {_FINISH}")
    shown = int(state[0]) if state and state[0] else None
    if shown is not None and shown < log.end_offset(MEMORY_WRITES.name, partition):
        raise RequestError(
            f"not all decisions of partition {partition} were shown to the further deciders (or"
            f" there are none any more). {_FINISH}"
        )


def as_of(log: LogView) -> str:
    """Another text whenever records have come into the log, or a worker has gone through it."""
    ends = [
        (topic.name, partition, log.end_offset(topic.name, partition))
        for topic in ALL_TOPICS
        for partition in range(log.partitions(topic.name))
    ]
    return hashlib.sha256(repr((log.number(), ends, log.positions())).encode()).hexdigest()
