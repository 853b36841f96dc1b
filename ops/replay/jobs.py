"""Carries out replays: in this process, or each in its own, which outlives the process that started
it.

A background replay has a folder in `<data_dir>/replays` with its order, its progress and its end.
It runs as long as its process holds the lock of the folder, however that ends. Its process gets the
settings by standard input and the folder as its argument. Modules of replays are imported when one
is carried out: who only looks at the folders does without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from palimpsest.ops.errors import NotFoundError, RequestError, UnavailableError
from palimpsest.ops.operations.checking import checked
from palimpsest.ops.operations.operation import parameters
from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.requests import (
    REPLAYS,
    Diff,
    Promote,
    Rebuild,
    Reextract,
    ReplayProgress,
    ReplayRequest,
    Report,
    Rollback,
    Watch,
    unreported,
)
from palimpsest.ops.requests import JsonObject
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.sql.values import rfc3339
from palimpsest.stores.database.durable_files import write_whole
from palimpsest.stores.lock import FolderLock
from palimpsest.streams.logs.file_lock import is_held

logger = logging.getLogger(__name__)

# --- in this process ------------------------------------------------------------------------------


async def run(
    settings: Settings,
    request: ReplayRequest,
    report: Report = unreported,
    stopping: asyncio.Event | None = None,
) -> JsonObject:
    """Carries out a replay and returns its result as JSON; `notes` say what is left to do. Ends
    early once `stopping` is set, if the replay `stops`. Raises what the replay raises; each message
    says what to do."""
    from palimpsest.ops.replay.diff import compared
    from palimpsest.ops.replay.promotion import promote, rollback
    from palimpsest.ops.replay.rebuild import rebuild, rebuilt_json
    from palimpsest.ops.replay.reextraction import (
        differing,
        estimate,
        reextract,
        reextracted_json,
    )
    from palimpsest.ops.replay.repartition import repartition

    stopping = stopping or asyncio.Event()
    result: object
    match request:
        case Rebuild():
            work = rebuild if request.shards is None else repartition
            done = await work(settings, request, Watch(report, stopping.is_set))
            result = rebuilt_json(settings, request, done)
        case Reextract():
            changed = differing(settings, request.overrides, request.provider, request.model)
            request = replace(request, overrides=changed)
            if request.dry_run:
                result = await asyncio.to_thread(estimate, settings, request)
            else:
                result = reextracted_json(await reextract(settings, request, report, stopping))
        case Diff():
            result = await compared(settings, request, report)
        case Promote():
            result = (await promote(settings, request, report)).as_json()
        case Rollback():
            result = (await rollback(settings, request, report)).as_json()
        case _:
            raise TypeError(f"{type(request).__name__} is no replay")
    plain: JsonObject = to_jsonable_python(result)
    return plain


@contextlib.contextmanager
def stopping_on(
    *signals: int, asked: Callable[[bool], object] = lambda again: None
) -> Iterator[asyncio.Event]:
    """Yields an event that these signals set, also while no event loop runs; `asked` is called with
    whether it was set before."""
    stopping = asyncio.Event()

    def stop(*_: object) -> None:
        again = stopping.is_set()
        stopping.set()
        with contextlib.suppress(RuntimeError):  # wakes a loop that waits, if there is one
            asyncio.get_running_loop().call_soon_threadsafe(lambda: None)
        asked(again)

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield stopping
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


# --- orders and results ---------------------------------------------------------------------------

ORDER_FILE: Final = "order.json"
PROGRESS_FILE: Final = "progress.json"
END_FILE: Final = "end.json"
DIFFERENCES_FILE: Final = "differences.jsonl"
ERRORS_FILE: Final = "errors.txt"
LOCK: Final = "replay"
ERASED_FILE: Final = "erased.txt"
FORGOTTEN: Final = (
    "what it told was removed, since texts were erased that it may have quoted; order it again"
)
MOST_AT_ONCE: Final = 2
"""Each replay keeps a core busy."""
MOST_KEPT: Final = 100
"""Number of newest replays to keep; the results of older ones are in the branches and the log."""
ERROR_CHARACTERS: Final = 2_000
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Size limit of a page of differences; the line that exceeds it is the last."""


def replay_of(order: JsonObject) -> ReplayRequest:
    """Returns the replay that an order names by its `kind`, with the fields that HTTP has: no
    address of a provider: keys are sent there, so the operator's settings give it. Raises
    RequestError for an invalid order."""
    named = str(order.get("kind"))
    kind = REPLAYS.get(named)
    if kind is None:
        raise RequestError(f"there is no replay {named}; there are {', '.join(REPLAYS)}")
    given = {name: value for name, value in order.items() if name != "kind"}
    others = given.keys() - {each.name for each in parameters(kind) if each.on("http")}
    if others:
        raise RequestError(f"a {named} has no {', '.join(sorted(others))}")
    if named != "rebuild" and isinstance(given.get("until"), int):
        raise RequestError(f"until: a {named} takes a time, not an offset")
    return checked(kind, given)


def start(settings: Settings, given: JsonObject) -> JsonObject:
    """Starts a replay. Raises RequestError for an invalid order, and UnavailableError while the
    maximum number of replays is running."""
    replay_of(given)
    known = _folders(settings)[:MOST_KEPT]
    running = [folder.name for folder in known if _job(folder)["state"] == "running"]
    if len(running) >= MOST_AT_ONCE:
        raise UnavailableError(
            f"{len(running)} replays are running, and no more than {MOST_AT_ONCE} may at once; wait"
            f" for one of {', '.join(running)}, or stop it"
        )
    started = utc_now()
    folder = _folder(settings) / f"{started:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    _write(folder / ORDER_FILE, {"order": given, "started_at": rfc3339(started)})
    with (folder / ERRORS_FILE).open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with arguments of our own
            [sys.executable, "-m", "palimpsest.ops.replay.jobs", str(folder.absolute())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        # With secrets: neither the process list nor a file shows a pipe.
        process.stdin.write(pickle.dumps(settings))
        process.stdin.close()
    began = process.stdout.readline()
    process.stdout.close()
    # The thread reaps the process, which would otherwise stay in the process table.
    threading.Thread(target=process.wait, name=folder.name, daemon=True).start()
    if not began:
        raise RequestError(f"the replay could not begin: {_last_words(folder / ERRORS_FILE)}")
    for old in _folders(settings)[MOST_KEPT:]:
        if not is_held(_lock(old)):
            shutil.rmtree(old, ignore_errors=True)
    return _job(folder)


def show(settings: Settings, replay_id: str) -> JsonObject:
    """Raises NotFoundError."""
    return _job(_known(settings, replay_id))


def listed(settings: Settings) -> JsonObject:
    """Returns the replays, newest first."""
    return {"replays": [*map(_job, _folders(settings)[:MOST_KEPT])]}


def stop(settings: Settings, replay_id: str) -> JsonObject:
    """Signals a replay to stop; its work so far is kept. Does nothing if it has ended. Raises
    NotFoundError."""
    folder = _known(settings, replay_id)
    if _job(folder)["state"] == "running":
        owner = _lock(folder).read_text().strip()
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(owner), signal.SIGTERM)
    return _job(folder)


def forget_quotations(settings: Settings, digest: str) -> int:
    """Removes the results that quote memories from ended replays, unless this was already done for
    the erasures that `digest` stands for. Returns the number of replays changed. Leaves running
    replays for the next call."""
    mark = _folder(settings) / ERASED_FILE
    with contextlib.suppress(FileNotFoundError):
        if mark.read_text() == digest:
            return 0
    forgotten, running = 0, False
    for folder in _folders(settings):
        if _job(folder)["kind"] != "diff":
            continue  # the others quote no memories
        if is_held(_lock(folder)):
            running = True
            continue
        ended = _read(folder / END_FILE)
        if ended is not None and ended["result"] is not None:
            _write(folder / END_FILE, {**ended, "result": None, "error": FORGOTTEN})
            (folder / DIFFERENCES_FILE).unlink(missing_ok=True)
            forgotten += 1
    if not running and _folder(settings).exists():
        write_whole(mark, digest.encode())
    return forgotten


def differences(settings: Settings, replay_id: str, cursor: int, limit: int) -> JsonObject:
    """Returns a page of up to `limit` of a comparison's differences, from `cursor`, which is 0 or
    the next cursor of the previous page. Raises RequestError for any other cursor, NotFoundError
    for an unknown replay and for one without differences."""
    page: list[JsonValue] = []
    try:
        file = (_known(settings, replay_id) / DIFFERENCES_FILE).open("rb")
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
        following = file.tell() if file.tell() < end else None
    return {"differences": page, "next_cursor": following}


# --- folders --------------------------------------------------------------------------------------


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "replays"


def _folders(settings: Settings) -> list[Path]:
    """Returns the folders of all replays, newest first."""
    orders = sorted(_folder(settings).glob(f"*/{ORDER_FILE}"), reverse=True)
    return [path.parent for path in orders]


def _lock(folder: Path) -> Path:
    """The file that the replay's process locks, and that has its id."""
    return folder / f"{LOCK}.lock"


def _known(settings: Settings, replay_id: str) -> Path:
    folder = _folder(settings) / replay_id
    if folder not in _folders(settings):
        raise NotFoundError(f"there is no replay {replay_id}")
    return folder


def _job(folder: Path) -> JsonObject:
    """Returns a replay as `ops.replay.operations.Replay`. One whose process ended without a word
    has failed: what it did is kept, and the same order goes on from there."""
    # Checked first: a replay that ends meanwhile has its end in the file.
    running = is_held(_lock(folder))
    ordered = _read(folder / ORDER_FILE)
    assert ordered is not None
    ended = _read(folder / END_FILE)
    if ended is None:
        state, error, at = "running", None, None
        if not running:
            errors = folder / ERRORS_FILE
            state, error, at = "failed", _last_words(errors), ordered["started_at"]
        ended = {"state": state, "result": None, "error": error, "ended_at": at}
    kind = cast("JsonObject", ordered["order"])["kind"]
    progress = _read(folder / PROGRESS_FILE)
    return {"id": folder.name, "kind": kind, **ordered, "progress": progress, **ended}


def _last_words(errors: Path) -> str:
    said = errors.read_text(errors="replace").strip() if errors.exists() else ""
    otherwise = "its process ended without a word; the same order goes on from where it was"
    return said[-ERROR_CHARACTERS:] or otherwise


def _read(path: Path) -> JsonObject | None:
    with contextlib.suppress(FileNotFoundError):
        found: JsonObject = json.loads(path.read_bytes())
        return found
    return None


def _write(path: Path, content: object) -> None:
    """Writes the file atomically: a reader sees all of the content or the previous one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


# --- in a process of its own ----------------------------------------------------------------------

EVERY_SECONDS: Final = 0.2
"""Interval between two reports of progress."""


def main() -> None:
    folder = Path(sys.argv[1])
    with stopping_on(signal.SIGTERM) as stopping:
        settings = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started it
        lock = FolderLock(folder, LOCK)
        print("begun", flush=True)  # noqa: T201 - the starting process waits for this
        _write(folder / END_FILE, asyncio.run(_ended(settings, folder, stopping)))
        lock.release()


async def _ended(settings: Settings, folder: Path, stopping: asyncio.Event) -> JsonObject:
    request = replay_of(json.loads((folder / ORDER_FILE).read_bytes())["order"])
    if isinstance(request, Diff):
        request = replace(request, out=str(folder / DIFFERENCES_FILE))
    not_before = 0.0

    def report(progress: ReplayProgress) -> None:
        nonlocal not_before
        now = time.monotonic()
        if now >= not_before or progress.done >= progress.total:
            not_before = now + EVERY_SECONDS
            _write(folder / PROGRESS_FILE, asdict(progress))

    result, error, state = None, None, "done"
    try:
        result = await run(settings, request, report, stopping)
    except Exception as failure:
        logger.exception("the replay %s failed", folder.name)
        error, state = str(failure) or repr(failure), "failed"
    else:
        state = "stopped" if stopping.is_set() else "done"
    told: JsonObject = {"state": state, "result": result, "error": error}
    return {**told, "ended_at": rfc3339(utc_now())}


if __name__ == "__main__":
    main()
