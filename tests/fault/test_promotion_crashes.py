"""A promotion is done as a whole and once, wherever the process ends."""

from __future__ import annotations

from pathlib import Path

from palimpsest.schemas.promotion_commands import RollbackPromotionCommand
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


def whole(folder: Path, batch: int) -> tuple[dict[str, str], dict[str, str]]:
    with told(folder, batch) as pipeline:
        promoting(pipeline.run()).run()
        promoted = pipeline.state_by_table()
        pipeline.command(BACK, first=9)
        pipeline.run()
        return promoted, pipeline.state_by_table()


def test_the_state_does_not_depend_on_batches(tmp_path: Path) -> None:
    states = [whole(tmp_path / str(batch), batch) for batch in (1, 3, 256)]
    for promoted, rolled_back in states[1:]:
        assert differing(states[0][0], promoted) == []
        assert differing(states[0][1], rolled_back) == []


def test_a_crash_at_any_step_changes_nothing(tmp_path: Path) -> None:
    promoted, rolled_back = whole(tmp_path / "whole", 256)
    with told(tmp_path / "steps", 2) as pipeline:
        promoting(pipeline.run())
        pipeline.happened.clear()
        pipeline.run()
        stages = ("normalize", "apply-writes", "graph-persist", "audit")
        places = sorted(place for place in pipeline.happened if place[0] in stages)
    assert len(places) >= 12
    for number, (stage, step) in enumerate(places):
        with told(tmp_path / str(number), 2) as pipeline:
            pipeline.run()
            promoting(pipeline)
            pipeline.crash_at(stage, step, 1 + number % 2)
            pipeline.run_through()
            assert differing(promoted, pipeline.state_by_table()) == [], (stage, step)
            pipeline.command(BACK, first=9)
            pipeline.crash_at(stage, step)
            pipeline.run_through()
            assert differing(rolled_back, pipeline.state_by_table()) == [], (stage, step)
            assert pipeline.balance().holds


def test_a_rebuild_from_the_log_comes_to_the_same(tmp_path: Path) -> None:
    with told(tmp_path / "live", 3) as pipeline:
        promoting(pipeline.run()).run()
        pipeline.command(BACK, first=9)
        pipeline.run()
        expected = pipeline.state_by_table()
        pipeline.close()
        (tmp_path / "live" / "shard").rename(tmp_path / "gone")
        pipeline.reopen().run()
        assert differing(expected, pipeline.state_by_table()) == []
