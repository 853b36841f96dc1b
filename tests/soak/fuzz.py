"""Runs the property tests with examples that they have not tried, until the time is over or one
fails: `python -m tests.soak.fuzz --minutes 10 [PYTEST ARGUMENTS]`.

The output of a failing test has its example as an `@example(...)` or `@reproduce_failure(...)` to
put above the test, which from then on tries it in every run."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import pytest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--times", type=int, default=4, help="how many times the usual examples")
    given, rest = parser.parse_known_args()
    until = time.monotonic() + 60 * given.minutes
    environment = {**os.environ, "PALIMPSEST_EXAMPLES": str(given.times)}
    command = [sys.executable, "-m", "pytest", "-m", "hypothesis", "-x", "-n", "2", *rest]
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
        seed = time.time_ns() % 2**32
        print(f"round {rounds}, --hypothesis-seed={seed}", flush=True)
        left = until - time.monotonic()
        try:
            done = subprocess.run(
                [*command, f"--hypothesis-seed={seed}"], env=environment, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            break
        if done.returncode == pytest.ExitCode.TESTS_FAILED:
            print(f"fails with --hypothesis-seed={seed}: put its example above the test")
        if done.returncode != 0:
            return done.returncode
    print(f"{rounds} rounds in {given.minutes:g} minutes, and no example fails")
    return 0


if __name__ == "__main__":
    sys.exit(main())
