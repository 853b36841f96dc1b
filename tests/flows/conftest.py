"""The program in a folder of its own, empty or with some turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.branches_by_hand import over_open_stores
from tests.flows.program import SAID, Program
from tests.warm_program import fork_processes, warm

fork_processes(warm)


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
def sql_in_this_process() -> Iterator[None]:
    """SQL is answered over the open stores: in a process of its own, over copies, each of the
    dozens of queries of a comparison takes ten times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("palimpsest.ops.service.direct_queries.sql", over_open_stores)
        yield
