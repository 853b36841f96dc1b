"""A record that names its partition lies there, whatever its scope."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.schemas.topics import CONVERSATION_TURNS, DEAD_LETTERS
from palimpsest.streams.logs.base import Outgoing, partition_for
from palimpsest.streams.logs.embedded import EmbeddedLog
from tests.harness import Clock


@pytest.mark.parametrize("partition", range(4))
def test_a_dead_letter_stays_where_its_record_lay(partition: int, tmp_path: Path) -> None:
    with EmbeddedLog(tmp_path, 4, Clock()) as log:
        dead_letter = Outgoing(DEAD_LETTERS.name, "(unreadable)", b"k", b"{}", partition=partition)
        turn = Outgoing(CONVERSATION_TURNS.name, "ana", b"ana", b"{}")
        places = log.append([dead_letter, turn, dead_letter])
        assert places == [(partition, 0), (partition_for("ana", 4), 0), (partition, 1)]
        assert len(log.read(DEAD_LETTERS.name, partition, 0, 10)) == 2
