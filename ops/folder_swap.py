"""Exchanging live folders for those of a branch: all or none, whenever the process ends.

`swap.json` in the data folder says what is exchanged. From the moment at which it lies there
whole, the exchange is decided; who opens log or stores next carries out what is left of it. While
they are being opened nothing is exchanged: the data folder itself is locked, by them together or
by one who exchanges alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from palimpsest.schemas.envelope import Frozen
from palimpsest.stores.database.durable_files import synced, write_whole

SWAP_FILE: Final = "swap.json"
BRANCHES: Final = "branches"


class Swap(Frozen):
    """`folders`, as `shards/0` or `log`, of the branch take the place of the live ones, which then
    lie in the branch `kept`."""

    branch: str
    kept: str
    folders: tuple[str, ...]


def swap_folders(data_dir: Path, swap: Swap, check: Callable[[], object] = lambda: None) -> None:
    """Exchanges the folders. The caller ensures that no process has them open, also through
    `check`: none can open them while it runs, and its errors abort the exchange. Raises OSError; if
    the disk is full before the exchange is recorded, nothing has changed."""
    with _locked(data_dir, fcntl.LOCK_EX):
        check()
        write_whole(data_dir / SWAP_FILE, swap.model_dump_json().encode())
        _execute(data_dir)


def finish_swap(data_dir: Path) -> None:
    """Completes an interrupted exchange, or waits for a running one."""
    if (data_dir / SWAP_FILE).exists():
        with _locked(data_dir, fcntl.LOCK_EX):
            _execute(data_dir)


@contextlib.contextmanager
def unexchanged(data_dir: Path) -> Iterator[None]:
    """A block in which log or stores are opened: no exchange is incomplete, and none begins before
    the block ends."""
    while data_dir.exists():
        finish_swap(data_dir)
        with _locked(data_dir, fcntl.LOCK_SH):
            if not (data_dir / SWAP_FILE).exists():
                yield
                return
    yield  # without a data folder there is nothing to exchange


def _execute(data_dir: Path) -> None:
    """Completes the exchange. The positions of the folders show which steps are done."""
    path = data_dir / SWAP_FILE
    try:
        swap = Swap.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return
    for folder in swap.folders:
        live = data_dir / folder
        new = data_dir / BRANCHES / swap.branch / folder
        kept = data_dir / BRANCHES / swap.kept / folder
        if not new.exists():
            continue
        if live.exists():
            _moved(live, kept)
        _moved(new, live)
    # Before the exchange is marked as done: the branch has no stores left.
    shutil.rmtree(data_dir / BRANCHES / swap.branch, ignore_errors=True)
    path.unlink()
    synced(data_dir)


def _moved(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    synced(target.parent)
    synced(source.parent)


@contextlib.contextmanager
def _locked(data_dir: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
