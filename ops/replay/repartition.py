"""Changes the number of partitions: writes a log with the new number, makes the stores that follow
from it, and swaps them for the live ones.

The new log is a copy of the old one in another order. Its stores are folded from it as in a
rebuild, and are compared with the live ones, scope by scope. Nothing live changes until both are
swapped; if the process ends earlier, the same request resumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import duckdb

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.log_folder import log_folder
from palimpsest.ops.maintenance.shadow_deciding import STATE as SHADOW_STATE
from palimpsest.ops.opening import note_log, open_log
from palimpsest.ops.parts import embedding_model, open_shard, shard_folder, shard_options, utc_now
from palimpsest.ops.replay.branches import (
    BranchManifest,
    another_branch,
    branch_folder,
    branch_names,
    branch_settings,
    drop_branch,
    keep_branch,
    read_branch,
    without_stores,
)
from palimpsest.ops.replay.fold import FoldJob, fold_jobs
from palimpsest.ops.replay.live_stores import (
    LiveCopy,
    attached,
    compare_stores,
    live_copies,
    live_cursors,
)
from palimpsest.ops.replay.log_reading import everything, repartition_log
from palimpsest.ops.replay.rebuild import (
    Rebuilt,
    RebuiltPartition,
    check_log_is_closed,
    exchange,
    make_branch,
    rebuild,
    shards_locked,
    without_worker,
    working_on,
)
from palimpsest.ops.replay.requests import UNWATCHED, Rebuild, ReplayProgress, Watch
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_WRITES
from palimpsest.stores.database.snapshot import gather_store, scopes_in
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import ahead_of_log, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.topology import stages

STOP_FIRST: Final = (
    "Stop the worker for the time that this takes, say the same again, and start the worker"
)


async def repartition(settings: Settings, request: Rebuild, watch: Watch = UNWATCHED) -> Rebuilt:
    """Makes the new partitions and returns their comparison with the live stores. Raises the same
    errors as `rebuild`, and RequestError for an existing branch, and while a worker runs or has
    unfinished work."""
    if settings.log.kind == "kafka" or request.until is not None:
        if request.swap:
            raise RequestError(
                "on Kafka the number of partitions is the topics': their log cannot be exchanged"
                if request.until is None
                else "stores as of a moment cannot take the place of the live ones"
            )
        return await _Repartitioning(settings, request, watch).to_read()
    # The setting may be the present or the future number of partitions.
    log = settings.log.model_copy(update={"partitions": None})
    live = settings.model_copy(update={"log": log})
    began = time.monotonic()
    with working_on(settings, request.name), without_worker(live, STOP_FIRST):
        done = await _Repartitioning(live, request, watch).execute()
    done.seconds = time.monotonic() - began
    return done


@dataclass
class _Repartitioning:
    settings: Settings
    request: Rebuild
    watch: Watch

    async def execute(self) -> Rebuilt:
        with open_log(self.settings, "read") as log:
            check_processed(self.settings, log)
            now = fingerprint(log)
            branch = self._begun(log, now)
            self.watch.report(ReplayProgress("copying the live stores", 0, 1, "stores"))
            partitions = range(log.partitions(MEMORY_WRITES.name))
            name = branch.name
            async with live_copies(self.settings, log, name, partitions, alone=True) as copies:
                for copy in copies:
                    if copy.not_compared:
                        raise RequestError(
                            f"the store of partition {copy.partition} cannot be compared"
                            f" ({copy.not_compared}): make the stores first, with `palimpsest"
                            " replay rebuild --swap`"
                        )
                done, embedded = Rebuilt(branch.name), [0] * branch.partitions
                if not branch.whole:
                    embedded = await self._made(log, copies, branch, done)
                if done.stopped:
                    return done
                newest = [
                    each.timestamp
                    for partition, end in _written(log).items()
                    for each in log.read(MEMORY_WRITES.name, partition, end - 1, 1)
                ]
                ended = max(newest, default=None)
                done.partitions = await asyncio.to_thread(
                    self._compared, branch, copies, ended, embedded
                )
                branch = keep_branch(self.settings, branch, whole=True)
        if self.request.swap and (done.is_equal or self.request.anyway):
            done.kept = await asyncio.to_thread(exchange_log, self.settings, branch, now)
        return done

    def _begun(self, log: EmbeddedLog, now: str) -> BranchManifest:
        """Returns the branch: a complete one, of which only the swap remains, if it was made from
        the present log or was live once; else an incomplete one, with what was made from the
        present log. Raises RequestError for a different branch of this name."""
        branch = BranchManifest(
            name=self.request.name,
            partitions=self.request.shards or 1,
            read_through=_written(log),
            of_log=log.number(),
            has_log=True,
            made_from=now,
        )
        with contextlib.suppress(NotFoundError):
            found = read_branch(self.settings, branch.name)
            if not found.has_log or found.partitions != branch.partitions:
                raise another_branch(branch.name)
            is_current = found.made_from == now
            if found.whole and not self.request.swap and (is_current or not found.made_from):
                raise RequestError(
                    f"the branch {branch.name} is made; put it in the place of what is live with"
                    f" --swap, or remove it with `palimpsest replay drop {branch.name}`"
                )
            if is_current or (found.whole and not found.made_from):
                return found
            without_stores(self.settings, found)
        keep_branch(self.settings, branch)
        return branch

    # --- making --------------------------------------------------------------------------------

    async def _made(
        self, log: EmbeddedLog, live: Sequence[LiveCopy], branch: BranchManifest, done: Rebuilt
    ) -> list[int]:
        """Writes the log and folds it, unless it is stopped. Returns how many texts were embedded
        in each partition."""
        if not await asyncio.to_thread(self._log_is_written, log):
            done.stopped = True
            return []
        own = branch_settings(self.settings, branch)
        stored = tuple(copy.path for copy in live)
        with open_log(own, "read") as new:
            ends = [everything(own, new, partition) for partition in range(branch.partitions)]
            jobs = [FoldJob(own, own, number, each, stored) for number, each in enumerate(ends)]
            results = await fold_jobs(jobs, self.watch)
            done.count(jobs, results)
            for partition in range(0 if done.stopped else branch.partitions):
                # The log has all that the stages sent, however far it lies from its cause; and
                # neither log nor store has erased texts, since the old log no longer had them.
                model = embedding_model(own)
                shard = open_shard(own, partition, shard_options(own, model))
                try:
                    note_log(shard, new)
                    with shard.writing() as connection:
                        connection.execute("DELETE FROM outbox")
                        connection.execute("UPDATE erasures SET phase = 'done', texts = '{}'")
                finally:
                    shard.close()
                    await model.close()
        return [each.embedded for each in results]

    def _log_is_written(self, log: EmbeddedLog) -> bool:
        """Writes the new log unless it exists. Returns whether it is complete."""
        folder = branch_folder(self.settings, self.request.name)
        place, partial = folder / "log", folder / "log.partial"
        if place.exists():
            return True
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        whole = repartition_log(partial, log, self.request.shards or 1, self.watch)
        if whole:
            partial.rename(place)
        return whole

    def _compared(
        self,
        branch: BranchManifest,
        live: Sequence[LiveCopy],
        ended: datetime | None,
        embedded: Sequence[int],
    ) -> list[RebuiltPartition]:
        """Compares the stores with the live ones."""
        self.watch.report(ReplayProgress("comparing", 0, 1, "partitions"))
        own = branch_settings(self.settings, branch)
        files = [shard_folder(own, each) / DATABASE_FILE for each in range(branch.partitions)]
        with open_log(own, "read") as new:
            ends = _written(new)
        return [
            RebuiltPartition(number, ends[number], rows, digest, None, differing, embedded[number])
            for number, (rows, digest, differing) in enumerate(compare_stores(live, files, ended))
        ]

    # --- stores to read ------------------------------------------------------------------------

    async def to_read(self) -> Rebuilt:
        """Rebuilds the stores from the log as of a moment, or from Kafka, and copies their rows by
        scope into new ones unless they differ from the live stores. Returns the comparison."""
        settings, name = self.settings, self.request.name
        if name in branch_names(settings):
            raise RequestError(
                f"there is a branch {name} already; choose another --name, or remove it with"
                f" `palimpsest replay drop {name}`"
            )
        parts = Rebuild(name=f"{name}.parts", until=self.request.until)
        done = await rebuild(settings, parts, self.watch)
        if done.is_equal and not done.stopped:
            # The locks keep erasures away from half-written stores.
            with working_on(settings, parts.name), working_on(settings, name):
                await asyncio.to_thread(self._gather, read_branch(settings, parts.name))
            drop_branch(settings, parts.name)
            done = replace(done, name=name)
        return done

    def _gather(self, parts: BranchManifest) -> None:
        own = branch_settings(self.settings, parts)
        files = [shard_folder(own, each) / DATABASE_FILE for each in range(parts.partitions)]
        branch = BranchManifest(name=self.request.name, partitions=self.request.shards or 1)
        make_branch(self.settings, branch)
        scopes: dict[int, list[str]] = defaultdict(list)
        for scope in sorted(scopes_in(files)):
            scopes[partition_for(scope, branch.partitions)].append(scope)
        target = branch_settings(self.settings, branch)
        for partition in range(branch.partitions):
            folder = shard_folder(target, partition)
            folder.mkdir(parents=True, exist_ok=True)
            gather_store(folder / DATABASE_FILE, files, scopes[partition])
            self.watch.report(
                ReplayProgress("repartitioning", partition + 1, branch.partitions, "shards")
            )
        keep_branch(self.settings, branch, whole=True)


def _written(log: EmbeddedLog) -> dict[int, int]:
    """Returns the end of memory-writes by partition."""
    partitions = range(log.partitions(MEMORY_WRITES.name))
    return {number: log.end_offset(MEMORY_WRITES.name, number) for number in partitions}


# --- the live log ---------------------------------------------------------------------------------

_FINISH: Final = "Run `palimpsest run --once`, then this again"
_UNFINISHED: Final = "SELECT 1 FROM live.internal.erasures WHERE phase <> 'done' LIMIT 1"
_LIVE_SPACE: Final = (
    "SELECT json_extract_string(live, '$.space') FROM live.internal.embedding_rows"
    " ORDER BY recorded_at DESC LIMIT 1"
)
_STATE: Final = "SELECT value FROM live.internal.shard_state WHERE name = ? AND value <> ''"


def check_processed(settings: Settings, log: EmbeddedLog) -> None:
    """Checks that all is processed, while no worker runs. Raises RequestError if records of the log
    wait for a stage, texts for their erasure, or decisions for further deciders."""
    for partition in range(log.partitions(MEMORY_WRITES.name)):
        cursors = live_cursors(settings, partition) or {}
        each = [
            (topic.name, cursors.get(stage.name, {}).get(topic.name, 0))
            for stage in stages(settings)
            for topic in stage.reads
        ]
        if (wrong := ahead_of_log(log, partition, each)) is not None:
            raise RequestError(wrong)
    for stage in stages(settings):
        for topic in stage.reads:
            for partition in range(log.partitions(topic.name)):
                left = log.end_offset(topic.name, partition) - log.position(
                    stage.name, topic.name, partition
                )
                if left > 0:
                    raise RequestError(
                        f"{left} records of {topic.name}[{partition}] wait for {stage.name}, and"
                        f" only what is processed can be repartitioned. {_FINISH}"
                    )
    partitions = range(log.partitions(MEMORY_WRITES.name))
    with shards_locked(settings, partitions):
        for partition in partitions:
            with contextlib.suppress(duckdb.Error):  # copying the store reports what is wrong
                _check_store(settings, log, partition)


def _check_store(settings: Settings, log: EmbeddedLog, partition: int) -> None:
    with attached({"live": shard_folder(settings, partition) / DATABASE_FILE}) as connection:
        unfinished = connection.execute(_UNFINISHED).fetchone()
        shown = connection.execute(_STATE, [SHADOW_STATE]).fetchone()
        live = connection.execute(_LIVE_SPACE).fetchone()
    if unfinished is not None:
        raise RequestError(f"erased texts are still in files of partition {partition}. {_FINISH}")
    if live is not None and live[0] != embedding_model(settings).model:
        # A new partition may get no record of the switch: the settings then name its model.
        raise RequestError(
            f"partition {partition} searches with the embedding model {live[0]}; set"
            " embedding.provider and embedding.model to it, then this again"
        )
    if shown is not None and int(shown[0]) < log.end_offset(MEMORY_WRITES.name, partition):
        raise RequestError(
            f"not all decisions of partition {partition} were shown to the further deciders (or"
            f" there are none any more). {_FINISH}"
        )


def fingerprint(log: EmbeddedLog) -> str:
    """Returns a fingerprint of the log's offsets, which changes when records arrive or a worker
    processes them."""
    ends = [
        (topic.name, partition, log.end_offset(topic.name, partition))
        for topic in ALL_TOPICS
        for partition in range(log.partitions(topic.name))
    ]
    return hashlib.sha256(repr((log.number(), ends, log.positions())).encode()).hexdigest()


def exchange_log(settings: Settings, branch: BranchManifest, now: str) -> str:
    """Swaps the branch for the live log and stores, if the `fingerprint` is still `now`, while no
    worker runs. Returns the name of the branch that holds what was live. Blocks. Raises
    RequestError and LogError, without having changed anything."""
    with (
        open_log(branch_settings(settings, branch), "read") as new,
        open_log(settings, "read") as log,
    ):
        partitions = log.partitions(MEMORY_WRITES.name)
        read, number = _written(new), new.number()
    live = BranchManifest(
        name=branch.name, partitions=partitions, read_through=read, of_log=number, has_log=True
    )

    def check() -> None:
        check_log_is_closed(settings)
        # Not with `open_log`, which waits for the end of a swap.
        with EmbeddedLog(log_folder(settings), None, utc_now, "read") as log:
            if fingerprint(log) != now:
                raise RequestError(
                    "something came into the log meanwhile. Run `palimpsest run --once`, then this"
                    " again"
                )

    return exchange(settings, branch, live, range(partitions), ("log", "shards"), check)
