"""Confidence fades by the curve, night after night; what faded can be recovered."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.lifecycle.decay import preview
from palimpsest.ops.operations.lifecycle.fading import Weak
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.schemas.commands import (
    ConfirmCommand,
    DecayCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.stores.recall.marks import marks_of
from palimpsest.streams.apply import upkeep
from tests.a_year import Year, night
from tests.flows.test_erasing import assert_rebuilt_is_the_same
from tests.harness import FULL, Crash, Pipeline, pipeline_settings

SYSTEM = Actor(id="decay", type="system")
PINNED = "critical: Ana never eats nuts"


def pipeline(folder: Path, **given: Any) -> Pipeline:
    return Pipeline(folder, pipeline_settings(FULL), **given)


def confidences(running: Pipeline) -> dict[str, float]:
    rows = running.rows(
        "SELECT content, confidence FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted"
    )
    return {row["content"]: row["confidence"] for row in rows}


def nights(running: Pipeline, *days: int) -> None:
    """A decay after so many days, and after so many more."""
    for each in days:
        running.clock.advance(days=each)
        night(running, running.clock())
    running.run()


def test_a_year(tmp_path: Path) -> None:
    year = Year(tmp_path / "live", turns=60, days=90, every=30)
    year.live()
    assert year.differences() == []
    shown = asyncio.run(year.shown())
    assert all(math.isclose(a, b, abs_tol=6e-4) for a, b in shown.values())
    gone = [known for known in year.told.values() if known.faded_on is not None]
    stayed = [known for known in year.told.values() if known.faded_on is None]
    assert gone
    assert any(known.accesses for known in stayed)
    assert any(known.rate == 0.0 for known in stayed)
    reasons = year.pipeline.values("SELECT reason FROM history_rows WHERE event = 'deleted'")
    assert len(reasons) == len(gone)
    assert all(each.startswith("its confidence faded to 0.04") for each in reasons)
    assert year.pipeline.balance().holds
    assert_rebuilt_is_the_same(year.pipeline, tmp_path / "anew")


def test_many_nights_are_one_curve_and_one_night_is_the_same(tmp_path: Path) -> None:
    """Also with a command that comes twice, and with days on which no job ran."""
    found = []
    for name, count in (("every other night", 2), ("weekly", 7), ("at once", 28)):
        with pipeline(tmp_path / name) as running:
            running.command(RememberCommand(content="Ana likes tea"))
            running.run()
            for _ in range(28 // count):
                running.clock.advance(days=count)
                night(running, running.clock())
                night(running, running.clock() + timedelta(seconds=1))
            running.run()
            found.append(confidences(running)["Ana likes tea"])
    assert found == pytest.approx([math.exp(-0.1 * 28**0.8)] * 3, abs=1e-12)


def test_what_does_not_fade(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.say("I like cheese")
        running.command(
            RememberCommand(content=PINNED),
            RememberCommand(content="Ben works in Ghent"),
            RememberCommand(content="Rita lives in Porto"),
            RememberCommand(content="Omar plays chess"),
        )
        running.run()
        [ben] = running.values("SELECT memory_id FROM memory_rows WHERE content LIKE 'Ben%'")
        [omar] = running.values("SELECT memory_id FROM memory_rows WHERE content LIKE 'Omar%'")
        machine = Actor(id="agent", type="agent")
        running.command(ConfirmCommand(memory_id=ben), first=10)
        running.command(ConfirmCommand(memory_id=omar), first=11, actor=machine)
        running.run()
        nights(running, 1, 89)
        left = confidences(running)
        assert left == {PINNED.removeprefix("critical: "): 1.0, "Ben works in Ghent": 1.0}
        [turn] = running.rows("FROM memory_rows WHERE type = 'episodic'")
        assert (turn["confidence"], turn["is_deleted"]) == (1.0, False)


def test_a_faded_memory_is_recovered_for_weeks(tmp_path: Path) -> None:
    with pipeline(tmp_path / "live") as running:
        running.command(RememberCommand(content="Ana likes tea"))
        running.run()
        nights(running, 30, 40, 1)
        [row] = running.rows("FROM memory_rows WHERE type <> 'episodic'")
        assert row["is_deleted"]
        [event] = running.rows("FROM history_rows WHERE event = 'deleted'")
        assert "below 0.05" in event["reason"]
        assert "days after it was created" in event["reason"]
        assert event["actor_type"] == "system"
        running.clock.advance(days=20)
        running.command(RecoverCommand(memory_id=row["memory_id"]), first=5)
        running.run()
        assert confidences(running) == {"Ana likes tea": 0.5}
        nights(running, 1)
        assert 0.45 < confidences(running)["Ana likes tea"] < 0.5
        nights(running, 6, 7)
        assert confidences(running)
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_faded_fact_is_not_shown_as_untrue(tmp_path: Path) -> None:
    """The turn that stated it is shown without a mark: the fact may still hold."""
    with pipeline(tmp_path) as running:
        running.say("I like cheese", "My daughter is called Maya")
        running.run()
        nights(running, 1, 89)
        assert confidences(running) == {}
        with running.shard.reading() as reader:
            assert marks_of(reader, "ana", None, running.clock()) == {}


@pytest.mark.parametrize("flag", ["mutations_frozen", "autonomous_frozen"])
def test_nothing_fades_in_a_frozen_scope(tmp_path: Path, flag: str) -> None:
    with pipeline(tmp_path) as running:
        running.command(RememberCommand(content="Ana likes tea"))
        running.command(RememberCommand(content="Ben likes tea"), scope="ben")
        running.command(SetFlagsCommand.model_validate({flag: True}), first=2)
        running.run()
        running.clock.advance(days=5)
        assert night(running, running.clock()) == "1 scopes to fade"
        running.run()
        # One that was appended before the flag was set.
        running.command(DecayCommand(), first=3, actor=SYSTEM)
        running.run()
        assert str(running.result(3)[0]).startswith("frozen")
        assert confidences(running)["Ana likes tea"] == 1.0
        assert confidences(running)["Ben likes tea"] < 1.0


def test_an_older_store_does_not_lose_all_at_once(tmp_path: Path) -> None:
    with pipeline(tmp_path / "live") as running:
        running.command(RememberCommand(content="Ana likes tea"))
        running.run()
        running.clock.advance(days=300)
        running.shard.set_state("decay_since", running.clock().isoformat())
        nights(running, 1)
        curve = math.exp(-0.1 * (301**0.8 - 300**0.8))
        assert confidences(running) == {"Ana likes tea": pytest.approx(curve)}
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_many_memories_take_several_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 3)
    with pipeline(tmp_path / "live", batch=2) as running:
        running.command(*(RememberCommand(content=f"Ana likes tea{n}") for n in range(8)))
        running.run()
        running.clock.advance(days=3)
        running.command(DecayCommand(), first=20, actor=SYSTEM)
        running.run()
        assert running.result(20) == (None, {"faded": 0, "weakened": 8})
        curve = pytest.approx([math.exp(-0.1 * 3**0.8)] * 8)
        assert [*confidences(running).values()] == curve
        running.clock.advance(days=100)
        running.command(DecayCommand(), first=21, actor=SYSTEM)
        running.run()
        assert running.result(21) == (None, {"faded": 8, "weakened": 0})
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


@pytest.mark.parametrize("step", ["step", "commit", "send"])
def test_a_crash_at_any_boundary_changes_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 2)
    states = []
    for crashes in (False, True):
        with pipeline(tmp_path / str(crashes), batch=1) as running:
            running.command(*(RememberCommand(content=f"Ana likes tea{n}") for n in range(3)))
            running.run()
            running.clock.advance(days=3)
            running.command(DecayCommand(), first=20, actor=SYSTEM)
            if crashes:
                running.crash_at("apply-writes", step)
                with pytest.raises(Crash):
                    running.run()
                running.reopen()
            running.run()
            states.append(running.state())
    assert states[0] == states[1]


def test_the_weak_are_listed_with_the_night_on_which_they_go(tmp_path: Path) -> None:
    with pipeline(tmp_path) as running:
        running.command(RememberCommand(content="Ana likes tea"), RememberCommand(content=PINNED))
        running.command(RememberCommand(content="Ben likes tea"), scope="ben")
        running.run()
        began = running.clock()
        nights(running, 1, 44)

        def weak(**given: Any) -> list[dict[str, Any]]:
            known = (running.settings, running.log, {0: running.shard}, 1, running.embedding)
            sources = Sources(*known, running.log.append, now=running.clock)
            answer = asyncio.run(DirectQueries(sources).answer(Weak("ana", **given)))
            sources.sql.close()
            return list(answer["memories"])

        assert weak(below=0.0, days=24) == []
        [found] = weak(below=0.0, days=26)
        assert [each["content"] for each in weak()] == ["Ana likes tea"]
        days = (10 * math.log(20)) ** 1.25
        gone = began + timedelta(days=days)
        assert found["fades_at"][:16] == gone.isoformat()[:16]
        told = preview(running.shard, "ana", 0.05, running.clock() + timedelta(days=26), 5)
        assert (told["weakened"], told["faded"]) == (0, 1)
        nights(running, 20, 5)
        assert "Ana likes tea" in confidences(running)
        nights(running, 1)
        assert "Ana likes tea" not in confidences(running)
