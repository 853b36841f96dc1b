"""A branch's log with its stores in the place of the live ones, which become a branch like it."""

from __future__ import annotations

from typing import Final

from palimpsest.ops.embedded import open_log
from palimpsest.ops.log_folder import log_folder
from palimpsest.ops.parts import utc_now
from palimpsest.ops.queries.errors import RequestError
from palimpsest.ops.replay.branches import (
    Branch,
    branch_folder,
    branch_settings,
    drop_branch,
    keep_branch,
    read_branch,
)
from palimpsest.ops.replay.exchanging import check_log_is_closed, kept_name, shards_locked
from palimpsest.ops.replay.processed import as_of
from palimpsest.ops.replay.swap import Swap, swap_folders
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import LogError
from palimpsest.streams.logs.embedded import EmbeddedLog

FOLDERS: Final = ("log", "shards")
SOURCE_FILE: Final = "dealt-from"
"""In the folder of a log that was never live: as of when the one was that it was written from."""


def exchange_log(settings: Settings, name: str, now: str) -> str:
    """The branch that has from now on what was live, `as_of` then. While no worker runs. Blocks.
    Raises RequestError and LogError, and then nothing has changed."""
    branch = read_branch(settings, name)
    with open_log(branch_settings(settings, branch), "read") as new:
        numbers = range(branch.partitions)
        read = {number: new.end_offset(MEMORY_WRITES.name, number) for number in numbers}
        of_log = new.number()
    with open_log(settings, "read") as log:
        partitions = log.partitions(MEMORY_WRITES.name)
    kept = Branch(
        name=kept_name(),
        kind="rebuild",
        created_at=utc_now(),
        partitions=partitions,
        read_through=read,
        whole=True,
        of_log=of_log,
        has_log=True,
    )

    def check() -> None:
        _check_unchanged(settings, now)
        (branch_folder(settings, name) / "log" / SOURCE_FILE).unlink(missing_ok=True)

    keep_branch(settings, kept)
    try:
        with shards_locked(settings, range(partitions)):
            swap = Swap(branch=name, kept=kept.name, folders=FOLDERS)
            swap_folders(settings.data_dir, swap, check)
    except (RequestError, LogError):  # before anything was decided
        drop_branch(settings, kept.name)
        raise
    return kept.name


def _check_unchanged(settings: Settings, now: str) -> None:
    """No one has the log open, and no one has appended to it since it was looked at."""
    check_log_is_closed(settings)
    # Not by `open_log`, which waits for the end of an exchange.
    with EmbeddedLog.open(log_folder(settings), None, utc_now, "read") as log:
        if as_of(log) != now:
            raise RequestError(
                "something came into the log meanwhile. Run `palimpsest run --once`, then this"
                " again"
            )
