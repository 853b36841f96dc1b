"""Scheduled maintenance: what it repairs, when it waits, and that it goes on after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.embedding.tracker import catch_up
from palimpsest.ops.health import repairs
from palimpsest.ops.health.repairs import Plan, Repair, maintain, repair_state
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.ops.settings.sections import MaintenanceSettings
from palimpsest.schemas.commands import ForgetCommand, SetFlagsCommand
from tests.fault.driver import processes
from tests.flows.test_health import REPAIRED, TALK, change, poison, repaired
from tests.harness import Pipeline, differing
from tests.rebuilding import opened, rebuilt, settings_of

NO_POSTINGS = ("DELETE FROM fts_docs WHERE scope = 'ana'",)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with opened(tmp_path) as pipeline:
        pipeline.say(*TALK)
        pipeline.say(TALK[0], scope="ben")
        pipeline.run()
        yield pipeline


def run(pipeline: Pipeline, sweep: Any = None, **settings: Any) -> str:
    """One run of the job at the clock's time, and of the stages after it."""
    given = MaintenanceSettings.model_validate({"mode": "execute", **settings})
    told = asyncio.run(
        maintain(
            JobContext(
                pipeline.shard,
                0,
                pipeline.clock(),
                pipeline.settings.model_copy(update={"maintenance": given}),
                pipeline.log,
                pipeline.log.append,
            ),
            sweep,
        )
    )
    pipeline.run()
    return told


def told_in_history(pipeline: Pipeline) -> list[dict[str, Any]]:
    rows = pipeline.rows("SELECT * FROM history_rows WHERE event = 'repaired' ORDER BY created_at")
    return [{**row, **json.loads(row["metadata"])} for row in rows]


def test_it_only_says_what_it_would_do_unless_it_may(pipeline: Pipeline) -> None:
    assert run(pipeline) == "nothing to repair"
    change(pipeline, *NO_POSTINGS)
    hurt = pipeline.state_by_table()
    told = run(pipeline, mode="observe")
    assert "index: 9 memories without postings" in told
    assert "(`palimpsest repair index`)" in told
    assert pipeline.state_by_table() == hurt


@pytest.mark.parametrize("name", ["no postings", "counts too low", "no vectors", "dead letters"])
def test_a_repair_is_told_with_its_figures(name: str, pipeline: Pipeline) -> None:
    if name == "dead letters":
        poison(pipeline)
    else:
        REPAIRED[name].do(pipeline)
    domain = "queue" if name == "dead letters" else REPAIRED[name].domain
    assert "; repaired, score 0" in run(pipeline)
    asyncio.run(catch_up(pipeline.shard, pipeline.embedding))  # as the worker's tracker does
    pipeline.clock.advance(minutes=30)
    assert run(pipeline) == "nothing to repair"
    told = told_in_history(pipeline)
    assert {row["domain"] for row in told} == {domain}
    assert {row["changed_by"] for row in told} == {"maintenance"}
    assert all(row["figures"] for row in told)
    assert told[-1]["score_before"] < told[-1]["score_after"] == 1.0
    pipeline.close()
    assert rebuilt(settings_of(pipeline.folder)).is_equal


def test_a_repair_waits_for_its_cooldown_and_its_budget(pipeline: Pipeline) -> None:
    change(pipeline, *NO_POSTINGS)
    assert "repaired, score" in run(pipeline)
    change(pipeline, *NO_POSTINGS)
    pipeline.clock.advance(minutes=59)
    assert "repaired less than 60 minutes ago" in run(pipeline)
    pipeline.reopen()  # as a worker that starts again
    assert "repaired less than 60 minutes ago" in run(pipeline)
    pipeline.clock.advance(minutes=1)
    assert "repaired, score" in run(pipeline)
    budget = {"cooldown_minutes": 0, "hourly_budget": 2}
    change(pipeline, *NO_POSTINGS)
    assert "repaired, score" in run(pipeline, **budget)
    change(pipeline, *NO_POSTINGS)
    pipeline.clock.advance(minutes=59)
    assert "repaired 2 times in this hour" in run(pipeline, **budget)
    pipeline.clock.advance(minutes=1)
    assert "repaired, score" in run(pipeline, **budget)


def test_what_does_not_help_is_halted_until_all_is_well(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    async def in_vain(repair: Repair, domain: str, plan: Plan) -> bool:
        tries.append(domain)
        return True

    change(pipeline, *NO_POSTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(Repair, "act", in_vain)
        for _ in range(5):
            pipeline.clock.advance(hours=1)
            told = run(pipeline)
    assert tries == ["index"] * 3
    assert "halted: 3 repairs in a row did not help" in told
    pipeline.reopen()
    pipeline.clock.advance(hours=1)
    assert "halted" in run(pipeline)
    assert repair_state(pipeline.shard, "index").is_halted
    # By hand it is repaired all the same; then maintenance may again.
    assert repaired(pipeline, "index")["score_after"] == 1.0
    assert run(pipeline) == "nothing to repair"
    change(pipeline, *NO_POSTINGS)
    pipeline.clock.advance(hours=1)
    assert "repaired, score" in run(pipeline)


@pytest.mark.parametrize("flag", ["autonomous_frozen", "mutations_frozen"])
def test_a_frozen_scope_stays_as_it_is(flag: str, pipeline: Pipeline) -> None:
    flags = SetFlagsCommand.model_validate({flag: True})
    pipeline.command(flags, first=7)
    pipeline.run()
    change(pipeline, *NO_POSTINGS)
    before = pipeline.state_by_table()
    assert "nothing that may be repaired now" in run(pipeline)
    assert pipeline.state_by_table() == before
    change(pipeline, "DELETE FROM fts_docs WHERE scope = 'ben'")
    assert "repaired, score" in run(pipeline)
    assert [row["scope"] for row in told_in_history(pipeline)] == ["ben"]


# ---- kill -9 ----
PLACES = ("keep_state", "first write", "second write", "record")


def killed_at(folder: Path, place: str) -> None:
    """Runs maintenance and ends without a word at this place."""

    def die(*_: object, **__: object) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    write, calls = repairs.write_postings, []

    def count(*given: Any) -> None:
        calls.append(given)
        write(*given)
        if len(calls) == (1 if place == "first write" else 2):
            die()

    repairs.BATCH = 3  # type: ignore[misc]
    if place == "keep_state":
        Repair.act = die  # type: ignore[method-assign]
    elif place == "record":
        Repair.record = die  # type: ignore[method-assign]
    else:
        repairs.write_postings = count
    with opened(folder) as pipeline:
        run(pipeline)


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_in_the_middle_of_a_repair(place: str, tmp_path: Path) -> None:
    """The next run does what is left, without waiting, and the store is as it was."""
    with opened(tmp_path) as pipeline:
        pipeline.say(*TALK)
        pipeline.run()
        before = pipeline.state_by_table()
        change(pipeline, "DELETE FROM fts_docs", "DELETE FROM fts_postings")
    process = processes().Process(target=killed_at, args=(tmp_path, place))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with opened(tmp_path) as pipeline:
        pipeline.clock.time += timedelta(minutes=1)
        run(pipeline)
        assert run(pipeline) == "nothing to repair"
        assert {*differing(pipeline.state_by_table(), before)} <= {
            "history_rows",
            "command_results",
        }
        assert not repair_state(pipeline.shard, "index").is_halted
        assert len(told_in_history(pipeline)) == 1


def test_the_state_of_repairs_is_no_memory(pipeline: Pipeline) -> None:
    before = pipeline.state()
    state = repairs.RepairState(runs=("2026-03-01T10:00:00+00:00",), failures=2)
    asyncio.run(repairs.keep_state(pipeline.shard, "graph", state))
    assert repair_state(pipeline.reopen().shard, "graph") == state
    assert pipeline.state() == before


def test_many_forgotten_memories_are_swept(pipeline: Pipeline) -> None:
    swept: list[int] = []

    async def sweep(context: JobContext) -> None:
        swept.append(context.partition)

    ids = pipeline.values("SELECT memory_id FROM memory_rows LIMIT 6")
    pipeline.command(ForgetCommand(memory_ids=tuple(ids), reason="x"), first=8)
    pipeline.run()
    assert "nothing that may be repaired now" in run(pipeline)
    assert "storage: " in run(pipeline, sweep=sweep)
    assert swept == [0]
