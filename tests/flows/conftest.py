"""The program in a folder of its own, empty or with some turns."""

from __future__ import annotations

from pathlib import Path

import pytest

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
