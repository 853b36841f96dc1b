"""What was erased from the live memory leaves the branches of its data folder, too.

A branch that models made, or that holds stores of before, loses the texts where it is. Stores that
a rebuild has begun and not finished are removed: the same command makes them again from the log,
which has the texts no more. Whatever is interrupted is begun again: a branch is marked last.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
from pydantic import Field

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
from palimpsest.ops.replay.erased_counterparts import drawn_from_erased
from palimpsest.ops.replay.erased_stores import Erased, erase_in_store, erased_in
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.damage import StoreDamaged, is_damage
from palimpsest.stores.durable_files import write_whole
from palimpsest.stores.lock import FolderLock
from palimpsest.stores.shard import DATABASE_FILE, Shard, StoreError
from palimpsest.streams.logs.base import LogReader, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import EmbeddingModel

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
