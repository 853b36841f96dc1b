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
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import duckdb

from palimpsest.ops.errors import RequestError
from palimpsest.ops.maintenance.erasing import execute_in
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
    REACHED_FILE,
    WORKING,
    BranchManifest,
    Reached,
    branch_folder,
    branch_names,
    branch_settings,
    keep_branch,
    reached,
    read_branch,
    remove_leftovers,
    without_stores,
)
from palimpsest.ops.replay.counterparts import Counterparts, Embedding
from palimpsest.ops.replay.jobs import forget_quotations
from palimpsest.ops.replay.live_log import Ledger, LiveLog
from palimpsest.ops.scheduling.periodic import PASSING, PeriodicTask, in_thread
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import SettingsError
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.topics import MEMORY_CHANGES, MEMORY_WRITES
from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.database.durable_files import write_whole
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.stores.shard import DATABASE_FILE, Shard, StoreError
from palimpsest.stores.writing.erased_graph import erase_graph
from palimpsest.stores.writing.erasures import DONE, Erasure
from palimpsest.stores.writing.unit_of_work import UnitOfWork
from palimpsest.streams.logs.base import LogReader, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.memory_rows import changed, is_erased, without_text
from palimpsest.streams.models.base import ModelError, Vector
from palimpsest.streams.store_port import Erase, Load, Loaded, Progress, Put

# --- erased stores --------------------------------------------------------------------------------
# Erases from a store of a branch what was erased from the live one.
#
# The memories become tombstones as in the live store, everything that quotes them loses the quotes,
# and the files of log and store are rewritten. It writes no records and moves no cursor.


def _forget_in_graph(shard: Shard, erasure: Erasure) -> None:
    """First, for it is told by the memories' rows what is left to be done. With the last memory of
    a scope goes all that its graph has."""
    with shard.writing() as connection:
        others = connection.execute(
            "SELECT 1 FROM memory_rows WHERE scope = ? AND content_hash <> ''"
            " AND memory_id NOT IN (SELECT unnest(?)) LIMIT 1",
            [erasure.scope, [*erasure.memory_ids]],
        ).fetchone()
        connection.execute("BEGIN")
        try:
            erase_graph(connection, erasure.scope, erasure.memory_ids if others else None)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _erase(unit: UnitOfWork, erasure: Erasure, rows: Sequence[MemoryRow], at: datetime) -> None:
    for number, row in enumerate(rows, unit.write_seq + 1):
        unit.stage([Put(without_text(changed(row, at, "erasure", number), at))])
    texts = dict.fromkeys(erasure.memory_ids, "") | {row.memory_id: row.content for row in rows}
    keys = tuple(row.embedding_key for row in rows)
    unit.stage([Erase(erasure.erasure_id, erasure.scope, texts, keys, erasure.scope_at)])
    unit.commit(Progress("apply-writes", {}, (), (), sent_through=-1))


# --- erased counterparts --------------------------------------------------------------------------
# Finds what a model extracted for a branch from memories whose texts were erased live.

_FORGOTTEN: Final = """
SELECT m.memory_id FROM memory_rows m
JOIN outcomes o ON o.item_kind = 'fact' AND o.memory_id = m.memory_id
JOIN fact_rows f ON f.item_id = o.item_id
WHERE m.scope = $scope AND m.is_deleted AND m.content_hash <> ''
GROUP BY m.memory_id HAVING bool_and(f.turn_memory_id IN (SELECT unnest($ids)))
ORDER BY 1"""
"""Memories forgotten in the branch that still have their texts and have no other sources."""


async def _with_drawn(erasure: Erasure, counterparts: Counterparts) -> Erasure:
    """Returns the erasure extended to all memories of a branch's store that it concerns: the same
    ones as in the live memory, the counterparts of its facts, and what only the branch extracted
    from erased turns."""
    scope, live, shard = erasure.scope, counterparts.live, counterparts.shard
    partition = partition_for(scope, live.reader.partitions(MEMORY_WRITES.name))
    live.scan(partition)
    end = live.ledger.scanned(MEMORY_CHANGES.name, partition)
    found = replace(counterparts, scope=scope, before=end)
    ids = dict.fromkeys(erasure.memory_ids)
    for live_id in erasure.memory_ids:
        known = live.ledger.curated("live_id = ? AND scope = ?", live_id, scope)
        ids |= dict.fromkeys(row.branch_id for row in known if row.branch_id is not None)
        same = await found.of_fact(live_id)
        ids |= dict.fromkeys(each.branch_id for each in same)
    others = await found.unaccounted(erasure.memory_ids)
    ids |= dict.fromkeys(each.branch_id for each in others)
    forgotten = shard.fetch(_FORGOTTEN, {"scope": scope, "ids": [*erasure.memory_ids]})
    ids |= dict.fromkeys(memory_id for (memory_id,) in forgotten)
    return replace(erasure, memory_ids=tuple(ids))


# --- erased branches ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveErasures:
    """All erasures of the live memory, each finished there; its offsets of memory-writes when they
    were read; and a digest of their ids."""

    erasures: tuple[Erasure, ...]
    through: Mapping[int, int]
    digest: str


def live_erasures(shards: Mapping[int, Shard]) -> LiveErasures | None:
    """Returns all erasures, None while any is unfinished in the live memory itself."""
    topic = MEMORY_WRITES.name
    through = {number: each.cursor_of("apply-writes", topic) for number, each in shards.items()}
    query = "SELECT erasure_id, scope, phase, memory_ids, scope_at FROM erasures ORDER BY position"
    found = [
        Erasure(key, scope, phase, tuple(ids), {}, scope_at)
        for shard in shards.values()
        for key, scope, phase, ids, scope_at in shard.fetch(query)
    ]
    if any(each.phase != DONE for each in found):
        return None
    ids = "\n".join(sorted(each.erasure_id for each in found))
    return LiveErasures(tuple(found), through, hashlib.sha256(ids.encode()).hexdigest())


@dataclass(frozen=True, slots=True)
class _Erasing:
    """Applies the live erasures to one branch; `settings` and `log` are the live ones."""

    settings: Settings
    branch: BranchManifest
    live: LiveErasures
    log: LogReader

    async def execute(self) -> None:
        """Raises FolderInUse and LogInUse while a process works on the branch or reads it, and on
        failure RequestError, SetupError, SettingsError, LogError, StoreError, StoreDamaged, OSError
        or duckdb.Error."""
        settings, branch = self.settings, self.branch
        folder = branch_folder(settings, branch.name)
        lock = FolderLock(folder, WORKING)
        try:
            if branch.kind == "rebuild" and not branch.whole:
                without_stores(settings, branch)
                is_changed = False
            else:
                shutil.rmtree(folder / COPIES, ignore_errors=True)
                is_changed = await self._in_stores()
            was_changed = reached(settings, branch.name).is_changed
            note = Reached(
                digest=self.live.digest,
                through=dict(self.live.through),
                is_changed=branch.kind == "rebuild" and (is_changed or was_changed),
            )
            write_whole(folder / REACHED_FILE, note.model_dump_json().encode())
        finally:
            lock.release()

    async def _in_stores(self) -> bool:
        """Erases from the branch's stores. Returns whether there was anything to erase."""
        own, found = branch_settings(self.settings, self.branch), False
        async with contextlib.AsyncExitStack() as undo:
            place, partitions = own.data_dir / "log", self.branch.partitions
            log = undo.enter_context(EmbeddedLog(place, partitions, utc_now, "process"))
            model = embedding_model(own)
            undo.push_async_callback(model.close)

            async def embed(texts: Sequence[str]) -> Sequence[Vector | None]:
                try:
                    return await model.embed_passages(texts)
                except ModelError:
                    # Facts are compared by their words alone, and more is erased rather than less.
                    return [None] * len(texts)

            here: dict[int, list[Erasure]] = defaultdict(list)
            for each in self.live.erasures:
                here[partition_for(each.scope, partitions)].append(each)
            for partition, erasures in sorted(here.items()):
                if not (shard_folder(own, partition) / DATABASE_FILE).exists():
                    continue
                try:
                    opened = open_shard(own, partition, shard_options(own, model))
                    with contextlib.closing(opened) as shard:
                        found |= await self._in_store(log, partition, shard, embed, erasures)
                except (StoreError, StoreDamaged, duckdb.Error) as error:
                    causes = [each for each in (error, error.__cause__) if each is not None]
                    is_damaged = any(isinstance(e, StoreDamaged) or is_damage(e) for e in causes)
                    if self.branch.kind != "rebuild" or not is_damaged:
                        raise
                    # A damaged store can be neither searched for the text nor read.
                    shutil.rmtree(shard_folder(own, partition))
                    keep_branch(self.settings, self.branch, whole=False)
                    found = True
        return found

    async def _in_store(
        self,
        log: EmbeddedLog,
        partition: int,
        shard: Shard,
        embed: Embedding,
        some: Sequence[Erasure],
    ) -> bool:
        """Erases from a store that no other process has open, and from the branch's log. Returns
        whether there was anything to erase. Idempotent."""
        is_fed, found, at = self.branch.kind == "reextraction", False, utc_now()
        if is_fed:
            with Ledger.opened(branch_folder(self.settings, self.branch.name)) as ledger:
                live = LiveLog(self.log, ledger)
                counterparts = Counterparts(live, shard, embed, self.settings.near)
                some = [await _with_drawn(each, counterparts) for each in some]
        for erasure in some:
            unit = shard.unit()
            load = Load(erasure.scope, memory_ids=erasure.memory_ids)
            unit.prefetch([load])
            loaded = unit.answer(load)
            assert isinstance(loaded, Loaded)
            rows = [
                row
                for _, row in sorted(loaded.memories.items())
                if row.scope == erasure.scope and not is_erased(row) and not is_mark(row.content)
            ]
            # The log may have records of memories that are not in the store yet.
            is_wanted = (is_fed and not self.branch.whole) or erasure.scope_at is not None
            known = "SELECT 1 FROM erasures WHERE erasure_id = ?"
            if rows or (is_wanted and not shard.fetch(known, [erasure.erasure_id])):
                _forget_in_graph(shard, erasure)
                _erase(unit, erasure, rows, at)
                found = True
        if shard.has_erasures:
            execute_in(log, partition, shard)
            found = True
        return found


# --- alongside a worker ---------------------------------------------------------------------------
# Applies erasures to the branches of the data folder and to the output of replays, once they are
# finished in the live memory.

logger = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 60.0
"""Delay before branches are checked again: one may have been in use, or be new."""
_PASSING: Final = (*PASSING, RequestError, SettingsError, SetupError, FolderInUse)


@dataclass(eq=False)
class BranchErasing:
    """Erases in the branches of these shards, whose log is `log`. Once `stopping` returns true, it
    finishes the current branch and leaves the others to the next worker."""

    settings: Settings
    log: LogReader
    shards: Mapping[int, Shard]
    stopping: Callable[[], bool]
    _seen: tuple[int, ...] = ()
    _not_before: float = -math.inf
    _told: set[str] = field(default_factory=set)

    def task(self) -> PeriodicTask:
        name = "what was erased and may still be in branches"
        return PeriodicTask(name, 1.0, in_thread(self.once), last=True, passing=_PASSING)

    def once(self) -> int:
        """Returns the number of changed branches and replays. Blocks. Raises errors of opening
        branches."""
        folders = [self.settings.data_dir / name for name in ("branches", "replays")]
        if not any(folder.exists() for folder in folders) or self.stopping():
            return 0
        counted = f"SELECT count(*), count(*) FILTER (phase = '{DONE}') FROM erasures"
        counts = tuple(n for shard in self.shards.values() for n in shard.fetch(counted)[0])
        if counts == self._seen and time.monotonic() < self._not_before:
            return 0
        live = live_erasures(self.shards)
        if live is None or not live.erasures:
            return 0
        self._seen, self._not_before = counts, time.monotonic() + AGAIN_SECONDS
        remove_leftovers(self.settings)
        names = branch_names(self.settings)
        changed = sum(self._reach(name, live) for name in names if not self.stopping())
        # Last: a replay reports on a branch only after the branch lost the texts.
        return changed + forget_quotations(self.settings, live.digest)

    def _reach(self, name: str, live: LiveErasures) -> bool:
        """Returns whether a branch was brought up to date. A failure is logged once per branch and
        does not stop the others."""
        try:
            if reached(self.settings, name).digest == live.digest:
                return False
            branch = read_branch(self.settings, name)
            asyncio.run(_Erasing(self.settings, branch, live, self.log).execute())
        except _PASSING as error:
            if name not in self._told:
                logger.warning("what was erased is still in the branch %s: %s", name, error)
            self._told.add(name)
            return False
        self._told.discard(name)
        return True
