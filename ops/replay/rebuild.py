"""Rebuilds the stores from the log, next to the live ones, and swaps them in.

It calls no language model, and no embedding model for a text whose vector a live store has.
It may be interrupted at any moment and resumes from there when requested again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duckdb

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.folder_swap import Swap, swap_folders, unexchanged
from palimpsest.ops.log_folder import log_folder, log_lock
from palimpsest.ops.opening import note_log, number_of
from palimpsest.ops.parts import embedding_model, open_shard, shard_folder, shard_options, utc_now
from palimpsest.ops.replay.branches import (
    WORKING,
    BranchManifest,
    another_branch,
    branch_folder,
    branch_settings,
    drop_branch,
    keep_branch,
    locked,
    reached,
    read_branch,
    without_stores,
)
from palimpsest.ops.replay.fold import FoldJob, FoldResult, fold_jobs
from palimpsest.ops.replay.live_stores import (
    LiveCopy,
    compare_stores,
    live_copies,
    live_cursors,
    unreadable,
)
from palimpsest.ops.replay.log_reading import (
    followed,
    known_to_log,
    offset_at,
    reading_log,
)
from palimpsest.ops.replay.requests import UNWATCHED, Rebuild, ReplayProgress, Watch
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_WRITES
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE
from palimpsest.streams.logs.base import LogError, LogInUse, LogReader
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.logs.logfile import FILE_NAME, LogLock, is_alone


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    """The number of `rows` of all tables, and their state hash. `not_compared` says why there was
    nothing to compare with; None: it was compared, and `differing` has the number of rows that only
    one side has, by table, and as `embeddings` that of the texts whose vectors are lost or changed.
    `offset` is the next one of memory-writes; `embedded` counts the texts without a stored
    vector."""

    partition: int
    offset: int
    rows: int
    state_hash: str
    not_compared: str | None
    differing: dict[str, int]
    embedded: int


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild. `stopped`: not everything is folded; the same request resumes.
    `kept` is the branch that holds what was live before a swap."""

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

    def count(self, jobs: Sequence[FoldJob], results: Sequence[FoldResult]) -> None:
        """Adds what was folded."""
        self.records += sum(each.records for each in results)
        self.turns = sum(job.ends.get("audit", {}).get(CONVERSATION_TURNS.name, 0) for job in jobs)
        self.stopped |= any(each.stopped for each in results)


def rebuilt_json(settings: Settings, request: Rebuild, done: Rebuilt) -> dict[str, object]:
    """Returns the result of a rebuild for programs; `notes` say what is left to do."""
    notes = []
    if done.stopped:
        notes.append("interrupted: the same command resumes")
    elif request.swap and done.kept is None:
        notes.append(
            "not swapped, because they differ: the live stores are not what this program makes of"
            " the log. Where an earlier release wrote them that may be so. See the branch"
            f" {done.name} (`--branch {done.name}` with list, sql and others); --swap --anyway puts"
            " it in their place and keeps them as a branch"
        )
    configured, shards = settings.log.partitions, request.shards
    if shards is not None and done.kept is not None and configured not in (None, shards):
        notes.append(
            f"log.partitions is set to {configured}; set it to {shards} before anything else"
        )
    return {
        "branch": done.name,
        "stopped": done.stopped,
        "equal": done.is_equal,
        "partitions": [
            {**asdict(each), "compared": each.not_compared is None} for each in done.partitions
        ],
        "records": done.records,
        "turns": done.turns,
        "seconds": round(done.seconds, 3),
        "turns_per_second": round(done.turns / done.seconds, 1) if done.records else None,
        "swapped": done.kept is not None,
        "kept": done.kept,
        "notes": notes,
    }


async def rebuild(settings: Settings, request: Rebuild, watch: Watch = UNWATCHED) -> Rebuilt:
    """Raises RequestError, NotFoundError, LogError, SetupError and StoreError, each saying what to
    do; what was folded until then is kept."""
    if request.swap and request.until is not None:
        raise RequestError("stores as of a moment cannot take the place of the live ones")
    began = time.monotonic()
    with reading_log(settings) as log:
        branch = _branch(settings, request, log)
        with working_on(settings, branch.name):
            if reached(settings, branch.name).is_changed:
                # Its stores lost texts since they were built, and their fold cannot continue.
                branch = without_stores(settings, branch)
            work = _Work(settings, request, branch, log, watch)
            done = await work.fold()
            if request.swap and not done.stopped:
                await work.swap(done)
    done.seconds = time.monotonic() - began
    return done


def _branch(settings: Settings, request: Rebuild, log: LogReader) -> BranchManifest:
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
            raise another_branch(request.name)
        return found
    branch = BranchManifest(name=request.name, partitions=partitions, of_log=number)
    make_branch(settings, branch)
    return branch


def working_on(settings: Settings, name: str) -> AbstractContextManager[None]:
    """No one else works on this branch. Raises RequestError."""
    busy = f"another process is at work on the branch {name}; wait until it is done, or stop it"
    return locked(branch_folder(settings, name), WORKING, busy)


def make_branch(settings: Settings, branch: BranchManifest) -> None:
    """A branch with an empty log, so that its stores can be read."""
    folder = branch_folder(settings, branch.name)
    folder.mkdir(parents=True, exist_ok=True)
    EmbeddedLog(folder / "log", branch.partitions, utc_now, "publish").close()
    keep_branch(settings, branch)


@dataclass
class _Work:
    settings: Settings
    request: Rebuild
    branch: BranchManifest
    log: LogReader
    watch: Watch
    _jobs: list[FoldJob] = field(default_factory=list)

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
        self.watch.report(
            ReplayProgress("copying the live stores", 0, len(self.partitions), "partitions")
        )
        name = self.branch.name
        async with live_copies(self.settings, self.log, name, self.partitions, alone) as copies:
            stored = tuple(copy.path for copy in copies if not copy.missing)
            self._jobs = []
            for copy in copies:
                # Its own vectors first: a provider may not give the same for the same text.
                own_first = tuple(sorted(stored, key=copy.path.__ne__))
                self._jobs.append(await self._job(copy, own_first))
            results = await fold_jobs(self._jobs, self.watch)
            done.count(self._jobs, results)
            if done.stopped:
                return done
            for copy, job, result in zip(copies, self._jobs, results, strict=True):
                offset = job.ends.get("apply-writes", {}).get(MEMORY_WRITES.name, 0)
                found = await asyncio.to_thread(self._compared, copy, offset, result.embedded)
                done.partitions.append(found)
        read = {**self.branch.read_through, **{p.partition: p.offset for p in done.partitions}}
        whole = len(read) == self.branch.partitions
        self.branch = keep_branch(self.settings, self.branch, read_through=read, whole=whole)
        return done

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

    async def _job(self, copy: LiveCopy, stored: tuple[Path, ...]) -> FoldJob:
        """What is to be folded, from where the branch's shard is. Raises RequestError where more
        is folded than is wanted."""
        if self.request.until is not None:
            until = self._until(copy.partition)
            ends = followed(self.settings, self.log, copy.partition, until)
        elif not copy.not_compared:
            ends = copy.cursors()
        else:
            ends = known_to_log(self.settings, self.log, copy.partition)
        model = embedding_model(self.own)
        shard = open_shard(self.own, copy.partition, shard_options(self.own, model))
        try:
            # Without a live store to ask, what was folded to where it was then is no less right.
            lost = copy.not_compared is not None and self.request.until is None
            for stage, topics in ends.items():
                for topic, end in topics.items():
                    done = shard.cursor_of(stage, topic)
                    if done > end and not lost:
                        raise RequestError(
                            f"the branch {self.branch.name} holds more than is wanted now: it is as"
                            " of a later moment. Choose another --name, or remove it with"
                            f" `palimpsest replay drop {self.branch.name}`"
                        )
                    topics[topic] = max(done, end)
            note_log(shard, self.log)
        finally:
            shard.close()
            await model.close()
        return FoldJob(self.settings, self.own, copy.partition, ends, stored)

    def _compared(self, copy: LiveCopy, offset: int, embedded: int) -> RebuiltPartition:
        self.watch.report(ReplayProgress("comparing", 0, 1, "partitions"))
        files = [shard_folder(self.own, copy.partition) / DATABASE_FILE]
        why = copy.not_compared
        live = [] if why else [copy]
        if self.request.until is not None:
            live, why = [], "as of a moment"
        try:
            [found] = compare_stores(live, files)
        except duckdb.Error as error:
            if not live:
                raise
            why = unreadable(error)
            [found] = compare_stores([], files)
        rows, digest, differing = found
        return RebuiltPartition(copy.partition, offset, rows, digest, why, differing, embedded)

    # --- swap ----------------------------------------------------------------------------------

    async def swap(self, done: Rebuilt) -> None:
        """Put the stores in the place of the live ones, unless they differ. Raises RequestError."""
        with without_worker(self.settings):
            is_embedded = self.settings.log.kind == "embedded"
            if is_embedded and any(
                live_cursors(self.settings, job.partition) != job.ends for job in self._jobs
            ):
                # Fold what came since, now that nothing comes any more.
                again = await self.fold(alone=True)
                done.partitions, done.stopped = again.partitions, again.stopped
                done.records += again.records
            if done.stopped or not (done.is_equal or self.request.anyway):
                return
            folders = tuple(f"shards/{partition}" for partition in self.partitions)
            done.kept = await asyncio.to_thread(
                exchange,
                self.settings,
                branch=self.branch,
                live=self.branch,
                partitions=self.partitions,
                folders=folders,
            )


# --- exchanging -----------------------------------------------------------------------------------
# Who must not work while live folders are exchanged, and where what was live goes.

READERS_SECONDS = 10.0
"""How long a reader may have a log or store open that is to be exchanged."""
STOP_FIRST = (
    "To swap, stop the worker, say the same again (it goes on from where it is), and start the"
    " worker"
)


@contextlib.contextmanager
def without_worker(settings: Settings, advice: str = STOP_FIRST) -> Iterator[None]:
    """No worker runs here and none begins. On Kafka that is known by the folders of the stores
    alone. Raises RequestError, with the `advice`."""
    if settings.log.kind == "kafka":
        yield
        return
    try:
        with unexchanged(settings.data_dir):
            lock = LogLock.acquire(log_lock(settings), utc_now())
    except LogInUse as error:
        raise RequestError(f"{error}. {advice}") from error
    try:
        yield
    finally:
        lock.release()


def exchange(
    settings: Settings,
    branch: BranchManifest,
    live: BranchManifest,
    partitions: Iterable[int],
    folders: tuple[str, ...],
    check: Callable[[], object] = lambda: None,
) -> str:
    """Swaps these folders of the branch for the live ones, which then lie in a new branch that is
    like `live` otherwise; `partitions` are those of the live stores among them. `check` may still
    refuse it. Returns the name of the new branch. Blocks. Raises RequestError and LogError, without
    having changed anything."""
    now = utc_now()
    name = f"replaced-{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}"
    kept = live.model_copy(update={"name": name, "created_at": now, "whole": True})
    keep = keep_branch if kept.has_log else make_branch
    keep(settings, kept)
    try:
        with shards_locked(settings, partitions):
            swap = Swap(branch=branch.name, kept=name, folders=folders)
            swap_folders(settings.data_dir, swap, check)
    except (RequestError, LogError):  # raised before the swap is decided
        drop_branch(settings, name)
        raise
    return name


@contextlib.contextmanager
def shards_locked(settings: Settings, partitions: Iterable[int]) -> Iterator[None]:
    """No one has these live stores open. Raises RequestError."""
    deadline = time.monotonic() + READERS_SECONDS
    with contextlib.ExitStack() as undo:
        for folder in (shard_folder(settings, partition) for partition in partitions):
            while folder.exists():
                try:
                    undo.callback(FolderLock(folder, "shard").release)
                    break
                except FolderInUse as error:
                    if time.monotonic() > deadline:
                        raise RequestError(f"{error}. {STOP_FIRST}") from error
                    time.sleep(0.02)
        yield


def check_log_is_closed(settings: Settings) -> None:
    """Wait until no one has the live log open, to write or to read. Raises RequestError."""
    deadline = time.monotonic() + READERS_SECONDS
    while not is_alone(log_folder(settings) / FILE_NAME):
        if time.monotonic() > deadline:
            raise RequestError(
                f"another process has the log in {log_folder(settings)} open, to publish or to"
                " read, and what it appends would be lost. End it, and say the same again"
            )
        time.sleep(0.02)
