"""Background replays: each runs in its own process, which outlives the process that started it.

Each has a folder in `<data_dir>/replays` with its order, its progress and its end. It runs as long
as its process holds the lock of the folder, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from palimpsest.ops.errors import NotFoundError, RequestError, UnavailableError
from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.branches import BranchName
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import flattened
from palimpsest.schemas.codec import describe
from palimpsest.schemas.envelope import Frozen, UtcTime
from palimpsest.stores.lock import FolderInUse, FolderLock

# --- orders ---------------------------------------------------------------------------------------
# The orders by which programs start background replays.

Count = Annotated[int, Field(ge=1)]


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RebuildOrder(_Order):
    """Fold the log into new stores, and compare them with the live ones. `name`: that of the branch
    that they become; `until`: as of this time, or this offset of memory-writes in `partition`."""

    kind: Literal["rebuild"] = "rebuild"
    name: BranchName = "rebuild"
    until: UtcTime | Annotated[int, Field(ge=0)] | None = None
    partition: Annotated[int, Field(ge=0)] | None = None


class ReextractOrder(_Order):
    """Extract from turns anew, into a branch. The model is one of a provider as it is set: an
    address is given by the operator's settings alone, since keys are sent there."""

    kind: Literal["reextract"] = "reextract"
    branch: BranchName
    provider: Literal["rules", "ollama", "openai", "anthropic"] | None = None
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    scope: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    since: UtcTime | None = None
    until: UtcTime | None = None
    sample: Count | None = None
    rate: Annotated[float, Field(gt=0)] | None = None
    budget_tokens: Count | None = None
    dry_run: bool = False


class DiffOrder(_Order):
    """Compare a branch with the live memory."""

    kind: Literal["diff"] = "diff"
    branch: BranchName


class PromoteOrder(_Order):
    """Carry a branch's differences over into the live memory. `allow_loss`: also where live facts
    have no counterpart and are forgotten. `catch_up`: it first reads what came in since."""

    kind: Literal["promote"] = "promote"
    branch: BranchName
    dry_run: bool = False
    allow_loss: bool = False
    catch_up: bool = True


class RollbackOrder(_Order):
    """Take back a promotion."""

    kind: Literal["rollback"] = "rollback"
    promotion: Annotated[str, Field(min_length=1, max_length=64)]


Order = Annotated[
    RebuildOrder | ReextractOrder | DiffOrder | PromoteOrder | RollbackOrder,
    Field(discriminator="kind"),
]
_ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


def order_of(given: JsonObject) -> Order:
    """Returns the validated order. Raises RequestError for an invalid one."""
    try:
        return _ORDERS.validate_python({**given, **_times(given)})
    except ValidationError as error:
        raise RequestError(f"this is no replay: {describe(error)}") from error


def _times(given: JsonObject) -> dict[str, object]:
    """Returns the values that are already times."""
    return {name: value for name, value in given.items() if isinstance(value, datetime)}


# --- difference pages -----------------------------------------------------------------------------
# Reads pages of a comparison from a file with one difference per line.

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Size limit of a page; the line that exceeds it is the last."""


def read_page(path: Path, cursor: int, limit: int) -> tuple[list[JsonValue], int | None]:
    """Returns up to `limit` lines from `cursor`, which is 0 or the next cursor of the previous
    page, and the next cursor, None after the last page. Raises RequestError for any other cursor,
    NotFoundError for a missing file."""
    page: list[JsonValue] = []
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFoundError("it told of no differences, or they were removed") from None
    with file:
        end = os.fstat(file.fileno()).st_size
        if cursor:
            file.seek(min(cursor, end) - 1)
            if cursor > end or file.read(1) != b"\n":
                raise RequestError(f"cursor {cursor}: no page ended there")
        while len(page) < limit and file.tell() - cursor < PAGE_BYTES:
            line = file.readline()
            if not line:
                break
            page.append(json.loads(line))
        return page, file.tell() if file.tell() < end else None


# --- jobs -----------------------------------------------------------------------------------------

ORDER_FILE: Final = "order.json"
PROGRESS_FILE: Final = "progress.json"
END_FILE: Final = "end.json"
DIFFERENCES_FILE: Final = "differences.jsonl"
ERRORS_FILE: Final = "errors.txt"
LOCK: Final = "replay"
ERASED_FILE: Final = "erased.txt"
QUOTING: Final = ("diff",)
"""The kinds of replays whose results quote memories."""
FORGOTTEN: Final = (
    "what it told was removed, since texts were erased that it may have quoted; order it again"
)
MOST_AT_ONCE: Final = 2
"""Each replay keeps a core busy."""
MOST_KEPT: Final = 100
"""Number of newest replays to keep; the results of older ones are in the branches and the log."""
ERROR_CHARACTERS: Final = 2_000

State = Literal["running", "done", "failed", "stopped"]


class Ordered(Frozen):
    """What is known of a replay when it begins."""

    order: dict[str, JsonValue]
    started_at: datetime


class Ended(Frozen):
    """How a replay ended. `stopped` tells one that was asked to."""

    state: State
    result: JsonValue = None
    error: str | None = None
    ended_at: datetime


class Job(Frozen):
    """A replay as it is told. `failed` is also one whose process ended without a word: what it did
    is kept, and the same order goes on from there."""

    id: str
    kind: str
    state: State
    order: dict[str, JsonValue]
    started_at: datetime
    progress: dict[str, JsonValue] | None = None
    result: JsonValue = None
    error: str | None = None
    ended_at: datetime | None = Field(default=None)


def start(settings: Settings, given: JsonObject) -> JsonObject:
    """Starts a replay. Raises RequestError for an invalid order, and UnavailableError while the
    maximum number of replays is running."""
    order = order_of(given)
    running = [job for job in _jobs(settings) if job.state == "running"]
    if len(running) >= MOST_AT_ONCE:
        raise UnavailableError(
            f"{len(running)} replays are running, and no more than {MOST_AT_ONCE} may at once; wait"
            f" for one of {', '.join(job.id for job in running)}, or stop it"
        )
    started = utc_now()
    folder = _folder(settings) / f"{started:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    ordered = Ordered(order=order.model_dump(mode="json", exclude_none=True), started_at=started)
    write_whole(folder / ORDER_FILE, ordered.model_dump_json())
    _spawn(settings, folder)
    _forget_old(settings)
    return _told(_job(folder))


def show(settings: Settings, replay_id: str) -> JsonObject:
    """Raises NotFoundError."""
    return _told(_job(_known(settings, replay_id)))


def listed(settings: Settings) -> JsonObject:
    """Returns the replays, newest first."""
    return {"replays": [_told(job) for job in _jobs(settings)]}


def stop(settings: Settings, replay_id: str) -> JsonObject:
    """Signals a replay to stop; its work so far is kept. Does nothing if it has ended. Raises
    NotFoundError."""
    folder = _known(settings, replay_id)
    if _job(folder).state == "running":
        owner = (folder / f"{LOCK}.lock").read_text().strip()
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(owner), signal.SIGTERM)
    return _told(_job(folder))


def forget_told(settings: Settings, digest: str) -> int:
    """Removes the results that quote memories from ended replays, unless this was already done for
    the erasures that `digest` stands for. Returns the number of replays changed. Leaves running
    replays for the next call."""
    mark = _folder(settings) / ERASED_FILE
    with contextlib.suppress(FileNotFoundError):
        if mark.read_text() == digest:
            return 0
    forgotten, running = 0, False
    for folder in _folders(settings):
        if _job(folder).kind not in QUOTING:
            continue
        if _is_locked(folder):
            running = True
            continue
        ended = _end(folder)
        if ended is not None and ended.result is not None:
            told = ended.model_copy(update={"result": None, "error": FORGOTTEN})
            write_whole(folder / END_FILE, told.model_dump_json())
            (folder / DIFFERENCES_FILE).unlink(missing_ok=True)
            forgotten += 1
    if not running and _folder(settings).exists():
        write_whole(mark, digest)
    return forgotten


def differences(settings: Settings, replay_id: str, cursor: int, limit: int) -> JsonObject:
    """Returns a page of a comparison's differences. Raises NotFoundError, and RequestError for a
    cursor that no page returned."""
    folder = _known(settings, replay_id)
    page, following = read_page(folder / DIFFERENCES_FILE, cursor, limit)
    return {"differences": page, "next_cursor": following}


def _told(job: Job) -> JsonObject:
    told: JsonObject = job.model_dump(mode="json")
    return told


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "replays"


def _known(settings: Settings, replay_id: str) -> Path:
    known = {path.name: path for path in _folders(settings)}
    if replay_id not in known:
        raise NotFoundError(f"there is no replay {replay_id}")
    return known[replay_id]


def _folders(settings: Settings) -> list[Path]:
    return [path.parent for path in _folder(settings).glob(f"*/{ORDER_FILE}")]


def _newest_first(settings: Settings) -> list[Path]:
    return sorted(_folders(settings), key=lambda path: path.name, reverse=True)


def _jobs(settings: Settings) -> list[Job]:
    return [_job(folder) for folder in _newest_first(settings)[:MOST_KEPT]]


def _forget_old(settings: Settings) -> None:
    for folder in _newest_first(settings)[MOST_KEPT:]:
        if not _is_locked(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _job(folder: Path) -> Job:
    # Checked first: a replay that ends meanwhile has its end in the file.
    running = _is_locked(folder)
    ordered = Ordered.model_validate_json((folder / ORDER_FILE).read_bytes())
    ended = _end(folder)
    if ended is None and not running:
        ended = Ended(state="failed", error=_last_words(folder), ended_at=ordered.started_at)
    return Job(
        id=folder.name,
        kind=str(ordered.order["kind"]),
        state="running" if ended is None else ended.state,
        order=ordered.order,
        started_at=ordered.started_at,
        progress=_progress(folder),
        result=None if ended is None else ended.result,
        error=None if ended is None else ended.error,
        ended_at=None if ended is None else ended.ended_at,
    )


def _end(folder: Path) -> Ended | None:
    with contextlib.suppress(FileNotFoundError):
        return Ended.model_validate_json((folder / END_FILE).read_bytes())
    return None


def _progress(folder: Path) -> dict[str, JsonValue] | None:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, JsonValue] = json.loads((folder / PROGRESS_FILE).read_bytes())
        return found
    return None


def _last_words(folder: Path) -> str:
    said = ""
    with contextlib.suppress(FileNotFoundError):
        said = (folder / ERRORS_FILE).read_text(errors="replace").strip()[-ERROR_CHARACTERS:]
    return said or "its process ended without a word; the same order goes on from where it was"


def _is_locked(folder: Path) -> bool:
    try:
        FolderLock(folder, LOCK).release()
    except FolderInUse:
        return True
    return False


def write_whole(path: Path, text: str) -> None:
    """Writes the file atomically: a reader sees all of the text or the previous content."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# --- its process ------------------------------------------------------------------------------


def _spawn(settings: Settings, folder: Path) -> None:
    """Starts the process and waits until it has the lock. Raises RequestError if it ends before."""
    with (folder / ERRORS_FILE).open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with arguments of our own
            [sys.executable, "-m", "palimpsest.ops.replay.job_process", str(folder.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(_as_json(settings))
        process.stdin.close()
    began = process.stdout.readline()
    process.stdout.close()
    # The thread reaps the process, which would otherwise stay in the process table.
    threading.Thread(target=process.wait, name=folder.name, daemon=True).start()
    if not began:
        raise RequestError(f"the replay could not begin: {_last_words(folder)}")


def _as_json(settings: Settings) -> bytes:
    """Returns all settings, with secrets, for a pipe, which neither the process list nor a file
    shows."""
    values: dict[str, object] = {}
    for key, value in flattened(settings).items():
        section, dot, name = key.partition(".")
        plain = value.get_secret_value() if isinstance(value, SecretStr) else value
        if dot:
            values.setdefault(section, {})[name] = plain  # type: ignore[index]
        else:
            values[section] = plain
    return json.dumps(values, default=str).encode()


def settings_from(text: bytes) -> Settings:
    """Returns the settings that `_as_json` wrote. Raises RequestError."""
    try:
        return Settings.model_validate_json(text)
    except ValidationError as error:
        raise RequestError(f"the settings of the replay: {error.error_count()} are wrong") from None
