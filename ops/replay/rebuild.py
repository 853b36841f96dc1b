"""Rebuilds the stores from the log, next to the live ones, and swaps them in.

It calls no language model, and no embedding model for a text whose vector a live store has.
It may be interrupted at any moment and resumes from there when requested again.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import duckdb

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.folder_swap import Swap, swap_folders
from palimpsest.ops.opening import note_log, number_of
from palimpsest.ops.parts import (
    embedding_model,
    open_shard,
    shard_folder,
    shard_options,
    utc_now,
)
from palimpsest.ops.replay.branches import (
    COPIES,
    WORKING,
    Branch,
    branch_folder,
    branch_settings,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.erased_branches import begun_anew
from palimpsest.ops.replay.exchanging import kept_name, shards_locked, without_worker
from palimpsest.ops.replay.fold import never
from palimpsest.ops.replay.fold_processes import FoldJob, fold_jobs
from palimpsest.ops.replay.live_stores import (
    LiveCopy,
    NoLiveStore,
    attached,
    copy_live,
    live_cursors,
    unreadable,
)
from palimpsest.ops.replay.offsets import Offsets, followed, known_to_log, offset_at
from palimpsest.ops.replay.progress import Progress, Report, unreported
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from palimpsest.stores.database.state_hash import differing_rows, row_count, state_hash
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE, Shard
from palimpsest.streams.logs.base import LogReader
from palimpsest.streams.logs.embedded import EmbeddedLog


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """`until`: an offset of memory-writes or a moment, up to which is folded; None for all that the
    live stores have. `partition`: only this one; with an offset, that of which it is one. `swap`:
    put the stores in the place of the live ones, where they hold the same; `anyway`: also where
    they do not. `sequences`: keep what `WriteSequences` tells in the branch."""

    name: str = "rebuild"
    partition: int | None = None
    until: int | datetime | None = None
    swap: bool = False
    anyway: bool = False
    sequences: bool = False


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """`rows` of all tables, and their state hash. `live` is why there was nothing to compare with;
    None where it was compared, and `differing` has then the tables that are not equal, with how
    many rows only one of both has. `offset` is the next one of memory-writes, `embedded` how many
    texts had no stored vector."""

    partition: int
    offset: int
    rows: int
    state_hash: str
    live: str | None
    differing: Mapping[str, int]
    embedded: int

    @property
    def is_equal(self) -> bool:
        return self.live is None and not self.differing


@dataclass(slots=True)
class Rebuilt:
    """`stopped`: not all is folded; the same request goes on. `kept` is the branch that has what
    was live before a swap."""

    name: str
    partitions: list[RebuiltPartition] = field(default_factory=list)
    records: int = 0
    turns: int = 0
    seconds: float = 0.0
    stopped: bool = False
    kept: str | None = None

    @property
    def is_equal(self) -> bool:
        """Whether no partition differs from its live store."""
        return not any(each.differing for each in self.partitions)


async def rebuild(
    settings: Settings,
    request: RebuildRequest,
    report: Report = unreported,
    stopping: Callable[[], bool] = never,
) -> Rebuilt:
    """Raises RequestError, NotFoundError, LogError, SetupError and StoreError, each saying what to
    do; what was folded until then is kept."""
    if request.swap and request.until is not None:
        raise RequestError("stores as of a moment cannot take the place of the live ones")
    began = time.monotonic()
    with reading_log(settings) as log:
        branch = _branch(settings, request, log)
        work = _Work(settings, request, branch, log, report, stopping)
        with working_on(settings, branch.name):
            work.branch = begun_anew(settings, work.branch)
            done = await work.fold()
            if request.swap and not done.stopped:
                await work.swap(done)
    done.seconds = time.monotonic() - began
    return done


def _branch(settings: Settings, request: RebuildRequest, log: LogReader) -> Branch:
    """The branch of the name: the one that is there where it goes on, or a new one."""
    partitions, number = log.partitions(CONVERSATION_TURNS.name), number_of(log)
    if request.partition is not None and not 0 <= request.partition < partitions:
        raise RequestError(f"there is no partition {request.partition}; the log has {partitions}")
    if isinstance(request.until, int) and request.partition is None and partitions > 1:
        raise RequestError(
            f"an offset is one of a partition, and the log has {partitions}: name one with"
            " --partition, or a time with --until"
        )
    with contextlib.suppress(NotFoundError):
        found = read_branch(settings, request.name)
        is_of_log = (found.partitions, found.of_log, found.has_log) == (partitions, number, False)
        if found.kind != "rebuild" or not is_of_log:
            raise RequestError(
                f"the branch {request.name} is another one; choose another --name, or remove it"
                f" with `palimpsest replay drop {request.name}`"
            )
        return found
    branch = Branch(
        name=request.name,
        kind="rebuild",
        created_at=utc_now(),
        partitions=partitions,
        of_log=number,
    )
    make_branch(settings, branch)
    return branch


@contextlib.contextmanager
def working_on(settings: Settings, name: str) -> Iterator[None]:
    """No one else works on this branch. Raises RequestError."""
    folder = branch_folder(settings, name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FolderLock(folder, WORKING)
    except FolderInUse as error:
        raise RequestError(f"another process is at work on the branch {name}: {error}") from error
    try:
        yield
    finally:
        lock.release()


def sequences_file(own: Settings, partition: int) -> Path:
    """Where in a branch the write sequences of a partition are kept."""
    return own.data_dir / f"sequences-{partition}.sqlite"


def make_branch(settings: Settings, branch: Branch) -> None:
    """A branch with an empty log, so that its stores can be read."""
    folder = branch_folder(settings, branch.name)
    folder.mkdir(parents=True, exist_ok=True)
    EmbeddedLog.open(folder / "log", branch.partitions, utc_now, "publish").close()
    keep_branch(settings, branch)


@dataclass
class _Work:
    settings: Settings
    request: RebuildRequest
    branch: Branch
    log: LogReader
    report: Report
    stopping: Callable[[], bool]
    _folded: dict[int, Offsets] = field(default_factory=dict)

    @property
    def own(self) -> Settings:
        return branch_settings(self.settings, self.branch)

    @property
    def partitions(self) -> list[int]:
        if self.request.partition is not None and self.request.until is None:
            return [self.request.partition]
        return [*range(self.branch.partitions)]

    async def fold(self, alone: bool = False) -> Rebuilt:
        """Fold all partitions, and compare them with the live ones. `alone`: no worker runs."""
        done = Rebuilt(self.branch.name)
        self.report(Progress("copying the live stores", 0, len(self.partitions), "partitions"))
        folder = branch_folder(self.settings, self.branch.name) / COPIES
        try:
            copies = await copy_live(self.settings, self.log, self.partitions, folder, alone)
            stored = tuple(copy.path for copy in copies if isinstance(copy, LiveCopy))
            jobs = [await self._job(copy, stored) for copy in copies]
            for copy, result in zip(
                copies, await fold_jobs(jobs, self.report, self.stopping), strict=True
            ):
                ends = self._folded[copy.partition]
                done.records += result.records
                done.turns += ends.get("audit", {}).get(CONVERSATION_TURNS.name, 0)
                done.stopped |= result.stopped
                if not done.stopped:
                    found = await asyncio.to_thread(self._compared, copy, result.embedded)
                    done.partitions.append(found)
            if done.stopped:
                return done
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._note(done)
        return done

    def _note(self, done: Rebuilt) -> None:
        read = {**self.branch.read_through, **{p.partition: p.offset for p in done.partitions}}
        whole = len(read) == self.branch.partitions
        self.branch = self.branch.model_copy(update={"read_through": read, "whole": whole})
        keep_branch(self.settings, self.branch)

    def _ends(self, copy: LiveCopy | NoLiveStore) -> Offsets:
        if self.request.until is not None:
            return followed(self.log, copy.partition, self._until(copy.partition))
        if isinstance(copy, LiveCopy):
            return copy.cursors()
        return known_to_log(self.log, copy.partition)

    def _until(self, partition: int) -> int:
        """The offset of memory-writes. Of other partitions than that of which it was named: what
        they had when the record before it was appended."""
        until, named = self.request.until, self.request.partition or 0
        if isinstance(until, int):
            if partition == named:
                return until
            before = self.log.read(MEMORY_WRITES.name, named, max(0, until - 1), 1)
            if until == 0 or not before:
                return 0
            until = before[0].timestamp
        assert until is not None
        return offset_at(self.log, partition, until)

    async def _job(self, copy: LiveCopy | NoLiveStore, stored: tuple[Path, ...]) -> FoldJob:
        """What is to be folded, from where the branch's shard is. Raises RequestError."""
        ends = self._folded[copy.partition] = self._ends(copy)
        model = embedding_model(self.own)
        shard = open_shard(self.own, copy.partition, shard_options(self.own, model))
        try:
            self._check(copy, shard, ends)
            note_log(shard, self.log)
        finally:
            shard.close()
            await model.close()
        file = sequences_file(self.own, copy.partition) if self.request.sequences else None
        return FoldJob(self.settings, self.own, copy.partition, ends, stored, file)

    def _check(self, copy: LiveCopy | NoLiveStore, shard: Shard, ends: Offsets) -> None:
        """Raises RequestError where more is folded than is wanted. Where there is no live store to
        ask, what was folded to where it was then is no less right."""
        name = self.branch.name
        lost = isinstance(copy, NoLiveStore) and self.request.until is None
        for stage, topics in ends.items():
            for topic, end in topics.items():
                done = shard.cursor_of(stage, topic)
                if done > end and not lost:
                    raise RequestError(
                        f"the branch {name} holds more than is wanted now: it is as of a later"
                        " moment. Choose another --name, or remove it with `palimpsest replay drop"
                        f" {name}`"
                    )
                topics[topic] = max(done, end)

    def _compared(self, copy: LiveCopy | NoLiveStore, embedded: int) -> RebuiltPartition:
        ends = self._folded[copy.partition]
        offset = ends.get("apply-writes", {}).get(MEMORY_WRITES.name, 0)
        files = {"rebuilt": shard_folder(self.own, copy.partition) / DATABASE_FILE}
        why = copy.reason if isinstance(copy, NoLiveStore) else None
        if self.request.until is not None:
            why = "as of a moment"
        elif isinstance(copy, LiveCopy):
            files["live"] = copy.path
        self.report(Progress("comparing", 0, 1, "partitions"))
        with attached(files) as connection:
            differing = {}
            if why is None:
                assert isinstance(copy, LiveCopy)
                try:
                    live = f"live.{copy.schema}"
                    differing = differing_rows(connection, "rebuilt.internal", live)
                except duckdb.Error as error:
                    why = unreadable(error)
            rows = row_count(connection, "rebuilt.internal")
            connection.execute("USE rebuilt.internal")
            digest = state_hash(connection, times=True)
        return RebuiltPartition(copy.partition, offset, rows, digest, why, differing, embedded)

    # --- swap ----------------------------------------------------------------------------------

    async def swap(self, done: Rebuilt) -> None:
        """Put the stores in the place of the live ones, unless they differ. Raises RequestError."""
        with without_worker(self.settings):
            await self._catch_up(done)
            if done.stopped or not (done.is_equal or self.request.anyway):
                return
            with shards_locked(self.settings, self.partitions):
                kept = self._kept()
                folders = tuple(f"shards/{partition}" for partition in self.partitions)
                swap = Swap(branch=self.branch.name, kept=kept, folders=folders)
                await asyncio.to_thread(swap_folders, self.settings.data_dir, swap)
            done.kept = kept

    async def _catch_up(self, done: Rebuilt) -> None:
        """Fold what came since, now that nothing comes any more."""
        if self.settings.log.kind == "embedded" and any(
            live_cursors(self.settings, each.partition) != self._folded[each.partition]
            for each in done.partitions
        ):
            again = await self.fold(alone=True)
            done.partitions, done.stopped = again.partitions, again.stopped
            done.records += again.records

    def _kept(self) -> str:
        """The branch that what is live now will lie in."""
        name = kept_name()
        kept = Branch(
            name=name,
            kind="rebuild",
            created_at=utc_now(),
            partitions=self.branch.partitions,
            read_through=self.branch.read_through,
            of_log=self.branch.of_log,
            whole=True,
        )
        make_branch(self.settings, kept)
        return name
