"""Paths of the embedded log, without importing the modules that work on it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.file_lock import is_held
from palimpsest.streams.logs.logfile import LOCK_NAME


def log_folder(settings: Settings) -> Path:
    return settings.data_dir / "log"


def has_log(settings: Settings) -> bool:
    return (log_folder(settings) / "log.sqlite").exists()


def is_begun(settings: Settings) -> bool:
    """Whether the log has any content; a file that was only just created has none."""
    path = log_folder(settings) / "log.sqlite"
    return path.exists() and path.stat().st_size > 0


def lost_log(settings: Settings) -> tuple[str, str] | None:
    """What is wrong where stores are there and the log that they were made from is not, and what to
    do; else None. A new log in its place would belong to none of them."""
    stores = settings.data_dir / "shards"
    if settings.log.kind == "kafka" or is_begun(settings) or not any(stores.glob("[0-9]*/*")):
        return None
    state = "is empty" if has_log(settings) else "is missing"
    return (
        f"log {log_folder(settings) / 'log.sqlite'} {state}, but the stores in {stores} were made"
        " from it",
        "restore it from a copy of the data folder, or restore log and snapshot in a new folder"
        " (`palimpsest restore --help`)",
    )


def log_lock(settings: Settings) -> Path:
    """Returns the file that a worker of the folder locks."""
    return log_folder(settings) / LOCK_NAME


def worker_is_there(settings: Settings) -> bool:
    """Whether a worker executes commands now; on Kafka one is assumed."""
    return settings.log.kind == "kafka" or is_held(log_lock(settings))


def make_private(folder: Path) -> None:
    """Creates the data folder, or restricts it to its owner: no other user of the machine may
    access it or its files. Files that this user does not own stay unchanged."""
    for each in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
    with contextlib.suppress(PermissionError):
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
            for path in (folder / "log").glob("*"):
                path.chmod(0o600)
            for path in folder.rglob("*.duckdb*"):
                path.chmod(0o600)


def write_private(path: Path, text: str) -> None:
    """Writes the file atomically, readable by its user alone from its first byte. Raises
    OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
