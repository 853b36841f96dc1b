"""The embedded log between real processes: locks, kill -9, full disks, read-only folders."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palimpsest.streams.logs.base import LogError, Position, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog, Mode
from tests.contract.log_contract import TURNS, WRITES, outgoing, read_all

ROOT = Path(__file__).parents[2]
KILLS = 8
NOBODY = 65534

PRELUDE = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from palimpsest.streams.logs.base import LogError, Outgoing, Position
from palimpsest.streams.logs.embedded import EmbeddedLog

def open_log(mode, partitions=2):
    return EmbeddedLog(Path(sys.argv[1]), partitions, lambda: datetime.now(UTC), mode)

def say(text):
    print(text, flush=True)

def record(text, scope="ann", topic="conversation-turns"):
    return Outgoing(topic, scope, scope.encode(), text.encode())
"""


@contextlib.contextmanager
def program(body: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `body` after PRELUDE; killed at the end at the latest."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + body, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that the process says; fails with its error output when it has ended."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        _, errors = process.communicate()
        pytest.fail(f"the process ended: {errors}")
    return text.rstrip("\n")


def open_log(folder: Path, mode: Mode = "process", partitions: int | None = 2) -> EmbeddedLog:
    return EmbeddedLog(folder, partitions, lambda: datetime.now(UTC), mode)


HOLD = """
log = open_log(sys.argv[2])
say("open")
sys.stdin.readline()
log.close()
say("closed")
sys.stdin.readline()
"""


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    with program(HOLD, tmp_path, "process") as first:
        assert line(first) == "open"
        with pytest.raises(LogError, match=rf"process {first.pid}, since 20\d\d-.*stop that"):
            open_log(tmp_path)
        with open_log(tmp_path, "publish") as publisher, open_log(tmp_path, "read") as reader:
            publisher.append([outgoing("a")])
            assert len(read_all(reader, TURNS, partition_for("ann", 2))) == 1
        first.send_signal(signal.SIGKILL)
        first.wait()
        open_log(tmp_path).close()


def test_the_lock_is_given_back_on_closing(tmp_path: Path) -> None:
    with program(HOLD, tmp_path, "process") as first:
        assert line(first) == "open"
        assert first.stdin is not None
        first.stdin.write("\n")
        first.stdin.flush()
        assert line(first) == "closed"
        open_log(tmp_path).close()


def test_many_processes_may_make_the_log_at_once(tmp_path: Path) -> None:
    make = 'sys.stdin.readline()\nlog = open_log("publish")\nlog.append([record("x")])\nsay("done")'
    with contextlib.ExitStack() as stack:
        makers = [stack.enter_context(program("say('up')\n" + make, tmp_path)) for _ in range(6)]
        for maker in makers:
            assert line(maker) == "up"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("\n")
            maker.stdin.flush()
        assert [line(maker) for maker in makers] == ["done"] * 6
    with open_log(tmp_path, "read", None) as log:
        assert len(read_all(log, TURNS, partition_for("ann", 2))) == 6


PUBLISH = """
log = open_log("publish")
for n in range(int(sys.argv[3])):
    texts = [f"{sys.argv[2]} {n} {part}" for part in "ab"]
    log.append([record(text, scope) for text in texts for scope in ("ann", "bob", "eve")])
say("done")
"""


@pytest.mark.asyncio
async def test_publishers_append_while_a_process_works(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, contextlib.ExitStack() as stack:
        names = ("p", "q", "r")
        publishers = [stack.enter_context(program(PUBLISH, tmp_path, n, 60)) for n in names]
        seen: list[int] = [0, 0]
        while sum(seen) < 3 * 60 * 6:
            wanted = [Position("normalize", TURNS, p, seen[p]) for p in (0, 1)]
            assert await log.wait(wanted, 60)
            for partition in (0, 1):
                records = log.read(TURNS, partition, seen[partition], 50)
                if records:
                    assert [r.offset for r in records] == list(
                        range(seen[partition], seen[partition] + len(records))
                    )
                    seen[partition] += len(records)
                    position = Position("normalize", TURNS, partition, seen[partition])
                    await log.commit([outgoing("out", topic=WRITES)], [position])
        assert [line(publisher) for publisher in publishers] == ["done"] * 3
        for name in names:
            texts = [
                (r.value or b"").decode()
                for r in read_all(log, TURNS, partition_for("ann", 2))
                if r.key == b"ann" and (r.value or b"").startswith(name.encode())
            ]
            assert texts == [f"{name} {n} {part}" for n in range(60) for part in "ab"]


APPEND_UNTIL_KILLED = """
log = open_log("process")
async def work():
    n = int(sys.argv[2])
    while True:
        batch = [record(f"{n} {i}", f"scope {i}") for i in range(n % 7 + 1)]
        await log.commit(
            batch + [record(str(n), topic="memory-writes")],
            [Position("normalize", "memory-writes", log.place("ann"), n + 1)],
        )
        say(str(n))
        n += 1
log.place = log._place
asyncio.run(work())
"""


def test_kill_9_loses_nothing_acknowledged_and_halves_nothing(tmp_path: Path) -> None:
    chance = random.Random(20260301)
    scopes = [f"scope {n}" for n in range(7)]
    ann = partition_for("ann", 2)
    next_n = 0
    for _ in range(KILLS):
        with program(APPEND_UNTIL_KILLED, tmp_path, next_n) as process:
            acknowledged = next_n - 1
            for _ in range(chance.randint(1, 60)):
                acknowledged = int(line(process))
            process.send_signal(signal.SIGKILL)
            # By the same buffer: `communicate` reads the pipe, and misses a line that was fetched
            # together with the one before it.
            assert process.stdout is not None
            rest = process.stdout.read()
            acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
        with open_log(tmp_path) as log:
            assert log.check() == []
            done = [int(r.value or b"") for r in read_all(log, WRITES, ann)]
            # All that was acknowledged, at most one more, each once, without a hole.
            assert done == list(range(len(done)))
            assert acknowledged <= done[-1] <= acknowledged + 1
            assert log.position("normalize", WRITES, ann) == len(done)
            texts: list[str] = []
            for partition in (0, 1):
                records = read_all(log, TURNS, partition)
                assert [r.offset for r in records] == list(range(len(records)))
                texts += [(r.value or b"").decode() for r in records]
            wanted = [f"{n} {i}" for n in done for i, _ in enumerate(scopes[: n % 7 + 1])]
            assert sorted(texts) == sorted(wanted)
            next_n = len(done)


FILL = """
import resource
def limit(n):
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))
log = open_log("process")
def state():
    topic, place = "conversation-turns", log._place("ann")
    return [log.end_offset(topic, place), log.position("c", topic, place)]
async def work():
    await log.commit([record("first")], [])
    place = log._place("ann")
    limit(400_000)
    n = 0
    try:
        while True:
            await log.commit(
                [record("x" * 1000)] * 20, [Position("c", "conversation-turns", place, n * 20)]
            )
            n += 1
    except LogError as error:
        say(str(error))
    say(str([n, *state()]))
    try:
        log.append([record("x" * 500_000)])
    except LogError as error:
        say(str(error))
    say(str(state()[0]))
    limit(resource.RLIM_INFINITY)
    await log.commit([record("after")], [Position("c", "conversation-turns", place, n * 20 + 1)])
    say(str(state()))
    say(str(log.check()))
asyncio.run(work())
log.close()
"""


def test_a_file_size_limit_fails_whole_commits_and_passes(tmp_path: Path) -> None:
    with program(FILL, tmp_path) as process:
        error = line(process)
        assert str(tmp_path / "log.sqlite") in error
        assert "make room" in error
        batches, end, position = json.loads(line(process))
        assert batches > 0
        assert (end, position) == (batches * 20 + 1, (batches - 1) * 20)
        assert "make room" in line(process)
        assert json.loads(line(process)) == end
        assert json.loads(line(process)) == [end + 1, batches * 20 + 1]
        assert line(process) == "[]"
    with open_log(tmp_path) as log:
        assert len(read_all(log, TURNS, partition_for("ann", 2))) == end + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(log: EmbeddedLog) -> None:
    for _ in range(500):
        log.append([outgoing("x" * 1000)] * 10)


def test_a_full_disk_fails_whole_appends_and_passes(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    ann = partition_for("ann", 2)
    with open_log(small_disk) as log:
        with pytest.raises(LogError, match="the disk is full; make room"):
            fill(log)
        done = log.end_offset(TURNS, ann)
        assert done > 0
        assert done % 10 == 0
        assert len(read_all(log, TURNS, ann)) == done
        ballast.unlink()
        assert log.append([outgoing("after")]) == [(ann, done)]
        assert log.check() == []
    with open_log(small_disk) as log:
        assert len(read_all(log, TURNS, ann)) == done + 1


READ_ONLY = """
import os
if sys.argv[2] != "None":
    os.setuid(int(sys.argv[2]))  # after the imports: the interpreter may be out of reach then
log = open_log("read", None)
place = log._place("ann")
say(str(len(log.read("conversation-turns", place, 0, 99))))
for mode in ("process", "publish"):
    try:
        open_log(mode)
        say("opened!")
    except LogError as error:
        say(str(error))
sys.stdin.readline()
async def wait():
    say(str(await log.wait([Position("c", "conversation-turns", place, 3)], 60)))
asyncio.run(wait())
say(str(len(log.read("conversation-turns", place, 0, 99))))
"""


@pytest.fixture
def others_folder() -> Iterator[tuple[Path, int | None]]:
    """A folder that may be read but not written by the user id given (None: this one)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder, NOBODY if os.geteuid() == 0 else None
        folder.chmod(0o755)


def test_a_folder_that_may_not_be_written_can_be_read(
    others_folder: tuple[Path, int | None],
) -> None:
    folder, user = others_folder
    with open_log(folder) as log:
        log.append([outgoing(str(n)) for n in range(3)])
    if user is None:
        folder.chmod(0o555)
    with program(READ_ONLY, folder, user) as reader:
        assert line(reader) == "3"
        for _ in range(2):
            error = line(reader)
            assert str(folder) in error
            assert "writable" in error
        assert reader.stdin is not None
        if user is None:
            return  # the owner cannot both be shut out and append
        with open_log(folder) as log:
            reader.stdin.write("\n")
            reader.stdin.flush()
            log.append([outgoing("later")])
            assert line(reader) == "True"
            assert line(reader) == "4"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_another_user_reads_beside_a_running_process(
    others_folder: tuple[Path, int | None],
) -> None:
    folder, user = others_folder
    with open_log(folder) as log:
        log.append([outgoing(str(n)) for n in range(3)])
        with program(READ_ONLY, folder, user) as reader:
            assert line(reader) == "3"
