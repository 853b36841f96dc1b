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
from palimpsest.stores.durable_files import synced, write_whole

SWAP_FILE: Final = "swap.json"
BRANCHES: Final = "branches"


class Swap(Frozen):
    """`folders`, as `shards/0` or `log`, of the branch take the place of the live ones, which then
    lie in the branch `kept`."""

    branch: str
    kept: str
    folders: tuple[str, ...]


def swap_folders(data_dir: Path, swap: Swap, check: Callable[[], object] = lambda: None) -> None:
    """Exchange; who calls sees to it that no one has them open, by `check` too: while that is
    called no one opens any, and what it raises ends all. Raises OSError: where the disk was full
    before all was decided, nothing has changed."""
    with _locked(data_dir, fcntl.LOCK_EX):
        check()
        write_whole(data_dir / SWAP_FILE, swap.model_dump_json().encode())
        _carry_out(data_dir)


def finish_swap(data_dir: Path) -> None:
    """Carry out what is left of an exchange that was interrupted, or wait for one under way."""
    if (data_dir / SWAP_FILE).exists():
        with _locked(data_dir, fcntl.LOCK_EX):
            _carry_out(data_dir)


@contextlib.contextmanager
def unexchanged(data_dir: Path) -> Iterator[None]:
    """A block in which log or stores are opened: nothing is left of an exchange, and none begins
    before its end."""
    while data_dir.exists():
        finish_swap(data_dir)
        with _locked(data_dir, fcntl.LOCK_SH):
            if not (data_dir / SWAP_FILE).exists():
                yield
                return
    yield  # there is nothing that could be exchanged


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
