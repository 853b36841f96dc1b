"""Recalls weigh the aspects of entities, and time takes it away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.lifecycle.access import RECORDER
from palimpsest.ops.lifecycle.aspects import GAIN, LOSS, WEIGHER, aspects
from palimpsest.ops.operations.graph import GetEntity
from palimpsest.ops.operations.scopes import GraphStatistics
from palimpsest.schemas.aspects import AspectChange, WeighAspectsCommand
from palimpsest.schemas.commands import (
    ForgetCommand,
    RecalledMemory,
    RecordAccessCommand,
    RecordedRecall,
    RememberCommand,
    SessionEndCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute
from palimpsest.schemas.rows.graph import LEAST_WEIGHT, MOST_WEIGHT
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from tests.flows.test_erasing import assert_rebuilt_is_the_same, erase
from tests.flows.test_graph import memory_id
from tests.flows.test_profiles import SETTINGS, fold_again
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.sessions_by_hand import ask
from tests.sweeping import context_of


def ruled(aspect: str, text: str) -> RememberCommand:
    attribute = StructuredAttribute(entity="Ana", aspect=aspect, kind="constraint")
    return RememberCommand(content=text, structured=Structure(attributes=(attribute,)))


TOLD = (ruled("diet", "Ana eats no nuts"), ruled("home", "Ana lives in Porto"))


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", SETTINGS) as made:
        made.command(*TOLD)
        yield made.run()


def recalled(pipeline: Pipeline, *memory_ids: str, session: str = "s1", first: int = 10) -> None:
    results = tuple(RecalledMemory(memory_id=each, rank=n) for n, each in enumerate(memory_ids, 1))
    recall = RecordedRecall(
        recall_id=f"r{first}",
        kind="recall",
        at=pipeline.clock(),
        session_id=session,
        results=results,
    )
    pipeline.command(RecordAccessCommand(recalls=(recall,)), actor=RECORDER, first=first)
    pipeline.run()


def run(pipeline: Pipeline, follow: bool = True, minutes: int = 31, **given: Any) -> str:
    """By default after a silence that ends sessions."""
    pipeline.clock.advance(minutes=minutes)
    done = asyncio.run(aspects(replace(context_of(pipeline), **given)))
    if follow:
        pipeline.run()
    return done


def weights(pipeline: Pipeline) -> dict[str, float]:
    rows = pipeline.rows("SELECT name, round(weight, 6) AS weight FROM entity_aspects")
    return {row["name"]: row["weight"] for row in rows}


def test_recalled_aspects_gain_once_and_come_first(pipeline: Pipeline) -> None:
    assert weights(pipeline) == {"diet": 0.5, "home": 0.5}
    recalled(pipeline, memory_id(2))
    recalled(pipeline, memory_id(2), first=11)
    assert run(pipeline) == "1 aspect gains by 1 session, 0 lose"
    assert weights(pipeline) == {"diet": 0.5, "home": 0.5 + GAIN}
    assert run(pipeline) == "0 aspects gain by 0 sessions, 0 lose"
    found = ask(pipeline, GetEntity("Ana", "ana"))["attributes"]
    assert [each["aspect"] for each in found] == ["home", "diet"]
    block = asyncio.run(Retriever(pipeline.shard).context(Query("ana", "Who is Ana?"), budget=200))
    assert block is not None
    assert block.text.index("Porto") < block.text.index("nuts")
    recalled(pipeline, *map(memory_id, (1, 2)), first=12)
    assert run(pipeline) == "2 aspects gain by 1 session, 0 lose"
    assert weights(pipeline) == {"diet": 0.5 + GAIN, "home": 0.5 + 2 * GAIN}
    counts = ask(pipeline, GraphStatistics("ana"))["aspects"]
    assert (counts["confirmed"], counts["confirmations"], counts["decayed"]) == (2, 3, 0)


def test_a_session_that_goes_on_is_not_counted_yet(pipeline: Pipeline) -> None:
    recalled(pipeline, memory_id(1), session="")
    recalled(pipeline, memory_id(1), session="s2", first=11)
    pipeline.clock.advance(minutes=28)
    pipeline.say("Hello", session_id="s2")
    pipeline.run()
    assert run(pipeline, minutes=5) == "0 aspects gain by 0 sessions, 0 lose"
    pipeline.command(SessionEndCommand(session_id="s2"), first=20)
    pipeline.run()
    assert run(pipeline, minutes=0) == "1 aspect gains by 1 session, 0 lose"


def test_what_nothing_recalls_loses_once_a_night(pipeline: Pipeline) -> None:
    pipeline.clock.advance(days=15)
    recalled(pipeline, memory_id(2))
    assert run(pipeline) == "1 aspect gains by 1 session, 2 lose"
    # The one that was recalled had been stale until then.
    assert weights(pipeline) == {"diet": 0.5 - LOSS, "home": 0.5 + GAIN - LOSS}
    assert run(pipeline) == "0 aspects gain by 0 sessions, 0 lose"
    pipeline.clock.advance(days=1)
    assert run(pipeline) == "0 aspects gain by 0 sessions, 1 lose"
    assert weights(pipeline)["diet"] == 0.5 - 2 * LOSS
    assert ask(pipeline, GraphStatistics("ana"))["aspects"]["decayed"] == 2


def test_weights_stay_in_their_bounds_and_belong_to_a_scope(pipeline: Pipeline) -> None:
    [diet, home] = pipeline.values("SELECT aspect_id FROM entity_aspects ORDER BY name")
    changes = [
        AspectChange(aspect_id=home, change=1, confirmations=1),
        AspectChange(aspect_id=home, change=1, confirmations=1),
        AspectChange(aspect_id=diet, change=-1),
        AspectChange(aspect_id=diet, change=-1),
    ]
    command = WeighAspectsCommand(aspects=tuple(changes))
    pipeline.command(command, first=3)
    pipeline.run()
    assert pipeline.result(3)[0].startswith("forbidden")
    pipeline.command(command, actor=WEIGHER, first=4)
    pipeline.run()
    assert weights(pipeline) == {"diet": LEAST_WEIGHT, "home": MOST_WEIGHT}
    rows = pipeline.rows("FROM internal.aspect_weights ORDER BY gain")
    assert [row["gain"] for row in rows] == [-0.4, 0.5]
    pipeline.clock.advance(days=15)
    assert run(pipeline) == "0 aspects gain by 0 sessions, 1 lose"


def test_frozen_scopes_and_forgotten_memories_gain_nothing(pipeline: Pipeline) -> None:
    recalled(pipeline, *map(memory_id, (1, 2)))
    pipeline.command(ForgetCommand(memory_ids=(memory_id(1),), reason="asked"), first=20)
    pipeline.command(SetFlagsCommand(autonomous_frozen=True), first=21)
    pipeline.run()
    assert run(pipeline) == "0 aspects gain by 0 sessions, 0 lose"
    pipeline.command(SetFlagsCommand(autonomous_frozen=False), first=22)
    pipeline.run()
    assert run(pipeline) == "1 aspect gains by 1 session, 0 lose"
    assert ask(pipeline, GraphStatistics("ana"))["aspects"]["superseded"] == 1


def test_what_a_memory_that_has_ended_says_of_an_aspect_is_superseded(pipeline: Pipeline) -> None:
    pipeline.command(ruled("diet", "Ana eats no bread until Friday"), first=3)
    pipeline.run()
    told = "SELECT name, status FROM entity_attributes JOIN entity_aspects USING (aspect_id)"
    assert pipeline.rows(f"{told} ORDER BY ALL") == [
        {"name": "diet", "status": "active"},
        {"name": "diet", "status": "superseded"},
        {"name": "home", "status": "active"},
    ]
    assert ask(pipeline, GraphStatistics("ana"))["aspects"]["superseded"] == 1


@pytest.mark.parametrize("appended", [False, True])
def test_a_session_is_counted_once(pipeline: Pipeline, appended: bool) -> None:
    """Killed before and after the commands are in the log."""
    recalled(pipeline, memory_id(1))

    def killed(records: Any) -> None:
        if appended:
            pipeline.log.append(records)
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        run(pipeline, follow=False, append=killed)
    run(pipeline, follow=False)
    run(pipeline)
    assert weights(pipeline)["diet"] == 0.5 + GAIN
    assert pipeline.dead_letters() == []


def test_a_rebuild_has_the_same_weights(pipeline: Pipeline, tmp_path: Path) -> None:
    recalled(pipeline, memory_id(1))
    run(pipeline)
    pipeline.clock.advance(days=15)
    run(pipeline)
    with Pipeline(tmp_path / "rebuilt", SETTINGS) as rebuilt:
        fold_again(pipeline, rebuilt)
        assert weights(rebuilt) == weights(pipeline) == {"diet": 0.515, "home": 0.495}
        assert rebuilt.state() == pipeline.state()


def test_a_weight_outlives_the_fact_that_made_its_aspect(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        running.command(TOLD[0])
        running.run()
        recalled(running, memory_id(1))
        run(running)
        running.command(ruled("diet", "Ana eats at six"), first=30)
        running.run()
        erase(running, memory_id(1))
        assert weights(running) == {"diet": 0.5 + GAIN}
        assert_rebuilt_is_the_same(running, tmp_path / "anew")
