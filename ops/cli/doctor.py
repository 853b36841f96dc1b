"""Checks of the setup, each with advice for a failure."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from palimpsest.ops.distribution import install_hint
from palimpsest.ops.embedding.tracker import missing
from palimpsest.ops.health.domains import FULL_BYTES, LEAST_FREE_BYTES
from palimpsest.ops.log_folder import is_begun, log_folder, lost_log, worker_is_there
from palimpsest.ops.maintenance.full_disk import full_disk
from palimpsest.ops.opening import check_shard, open_log
from palimpsest.ops.parts import (
    EMBEDDING_STATE,
    GRAPH_IS_ONLY_READ,
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
from palimpsest.streams.logs.base import LogError, ahead_of_log
from palimpsest.streams.models.base import EmbeddingModel, LanguageModel
from palimpsest.streams.text.counts import counted
from palimpsest.streams.topology import stages

PACKAGES = ("palimpsest", "duckdb", "pyarrow", "numpy", "pydantic")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its result, and advice for a failure."""

    check: str
    ok: bool
    found: str
    advice: str = ""


class _WrongError(Exception):
    """What a check finds wrong, and advice."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.advice = advice


async def examine(settings: Settings) -> list[Finding]:
    """Runs all checks; none raises, and none changes anything except a file that it removes."""
    language, embedding = partial(language_model, settings.llm), partial(embedding_model, settings)
    checks: dict[str, Callable[[], str | Awaitable[str]]] = {
        "versions": _versions,
        "data folder": lambda: _folder(settings.data_dir),
        "disk": lambda: _disk(settings.data_dir, _writable(settings.data_dir)),
        "log": lambda: _log(settings),
        "stores": lambda: _stores(settings),
        "graph": lambda: _graph(settings),
        "language model": lambda: _model(settings.llm.model_name, language, None),
        "embedding model": lambda: _model(
            settings.embedding_model, embedding, embedding_choice(settings)
        ),
    }
    findings = []
    for name, check in checks.items():
        try:
            found = check()
            text = found if isinstance(found, str) else await found
            findings.append(Finding(name, True, text))
        except _WrongError as wrong:
            findings.append(Finding(name, False, str(wrong), wrong.advice))
    return findings


def _versions() -> str:
    found = [f"python {platform.python_version()}"]
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _folder(data_dir: Path) -> str:
    where = _existing(data_dir)
    advice = "make it writable, or name another folder with --data-dir"
    if not where.is_dir():
        raise _WrongError(f"{where} is no folder", advice)
    try:
        with tempfile.TemporaryFile(dir=where):
            pass
    except OSError as error:
        raise _WrongError(f"{where} cannot be written: {error.strerror}", advice) from None
    return f"{data_dir} {'is writable' if data_dir.exists() else 'can be made'}"


def _writable(data_dir: Path) -> bool:
    return os.access(_existing(data_dir), os.W_OK)


def _advice(data_dir: Path, otherwise: str) -> str:
    """Returns the advice for a folder that cannot be opened: it must be writable first."""
    return otherwise if _writable(data_dir) else "make the folder writable, then ask again"


def _disk(data_dir: Path, writable: bool) -> str:
    free = shutil.disk_usage(_existing(data_dir)).free
    room = f"{free / 2**30:.1f} GiB free"
    if not writable:
        return f"{room}, not used: see data folder"
    if free < FULL_BYTES:
        raise _WrongError(
            f"full: {free:,} bytes free",
            "make room: nothing can be published or processed until then; reading goes on",
        )
    if free < LEAST_FREE_BYTES:
        raise _WrongError(
            f"{free / 2**20:.1f} MiB free", "make room before it is full: the log grows"
        )
    return room


def _log(settings: Settings) -> str:
    if settings.log.kind == "kafka":
        try:
            from palimpsest.ops.kafka.topics import describe_topics

            states = describe_topics(settings.cluster)
        except ImportError as error:
            raise _WrongError(str(error), install_hint("kafka")) from None
        except LogError as error:
            raise _WrongError(str(error), "start the broker, or correct the address") from None
        wrong = [f"{state.topic}: {what}" for state in states for what in state.differences]
        if wrong:
            raise _WrongError("; ".join(wrong), "see `palimpsest topics describe`")
        return (
            f"kafka at {settings.kafka.bootstrap_servers}, {len(states)} topics as they should be"
        )
    if (lost := lost_log(settings)) is not None:
        raise _WrongError(*lost)
    if not is_begun(settings):
        return "none yet; `palimpsest ingest FILE` makes it"
    try:
        with open_log(settings, "read") as log:
            problems = log.check()
            partitions = log.partitions("conversation-turns")
            turns = sum(log.end_offset("conversation-turns", p) for p in range(partitions))
    except LogError as error:
        advice = _advice(log_folder(settings), "restore the data folder from a copy")
        raise _WrongError(str(error), advice) from None
    if problems:
        raise _WrongError("; ".join(problems), "restore the log from a copy")
    return f"sound, {partitions} partition(s), {counted(turns, 'turns')} published"


def _stores(settings: Settings) -> str:
    folders = sorted(shard_folder(settings, 0).parent.glob("[0-9]*"))
    lost = ", ".join(map(str, _lost(settings, {int(folder.name) for folder in folders})))
    if lost:
        raise _WrongError(
            f"the stores of partition {lost} are gone; the log tells of them", REBUILD
        )
    if not folders:
        return "none yet; `palimpsest run --once` makes them"
    try:
        model = embedding_model(settings)
    except SetupError as error:
        raise _WrongError(str(error), "see the settings embedding.*") from None
    # Only a worker keeps stores open for long; on Kafka nothing else reveals a worker.
    expected = worker_is_there(settings)
    busy = lacking = 0
    for folder in folders:
        try:
            lacking += _store(settings, folder, model)
        except FolderInUse as error:
            if not expected:
                raise _WrongError(str(error), "close what uses it") from None
            busy += 1
    if busy:
        return (
            f"{busy} of {len(folders)} partition(s) in use by a running worker (see"
            " `palimpsest status`)"
        )
    size = sum(f.stat().st_size for f in settings.data_dir.rglob("*") if f.is_file())
    found = f"{len(folders)} partition(s) open and close; the folder takes {size / 2**20:.1f} MiB"
    if lacking:
        found += f"; `palimpsest run` makes the vectors that {counted(lacking, 'memories lack')}"
    return found


def _store(settings: Settings, folder: Path, model: EmbeddingModel) -> int:
    """Returns how many memories lack a vector or token vectors. Raises what is wrong with a store,
    and FolderInUse."""
    try:
        shard = open_shard(settings, int(folder.name), shard_options(settings, model))
        try:
            before = _read_through(settings, shard, int(folder.name))
            options = shard.space.options
            lacking = missing(shard, options.embedding_model, options.dimensions).total
        finally:
            shard.close()
    except (StoreError, StoreDamaged) as error:
        is_damaged = not isinstance(error.__cause__, OSError) and full_disk(error) is None
        advice = _advice(folder, REBUILD if is_damaged else "make room")
        raise _WrongError(str(error), advice) from None
    if before not in (None, model.model):
        raise _WrongError(
            f"vectors of {folder} are of {before}, embedding is {model.model}: what is stored"
            " is found by keywords only",
            "set embedding.model to the model that the store was made with, or let `palimpsest"
            " run` embed it again",
        )
    return lacking


def _graph(settings: Settings) -> str:
    if settings.graph.is_only_read:
        return f"warning: {GRAPH_IS_ONLY_READ}"
    return "searched, and written from turns" if settings.graph.enabled else "off: graph.enabled"


def _lost(settings: Settings, there: set[int]) -> list[int]:
    """Returns the partitions of an embedded log whose store is missing."""
    if settings.log.kind == "kafka" or not is_begun(settings):
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
    if settings.log.kind != "kafka" and is_begun(settings):
        with open_log(settings, "read") as log:
            check_shard(log, partition, shard)
            cursors = [
                (topic.name, shard.cursor_of(stage.name, topic.name))
                for stage in stages(settings)
                if stage.stateful
                for topic in stage.reads
            ]
            if (wrong := ahead_of_log(log, partition, cursors)) is not None:
                found, _, advice = wrong.partition(". ")
                raise _WrongError(found, advice)
    with shard.reading() as reader:
        state_hash(reader)
    # What a command has chosen does not depend on the settings.
    return shard.state(EMBEDDING_STATE) if shard.embedding is None else None


async def _model(
    name: str, make: Callable[[], LanguageModel | EmbeddingModel], why: str | None
) -> str:
    try:
        model = make()
        try:
            wrong = await model.check()
        finally:
            await model.close()
    except SetupError as error:
        wrong = str(error)
    if wrong is not None:
        raise _WrongError(wrong, "see the settings llm.* and embedding.*")
    return f"{name} answers" + (f", {why}" if why else "")
