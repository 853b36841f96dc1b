"""The workers that share a data folder, and their announcements."""

from __future__ import annotations

import os
from pathlib import Path

from palimpsest.ops.service.announcement import announced


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
