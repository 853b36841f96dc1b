"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest

# Hundreds of tests start the program: each would compile all its modules anew, a third of a
# second of processor, where the environment says that nothing compiled shall be written.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """A full collection takes half a second of processor with all that was imported; a test that
    folds a log asks for dozens of them."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # else libraries tell on exit of what they think was forgotten
