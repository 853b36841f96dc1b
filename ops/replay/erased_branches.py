"""What was erased from the live memory leaves the branches of its data folder, too.

A branch that models made, or that holds stores of before, loses the texts where it is. Stores that
a rebuild has begun and not finished are removed: the same command makes them again from the log,
which has the texts no more. Whatever is interrupted is begun again: a branch is marked last.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb
from pydantic import Field

from palimpsest.ops.maintenance.erasing import carry_out_in
from palimpsest.ops.parts import (
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
)
from palimpsest.ops.replay.counterparts import Counterparts
from palimpsest.ops.replay.ledger import Ledger
from palimpsest.ops.replay.live_log import LiveLog
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.redaction import is_mark
from palimpsest.schemas.rows import MemoryRow
from palimpsest.schemas.topics import MEMORY_CHANGES, MEMORY_WRITES
from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.durable_files import write_whole
from palimpsest.stores.lock import FolderLock
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
# Erasing from a store of a branch what was erased from the live one.
#
# The memories become tombstones as they are live, all that quotes them loses it, and the files of
# log and store are written anew. Nothing is told: no record follows from it, and no cursor moves.

BY: Final = "erasure"
"""Who has changed a memory of a branch that was erased."""
_STAGE: Final = "apply-writes"


@dataclass(frozen=True, slots=True)
class Erased:
    """An erasure that is finished in the live memory: the memories whose texts are gone, and when
    that was of all of the scope."""

    erasure_id: str
    scope: str
    memory_ids: tuple[str, ...]
    scope_at: datetime | None = None


def erased_in(shard: Shard) -> list[Erased] | None:
    """What was erased from a live store; None while something of it is left to be done."""
    with shard.reading() as reader:
        rows = reader.execute(
            "SELECT erasure_id, scope, memory_ids, scope_at, phase FROM erasures ORDER BY position"
        ).fetchall()
    if any(phase != DONE for *_, phase in rows):
        return None
    return [Erased(key, scope, tuple(ids), scope_at) for key, scope, ids, scope_at, _ in rows]


def count_erasures(shards: Mapping[int, Shard]) -> tuple[int, ...]:
    """How many there are, and how many are finished, by shard."""
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
    """Erase these memories from a store that nobody else has open, and from the branch's log;
    whether there was anything of them. `under_way`: records of the log may be of memories that are
    not there yet. May be repeated. Raises LogError, OSError, duckdb.Error and StoreError."""
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
# What a model drew for a branch from memories whose texts were erased from the live one.

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
"""Forgotten in the branch, with their texts still there, and drawn from nothing else."""


async def drawn_from_erased(
    settings: Settings,
    name: str,
    shard: Shard,
    log: LogReader,
    model: EmbeddingModel,
    erased: Sequence[Erased],
) -> list[Erased]:
    """The erasures with all memories of a branch's store that they concern: the same ones as in
    the live memory, the counterparts of its facts, and what the branch alone drew from erased
    turns. `settings` are the live ones, `log` is the live log. Where the embedding model is not to
    be had, facts are told apart by their words alone, and rather more goes than less."""

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
    """Which erasures have reached a branch: `digest` of all that there were, made before `through`
    (next offsets of the live memory-writes by partition). `is_changed`: they changed stores of a
    rebuild, so that these cannot be folded on."""

    digest: str = ""
    through: dict[int, int] = Field(default_factory=dict)
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class LiveErasures:
    """All that was erased from the live memory, and how far it was when it was asked."""

    erased: tuple[Erased, ...]
    through: Mapping[int, int]

    def of(self, partition: int, partitions: int) -> list[Erased]:
        """Those of scopes that lie in this one of so many partitions."""
        return [each for each in self.erased if partition_for(each.scope, partitions) == partition]

    @property
    def digest(self) -> str:
        ids = sorted(each.erasure_id for each in self.erased)
        return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def live_erasures(shards: Mapping[int, Shard]) -> LiveErasures | None:
    """None while something of an erasure is left to be done in the live memory itself."""
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
    """Nothing of a branch that says nothing, or nothing that can be read."""
    path = branch_folder(settings, name) / REACHED_FILE
    try:
        return Reached.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return Reached()


def begun_anew(settings: Settings, branch: Branch) -> Branch:
    """The branch of a rebuild as it can be gone on with: without its stores where these lost texts
    since they were made. Who calls works on it alone."""
    if not reached(settings, branch.name).is_changed:
        return branch
    return _without_stores(settings, branch)


def _without_stores(settings: Settings, branch: Branch) -> Branch:
    fresh = branch.model_copy(update={"read_through": {}, "whole": False})
    keep_branch(settings, fresh)  # first: no one takes half of the stores for all
    folder = branch_folder(settings, branch.name)
    # A log of its own that is not whole was being written from the live one.
    logs = ("log", "log.partial") if branch.has_log else ()
    for name in ("shards", COPIES, *logs):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REACHED_FILE).unlink(missing_ok=True)
    return fresh


def remove_leftovers(settings: Settings) -> None:
    """Of branches that were being removed when the process ended."""
    for folder in (settings.data_dir / "branches").glob(f".*{REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)


async def erase_in_branch(
    settings: Settings, branch: Branch, live: LiveErasures, log: LogReader
) -> None:
    """Let the erasures reach one branch; `log` is the live one. Raises FolderInUse and LogInUse
    while a process works on it or reads it, and what keeps it from being done: RequestError,
    SetupError, SettingsError, LogError, StoreError, StoreDamaged, OSError, duckdb.Error."""
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
    """Whether there was anything of the erased in the branch."""
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
                # No one can look for a text in it, nor read anything else.
                shutil.rmtree(shard_folder(own, partition))
                keep_branch(settings, branch.model_copy(update={"whole": False}))
                found = True
    return found


def _tells_of_damage(error: BaseException) -> bool:
    causes = (error, error.__cause__)
    return any(isinstance(each, StoreDamaged) or (each and is_damage(each)) for each in causes)


@dataclass(frozen=True, slots=True)
class _Work:
    """On one branch. `settings` are the live ones, `model` is the branch's."""

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
