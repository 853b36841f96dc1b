"""Stores made anew from the topics of a real broker, beside a worker and in the place of a lost
one; the group is never disturbed."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.replay.branches import branch_folder
from palimpsest.ops.replay.repartition import repartition
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.streams.kafka.cluster import ROLES
from tests.rebuilding import rebuilt
from tests.soak.lab import Lab, MakeLab, different, states_of

PARTITIONS = 2
TURNS = 40


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(PARTITIONS)


def test_stores_are_made_anew_from_topics_and_take_the_place_of_lost_ones(lab: Lab) -> None:
    lab.publish(records(Load(TURNS, 4)))
    lab.start("one")
    lab.until_drained()
    noted = {role: lab.log.committed(role) for role in ROLES}
    beside = rebuilt(lab.settings)
    found = [(each.not_compared, each.differing) for each in beside.partitions]
    assert found == [(None, {}), (None, {})], beside
    assert sum(each.embedded for each in beside.partitions) == 0
    assert {role: lab.log.committed(role) for role in ROLES} == noted
    assert {role: lab.members(role) for role in ROLES} == dict.fromkeys(ROLES, 1)
    lab.stop("one")
    live = lab.states()
    assert different(live, states_of(branch_folder(lab.settings, "rebuild"))) == []
    dealt = asyncio.run(repartition(lab.settings, Rebuild(name="three", shards=3)))
    assert dealt.is_equal
    assert different(live, states_of(branch_folder(lab.settings, "three"))) == []
    shutil.rmtree(lab.folder / "data" / "shards" / "1")
    done = rebuilt(lab.settings, swap=True)
    assert [each.not_compared for each in done.partitions] == [None, "there is none"]
    assert done.kept is not None
    assert different(live, lab.states()) == []
    lab.start("two")
    lab.until_owned(1)
    lab.until_drained()
    assert lab.status()["balance"]["holds"] is True  # type: ignore[index, call-overload]
    lab.stop("two")
    assert different(live, lab.states()) == []
