"""A branch is promoted on a real broker and rolled back, while turns keep arriving and processes
are killed; afterwards the stores are made anew from the topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from palimpsest.ops.replay.branches import branch_folder, read_branch
from palimpsest.ops.replay.promotion import promote, rollback
from palimpsest.ops.replay.reextraction import differing, reextract
from palimpsest.ops.replay.requests import Promote, Reextract, ReplayProgress, Report, Rollback
from tests.branches_by_hand import outgoing_turn
from tests.flows.program import until
from tests.rebuilding import rebuilt
from tests.replayed import provider
from tests.soak.lab import Lab, MakeLab, opened
from tests.traffic import Traffic

PARTITIONS = 2
SCOPES = ("ana", "ben", "kim", "eve")
OLD = [f"I like old dish {number}." for number in range(6)]
ANEW = {
    text: (f"Ana likes the very old dish {number}", f"Somebody {number} came along")
    for number, text in enumerate(OLD)
}


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(
        PARTITIONS, overrides=("decision.decider=rules", "pipeline.shadow_deciders=rules")
    )


async def branch(lab: Lab) -> None:
    """Another model draws other facts from the old turns."""
    async with provider({"new": ANEW}) as server:
        own = differing(lab.settings, (f"llm.base_url={server.url}/v1",), "openai", "new")
        made = await reextract(lab.settings, Reextract("better", overrides=own))
    assert (made.ended, made.turns) == ("done", len(OLD) * len(SCOPES))


def drawn(lab: Lab) -> dict[str, list[str]]:
    """Facts of the old turns by scope."""
    found: dict[str, list[str]] = {}
    for row in lab.rows(
        "SELECT scope, content FROM memories WHERE source_type = 'extraction'"
        " AND content NOT LIKE '%new dish%' ORDER BY ALL",
    ):
        found.setdefault(row["scope"], []).append(row["content"])
    return found


def in_all(facts: Iterable[str]) -> dict[str, list[str]]:
    """These facts in each scope."""
    listed = sorted(facts)
    return dict.fromkeys(SCOPES, listed)


def killed_promotion(lab: Lab) -> None:
    """A promotion whose process is killed as soon as it has begun."""

    def begun() -> bool:
        return read_branch(lab.settings, "better").promotion != ""

    lab.begin("promoting", "replay", "promote", "better", "--no-catch-up", "--allow-loss")
    process = lab.workers["promoting"]
    until(lambda: begun() or process.poll() is not None)
    assert process.poll() is None, lab.tail("promoting")
    lab.kill("promoting")


def kills_a_worker(lab: Lab) -> Report:
    """One that is killed once all commands of the promotion are in the log."""

    def report(progress: ReplayProgress) -> None:
        if (progress.phase, progress.done) == ("promoting", 0):
            lab.kill("one")

    return report


def is_whole(lab: Lab, traffic: Traffic) -> None:
    """Nothing is lost and nothing doubled of the turns."""
    assert lab.status()["balance"]["holds"] is True  # type: ignore[index, call-overload]
    sent = len(OLD) * len(SCOPES) + traffic.published
    [row] = lab.rows("SELECT count(*) AS n, count(DISTINCT memory_id) AS ids FROM turns")
    assert (row["n"], row["ids"]) == (sent, sent)


@pytest.mark.soak
def test_promoted_and_rolled_back_while_turns_come_in_and_processes_are_killed(lab: Lab) -> None:
    for name in ("one", "two"):
        lab.start(name)
    lab.publish(outgoing_turn(n, text, scope) for scope in SCOPES for n, text in enumerate(OLD))
    lab.until_owned(2)
    lab.until_drained()
    before = drawn(lab)
    assert before == in_all(f"Ana likes{text[6:]}" for text in OLD)
    asyncio.run(branch(lab))
    with Traffic(lab.settings, SCOPES, "old dish", most=80) as traffic:
        until(lambda: traffic.published >= 10)
        killed_promotion(lab)
        begun = read_branch(lab.settings, "better").promotion
        request = Promote("better", catch_up=False, allow_loss=True)
        end = asyncio.run(promote(lab.settings, request, kills_a_worker(lab)))
        assert end.promotion_id == begun
        assert [each.status for each in end.scopes] == ["applied"] * len(SCOPES), end
        lab.start("three")
        until(lambda: traffic.published >= 80)
        lab.until_drained()
        assert drawn(lab) == in_all(fact for facts in ANEW.values() for fact in facts)
        is_whole(lab, traffic)
        is_rebuilt(lab)
        undo = Rollback(end.promotion_id)
        back = asyncio.run(rollback(lab.settings, undo))
        assert {each.status for each in back.scopes} == {"rolled-back"}
        assert traffic.answered > 5
    lab.until_drained()
    assert drawn(lab) == before
    is_whole(lab, traffic)
    for name in ("two", "three"):
        lab.stop(name)


def is_rebuilt(lab: Lab) -> None:
    """What was promoted, and what further deciders said, comes out of the topics again."""
    [said] = lab.rows("SELECT count(*) AS n FROM shadow_proposals")
    assert said["n"] > 0
    beside = rebuilt(lab.settings)
    found = [(each.not_compared, each.differing) for each in beside.partitions]
    assert found == [(None, {}), (None, {})], beside
    with opened(branch_folder(lab.settings, "rebuild") / "shards/0/memory.duckdb") as store:
        for table in ("promotion_rows", "shadow_proposals"):
            assert store.execute(f"SELECT count(*) FROM internal.{table}").fetchall() != [(0,)]
