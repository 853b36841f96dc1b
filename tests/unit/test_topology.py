"""Every stage is named wherever stages are listed."""

from __future__ import annotations

from itertools import chain

import pytest

from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.kafka.cluster import READ_BY, ROLES
from palimpsest.streams.topology import STAGE_NAMES, stages
from tests.source_modules import ROOT

STAGES = stages(Settings())


def test_the_stages_are_those_named_each_in_a_file_of_its_name() -> None:
    assert tuple(stage.name for stage in STAGES) == STAGE_NAMES
    for name in STAGE_NAMES:
        file = f"{name.replace('-', '_')}.py"
        assert len([*(ROOT / "streams").glob(file), *(ROOT / "streams").glob(f"*/{file}")]) == 1


def test_every_stage_has_one_role() -> None:
    assert sorted(chain.from_iterable(ROLES.values())) == sorted(STAGE_NAMES)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_commits_offsets_in_what_its_stages_read(role: str) -> None:
    read = {topic.name for stage in STAGES if stage.name in ROLES[role] for topic in stage.reads}
    assert read == set(READ_BY[role])


def test_every_stage_is_drawn() -> None:
    drawn = (ROOT / "streams" / "topology.py").read_text(encoding="utf-8").split('"""')[1]
    assert [name for name in STAGE_NAMES if name not in drawn] == []
