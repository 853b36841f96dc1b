"""Privacy levels: of a speaker at `full` nothing is kept but a count, from the level's offset on."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance.withholding import Withholding
from palimpsest.schemas.commands import (
    Actor,
    RememberCommand,
    SetPrivacyCommand,
)
from palimpsest.schemas.topics import MEMORY_WRITES
from tests.erased_bytes import where
from tests.harness import FULL, Pipeline, differing, pipeline_settings
from tests.messages import published, turn

SECRET = "The spare key lies under the third flowerpot"
KEPT = "Ben works at a bakery in Ghent"
AGENT = Actor(id="bot", type="agent")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        yield running


def level(person: str | None, wanted: Any, reason: str = "asked for") -> SetPrivacyCommand:
    return SetPrivacyCommand(person=person, level=wanted, reason=reason)


def tidy(pipeline: Pipeline) -> int:
    """What goes on beside the stages of a worker."""
    return Withholding(pipeline.log, [pipeline.shard], wanted=True).once()


def turns(pipeline: Pipeline) -> Counter[tuple[str, str]]:
    rows = pipeline.rows("SELECT event, reason FROM outcomes WHERE item_kind = 'turn'")
    return Counter((row["event"], row["reason"]) for row in rows)


REJECTED = ("rejected", "privacy_full")
STORED = ("created", "turn stored")


def test_of_a_private_speaker_only_a_count_is_kept(pipeline: Pipeline) -> None:
    pipeline.command(level("Ana", "full"))
    pipeline.run()
    pipeline.say(SECRET)
    pipeline.say(KEPT, first=2, speaker="Ben")
    pipeline.run()
    tidy(pipeline)
    pipeline.shard.vector_table().sync()
    assert turns(pipeline) == {REJECTED: 1, STORED: 1}
    assert where(pipeline.folder, SECRET, "flowerpot") == []
    assert where(pipeline.folder, KEPT)
    balance = pipeline.balance()
    assert balance.holds
    assert (balance.turns["rejected"], balance.turns["stored"]) == (1, 1)
