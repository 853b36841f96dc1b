"""Where branches stand: what the live memory has that is not in them yet."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from palimpsest.ops.errors import RequestError
from palimpsest.ops.log_folder import log_lock, worker_runs
from palimpsest.ops.opening import number_of
from palimpsest.ops.replay.branches import (
    Branch,
    branch_settings,
    branches,
    drop_branch,
    read_branch,
)
from palimpsest.ops.replay.erased_branches import reached
from palimpsest.ops.replay.live_log import blocks, decoded
from palimpsest.ops.replay.recorded import reading_log
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand
from palimpsest.schemas.messages import CommandIntent, MemoryWrite
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.logs.base import LogReader, Record


def check_log(branch: Branch, log: LogReader) -> None:
    """Raises RequestError for a branch whose offsets are those of another log."""
    if (branch.partitions, branch.of_log) != (log.partitions(MEMORY_WRITES.name), number_of(log)):
        raise RequestError(
            f"the branch {branch.name} was made of another log than the live one is now, with"
            f" {branch.partitions} partitions: it can be read and compared, and nothing else."
            f" Remove it with `palimpsest replay drop {branch.name}` and make it again; what models"
            " replied is recorded"
        )


@dataclass(frozen=True, slots=True)
class BranchStatus:
    """`behind` are records of the live memory-writes that the branch has not read, `erasures` the
    commands among them that erase texts and have not reached the branch otherwise."""

    branch: Branch
    behind: int
    erasures: int

    def as_json(self) -> dict[str, JsonValue]:
        return {**self.branch.as_json(), "behind": self.behind, "erasures": self.erasures}


def standings(settings: Settings) -> list[BranchStatus]:
    """Of all branches, by name. Raises RequestError and LogError."""
    found = branches(settings)
    if not found:
        return []
    with reading_log(settings) as reader:
        return [_standing(settings, branch, reader) for branch in found]


def _standing(settings: Settings, branch: Branch, reader: LogReader) -> BranchStatus:
    behind = erasures = 0
    # Of another log no one knows how much of this one it has.
    same = branch.of_log == number_of(reader)
    read = branch.read_through if same else {}
    through = reached(settings, branch.name).through if same else {}
    for number in range(reader.partitions(MEMORY_WRITES.name)):
        end = reader.end_offset(MEMORY_WRITES.name, number)
        first = read.get(number, 0)
        behind += max(0, end - first)
        first = max(first, through.get(number, 0))
        for records in blocks(reader, MEMORY_WRITES, number, first, end):
            erasures += sum(map(_erases, records))
    return BranchStatus(branch, behind, erasures)


def _erases(record: Record) -> bool:
    message = decoded(record)
    write = message.body.write if message and isinstance(message.body, MemoryWrite) else None
    command = write.command if isinstance(write, CommandIntent) else None
    return isinstance(command, EraseScopeCommand) or (
        isinstance(command, ForgetCommand) and bool(command.hard)
    )


def drop_unused(settings: Settings, name: str) -> None:
    """Remove a branch. Raises NotFoundError, and RequestError for one that a process works on."""
    branch = read_branch(settings, name)
    if worker_runs(log_lock(branch_settings(settings, branch))):
        raise RequestError(f"a process works on the branch {name}; stop it first")
    drop_branch(settings, name)
