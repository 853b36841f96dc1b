"""A promotion is done as a whole and once, wherever the process ends."""

from __future__ import annotations

from pathlib import Path

from palimpsest.schemas.commands import RollbackPromotionCommand
from palimpsest.streams.runtime.runner import STEPS
from tests.fault.stops import run_and_copy
from tests.flows.scripted import scripted
from tests.harness import Pipeline, differing
from tests.promotions_by_hand import changes, parts, told

BACK = RollbackPromotionCommand(promotion_id="p1")


def promoting(pipeline: Pipeline) -> Pipeline:
    """A promotion in three parts, of which every one is sent twice, as by one who began again."""
    given = [*parts(changes(pipeline), 3)]
    pipeline.command(*given[:2], first=1)
    pipeline.command(*given, first=4)
    pipeline.say("Ana moved to Bergen", first=20)
    return pipeline


PROMOTING = ("normalize", "apply-writes")
"""What is said meanwhile is decided when they are done: else it may see any part of it."""


def whole(folder: Path, batch: int) -> tuple[dict[str, str], dict[str, str]]:
    with told(folder, batch) as pipeline:
        promoting(pipeline.run()).run(*PROMOTING).run()
        promoted = pipeline.state_by_table()
        pipeline.command(BACK, first=9)
        pipeline.run()
        return promoted, pipeline.state_by_table()


def test_the_state_does_not_depend_on_batches(tmp_path: Path) -> None:
    one, many = (whole(tmp_path / str(batch), batch) for batch in (1, 256))
    assert differing(one[0], many[0]) == []
    assert differing(one[1], many[1]) == []


def test_a_crash_at_any_step_changes_nothing(tmp_path: Path) -> None:
    """At every step of the stage that promotes; what it tells others is read by stages whose own
    steps are crashed elsewhere."""
    promoted, rolled_back = whole(tmp_path / "whole", 256)
    with told(tmp_path / "steps", 2) as pipeline:
        promoting(pipeline.run())
        stops = {("apply-writes", step, 2) for step in STEPS}
        stopped = run_and_copy(pipeline, stops.__contains__, tmp_path, *PROMOTING)
    assert stopped.keys() == stops
    for stop, folder in stopped.items():
        with scripted(folder, batch=2) as pipeline:
            pipeline.run(*PROMOTING).run()
            assert differing(promoted, pipeline.state_by_table()) == [], stop
            pipeline.command(BACK, first=9)
            pipeline.crash_at(*stop[:2])
            pipeline.run_through()
            assert differing(rolled_back, pipeline.state_by_table()) == [], stop
            assert pipeline.balance().holds


def test_a_rebuild_from_the_log_comes_to_the_same(tmp_path: Path) -> None:
    with told(tmp_path / "live") as pipeline:
        promoting(pipeline.run()).run()
        pipeline.command(BACK, first=9)
        pipeline.run()
        expected = pipeline.state_by_table()
        pipeline.close()
        (tmp_path / "live" / "shard").rename(tmp_path / "gone")
        pipeline.reopen()
        for stage in ("apply-writes", "graph-persist", "audit"):
            pipeline.run(stage)
        assert differing(expected, pipeline.state_by_table()) == []
