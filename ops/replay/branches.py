"""Branches: stores next to the live one, each in its own data folder; and what the live memory has
that is not in them yet.

A branch lies in `<data_dir>/branches/<name>`. It is an ordinary data folder with an embedded log
and one shard per partition, so that any reader of the live memory reads a branch with different
settings alone. `branch.json` describes it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.log_folder import log_lock
from palimpsest.ops.opening import number_of
from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.log_reading import command_of, decoded, reading_log, recorded
from palimpsest.ops.replay.requests import NAME, check_name
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import EraseScopeCommand, ForgetCommand
from palimpsest.schemas.envelope import Frozen
from palimpsest.schemas.failures import describe
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.stores.database.durable_files import write_whole
from palimpsest.stores.lock import FolderInUse, FolderLock
from palimpsest.streams.logs.base import LogReader, Record
from palimpsest.streams.logs.file_lock import is_held

BRANCH_FILE = "branch.json"
COPIES = "live"
"""The subfolder of a rebuild that holds copies of live stores while they are needed."""
WORKING = "rebuild"
"""The name of the lock of a process that builds a branch's stores."""
REMOVED = ".removed"
"""The suffix of a branch's folder while it is being removed."""


class TurnSelection(Frozen):
    """Which turns are extracted from again: those of `scope`, told at `since` or later and before
    `until`, and of these `sample` that are spread evenly by a hash of their ids. None: all."""

    scope: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    sample: int | None = Field(default=None, ge=1)

    def has(self, scope: str, told: datetime) -> bool:
        """Whether a turn of this scope and time is within the scope and the time."""
        return (
            self.scope in (None, scope)
            and (self.since is None or told >= self.since)
            and (self.until is None or told < self.until)
        )


class BranchManifest(Frozen):
    """What a branch is. `settings` are those that differ from the live ones, as `--set` takes
    them. `read_through` is the next offset of memory-writes to read of each partition of the live
    log; `whole`: all up to there is executed in the branch. `of_log` is the number of the log of
    which these are offsets, `has_log`: the branch has a whole log of its own, and can take the
    place of the live one with it; `made_from`: that log was never live, and was made from the live
    one with this fingerprint. `promotion` is the id of one that is not done in all scopes yet."""

    name: str = Field(pattern=rf"^{NAME.pattern}$")
    kind: Literal["rebuild", "reextraction"] = "rebuild"
    created_at: datetime = Field(default_factory=utc_now)
    partitions: int = Field(ge=1)
    settings: tuple[str, ...] = ()
    selection: TurnSelection | None = None
    read_through: dict[int, int] = Field(default_factory=dict)
    whole: bool = False
    of_log: int = 0
    has_log: bool = False
    made_from: str = ""
    promotion: str = ""


def branch_folder(settings: Settings, name: str) -> Path:
    """Returns the folder of a branch. Raises RequestError for an invalid name."""
    check_name(name)
    return settings.data_dir / "branches" / name


def branch_settings(settings: Settings, branch: BranchManifest) -> Settings:
    """Returns the settings for writing and reading a branch."""
    from palimpsest.ops.settings.sources import with_overrides

    own = with_overrides(settings, branch.settings)
    log = own.log.model_copy(update={"kind": "embedded", "partitions": branch.partitions})
    # The live pipeline wrote the output of these; it is read from there.
    pipeline = own.pipeline.model_copy(update={"shadow_deciders": ()})
    short_term = own.short_term.model_copy(update={"summarize": False})
    # The turns were traced when they came.
    telemetry = own.telemetry.model_copy(update={"traces": False})
    folder = branch_folder(settings, branch.name)
    sections = {"log": log, "pipeline": pipeline, "short_term": short_term, "telemetry": telemetry}
    return own.model_copy(update={"data_dir": folder, **sections})


def keep_branch(settings: Settings, branch: BranchManifest, **changes: object) -> BranchManifest:
    """Writes `branch.json` atomically, with these changes. Returns the changed branch."""
    branch = branch.model_copy(update=changes)
    folder = branch_folder(settings, branch.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / BRANCH_FILE, branch.model_dump_json(indent=2).encode())
    return branch


def read_branch(settings: Settings, name: str) -> BranchManifest:
    """Reads `branch.json`. Raises NotFoundError, and RequestError for an invalid file."""
    unknown = NotFoundError(f"there is no branch {name}; `palimpsest replay branches` lists them")
    if not NAME.fullmatch(name):
        raise unknown
    path = branch_folder(settings, name) / BRANCH_FILE
    try:
        return BranchManifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise unknown from None
    except ValidationError as error:
        raise RequestError(f"{path} is not the file of a branch: {describe(error)}") from error


def another_branch(name: str) -> RequestError:
    return RequestError(
        f"the branch {name} is another one; choose another --name, or remove it with"
        f" `palimpsest replay drop {name}`"
    )


def readable_branch(settings: Settings, name: str) -> BranchManifest:
    """Returns a branch for reading. Raises NotFoundError, and RequestError while its stores are
    incomplete."""
    branch = read_branch(settings, name)
    if branch.kind == "rebuild" and not branch.whole:
        raise RequestError(
            f"the branch {name} is not finished, so that it would not tell all: say the command"
            " again that made it, and it goes on"
        )
    return branch


def branch_names(settings: Settings) -> list[str]:
    """Returns the names of all branches, in order."""
    files = (settings.data_dir / "branches").glob(f"*/{BRANCH_FILE}")
    return sorted(file.parent.name for file in files)


def drop_branch(settings: Settings, name: str) -> None:
    """Removes a branch with all its files. Raises NotFoundError."""
    read_branch(settings, name)
    folder = branch_folder(settings, name)
    gone = folder.with_name(f".{name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


@contextlib.contextmanager
def locked(folder: Path, name: str, busy: str) -> Iterator[None]:
    """Holds a lock of the folder, which is made if there is none. Raises RequestError, with `busy`,
    while another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FolderLock(folder, name)
    except FolderInUse as error:
        raise RequestError(busy) from error
    try:
        yield
    finally:
        lock.release()


# --- erasures in branches -------------------------------------------------------------------------

REACHED_FILE: Final = "erased.json"


class Reached(Frozen):
    """The erasures that have reached a branch: `digest` covers all of them, made before `through`
    (next offsets of the live memory-writes by partition). `is_changed`: they changed stores of a
    rebuild, so that its fold cannot continue."""

    digest: str = ""
    through: dict[int, int] = Field(default_factory=dict)
    is_changed: bool = False


def reached(settings: Settings, name: str) -> Reached:
    """Returns the erasures that reached a branch: none if its file is missing or unreadable."""
    path = branch_folder(settings, name) / REACHED_FILE
    try:
        return Reached.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return Reached()


def without_stores(settings: Settings, branch: BranchManifest) -> BranchManifest:
    """Removes the stores of a branch, which the caller has locked, and returns it without them."""
    # First, so that nothing takes half of the stores for all.
    fresh = keep_branch(settings, branch, read_through={}, whole=False)
    folder = branch_folder(settings, branch.name)
    # The branch's own incomplete log was being written from the live one.
    logs = ("log", "log.partial", "before") if branch.has_log else ()
    for name in ("shards", COPIES, *logs):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / REACHED_FILE).unlink(missing_ok=True)
    return fresh


def remove_leftovers(settings: Settings) -> None:
    """Removes the rest of branches whose removal was interrupted."""
    for folder in (settings.data_dir / "branches").glob(f".*{REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)


# --- status ---------------------------------------------------------------------------------------


def check_log(branch: BranchManifest, log: LogReader) -> None:
    """Raises RequestError for a branch whose offsets are those of another log."""
    if (branch.partitions, branch.of_log) != (log.partitions(MEMORY_WRITES.name), number_of(log)):
        raise RequestError(
            f"the branch {branch.name} was made of another log than the live one is now, with"
            f" {branch.partitions} partitions: it can be read and compared, and nothing else."
            f" Remove it with `palimpsest replay drop {branch.name}` and make it again; what models"
            " replied is recorded"
        )


def records_behind(read_through: Mapping[int, int], log: LogReader) -> int:
    """Returns how many records of the live memory-writes are not read yet."""
    return sum(
        max(0, log.end_offset(MEMORY_WRITES.name, number) - read_through.get(number, 0))
        for number in range(log.partitions(MEMORY_WRITES.name))
    )


def branch_statuses(settings: Settings) -> list[JsonObject]:
    """Returns all branches by name, as programs are told of them. `behind` are records of the live
    memory-writes that the branch has not read, `erasures` the commands among them that erase texts
    and have not reached the branch otherwise. Raises RequestError and LogError."""
    found = [read_branch(settings, name) for name in branch_names(settings)]
    if not found:
        return []
    with reading_log(settings) as reader:
        return [_status_of(settings, branch, reader) for branch in found]


def _status_of(settings: Settings, branch: BranchManifest, reader: LogReader) -> JsonObject:
    # Of another log no one knows how much of this one it has.
    is_same = branch.of_log == number_of(reader)
    read = branch.read_through if is_same else {}
    through = reached(settings, branch.name).through if is_same else {}
    erasures = 0
    for number in range(reader.partitions(MEMORY_WRITES.name)):
        first = max(read.get(number, 0), through.get(number, 0))
        erasures += sum(map(_erases, recorded(reader, MEMORY_WRITES.name, number, first)))
    own = {"of_log", "has_log", "made_from", "promotion"}
    told: JsonObject = branch.model_dump(mode="json", exclude=own)
    return {**told, "behind": records_behind(read, reader), "erasures": erasures}


def _erases(record: Record) -> bool:
    if not any(word in (record.value or b"") for word in (b"erase-scope", b'"hard"')):
        return False  # without decoding it
    command = command_of(decoded(record))
    return isinstance(command, EraseScopeCommand) or (
        isinstance(command, ForgetCommand) and bool(command.hard)
    )


def drop_unused(settings: Settings, name: str) -> None:
    """Remove a branch. Raises NotFoundError, and RequestError for one that a process works on."""
    branch = read_branch(settings, name)
    if is_held(log_lock(branch_settings(settings, branch))):
        raise RequestError(f"a process works on the branch {name}; stop it first")
    drop_branch(settings, name)
