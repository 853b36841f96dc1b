"""Branches: stores next to the live one, each in its own data folder.

A branch lies in `<data_dir>/branches/<name>`. It is an ordinary data folder with an embedded log
and one shard per partition, so that any reader of the live memory reads a branch with different
settings alone. `branch.json` describes it.
"""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError

from palimpsest.ops.errors import NotFoundError, RequestError
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.codec import describe
from palimpsest.schemas.envelope import Frozen
from palimpsest.stores.durable_files import write_whole

BRANCH_FILE = "branch.json"
COPIES = "live"
"""The subfolder of a rebuild that holds copies of live stores while they are needed."""
WORKING = "rebuild"
"""The name of the lock of a process that builds a branch's stores."""
REMOVED = ".removed"
"""The suffix of a branch's folder while it is being removed."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

BranchName = Annotated[str, Field(pattern=rf"^{_NAME.pattern}$")]


class Selection(Frozen):
    """Which turns are extracted from again: those of `scope`, told at `since` or later and before
    `until`, and of these `sample` that are spread evenly by a hash of their ids. None: all."""

    scope: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    sample: int | None = Field(default=None, ge=1)


class Branch(Frozen):
    """What a branch is. `settings` are those that differ from the live ones, as `--set` takes
    them. `read_through` is the next offset of memory-writes to read of each partition of the live
    log; `whole`: all up to there is executed in the branch. `of_log` is the number of the log of
    which these are offsets, `has_log`: the branch has a whole log of its own, and can take the
    place of the live one with it."""

    name: BranchName
    kind: Literal["rebuild", "reextraction"]
    created_at: datetime
    partitions: int = Field(ge=1)
    settings: tuple[str, ...] = ()
    selection: Selection | None = None
    read_through: dict[int, int] = Field(default_factory=dict)
    whole: bool = False
    of_log: int = 0
    has_log: bool = False

    def as_json(self) -> dict[str, JsonValue]:
        """As programs are told of it."""
        told: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"of_log", "has_log"})
        return told


def branch_folder(settings: Settings, name: str) -> Path:
    """Returns the folder of a branch. Raises RequestError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot name a branch: lower-case letters, digits, '.', '_' and '-', at most"
            " 64, beginning with a letter or digit"
        )
    return settings.data_dir / "branches" / name


def branch_settings(settings: Settings, branch: Branch) -> Settings:
    """Returns the settings for writing and reading a branch."""
    from palimpsest.ops.settings.sources import with_overrides

    own = with_overrides(settings, branch.settings)
    log = own.log.model_copy(update={"kind": "embedded", "partitions": branch.partitions})
    # The live pipeline wrote the output of these; it is read from there.
    pipeline = own.pipeline.model_copy(update={"shadow_deciders": ()})
    short_term = own.short_term.model_copy(update={"summarize": False})
    folder = branch_folder(settings, branch.name)
    return own.model_copy(
        update={"data_dir": folder, "log": log, "pipeline": pipeline, "short_term": short_term}
    )


def keep_branch(settings: Settings, branch: Branch) -> None:
    """Writes `branch.json` atomically."""
    folder = branch_folder(settings, branch.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / BRANCH_FILE, branch.model_dump_json(indent=2).encode())


def read_branch(settings: Settings, name: str) -> Branch:
    """Reads `branch.json`. Raises NotFoundError, and RequestError for an invalid file."""
    unknown = NotFoundError(f"there is no branch {name}; `palimpsest replay branches` lists them")
    if not _NAME.fullmatch(name):
        raise unknown
    path = branch_folder(settings, name) / BRANCH_FILE
    try:
        return Branch.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise unknown from None
    except ValidationError as error:
        raise RequestError(f"{path} is not the file of a branch: {describe(error)}") from error


def readable_branch(settings: Settings, name: str) -> Branch:
    """Returns a branch for reading. Raises NotFoundError, and RequestError while its stores are
    incomplete."""
    branch = read_branch(settings, name)
    if branch.kind == "rebuild" and not branch.whole:
        raise RequestError(
            f"the branch {name} is not finished, so that it would not tell all: say the command"
            " again that made it, and it goes on"
        )
    return branch


def branches(settings: Settings) -> list[Branch]:
    """Returns all branches, by name."""
    files = sorted((settings.data_dir / "branches").glob(f"*/{BRANCH_FILE}"))
    return [read_branch(settings, file.parent.name) for file in files]


def drop_branch(settings: Settings, name: str) -> None:
    """Removes a branch with all its files. Raises NotFoundError."""
    read_branch(settings, name)
    folder = branch_folder(settings, name)
    gone = folder.with_name(f".{name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)
