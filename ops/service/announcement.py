"""Where a worker's local interface listens: a file that the worker writes and readers find.

Readers import this module, not the server."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from palimpsest.ops.log_folder import write_private

FILE_NAME = "worker.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """Address and secret of a worker's local interface."""

    pid: int
    port: int
    token: str


def announce(folder: Path, announcement: Announcement) -> Path:
    path = folder / FILE_NAME
    write_private(path, json.dumps(asdict(announcement)))
    return path


def announced(folder: Path) -> Announcement | None:
    """Reads the file; None if it is missing or incomplete."""
    try:
        content = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        return Announcement(int(content["pid"]), int(content["port"]), str(content["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def workers_folder(data_dir: Path) -> Path:
    return data_dir / "workers"


def own_folder(data_dir: Path) -> Path:
    """Creates the folder in which this process announces itself, readable only by its user."""
    folder = workers_folder(data_dir) / str(os.getpid())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def announcements(data_dir: Path) -> dict[str, str]:
    """Addresses and tokens of the running workers that share this folder."""
    places: dict[str, str] = {}
    folder = workers_folder(data_dir)
    for announcing in sorted(folder.glob("*/")) if folder.is_dir() else []:
        announcement = announced(announcing)
        if announcement is not None and _runs(announcement.pid):
            places[f"http://127.0.0.1:{announcement.port}"] = announcement.token
    return places


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
