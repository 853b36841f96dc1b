"""Commands on a real broker: accepted without a worker, carried out once by whoever comes."""

from __future__ import annotations

import asyncio
import time

import pytest

from palimpsest.ops.cli.doctor import examine
from palimpsest.ops.service.commanding import CommandRequest, commands_of
from palimpsest.schemas.commands import ForgetCommand, RememberCommand
from tests.soak.lab import Lab, MakeLab

PARTITIONS = 4


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS)


def test_a_command_is_answered_by_the_owner_and_doctor_sees_its_stores(lab: Lab) -> None:
    def stores() -> str:
        findings = asyncio.run(examine(lab.settings))
        [found] = [finding for finding in findings if finding.check == "stores"]
        assert found.ok
        return found.found

    commands = commands_of(lab.settings)
    saved = CommandRequest(
        "ana", RememberCommand(content="I live in Lima. I am allergic to nuts."), key="k"
    )
    # Nobody is there to do it: told at once, and done by whoever comes, once.
    for _ in range(2):
        began = time.monotonic()
        assert asyncio.run(commands.submit(saved, 60.0)).answer is None
        assert time.monotonic() - began < 30
    assert "none yet" in stores()
    lab.start("one")
    lab.until_owned(1)
    assert "in use" in stores()
    memory = asyncio.run(commands.submit(saved, 120.0)).result()
    assert isinstance(memory, dict)
    assert memory["deduped"] is False
    lab.until_drained()
    # It is the one memory of what it says.
    forget = ForgetCommand(memory_ids=(str(memory["id"]),), reason="private", cascade=True)
    gone = asyncio.run(commands.submit(CommandRequest("ana", forget), 120.0)).result()
    assert isinstance(gone, list)
    assert [row["status"] for row in gone if isinstance(row, dict)] == ["forgotten"]
    lab.until_drained()
    lab.stop("one")
    assert f"{PARTITIONS} partition(s) open and close" in stores()
