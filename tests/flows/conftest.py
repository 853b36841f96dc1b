"""The program in a folder of its own, empty or with some turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.ops.sql.processes import QueryProcess, QueryProcesses
from tests.flows.program import SAID, Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A folder in which SAID was published to the scope `home` and processed."""
    program = Program(tmp_path_factory.mktemp("told"))
    program.ok("ingest", program.turns(*SAID), "--scope", "home")
    program.ok("run", "--once", "--set", "pipeline.allow_update_delete=true")
    return program


@pytest.fixture(scope="module")
def kept_sql_processes() -> Iterator[None]:
    """A process that one reader's SQL ran in is taken by the next reader: each takes a third of a
    second to begin, and a comparison of two stores needs several."""
    kept: list[QueryProcess] = []
    begun, close = QueryProcesses._taken, QueryProcesses.close

    def taken(self: QueryProcesses) -> QueryProcess:
        self._idle += [kept.pop() for _ in kept[-1:] if not self._idle]
        return begun(self)

    def left(self: QueryProcesses) -> None:
        kept.extend(self._idle)
        self._idle.clear()
        close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryProcesses, "_taken", taken)
        patch.setattr(QueryProcesses, "close", left)
        yield
    for process in kept:
        process.end()
