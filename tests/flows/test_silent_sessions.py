"""Sessions end by silence though nobody says anything more: by a timer that publishes commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.maintenance.publishing import SilenceTimer
from palimpsest.schemas.commands import SessionEndCommand, SetFlagsCommand
from palimpsest.schemas.topics import MEMORY_COMMANDS, MEMORY_WRITES
from palimpsest.stores.shard import Shard
from tests.harness import Pipeline
from tests.messages import BEGIN, turn
from tests.sessions_by_hand import ends_told, listed


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


def say(pipeline: Pipeline, session_id: str, content: str, scope: str = "ana") -> None:
    pipeline.ingest(turn(content, content, session_id=session_id), scope=scope)


def timer(pipeline: Pipeline, **flags: Any) -> SilenceTimer:
    all_scopes = pipeline.settings.pipeline.model_copy(update=flags)
    settings = pipeline.settings.model_copy(update={"pipeline": all_scopes})
    shards = {0: pipeline.shard}
    return SilenceTimer(lambda: shards, pipeline.log, pipeline.log.append, settings, pipeline.clock)


def look(pipeline: Pipeline, silence: SilenceTimer | None = None) -> None:
    asyncio.run((silence or timer(pipeline)).look(0, pipeline.shard))


def commands(pipeline: Pipeline) -> int:
    return len(pipeline.records(MEMORY_COMMANDS))


def test_the_last_session_of_a_scope_ends(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    say(pipeline, "", "of no session")
    pipeline.run()
    pipeline.clock.advance(minutes=29)
    look(pipeline)
    assert commands(pipeline) == 0
    pipeline.clock.advance(minutes=91)
    look(pipeline)
    pipeline.run()
    assert listed(pipeline) == {"a": "silence"}
    assert ends_told(pipeline) == [("a", "silence", 1, 1)]
    # When it had been silent for so long, not when somebody looked.
    [row] = pipeline.rows("SELECT ended_at FROM sessions WHERE session_id = 'a'")
    assert row["ended_at"] == BEGIN + timedelta(minutes=30)
    [who] = pipeline.values("SELECT changed_by FROM history_rows WHERE event = 'session-ended'")
    assert who == "silence"


def test_the_same_silence_ends_a_session_once(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    silence = timer(pipeline)
    for _ in range(3):  # not again while it is on its way
        look(pipeline, silence)
    assert commands(pipeline) == 1
    # Another process, which was not there before: what is in the log is waited for.
    look(pipeline)
    assert commands(pipeline) == 1
    # Two at once, as where a partition moves: the second changes nothing.
    [record] = pipeline.records(MEMORY_COMMANDS)
    pipeline.raw(MEMORY_COMMANDS, record.value)
    pipeline.run()
    look(pipeline, silence)
    assert commands(pipeline) == 2
    assert ends_told(pipeline) == [("a", "silence", 1, 1)]
    assert pipeline.dead_letters() == []


def test_a_turn_that_is_on_its_way_lets_the_session_go_on(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    silence = timer(pipeline)
    say(pipeline, "a", "two")
    look(pipeline, silence)  # the turn waits in the log: nothing is done before it is applied
    assert commands(pipeline) == 0
    pipeline.run()
    look(pipeline, silence)
    assert commands(pipeline) == 0
    assert listed(pipeline) == {"a": None}


def test_a_turn_that_overtakes_the_command_wins(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    look(pipeline)
    say(pipeline, "a", "two")
    pipeline.run("normalize")
    first, second = [record.value for record in pipeline.records(MEMORY_WRITES)][-2:]
    assert {b"session-end" in (first or b""), b"session-end" in (second or b"")} == {True, False}
    pipeline.run()
    # By the turn, or by the command and then opened again by the turn: once in either order.
    assert listed(pipeline) == {"a": None}
    assert ends_told(pipeline) == [("a", "silence", 1, 1)]
    pipeline.clock.advance(hours=1)
    look(pipeline)
    pipeline.run()
    assert ends_told(pipeline)[1:] == [("a", "silence", 2, 2)]


def test_a_command_for_a_turn_before_the_newest_ends_nothing(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.run()
    [turn_id] = pipeline.values("SELECT last_turn FROM session_rows")
    say(pipeline, "a", "two")
    pipeline.run()
    pipeline.command(SessionEndCommand(session_id="a", after_turn=turn_id))
    pipeline.run()
    assert pipeline.result()[1]["status"] == "went_on"
    assert listed(pipeline) == {"a": None}


def test_frozen_scopes_are_left_as_they_are(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    say(pipeline, "b", "two", scope="ben")
    pipeline.command(SetFlagsCommand(autonomous_frozen=True))
    pipeline.command(SetFlagsCommand(autonomous_frozen=False), scope="ben")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    look(pipeline)
    pipeline.run()
    assert (listed(pipeline), listed(pipeline, "ben")) == ({"a": None}, {"b": "silence"})


def test_where_all_is_frozen_only_scopes_that_are_not_are_looked_at(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    say(pipeline, "b", "two", scope="ben")
    pipeline.command(SetFlagsCommand(autonomous_frozen=False), scope="ben")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    look(pipeline, timer(pipeline, autonomous_frozen=True))
    pipeline.run()
    assert (listed(pipeline), listed(pipeline, "ben")) == ({"a": None}, {"b": "silence"})


def test_a_partition_that_comes_back_is_waited_for_anew(pipeline: Pipeline) -> None:
    """What was on its way when it was here before is not what is on its way now."""

    say(pipeline, "a", "one")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    say(pipeline, "b", "in another scope", scope="ben")
    shards: dict[int, Shard] = {0: pipeline.shard}
    known = (pipeline.log, pipeline.log.append, pipeline.settings, pipeline.clock)
    silence = SilenceTimer(lambda: shards, *known)

    def looks() -> None:
        asyncio.run(silence.once())

    looks()
    pipeline.run()
    shard = shards.pop(0)
    looks()
    shards[0] = shard
    say(pipeline, "a", "two")
    looks()
    assert commands(pipeline) == 0


def test_a_partition_that_has_moved_on_keeps_nobody_busy(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.run()
    pipeline.clock.advance(hours=1)
    silence = timer(pipeline)
    assert silence.busy()
    pipeline.shard.close()
    assert not silence.busy()


@pytest.mark.parametrize("step", ["step", "commit", "send"])
def test_a_crash_ends_it_once(tmp_path: Path, step: str) -> None:
    with Pipeline(tmp_path) as pipeline:
        say(pipeline, "a", "one")
        pipeline.run()
        pipeline.clock.advance(hours=1)
        look(pipeline)
        pipeline.crash_at("apply-writes", step)
        pipeline.run_through()
        look(pipeline)
        pipeline.run()
        assert ends_told(pipeline) == [("a", "silence", 1, 1)]


def test_a_rebuild_comes_to_the_same_ends(tmp_path: Path) -> None:
    tables = ("session_rows", "open_sessions")
    with Pipeline(tmp_path / "a") as pipeline:
        for session in ("a", "b"):
            say(pipeline, session, f"in {session}")
            pipeline.run()
            pipeline.clock.advance(hours=1)
            look(pipeline)
            pipeline.run()
        before, records = pipeline.state_with_times(tables), pipeline.records(MEMORY_WRITES)
        assert listed(pipeline) == {"a": "silence", "b": "silence"}
    with Pipeline(tmp_path / "b") as rebuilt:
        for record in records:
            rebuilt.clock.time = record.timestamp
            rebuilt.raw(MEMORY_WRITES, record.value)
        rebuilt.run("apply-writes")
        assert rebuilt.state_with_times(tables) == before
