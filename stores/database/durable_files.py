"""Files that a crash leaves whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Whoever reads the file sees all of it, or what was there before, also after the machine has
    ended; of several who write at once the last one counts. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    synced(path.parent)


def synced(path: Path) -> None:
    """Let a file's content, or the names in a folder, reach the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
