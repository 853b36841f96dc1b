"""Where the embedded log of a memory lies: known without loading what works on it."""

from __future__ import annotations

from pathlib import Path

from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.logs.lock import LOCK_NAME


def log_folder(settings: Settings) -> Path:
    return settings.data_dir / "log"


def has_log(settings: Settings) -> bool:
    return (log_folder(settings) / "log.sqlite").exists()


def log_lock(settings: Settings) -> Path:
    """The file that a worker of the folder has locked."""
    return log_folder(settings) / LOCK_NAME
