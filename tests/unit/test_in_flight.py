"""What is in flight, asked again and again while a backlog is processed."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.ops.parts import utc_now
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams import in_flight
from palimpsest.streams.in_flight import items_in_flight
from palimpsest.streams.logs.base import Outgoing, Position, Record
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.store_port import LogItem
from tests.messages import published, turn

TOPIC = CONVERSATION_TURNS.name


def found(log: EmbeddedLog, admitted: list[int] | None = None) -> list[LogItem]:
    def admit(record: Record) -> Record:
        if admitted is not None:
            admitted.append(record.offset)
        return record

    return [*items_in_flight(log, 0, admit, {("audit", TOPIC): 1}, ())]


def turns(*numbers: int) -> list[Outgoing]:
    said = [published(turn(f"number {number}", number)) for number in numbers]
    return [outgoing(CONVERSATION_TURNS, each) for each in said]


@pytest.mark.parametrize("kept", [0, 2, 20_000])
async def test_a_record_is_parsed_once_while_it_is_in_flight(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "_KEPT", kept)
    unreadable = Outgoing(TOPIC, "ana", b"ana", b"{unreadable", {})
    admitted: list[int] = []
    with EmbeddedLog(tmp_path, 1, utc_now) as log:
        log.append([*turns(0, 1, 2), unreadable])
        before = found(log, admitted)
        assert admitted == [0, 1, 2, 3]
        assert len([each for each in before if each.found_as == "in_flight"]) == 4
        admitted.clear()
        assert found(log, admitted) == before
        assert admitted == [*range(min(kept, 4), 4)]
        log.append(turns(3))
        await log.commit([], [Position("normalize", TOPIC, 0, 2)])
        admitted.clear()
        after = found(log, admitted)
        assert len([each for each in after if each.found_as == "in_flight"]) == 3
        assert admitted[-1] == 4
        assert kept < 5 or admitted == [4]
    with EmbeddedLog(tmp_path, 1, utc_now) as log:
        assert found(log) == after
