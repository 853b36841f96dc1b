"""Changes the number of partitions: builds a log with the new number and the stores that follow
from it, and swaps them for the live ones.

The stores are first rebuilt from the present log and compared. The new log is then written from the
old one and folded, and the result is compared by scope. Nothing live changes until both are
swapped; if the process ends earlier, work that can be resumed is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import duckdb

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.folder_swap import Swap, swap_folders
from palimpsest.ops.log_folder import log_folder
from palimpsest.ops.maintenance.shadow_deciding import STATE as SHADOW_STATE
from palimpsest.ops.opening import note_log, open_log
from palimpsest.ops.parts import (
    embedding_model,
    open_shard,
    shard_folder,
    shard_options,
    utc_now,
)
from palimpsest.ops.replay.branches import (
    COPIES,
    Branch,
    branch_folder,
    branch_settings,
    drop_branch,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.exchanging import (
    check_log_is_closed,
    kept_name,
    shards_locked,
    without_worker,
)
from palimpsest.ops.replay.fold import never
from palimpsest.ops.replay.fold_processes import FoldJob, fold_jobs
from palimpsest.ops.replay.live_stores import LiveCopy, attached, copy_live, cursors_in
from palimpsest.ops.replay.log_dealing import deal_log
from palimpsest.ops.replay.offsets import Offsets, offsets
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.rebuild import (
    RebuildRequest,
    Rebuilt,
    RebuiltPartition,
    make_branch,
    rebuild,
    sequences_file,
    working_on,
)
from palimpsest.ops.replay.scopes_compared import StoreFile, compared
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import (
    ALL_TOPICS,
    CONVERSATION_TURNS,
    DEAD_LETTERS,
    FACTS_EXTRACTED,
    GRAPH_CHANGES,
    MEMORY_CHANGES,
    MEMORY_WRITES,
)
from palimpsest.stores.database.splitting import gather_store, scopes_in
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogError, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.logs.view import LogView
from palimpsest.streams.topology import stages

# --- processed ------------------------------------------------------------------------------------
# Checks that a live memory has no unfinished work, and identifies its state.

_FINISH: Final = "Run `palimpsest run --once`, then this again"
_UNFINISHED: Final = "SELECT count(*) FROM live.internal.erasures WHERE phase <> 'done'"
_STATE: Final = "SELECT value FROM live.internal.shard_state WHERE name = ?"


def check_processed(settings: Settings, log: LogView) -> None:
    """Checks that all is processed, while no worker runs. Raises RequestError if records of the log
    wait for a stage, texts for their erasure, or decisions for further deciders."""
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
        return  # the rebuild reports what is wrong with this store
    if unfinished != [(0,)]:
        raise RequestError(f"erased texts are still in files of partition {partition}. {_FINISH}")
    shown = int(state[0]) if state and state[0] else None
    if shown is not None and shown < log.end_offset(MEMORY_WRITES.name, partition):
        raise RequestError(
            f"not all decisions of partition {partition} were shown to the further deciders (or"
            f" there are none any more). {_FINISH}"
        )


def as_of(log: LogView) -> str:
    """Returns a fingerprint of the log's offsets, which changes when records arrive or a worker
    processes them."""
    ends = [
        (topic.name, partition, log.end_offset(topic.name, partition))
        for topic in ALL_TOPICS
        for partition in range(log.partitions(topic.name))
    ]
    return hashlib.sha256(repr((log.number(), ends, log.positions())).encode()).hexdigest()


# --- log exchange ---------------------------------------------------------------------------------
# A branch's log with its stores in the place of the live ones, which become a branch like it.

FOLDERS: Final = ("log", "shards")
SOURCE_FILE: Final = "dealt-from"
"""In the folder of a log that was never live: as of when the one was that it was written from."""


def exchange_log(settings: Settings, name: str, now: str) -> str:
    """Swaps the branch `name` for the live log and stores, if `as_of` is still `now`, while no
    worker runs. Returns the name of the branch that holds what was live. Blocks. Raises
    RequestError and LogError, without having changed anything."""
    branch = read_branch(settings, name)
    with open_log(branch_settings(settings, branch), "read") as new:
        numbers = range(branch.partitions)
        read = {number: new.end_offset(MEMORY_WRITES.name, number) for number in numbers}
        of_log = new.number()
    with open_log(settings, "read") as log:
        partitions = log.partitions(MEMORY_WRITES.name)
    kept = Branch(
        name=kept_name(),
        kind="rebuild",
        created_at=utc_now(),
        partitions=partitions,
        read_through=read,
        whole=True,
        of_log=of_log,
        has_log=True,
    )

    def check() -> None:
        _check_unchanged(settings, now)
        (branch_folder(settings, name) / "log" / SOURCE_FILE).unlink(missing_ok=True)

    keep_branch(settings, kept)
    try:
        with shards_locked(settings, range(partitions)):
            swap = Swap(branch=name, kept=kept.name, folders=FOLDERS)
            swap_folders(settings.data_dir, swap, check)
    except (RequestError, LogError):  # raised before the swap is decided
        drop_branch(settings, kept.name)
        raise
    return kept.name


def _check_unchanged(settings: Settings, now: str) -> None:
    """Raises RequestError if a process has the log open or the log has changed since `now`."""
    check_log_is_closed(settings)
    # Not with `open_log`, which waits for the end of a swap.
    with EmbeddedLog.open(log_folder(settings), None, utc_now, "read") as log:
        if as_of(log) != now:
            raise RequestError(
                "something came into the log meanwhile. Run `palimpsest run --once`, then this"
                " again"
            )


# --- dealing out ----------------------------------------------------------------------------------
# Builds stores with another number of partitions for reading: rebuilds them from the log as of a
# moment, or from Kafka, then repartitions them by scope. A scope's content does not depend on the
# number of partitions.


@dataclass(frozen=True, slots=True)
class DealRequest:
    """Requests `shards` stores in the branch `name`; `until` as in a rebuild."""

    name: str
    shards: int
    until: int | datetime | None = None


async def deal_out(
    settings: Settings,
    request: DealRequest,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> Rebuilt:
    """Rebuilds and compares the stores, and repartitions them unless they differ from the live
    ones. Returns the comparison. Raises the same errors as `rebuild`, and RequestError for an
    existing branch."""
    if (branch_folder(settings, request.name) / "branch.json").exists():
        raise RequestError(
            f"there is a branch {request.name} already; choose another --name, or remove it with"
            f" `palimpsest replay drop {request.name}`"
        )
    parts = f"{request.name}.parts"
    wanted = RebuildRequest(parts, until=request.until)
    done = await rebuild(settings, wanted, report, stopping)
    if done.is_equal and not done.stopped:
        branch = read_branch(settings, parts)
        # The locks keep erasures away from half-written stores.
        with working_on(settings, parts), working_on(settings, request.name):
            await asyncio.to_thread(_deal, settings, branch, request, report)
        drop_branch(settings, parts)
        done.name = request.name
    return done


def _deal(settings: Settings, parts: Branch, request: DealRequest, report: Report) -> None:
    own = branch_settings(settings, parts)
    files = [shard_folder(own, each) / DATABASE_FILE for each in range(parts.partitions)]
    branch = Branch(
        name=request.name, kind="rebuild", created_at=utc_now(), partitions=request.shards
    )
    make_branch(settings, branch)
    dealt: dict[int, list[str]] = {}
    for scope in sorted(scopes_in(files)):
        dealt.setdefault(partition_for(scope, request.shards), []).append(scope)
    target = branch_settings(settings, branch)
    for partition in range(request.shards):
        folder = shard_folder(target, partition)
        folder.mkdir(parents=True, exist_ok=True)
        gather_store(folder / DATABASE_FILE, files, dealt.get(partition, []))
        report(Progress("dealing out", partition + 1, request.shards, "shards"))
    keep_branch(settings, branch.model_copy(update={"whole": True}))


# --- resharding -----------------------------------------------------------------------------------

STOP_FIRST: Final = (
    "Stop the worker for the time that this takes, say the same again, and start the worker"
)


@dataclass(frozen=True, slots=True)
class ReshardRequest:
    """Requests a branch `name` with `shards` partitions of the whole live memory; with `until` only
    its stores as of then, for reading. `swap`: swap log and stores for the live ones if they are
    equal; `anyway`: even if they are not."""

    name: str
    shards: int
    until: int | datetime | None = None
    swap: bool = False
    anyway: bool = False


async def reshard(
    settings: Settings,
    request: ReshardRequest,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> Rebuilt:
    """Builds and compares the new partitions. Returns the comparison by partition: of the rebuilt
    old stores if these differ from the live ones, else of the new ones. Raises the same errors as
    `rebuild`, and RequestError for an existing branch, and while a worker runs or has unfinished
    work."""
    if settings.log.kind == "kafka" or request.until is not None:
        if request.swap:
            raise RequestError(
                "on Kafka the number of partitions is the topics': their log cannot be exchanged"
                if request.until is None
                else "stores as of a moment cannot take the place of the live ones"
            )
        dealing = DealRequest(request.name, request.shards, request.until)
        return await deal_out(settings, dealing, report, stopping)
    # The setting may be the present or the future number of partitions.
    log = settings.log.model_copy(update={"partitions": None})
    live = settings.model_copy(update={"log": log})
    began = time.monotonic()
    with working_on(settings, request.name):
        done = await _Resharding(live, request, report, stopping).execute()
    done.seconds = time.monotonic() - began
    return done


@dataclass
class _Resharding:
    settings: Settings
    request: ReshardRequest
    report: Report
    stopping: Callable[[], bool]

    @property
    def parts(self) -> str:
        """The branch of the rebuilt old stores. Only this command uses it, since its fold stores
        write sequences from the beginning."""
        return f"{self.request.name}.before"

    @property
    def folder(self) -> Path:
        return branch_folder(self.settings, self.request.name)

    def _log(self) -> AbstractContextManager[EmbeddedLog]:
        return open_log(self.settings, "read")

    async def execute(self) -> Rebuilt:
        with without_worker(self.settings, STOP_FIRST), self._log() as log:
            check_processed(self.settings, log)
            is_there = self._is_there(log)
        if not is_there:
            wanted = RebuildRequest(self.parts, sequences=True)
            parts = await rebuild(self.settings, wanted, self.report, self.stopping)
            parts.name = self.request.name
            self._check_compared(parts)
            if parts.stopped or not (parts.is_equal or self.request.anyway):
                return parts
        with without_worker(self.settings, STOP_FIRST):
            with self._log() as log:
                check_processed(self.settings, log)
                now = as_of(log)
                done = await (self._compared_with_live(log) if is_there else self._made(log))
            if not is_there:
                done.records += parts.records
                if not parts.is_equal:
                    why = "it differs from what the log tells, as the new one does not"
                    done.partitions = [replace(each, live=why) for each in done.partitions]
            if self.request.swap and not done.stopped and (done.is_equal or self.request.anyway):
                done.kept = await asyncio.to_thread(
                    exchange_log, self.settings, self.request.name, now
                )
        return done

    def _is_there(self, log: LogView) -> bool:
        """Returns whether the branch is complete and only the swap remains: it was built from the
        present log, or was live once. Raises RequestError for a different branch of this name."""
        name = self.request.name
        try:
            found = read_branch(self.settings, name)
        except NotFoundError:
            return False
        if not found.has_log or found.partitions != self.request.shards:
            raise RequestError(
                f"the branch {name} is another one; choose another --name, or remove it with"
                f" `palimpsest replay drop {name}`"
            )
        with contextlib.suppress(FileNotFoundError):
            if (self.folder / "log" / SOURCE_FILE).read_text() != as_of(log):
                return False
        if found.whole and not self.request.swap:
            raise RequestError(
                f"the branch {name} is made; put it in the place of what is live with --swap, or"
                f" remove it with `palimpsest replay drop {name}`"
            )
        return found.whole

    def _check_compared(self, parts: Rebuilt) -> None:
        for each in parts.partitions:
            if each.live is not None:
                raise RequestError(
                    f"the store of partition {each.partition} cannot be compared ({each.live}):"
                    " make the stores first, with `palimpsest replay rebuild --swap`"
                )

    # --- making --------------------------------------------------------------------------------

    async def _made(self, log: LogView) -> Rebuilt:
        """Writes the log, folds it, and compares the result with the rebuilt old stores."""
        done = Rebuilt(self.request.name)
        olds = self._olds(log)
        branch = self._begun(log)
        if not await asyncio.to_thread(self._dealt, log):
            done.stopped = True
            return done
        own = branch_settings(self.settings, branch)
        with open_log(own, "read") as new:
            ends = {partition: _ends(new, partition) for partition in range(branch.partitions)}
        files = tuple(each.path for each in olds)
        jobs = [FoldJob(own, own, partition, ends[partition], files) for partition in ends]
        results = await fold_jobs(jobs, self.report, self.stopping)
        done.records = sum(each.records for each in results)
        done.stopped = any(each.stopped for each in results)
        if done.stopped:
            return done
        done.turns = sum(each["audit"][CONVERSATION_TURNS.name] for each in ends.values())
        with open_log(own, "read") as new:
            for partition in ends:
                await _settle(own, partition, new)
        embedded = [each.embedded for each in results]
        done.partitions = await asyncio.to_thread(self._compared, log, olds, own, embedded)
        keep_branch(self.settings, branch.model_copy(update={"whole": True}))
        drop_branch(self.settings, self.parts)
        return done

    def _olds(self, log: LogView) -> list[StoreFile]:
        """Returns the rebuilt old stores. Raises RequestError if they are behind the log."""
        own = branch_settings(self.settings, read_branch(self.settings, self.parts))
        files = []
        for partition in range(log.partitions(MEMORY_WRITES.name)):
            file = shard_folder(own, partition) / DATABASE_FILE
            found = cursors_in(file)
            if any(
                found.get(stage, {}).get(topic, 0) < end
                for stage, topics in _ends(log, partition).items()
                for topic, end in topics.items()
            ):
                raise RequestError("something was processed meanwhile; say the same again")
            files.append(StoreFile(file))
        return files

    def _begun(self, log: LogView) -> Branch:
        """Writes and returns the incomplete branch."""
        olds = range(log.partitions(MEMORY_WRITES.name))
        branch = Branch(
            name=self.request.name,
            kind="rebuild",
            created_at=utc_now(),
            partitions=self.request.shards,
            read_through={old: log.end_offset(MEMORY_WRITES.name, old) for old in olds},
            of_log=log.number(),
            has_log=True,
        )
        keep_branch(self.settings, branch)
        return branch

    def _dealt(self, log: LogView) -> bool:
        """Writes the new log from the present old one unless it exists. Returns whether it is
        complete."""
        place, now = self.folder / "log", as_of(log)
        with contextlib.suppress(FileNotFoundError):
            if (place / SOURCE_FILE).read_text() == now:
                return True
        for folder in FOLDERS:
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        parts = branch_settings(self.settings, read_branch(self.settings, self.parts))
        olds = range(log.partitions(MEMORY_WRITES.name))
        sequences = {old: sequences_file(parts, old) for old in olds}
        partial = self.folder / "log.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        shards = self.request.shards
        if not deal_log(partial, log, shards, sequences, self.report, self.stopping):
            return False
        (partial / SOURCE_FILE).write_text(now)
        partial.rename(place)
        return True

    def _compared(
        self, log: LogView, olds: Sequence[StoreFile], own: Settings, embedded: Sequence[int]
    ) -> list[RebuiltPartition]:
        self.report(Progress("comparing", 0, 1, "partitions"))
        folders = [shard_folder(own, partition) for partition in range(self.request.shards)]
        news = [StoreFile(folder / DATABASE_FILE) for folder in folders]
        with open_log(own, "read") as new:
            ends = [new.end_offset(MEMORY_WRITES.name, number) for number in range(len(news))]
        return [
            RebuiltPartition(
                number, ends[number], each.rows, each.state_hash, None, each.differing, made
            )
            for (number, each), made in zip(
                enumerate(compared(olds, news, _last_time(log))), embedded, strict=True
            )
        ]

    # --- exchanging ----------------------------------------------------------------------------

    async def _compared_with_live(self, log: LogView) -> Rebuilt:
        """Compares the finished branch with the present live stores."""
        done = Rebuilt(self.request.name)
        branch = read_branch(self.settings, self.request.name)
        folder = self.folder / COPIES
        try:
            olds = range(log.partitions(MEMORY_WRITES.name))
            copies = await copy_live(self.settings, log, [*olds], folder, alone=True)
            files = [
                StoreFile(copy.path, copy.schema) for copy in copies if isinstance(copy, LiveCopy)
            ]
            own = branch_settings(self.settings, branch)
            nothing = [0] * branch.partitions
            done.partitions = await asyncio.to_thread(self._compared, log, files, own, nothing)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return done


def _ends(log: LogView, partition: int) -> Offsets:
    """Returns the offsets of all stages with a store once they have processed everything."""
    writes, facts, changes, graph, turns, dead_letters = (
        log.end_offset(topic.name, partition)
        for topic in (
            MEMORY_WRITES,
            FACTS_EXTRACTED,
            MEMORY_CHANGES,
            GRAPH_CHANGES,
            CONVERSATION_TURNS,
            DEAD_LETTERS,
        )
    )
    return offsets(writes, facts, changes, graph, turns, dead_letters)


def _last_time(log: LogView) -> datetime:
    """Returns the latest append time of memory-writes."""
    times = [datetime.min.replace(tzinfo=UTC)]
    for partition in range(log.partitions(MEMORY_WRITES.name)):
        end = log.end_offset(MEMORY_WRITES.name, partition)
        times += [each.timestamp for each in log.read(MEMORY_WRITES.name, partition, end - 1, 1)]
    return max(times)


async def _settle(own: Settings, partition: int, log: LogView) -> None:
    """Clears the outbox of a folded store and marks its erasures done. The log has all that the
    stages sent, however far it lies from its cause; and neither log nor store has erased texts,
    since the old log no longer had them."""
    model = embedding_model(own)
    shard = open_shard(own, partition, shard_options(own, model))
    try:
        note_log(shard, log)
        with shard.writing() as connection:
            connection.execute("DELETE FROM outbox")
            connection.execute("UPDATE erasures SET phase = 'done', texts = '{}'")
    finally:
        shard.close()
        await model.close()
