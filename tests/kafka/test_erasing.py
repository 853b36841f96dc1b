"""Erasing on a real broker: the stores at once, their files when the partition is opened next, and
the records of the broker by DeleteRecords."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from palimpsest.ops.cli.main import whole
from palimpsest.ops.service.commanding import CommandRequest, commands_of
from palimpsest.schemas.commands import ForgetCommand, RememberCommand
from palimpsest.schemas.topics import ALL_TOPICS, MEMORY_HISTORY
from tests.erased_bytes import where
from tests.soak.lab import Lab, MakeLab

PARTITIONS = 2
SECRET = "Ana keeps the spare key under the third flowerpot"
OTHER = "Ben works at a bakery in Ghent"


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS)


def topics_with(lab: Lab, text: str) -> set[str]:
    """The topics of which a record that can be read holds the text."""
    return {
        topic.name
        for topic in ALL_TOPICS
        for partition in range(PARTITIONS)
        for record in lab.log.read(topic.name, partition, 0, 10_000)
        if text.encode() in (record.value or b"")
    }


def delete_records(lab: Lab, *flags: str) -> str:
    """What the command says."""
    place = ["--data-dir", str(lab.folder / "data"), *(f"--set={each}" for each in lab._flags())]
    told = CliRunner().invoke(whole(), ["topics", "delete-records", *flags, *place])
    assert told.exit_code == 0, told.output
    return told.output


def test_erased_texts_leave_stores_files_and_with_a_command_the_broker(lab: Lab) -> None:
    commands = commands_of(lab.settings)
    lab.start("one")
    lab.until_owned(1)
    kept = []
    for text in (SECRET, OTHER):
        order = CommandRequest("ana", RememberCommand(content=text))
        kept.append(asyncio.run(commands.submit(order, 30.0)).result())
    lab.until_drained()
    assert isinstance(kept[0], dict)
    erase = ForgetCommand(
        memory_ids=(str(kept[0]["id"]),), reason="asked for", cascade=True, hard=True
    )
    given = asyncio.run(commands.submit(CommandRequest("ana", erase), 30.0))
    result = given.result()
    assert isinstance(result, list)
    assert {row["status"] for row in result if isinstance(row, dict)} == {"erased"}
    assert given.answer is not None
    assert given.answer["erasure"] == "pending"
    assert "delete-records" in str(given.answer["left"])
    lab.until_drained()
    lab.stop("one")
    lab.start("two")  # which opens the partitions anew
    lab.until_owned(1)
    lab.until_drained()
    done = asyncio.run(commands.result(given.command_id, "ana", 30.0))
    assert done is not None
    assert done["erasure"] == "done"
    assert where(lab.folder / "data", SECRET, "flowerpot") == []
    # The compacted topic: what was told of it is followed by null values.
    nulls = [
        record.key
        for partition in range(PARTITIONS)
        for record in lab.log.read(MEMORY_HISTORY.name, partition, 0, 10_000)
        if record.value is None
    ]
    assert nulls
    assert topics_with(lab, SECRET)
    assert "with --yes" in delete_records(lab)
    assert topics_with(lab, SECRET)
    delete_records(lab, "--yes")
    assert topics_with(lab, SECRET) <= {MEMORY_HISTORY.name}
    # What is remembered is untouched, and the stages go on.
    again = asyncio.run(
        commands.submit(CommandRequest("ana", RememberCommand(content=OTHER)), 30.0)
    )
    assert isinstance(again.result(), dict)
    assert again.result()["deduped"] is True  # type: ignore[call-overload, index]
    lab.until_drained()
    lab.stop("two")
