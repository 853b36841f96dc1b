"""The process of a query: out of the way of who serves others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from palimpsest.ops.sql.processes import QueryProcess
from palimpsest.stores.database.query_process import NICE


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryProcess]:
    # Where tests of a service ran before, processes for queries are forked from a warm one.
    monkeypatch.setattr("palimpsest.ops.sql.processes.subprocess", subprocess)
    process = QueryProcess(64)
    yield process
    process.end()


def test_its_low_priority_counts_against_its_parent(process: QueryProcess) -> None:
    """Linux compares priorities within a session (sched_autogroup), so in one of its own a query
    would have as much of the processor as everything else together."""
    pid = process._process.pid
    with pytest.raises(RuntimeError):
        process.exchange({"query": "is none of its commands"})  # it has started
    lowered = min(os.getpriority(os.PRIO_PROCESS, 0) + NICE, 19)  # the lowest there is
    assert os.getpriority(os.PRIO_PROCESS, pid) == lowered
    assert os.getsid(pid) == os.getsid(0)
    # Ctrl-C reaches the parent only.
    assert os.getpgid(pid) != os.getpgid(0)
