"""Erasures in the live memory reach the branches of its data folder, too.

A re-extraction or a finished rebuild loses the texts in place. The unfinished stores of a rebuild
are removed: the same command builds them again from the log, which no longer has the texts. An
interrupted erasure starts over: a branch is marked last.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb
from pydantic import Field

from palimpsest.ops.errors import RequestError
from palimpsest.ops.maintenance.erasing import carry_out_in
from palimpsest.ops.maintenance.periodic import PASSING, PeriodicTask, in_thread
from palimpsest.ops.parts import (
    SetupError,
    embedding_model,
    open_shard,
    shard_folder,
    shard_options,
    utc_now,
)
from palimpsest.ops.replay.branches import (
    COPIES,
    REMOVED,
    WORKING,
    Branch,
    branch_folder,
    branch_settings,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.counterparts import Counterparts
from palimpsest.ops.replay.jobs import forget_told
from palimpsest.ops.replay.ledger import Ledger
from palimpsest.ops.replay.live_log import LiveLog
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import SettingsError
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import MEMORY_CHANGES, MEMORY_WRITES
from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.durable_files import write_whole
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE, Shard, StoreError
from palimpsest.stores.writing.erased_graph import erase_graph
from palimpsest.stores.writing.erasures import DONE
from palimpsest.stores.writing.unit_of_work import UnitOfWork
from palimpsest.streams.logs.base import LogReader, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.memory_rows import changed, is_erased, without_text
from palimpsest.streams.models.base import EmbeddingModel, ModelError, Vector
from palimpsest.streams.store_port import Erase, Load, Loaded, Progress, Put

# --- erased stores --------------------------------------------------------------------------------
# Erases from a store of a branch what was erased from the live one.
#
# The memories become tombstones as in the live store, everything that quotes them loses the quotes,
# and the files of log and store are rewritten. It writes no records and moves no cursor.

BY: Final = "erasure"
"""The author of the change that erases a memory of a branch."""
_STAGE: Final = "apply-writes"


@dataclass(frozen=True, slots=True)
class Erased:
    """An erasure that is finished in the live memory: the memories whose texts are gone, and the
    time if it erased the whole scope."""

    erasure_id: str
    scope: str
    memory_ids: tuple[str, ...]
    scope_at: datetime | None = None


def erased_in(shard: Shard) -> list[Erased] | None:
    """Returns the erasures of a live store, None while any of them is unfinished."""
    with shard.reading() as reader:
        rows = reader.execute(
            "SELECT erasure_id, scope, memory_ids, scope_at, phase FROM erasures ORDER BY position"
        ).fetchall()
    if any(phase != DONE for *_, phase in rows):
        return None
    return [Erased(key, scope, tuple(ids), scope_at) for key, scope, ids, scope_at, _ in rows]


def count_erasures(shards: Mapping[int, Shard]) -> tuple[int, ...]:
    """Returns the number of erasures and of finished ones for each shard, as one flat tuple."""
    counts: list[int] = []
    for _, shard in sorted(shards.items()):
        with shard.reading() as reader:
            [found] = reader.execute(
                "SELECT count(*), count(*) FILTER (phase = ?) FROM erasures", [DONE]
            ).fetchall()
        counts += found
    return tuple(counts)


def erase_in_store(
    log: EmbeddedLog,
    partition: int,
    shard: Shard,
    erasures: Iterable[Erased],
    at: datetime,
    under_way: bool,
) -> bool:
    """Erases these memories from a store that no other process has open, and from the branch's
    log. Returns whether there was anything to erase. `under_way`: the log may have records of
    memories that are not in the store yet. Idempotent. Raises LogError, OSError, duckdb.Error and
    StoreError."""
    found = False
    for erased in erasures:
        unit = shard.unit()
        rows = _texts_left(unit, erased)
        is_wanted = under_way or erased.scope_at is not None
        if rows or (is_wanted and not _is_known(shard, erased)):
            _forget_in_graph(shard, erased)
            _erase(unit, erased, rows, at)
            found = True
    if shard.has_erasures:
        carry_out_in(log, partition, shard)
        found = True
    return found


def _texts_left(unit: UnitOfWork, erased: Erased) -> list[MemoryRow]:
    load = Load(erased.scope, memory_ids=erased.memory_ids)
    unit.prefetch([load])
    loaded = unit.answer(load)
    assert isinstance(loaded, Loaded)
    rows = [row for _, row in sorted(loaded.memories.items()) if row.scope == erased.scope]
    return [row for row in rows if not is_erased(row) and not is_mark(row.content)]


def _is_known(shard: Shard, erased: Erased) -> bool:
    with shard.reading() as reader:
        query = "SELECT 1 FROM erasures WHERE erasure_id = ?"
        return reader.execute(query, [erased.erasure_id]).fetchone() is not None


def _forget_in_graph(shard: Shard, erased: Erased) -> None:
    """First, for it is told by the memories' rows what is left to be done. With the last memory of
    a scope goes all that its graph has."""
    with shard.writing() as connection:
        others = connection.execute(
            "SELECT 1 FROM memory_rows WHERE scope = ? AND content_hash <> ''"
            " AND memory_id NOT IN (SELECT unnest(?)) LIMIT 1",
            [erased.scope, [*erased.memory_ids]],
        ).fetchone()
        connection.execute("BEGIN")
        try:
            erase_graph(connection, erased.scope, erased.memory_ids if others else None)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _erase(unit: UnitOfWork, erased: Erased, rows: Sequence[MemoryRow], at: datetime) -> None:
    for number, row in enumerate(rows, unit.write_seq + 1):
        unit.stage([Put(without_text(changed(row, at, BY, number), at))])
    texts = dict.fromkeys(erased.memory_ids, "") | {row.memory_id: row.content for row in rows}
    keys = tuple(row.embedding_key for row in rows)
    unit.stage([Erase(erased.erasure_id, erased.scope, texts, keys, erased.scope_at)])
    unit.commit(Progress(_STAGE, {}, (), (), sent_through=-1))


# --- erased counterparts --------------------------------------------------------------------------
# Finds what a model extracted for a branch from memories whose texts were erased live.

_FORGOTTEN: Final = """
SELECT m.memory_id FROM memory_rows m
WHERE m.scope = $scope AND m.is_deleted AND m.content_hash <> '' AND EXISTS (
    FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
    WHERE o.item_kind = 'fact' AND o.memory_id = m.memory_id
        AND f.turn_memory_id IN (SELECT unnest($ids)))
    AND NOT EXISTS (
    FROM outcomes o JOIN fact_rows f ON f.item_id = o.item_id
    WHERE o.item_kind = 'fact' AND o.memory_id = m.memory_id
        AND f.turn_memory_id NOT IN (SELECT unnest($ids)))
ORDER BY 1"""
"""Memories forgotten in the branch that still have their texts and have no other sources."""


async def drawn_from_erased(
    settings: Settings,
    name: str,
    shard: Shard,
    log: LogReader,
    model: EmbeddingModel,
    erased: Sequence[Erased],
) -> list[Erased]:
    """Returns the erasures extended to all memories of a branch's store that they concern: the
    same ones as in the live memory, the counterparts of its facts, and what only the branch
    extracted from erased turns. `settings` are the live ones, `log` is the live log. If the
    embedding model is unavailable, facts are compared by their words alone, and more is erased
    rather than less."""

    async def embed(texts: Sequence[str]) -> Sequence[Vector | None]:
        try:
            return await model.embed_passages(texts)
        except ModelError:
            return [None] * len(texts)

    with Ledger.opened(branch_folder(settings, name)) as ledger:
        live = LiveLog(log, ledger)
        for partition in sorted({partition_for(e.scope, live.partitions) for e in erased}):
            live.scan(partition)
        found = Counterparts(live, shard, embed, settings.near)
        return [await _with_drawn(each, found, live) for each in erased]


async def _with_drawn(erased: Erased, counterparts: Counterparts, live: LiveLog) -> Erased:
    scope = erased.scope
    end = live.ledger.scanned(MEMORY_CHANGES.name, partition_for(scope, live.partitions))
    ids = dict.fromkeys(erased.memory_ids)
    for live_id in erased.memory_ids:
        known = live.ledger.curated("live_id = ? AND scope = ?", live_id, scope)
        ids |= dict.fromkeys(row.branch_id for row in known if row.branch_id is not None)
        same = await counterparts.of_fact(scope, live_id, end)
        ids |= dict.fromkeys(each.branch_id for each in same)
    others = await counterparts.unaccounted(scope, erased.memory_ids, end)
    ids |= dict.fromkeys(each.branch_id for each in others)
    ids |= dict.fromkeys(_forgotten(counterparts.shard, erased))
    return replace(erased, memory_ids=tuple(ids))


def _forgotten(shard: Shard, erased: Erased) -> list[str]:
    with shard.reading() as reader:
        rows = reader.execute(
            _FORGOTTEN, {"scope": erased.scope, "ids": [*erased.memory_ids]}
        ).fetchall()
    return [memory_id for (memory_id,) in rows]


# --- erased branches ------------------------------------------------------------------------------

REACHED_FILE: Final = "erased.json"


class Reached(Frozen):
    """The erasures that have reached a branch: `digest` covers all of them, made before `through`
    (next offsets of the live memory-writes by partition). `is_changed`: they changed stores of a
    rebuild, so that its fold cannot continue."""

    digest: str = ""
    through: dict[int, int] = Field(default_factory=dict)
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class LiveErasures:
    """All erasures of the live memory, and its offsets when they were read."""

    erased: tuple[Erased, ...]
    through: Mapping[int, int]

    def of(self, partition: int, partitions: int) -> list[Erased]:
        """Returns the erasures whose scopes lie in `partition` of `partitions`."""
        return [each for each in self.erased if partition_for(each.scope, partitions) == partition]

    @property
    def digest(self) -> str:
        ids = sorted(each.erasure_id for each in self.erased)
        return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def live_erasures(shards: Mapping[int, Shard]) -> LiveErasures | None:
    """Returns all erasures, None while any is unfinished in the live memory itself."""
    through = {
        number: shard.cursor_of("apply-writes", MEMORY_WRITES.name)
        for number, shard in shards.items()
    }
    found: list[Erased] = []
    for shard in shards.values():
        erased = erased_in(shard)
        if erased is None:
            return None
        found += erased
    return LiveErasures(tuple(found), through)


def reached(settings: Settings, name: str) -> Reached:
    """Returns the erasures that reached a branch: none if its file is missing or unreadable."""
    path = branch_folder(settings, name) / REACHED_FILE
    try:
        return Reached.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return Reached()


def begun_anew(settings: Settings, branch: Branch) -> Branch:
    """Returns the branch of a rebuild ready to continue: without its stores if they lost texts
    since they were built. The caller must have exclusive access to the branch."""
    if not reached(settings, branch.name).is_changed:
        return branch
    return _without_stores(settings, branch)


def _without_stores(settings: Settings, branch: Branch) -> Branch:
    fresh = branch.model_copy(update={"read_through": {}, "whole": False})
    keep_branch(settings, fresh)  # first, so that nothing takes half of the stores for all
    folder = branch_folder(settings, branch.name)
    # The branch's own incomplete log was being written from the live one.
    logs = ("log", "log.partial") if branch.has_log else ()
    for name in ("shards", COPIES, *logs):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REACHED_FILE).unlink(missing_ok=True)
    return fresh


def remove_leftovers(settings: Settings) -> None:
    """Removes the rest of branches whose removal was interrupted."""
    for folder in (settings.data_dir / "branches").glob(f".*{REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)


async def erase_in_branch(
    settings: Settings, branch: Branch, live: LiveErasures, log: LogReader
) -> None:
    """Applies the erasures to one branch; `log` is the live one. Raises FolderInUse and LogInUse
    while a process works on the branch or reads it, and on failure RequestError, SetupError,
    SettingsError, LogError, StoreError, StoreDamaged, OSError or duckdb.Error."""
    folder = branch_folder(settings, branch.name)
    lock = FolderLock(folder, WORKING)
    try:
        if branch.kind == "rebuild" and not branch.whole:
            _without_stores(settings, branch)
            is_changed = False
        else:
            shutil.rmtree(folder / COPIES, ignore_errors=True)
            is_changed = await _erase_in_stores(settings, branch, live, log)
        was_changed = reached(settings, branch.name).is_changed
        note = Reached(
            digest=live.digest,
            through=dict(live.through),
            is_changed=branch.kind == "rebuild" and (is_changed or was_changed),
        )
        _write(folder / REACHED_FILE, note)
    finally:
        lock.release()


def _write(path: Path, note: Reached) -> None:
    write_whole(path, note.model_dump_json().encode())


async def _erase_in_stores(
    settings: Settings, branch: Branch, live: LiveErasures, live_log: LogReader
) -> bool:
    """Erases from the branch's stores. Returns whether there was anything to erase."""
    own = branch_settings(settings, branch)
    found = False
    async with contextlib.AsyncExitStack() as undo:
        log = undo.enter_context(
            EmbeddedLog.open(own.data_dir / "log", branch.partitions, utc_now, "process")
        )
        model = embedding_model(own)
        undo.push_async_callback(model.close)
        work = _Work(settings, branch, log, live_log, model)
        for partition in range(branch.partitions):
            here = live.of(partition, branch.partitions)
            if not here or not (shard_folder(own, partition) / DATABASE_FILE).exists():
                continue
            try:
                found |= await work.partition(partition, here)
            except (StoreError, StoreDamaged, duckdb.Error) as error:
                if branch.kind != "rebuild" or not _tells_of_damage(error):
                    raise
                # A damaged store can be neither searched for the text nor read.
                shutil.rmtree(shard_folder(own, partition))
                keep_branch(settings, branch.model_copy(update={"whole": False}))
                found = True
    return found


def _tells_of_damage(error: BaseException) -> bool:
    causes = (error, error.__cause__)
    return any(isinstance(each, StoreDamaged) or (each and is_damage(each)) for each in causes)


@dataclass(frozen=True, slots=True)
class _Work:
    """Erases from one branch. `settings` are the live ones, `model` is the branch's."""

    settings: Settings
    branch: Branch
    log: EmbeddedLog
    live_log: LogReader
    model: EmbeddingModel

    async def partition(self, partition: int, erased: Sequence[Erased]) -> bool:
        own = branch_settings(self.settings, self.branch)
        shard = open_shard(own, partition, shard_options(own, self.model))
        try:
            under_way = False
            if self.branch.kind == "reextraction":
                under_way = not self.branch.whole
                erased = await drawn_from_erased(
                    self.settings, self.branch.name, shard, self.live_log, self.model, erased
                )
            return erase_in_store(self.log, partition, shard, erased, utc_now(), under_way)
        finally:
            shard.close()


# --- alongside a worker ---------------------------------------------------------------------------
# Applies erasures to the branches of the data folder and to the output of replays, once they are
# finished in the live memory.

logger = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 60.0
"""Delay before branches are checked again: one may have been in use, or be new."""
_PASSING: Final = (*PASSING, RequestError, SettingsError, SetupError, FolderInUse)


class BranchErasing:
    """Erases in the branches of these shards, whose log is `log`. Once `stopping` returns true, it
    finishes the current branch and leaves the others to the next worker."""

    def __init__(
        self,
        settings: Settings,
        log: LogReader,
        shards: Mapping[int, Shard],
        stopping: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._log = log
        self._shards = shards
        self._stopping = stopping
        self._monotonic = monotonic
        self._seen: tuple[int, ...] = ()
        self._not_before = -math.inf
        self._told: set[str] = set()

    def task(self) -> PeriodicTask:
        name = "what was erased and may still be in branches"
        return PeriodicTask(name, 1.0, in_thread(self.once), last=True, passing=_PASSING)

    def once(self) -> int:
        """Returns the number of changed branches and replays. Blocks. Raises errors of opening
        branches."""
        folders = [self._settings.data_dir / name for name in ("branches", "replays")]
        if not any(folder.exists() for folder in folders) or self._stopping():
            return 0
        counts = count_erasures(self._shards)
        if counts == self._seen and self._monotonic() < self._not_before:
            return 0
        live = live_erasures(self._shards)
        if live is None or not live.erased:
            return 0
        self._seen, self._not_before = counts, self._monotonic() + AGAIN_SECONDS
        remove_leftovers(self._settings)
        changed = sum(self._reach(name, live) for name in self._branches() if not self._stopping())
        # Last: a replay reports on a branch only after the branch lost the texts.
        return changed + forget_told(self._settings, live.digest)

    def _branches(self) -> list[str]:
        files = (self._settings.data_dir / "branches").glob("*/branch.json")
        return sorted(file.parent.name for file in files)

    def _reach(self, name: str, live: LiveErasures) -> bool:
        """Returns whether a branch was brought up to date. A failure is logged once per branch and
        does not stop the others."""
        try:
            if reached(self._settings, name).digest == live.digest:
                return False
            branch = read_branch(self._settings, name)
            asyncio.run(erase_in_branch(self._settings, branch, live, self._log))
        except _PASSING as error:
            if name not in self._told:
                logger.warning("what was erased is still in the branch %s: %s", name, error)
            self._told.add(name)
            return False
        self._told.discard(name)
        return True
