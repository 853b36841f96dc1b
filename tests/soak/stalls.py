"""Runs a command while all of its processes are stopped for seconds at random moments, as a shared
machine does. What passes by itself passes here, later: `python -m tests.soak.stalls -- COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The process and all that it started, directly or not, parents first."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The name is in parentheses and may hold spaces; the parent's id is the second after.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=5.0, help="mean seconds between two stops")
    parser.add_argument("--least", type=float, default=1.0, help="seconds of the shortest stop")
    parser.add_argument("--most", type=float, default=5.0, help="seconds of the longest stop")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    began, stops, stopped = time.monotonic(), 0, 0.0
    process = subprocess.Popen(given.command)
    while True:
        try:
            code = process.wait(chance.uniform(0.5, 1.5) * given.every)
        except subprocess.TimeoutExpired:
            pause = chance.uniform(given.least, given.most)
            pids = descendants(process.pid)
            try:
                send(pids, signal.SIGSTOP)
                time.sleep(pause)  # this is what it does: nobody waits for anything
            finally:
                send(pids, signal.SIGCONT)
            stops, stopped = stops + 1, stopped + pause
        else:
            break
    took = time.monotonic() - began
    print(
        f"exit status {code} after {took:.0f} s, of which all stood still for {stopped:.0f} s in"
        f" {stops} stops (--seed {given.seed})",
        file=sys.stderr,
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
