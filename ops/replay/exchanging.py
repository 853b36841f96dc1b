"""Who must not work while live folders are exchanged, and where what was live goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from palimpsest.ops.errors import RequestError
from palimpsest.ops.folder_swap import unexchanged
from palimpsest.ops.log_folder import log_folder, log_lock
from palimpsest.ops.parts import shard_folder, utc_now
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.lock import FolderInUse
from palimpsest.stores.lock import FolderLock as ShardLock
from palimpsest.streams.logs.base import LogInUse
from palimpsest.streams.logs.lock import FolderLock
from palimpsest.streams.logs.logfile import FILE_NAME, is_alone

READERS_SECONDS = 10.0
"""How long a reader may have a log or store open that is to be exchanged."""
STOP_FIRST = (
    "To swap, stop the worker, say the same again (it goes on from where it is), and start the"
    " worker"
)


@contextlib.contextmanager
def without_worker(settings: Settings, advice: str = STOP_FIRST) -> Iterator[None]:
    """No worker runs here and none begins. On Kafka that is known by the folders of the stores
    alone. Raises RequestError, with the `advice`."""
    if settings.log.kind == "kafka":
        yield
        return
    try:
        with unexchanged(settings.data_dir):
            lock = FolderLock.acquire(log_lock(settings), utc_now())
    except LogInUse as error:
        raise RequestError(f"{error}. {advice}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def shards_locked(settings: Settings, partitions: Iterable[int]) -> Iterator[None]:
    """No one has these live stores open. Raises RequestError."""
    with contextlib.ExitStack() as undo:
        for partition in partitions:
            folder = shard_folder(settings, partition)
            if folder.exists():
                undo.callback(_lock_of(folder).release)
        yield


def _lock_of(folder: Path) -> ShardLock:
    deadline = time.monotonic() + READERS_SECONDS
    while True:
        try:
            return ShardLock(folder, "shard")
        except FolderInUse as error:
            if time.monotonic() > deadline:
                raise RequestError(f"{error}. {STOP_FIRST}") from error
            time.sleep(0.02)


def check_log_is_closed(settings: Settings) -> None:
    """Wait until no one has the live log open, to write or to read. Raises RequestError."""
    deadline = time.monotonic() + READERS_SECONDS
    while not is_alone(log_folder(settings) / FILE_NAME):
        if time.monotonic() > deadline:
            raise RequestError(
                f"another process has the log in {log_folder(settings)} open, to publish or to"
                " read, and what it appends would be lost. End it, and say the same again"
            )
        time.sleep(0.02)


def kept_name() -> str:
    """That of the branch which what is live now will lie in."""
    now = utc_now()
    return f"replaced-{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}"
