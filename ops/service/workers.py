"""The workers that share a data folder, and where each of them announces itself."""

from __future__ import annotations

import os
from pathlib import Path

from palimpsest.ops.service.announcement import announced


def workers_folder(data_dir: Path) -> Path:
    return data_dir / "workers"


def own_folder(data_dir: Path) -> Path:
    """Where this process announces itself; made, with no one else's permission to look."""
    folder = workers_folder(data_dir) / str(os.getpid())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def announcements(data_dir: Path) -> dict[str, str]:
    """Address and token of the workers that share this folder and are running."""
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
