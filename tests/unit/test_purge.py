"""Raw records with a secret leave the log, after all who read them and whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.ops.maintenance.withholding import Purge
from palimpsest.ops.scheduling.periodic import running
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.logs.base import LogError, Position
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.sensitive.settings import PiiSettings
from tests.erased_bytes import readable
from tests.harness import Clock
from tests.messages import published, turn

TURNS = CONVERSATION_TURNS.name
WANTED = PiiSettings(purge_raw=True)
SAID = ("I like tea", "my password is hunter2", "I like coffee", "my pw is swordfish9")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with EmbeddedLog(tmp_path, 1, Clock()) as opened:
        opened.append(
            [outgoing(CONVERSATION_TURNS, published(turn(text, n))) for n, text in enumerate(SAID)]
        )
        yield opened


def left(log: EmbeddedLog) -> list[int]:
    return [record.offset for record in log.read(TURNS, 0, 0, 10)]


def came_to(log: EmbeddedLog, **positions: int) -> None:
    for consumer, offset in positions.items():
        log.seek(Position(consumer, TURNS, 0, offset))


def test_a_record_goes_once_both_of_its_readers_have_it(log: EmbeddedLog, tmp_path: Path) -> None:
    purge = Purge(log, WANTED)
    assert purge.once() == 0
    came_to(log, normalize=4)
    assert purge.once() == 0
    came_to(log, audit=2)
    assert purge.once() == 1
    assert left(log) == [0, 2, 3]
    came_to(log, audit=4)
    assert purge.once() == 1
    assert purge.once() == 0
    assert left(log) == [0, 2]
    assert log.end_offset(TURNS, 0) == 4
    files = b"".join(readable(path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    assert b"I like tea" in files
    assert b"hunter2" not in files
    assert b"swordfish9" not in files


def test_after_a_crash_before_it_is_noted_the_rest_goes(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_to(log, normalize=4, audit=4)

    def crash(position: Position) -> None:
        raise LogError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(log, "seek", crash)
        with pytest.raises(LogError):
            Purge(log, WANTED).once()
    assert left(log) == [0, 2]
    assert log.position("purge", TURNS, 0) == 0
    assert Purge(log, WANTED).once() == 0
    assert log.position("purge", TURNS, 0) == 4


async def test_it_runs_only_where_it_is_asked_for(log: EmbeddedLog) -> None:
    came_to(log, normalize=4, audit=4)
    for settings in (PiiSettings(), PiiSettings(mode="off", purge_raw=True)):
        assert Purge(log, settings).tasks() == []
        assert left(log) == [0, 1, 2, 3]
    async with running(Purge(log, WANTED).tasks()):
        pass
    assert left(log) == [0, 2]


async def test_a_log_that_cannot_be_written_ends_no_worker(
    tmp_path: Path, log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    came_to(log, normalize=4, audit=4)
    with EmbeddedLog(tmp_path, 1, Clock(), "read") as reading:
        async with running(Purge(reading, WANTED).tasks()):
            pass
    assert "raw records with secrets in the log, to be tried again" in caplog.text
