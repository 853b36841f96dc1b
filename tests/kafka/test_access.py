"""Reads that a worker on Kafka answers come back to it as commands."""

from __future__ import annotations

import asyncio

import pytest

from palimpsest.ops.operations.memories import Get, Recall
from palimpsest.ops.service.commanding import CommandRequest, commands_of
from palimpsest.ops.service.queries import queries
from palimpsest.schemas.commands import RememberCommand
from tests.soak.lab import Lab, MakeLab


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(2)


def test_the_owner_records_what_it_answered(lab: Lab) -> None:
    lab.choose("access.every_seconds=0.2")
    lab.start("one")
    lab.until_owned(1)
    remember = CommandRequest("ana", RememberCommand(content="Ana likes green tea"))
    saved = asyncio.run(commands_of(lab.settings).submit(remember, 120.0)).result()
    assert isinstance(saved, dict)

    async def ask() -> list[str]:
        async with queries(lab.settings) as asked:
            await asked.answer(Recall("what tea?", "ana"))
            while True:
                memory = await asked.answer(Get(str(saved["id"])))
                if memory["access_count"] > 1:
                    return [each["kind"] for each in memory["recalls"]]
                await asyncio.sleep(0.2)

    kinds = asyncio.run(asyncio.wait_for(ask(), 180.0))
    assert kinds[-1] == "recall"
    assert set(kinds[:-1]) == {"get"}
    lab.until_drained()
