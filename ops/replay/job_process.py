"""The process of a replay: its settings come by standard input, its folder is the argument."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from palimpsest.ops.parts import utc_now
from palimpsest.ops.replay.jobs import (
    END_FILE,
    LOCK,
    ORDER_FILE,
    PROGRESS_FILE,
    Ended,
    Ordered,
    State,
    order_of,
    settings_from,
    write_whole,
)
from palimpsest.ops.replay.progress import Progress
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.lock import FolderLock

logger = logging.getLogger(__name__)
EVERY_SECONDS = 0.2


class _Written:
    """Progress as a file, some times a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._next and progress.done < progress.total:
            return
        self._next = now + EVERY_SECONDS
        write_whole(self._path, json.dumps(asdict(progress)))


def main() -> None:
    folder = Path(sys.argv[1])
    # It may be stopped before there is an event loop.
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    settings = settings_from(sys.stdin.buffer.read())
    lock = FolderLock(folder, LOCK)
    print("begun", flush=True)  # noqa: T201 - the starting process waits for this
    write_whole(folder / END_FILE, asyncio.run(_ended(settings, folder, stopped)).model_dump_json())
    lock.release()


async def _ended(settings: Settings, folder: Path, stopped: threading.Event) -> Ended:
    from palimpsest.ops.replay.executing import execute

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    if stopped.is_set():
        stopping.set()
    ordered = Ordered.model_validate_json((folder / ORDER_FILE).read_bytes())
    report = _Written(folder / PROGRESS_FILE)
    try:
        result = await execute(settings, order_of(ordered.order), folder, report, stopping)
    except Exception as error:
        logger.exception("the replay %s failed", folder.name)
        return Ended(state="failed", error=str(error) or repr(error), ended_at=utc_now())
    state: State = "stopped" if stopping.is_set() else "done"
    return Ended(state=state, result=result, ended_at=utc_now())


if __name__ == "__main__":
    main()
