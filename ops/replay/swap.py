"""Exchanging live folders for those of a branch: all or none, whenever the process ends.

`swap.json` in the data folder says what is exchanged. From the moment at which it lies there
whole, the exchange is decided; who opens log or stores next carries out what is left of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from palimpsest.schemas.envelope import Frozen

SWAP_FILE: Final = "swap.json"
LOCK_FILE: Final = "swap.lock"
BRANCHES: Final = "branches"


class Swap(Frozen):
    """`folders`, as `shards/0`, of the branch take the place of the live ones, which then lie in
    the branch `kept`."""

    branch: str
    kept: str
    folders: tuple[str, ...]


def swap_folders(data_dir: Path, swap: Swap) -> None:
    """Exchange; who calls sees to it that nobody has them open. Raises OSError: where the disk was
    full before all was decided, nothing has changed."""
    with _locked(data_dir):
        _write(data_dir / SWAP_FILE, swap.model_dump_json().encode())
        _carry_out(data_dir)


def finish_swap(data_dir: Path) -> None:
    """Carry out what is left of an exchange that was interrupted, or wait for one under way. Before
    log or stores are opened."""
    if (data_dir / SWAP_FILE).exists():
        with _locked(data_dir):
            _carry_out(data_dir)


def _carry_out(data_dir: Path) -> None:
    """Every step tells by what lies where whether it was done."""
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
    # Before all is said to be done: the branch has no stores any more.
    shutil.rmtree(data_dir / BRANCHES / swap.branch, ignore_errors=True)
    path.unlink()
    _synced(data_dir)


def _moved(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    _synced(target.parent)
    _synced(source.parent)


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _synced(path.parent)


def _synced(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
