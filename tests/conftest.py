"""What holds for all tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import TIMES, examples
from tests.made_once import share_sessions

# Hundreds of tests start the program: each would compile all its modules anew, a third of a
# second of processor, where the environment says that nothing compiled shall be written.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Stores sync at every commit, which takes a disk milliseconds. The suite has 1 GiB at a time.
IN_MEMORY = Path("/dev/shm")
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > 4 * 2**30:
    for name in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
        os.environ.setdefault(name, str(IN_MEMORY))

# A busy machine is slow at any example. The suite tries the same ones each time, so that it never
# fails by chance; PALIMPSEST_EXAMPLES tries others.
settings.register_profile(
    "tests",
    max_examples=examples(25),
    deadline=None,
    derandomize=TIMES == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


def pytest_sessionstart() -> None:
    share_sessions()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported is garbage, and nobody looks at it again: a full collection takes
    half a second of processor with all of it, and a test that folds a log asks for dozens."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # Else libraries tell on exit of what they think was forgotten. Before, pytest collects
        # twice.
        atexit.register(gc.unfreeze)
