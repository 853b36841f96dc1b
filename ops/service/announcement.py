"""The file that announces the address of a folder's worker; only its user may read it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "worker.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """Address and secret of a worker's local interface."""

    pid: int
    port: int
    token: str


def announce(folder: Path, announcement: Announcement) -> Path:
    """Writes the file atomically, with mode 0600 from its first byte."""
    path = folder / FILE_NAME
    fresh = folder / f"{FILE_NAME}.{announcement.pid}"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(
            {"pid": announcement.pid, "port": announcement.port, "token": announcement.token},
            file,
        )
    fresh.replace(path)
    return path


def announced(folder: Path) -> Announcement | None:
    """Reads the file; None if it is missing or incomplete."""
    try:
        content = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        return Announcement(int(content["pid"]), int(content["port"]), str(content["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
