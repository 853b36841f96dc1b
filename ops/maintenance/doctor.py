"""Checks of the setup, each with advice for a failure."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from palimpsest.ops.distribution import install_hint
from palimpsest.ops.log_folder import has_log, log_folder, log_lock, worker_runs
from palimpsest.ops.maintenance.full_disk import full_disk
from palimpsest.ops.opening import check_shard, open_log
from palimpsest.ops.parts import (
    EMBEDDING_STATE,
    SetupError,
    embedding_choice,
    embedding_model,
    language_model,
    open_shard,
    shard_folder,
    shard_options,
)
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_CHANGES
from palimpsest.stores.database.damage import REBUILD, StoreDamaged
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.shard import Shard, StoreError
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.models.base import EmbeddingModel

LEAST_FREE_BYTES = 512 * 1024 * 1024
FULL_BYTES = 1024 * 1024
PACKAGES = ("palimpsest", "duckdb", "pyarrow", "numpy", "pydantic")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its result, and advice for a failure."""

    check: str
    ok: bool
    found: str
    advice: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """Runs all checks; none raises, and none changes anything except a file that it removes."""
    return [
        _versions(),
        _folder(settings.data_dir),
        _disk(settings.data_dir, _writable(settings.data_dir)),
        _log(settings),
        _stores(settings),
        await _model("language model", settings.llm.model_name, _check_language(settings)),
        await _model(
            "embedding model",
            settings.embedding_model,
            _check_embedding(settings),
            embedding_choice(settings),
        ),
    ]


def _versions() -> Finding:
    found = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return Finding("versions", True, ", ".join(found))


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _folder(data_dir: Path) -> Finding:
    where = _existing(data_dir)
    advice = "make it writable, or name another folder with --data-dir"
    if not where.is_dir():
        return Finding("data folder", False, f"{where} is no folder", advice)
    try:
        with tempfile.TemporaryFile(dir=where):
            pass
    except OSError as error:
        return Finding("data folder", False, f"{where} cannot be written: {error.strerror}", advice)
    known = data_dir.exists()
    return Finding("data folder", True, f"{data_dir} {'is writable' if known else 'can be made'}")


def _writable(data_dir: Path) -> bool:
    return os.access(_existing(data_dir), os.W_OK)


def _advice(data_dir: Path, otherwise: str) -> str:
    """Returns the advice for a folder that cannot be opened: it must be writable first."""
    return otherwise if _writable(data_dir) else "make the folder writable, then ask again"


def _disk(data_dir: Path, writable: bool) -> Finding:
    free = shutil.disk_usage(_existing(data_dir)).free
    if not writable:
        return Finding("disk", True, f"{free / 2**30:.1f} GiB free, not used: see data folder")
    if free < FULL_BYTES:
        return Finding(
            "disk",
            False,
            f"full: {free:,} bytes free",
            "make room: nothing can be published or processed until then; reading goes on",
        )
    ok = free >= LEAST_FREE_BYTES
    found = f"{free / 2**30:.1f} GiB free" if ok else f"{free / 2**20:.1f} MiB free"
    return Finding("disk", ok, found, "" if ok else "make room before it is full: the log grows")


def _log(settings: Settings) -> Finding:
    if settings.log.kind == "kafka":
        return _cluster(settings)
    if not has_log(settings):
        return Finding("log", True, "none yet; `palimpsest ingest FILE` makes it")
    try:
        with open_log(settings, "read") as log:
            problems = log.check()
            partitions = log.partitions("conversation-turns")
            turns = sum(log.end_offset("conversation-turns", p) for p in range(partitions))
    except LogError as error:
        advice = _advice(log_folder(settings), "restore the data folder from a copy")
        return Finding("log", False, str(error), advice)
    if problems:
        return Finding("log", False, "; ".join(problems), "restore the log from a copy")
    return Finding("log", True, f"sound, {partitions} partition(s), {turns} turns published")


def _cluster(settings: Settings) -> Finding:
    try:
        from palimpsest.ops.kafka.topics import describe_topics
    except ImportError as error:
        return Finding("log", False, str(error), install_hint("kafka"))
    try:
        states = describe_topics(settings.cluster)
    except LogError as error:
        return Finding("log", False, str(error), "start the broker, or correct the address")
    wrong = [f"{state.name}: {what}" for state in states for what in state.differences]
    if wrong:
        return Finding("log", False, "; ".join(wrong), "see `palimpsest topics describe`")
    found = f"kafka at {settings.kafka.bootstrap_servers}, {len(states)} topics as they should be"
    return Finding("log", True, found)


def _stores(settings: Settings) -> Finding:
    folders = sorted(shard_folder(settings, 0).parent.glob("[0-9]*"))
    lost = _lost(settings, {int(folder.name) for folder in folders})
    if lost:
        told = (
            f"the stores of partition {', '.join(map(str, lost))} are gone; the log tells of them"
        )
        return Finding("stores", False, told, REBUILD)
    if not folders:
        return Finding("stores", True, "none yet; `palimpsest run --once` makes them")
    try:
        model = embedding_model(settings)
    except SetupError as error:
        return Finding("stores", False, str(error), "see the settings embedding.*")
    # Only a worker keeps stores open for long; on Kafka nothing else reveals a worker.
    expected = settings.log.kind == "kafka" or worker_runs(log_lock(settings))
    busy = 0
    for folder in folders:
        try:
            wrong = _store(settings, folder, model)
        except FolderInUse as error:
            if not expected:
                return Finding("stores", False, str(error), "close what uses it")
            busy += 1
            continue
        if wrong is not None:
            return wrong
    if busy:
        return Finding(
            "stores",
            True,
            f"{busy} of {len(folders)} partition(s) in use by a running worker (see"
            " `palimpsest status`)",
        )
    size = sum(f.stat().st_size for f in settings.data_dir.rglob("*") if f.is_file())
    return Finding(
        "stores",
        True,
        f"{len(folders)} partition(s) open and close; the folder takes {size / 2**20:.1f} MiB",
    )


def _store(settings: Settings, folder: Path, model: EmbeddingModel) -> Finding | None:
    """Returns what is wrong with a store, None if nothing is. Raises FolderInUse."""
    try:
        shard = open_shard(settings, int(folder.name), shard_options(settings, model))
        try:
            before = _read_through(settings, shard, int(folder.name))
        finally:
            shard.close()
    except (StoreError, StoreDamaged) as error:
        if not isinstance(error.__cause__, OSError) and full_disk(error) is None:
            return Finding("stores", False, str(error), _advice(folder, REBUILD))
        return Finding("stores", False, str(error), _advice(folder, "make room"))
    if before in (None, model.model):
        return None
    return Finding(
        "stores",
        False,
        f"vectors of {folder} are of {before}, embedding is {model.model}: what is stored"
        " is found by keywords only",
        "set embedding.model to the model that the store was made with, or let `palimpsest"
        " run` embed it again",
    )


def _lost(settings: Settings, there: set[int]) -> list[int]:
    """Returns the partitions of an embedded log whose store is missing."""
    if settings.log.kind == "kafka" or not has_log(settings):
        return []
    try:
        with open_log(settings, "read") as log:
            topic = MEMORY_CHANGES.name
            missing = set(range(log.partitions(topic))) - there
            return sorted(each for each in missing if log.end_offset(topic, each) > 0)
    except LogError:
        return []  # the finding of the log says it


def _read_through(settings: Settings, shard: Shard, partition: int) -> str | None:
    """Reads the whole store; returns the model of its vectors. Raises StoreError and
    StoreDamaged."""
    if settings.log.kind != "kafka" and has_log(settings):
        with open_log(settings, "read") as log:
            check_shard(log, partition, shard)
    with shard.reading() as reader:
        state_hash(reader)
    return shard.state(EMBEDDING_STATE)


def _check_language(settings: Settings) -> Callable[[], Awaitable[str | None]]:
    async def check() -> str | None:
        model = language_model(settings.llm)
        try:
            return await model.check()
        finally:
            await model.close()

    return check


def _check_embedding(settings: Settings) -> Callable[[], Awaitable[str | None]]:
    async def check() -> str | None:
        model = embedding_model(settings)
        try:
            return await model.check()
        finally:
            await model.close()

    return check


async def _model(
    check: str, name: str, usable: Callable[[], Awaitable[str | None]], why: str | None = None
) -> Finding:
    try:
        wrong = await usable()
    except SetupError as error:
        wrong = str(error)
    if wrong is None:
        return Finding(check, True, f"{name} answers" + (f", {why}" if why else ""))
    return Finding(check, False, wrong, "see the settings llm.* and embedding.*")
