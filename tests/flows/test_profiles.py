"""A language model sums up what is known of an entity; the profile is a memory drawn from facts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.lifecycle.profiles import PROFILER, profiles
from palimpsest.ops.operations.graph import GetEntity
from palimpsest.ops.scheduling.jobs import JobFailed
from palimpsest.schemas.commands import (
    ForgetCommand,
    MemoryVersion,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.topics import (
    CONVERSATION_TURNS,
    FACTS_EXTRACTED,
    MEMORY_COMMANDS,
    MEMORY_WRITES,
)
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.settings import ExtractionSettings
from tests.erased_bytes import where
from tests.flows.test_erasing import assert_rebuilt_is_the_same, erase
from tests.flows.test_graph import memory_id, modified, told
from tests.harness import FULL, HEADERS, Pipeline, pipeline_settings
from tests.sessions_by_hand import ask
from tests.spoken_model import ScriptedModel
from tests.sweeping import context_of

SETTINGS = pipeline_settings().model_copy(update={"extraction": ExtractionSettings(roles=())})
SUMMARY = "Ana lives in Porto and sails."
FACTS = (
    told("Ana lives in Porto", ("Ana", "lives in", "Porto")),
    told("Ana sails with Ben", ("Ana", "sails with", "Ben")),
    told("Ana owns a boat", ("Ana", "owns", "a boat")),
)


class Profiler:
    """The job on a pipeline, with a model that answers `reply`."""

    def __init__(self, pipeline: Pipeline, reply: str = SUMMARY) -> None:
        self.pipeline = pipeline
        self.model = ScriptedModel(lambda prompt: json.dumps({"summary": reply}))
        self.port = ModelPort(self.model, pipeline.embedding)

    def run(self) -> str:
        settings = self.pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
        context = replace(context_of(self.pipeline), models=self.port, settings=settings)
        done = asyncio.run(profiles(context))
        self.pipeline.run()
        return done


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", SETTINGS) as made:
        made.command(*FACTS)
        yield made.run()


def fold_again(pipeline: Pipeline, rebuilt: Pipeline) -> None:
    """The stores from what a rebuild reads of the log: no command, and no model."""
    for topic in (CONVERSATION_TURNS, FACTS_EXTRACTED, MEMORY_WRITES):
        for record in pipeline.log.read(topic.name, 0, 0, 100):
            assert record.key is not None
            key = record.key.decode()
            rebuilt.log.append([Outgoing(topic.name, key, record.key, record.value, HEADERS)])
    rebuilt.run("apply-writes", "graph-persist", "audit")


def stored(pipeline: Pipeline, deleted: bool = False) -> list[dict[str, Any]]:
    return pipeline.rows(
        "SELECT * FROM internal.memory_rows WHERE type = 'profile' AND is_deleted = ?", deleted
    )


def test_an_entity_of_three_facts_gets_a_profile_once(pipeline: Pipeline) -> None:
    profiler = Profiler(pipeline)
    assert profiler.run() == "1 profiles"
    [row] = stored(pipeline)
    assert (row["content"], row["updated_by"]) == (SUMMARY, PROFILER.id)
    [prompt] = profiler.model.prompts
    assert "Ana owns a boat" in prompt.user
    assert ask(pipeline, GetEntity("ana", "ana"))["summary"] == SUMMARY
    edges = pipeline.rows("FROM internal.memory_edges WHERE source_id = ?", row["memory_id"])
    assert {each["target_id"] for each in edges} == {memory_id(n) for n in (1, 2, 3)}
    assert profiler.run() == "0 profiles"
    assert len(profiler.model.prompts) == 1


def test_a_rebuild_repeats_it_without_a_model(pipeline: Pipeline, tmp_path: Path) -> None:
    Profiler(pipeline).run()
    with Pipeline(tmp_path / "rebuilt", SETTINGS) as rebuilt:
        fold_again(pipeline, rebuilt)
        assert stored(rebuilt) == stored(pipeline)
        assert rebuilt.state() == pipeline.state()


def test_a_changed_fact_gives_another_profile_in_the_place_of_the_first(pipeline: Pipeline) -> None:
    Profiler(pipeline).run()
    pipeline.clock.advance(minutes=1)
    pipeline.command(modified(memory_id(1), content="Ana lives in Lisbon"), first=4)
    pipeline.run()
    assert Profiler(pipeline, "Ana lives in Lisbon.").run() == "1 profiles"
    assert [row["content"] for row in stored(pipeline)] == ["Ana lives in Lisbon."]
    assert len(stored(pipeline, deleted=True)) == 1


@pytest.mark.parametrize("hard", [False, True])
def test_a_profile_goes_with_what_it_says(pipeline: Pipeline, hard: bool) -> None:
    Profiler(pipeline).run()
    pipeline.command(ForgetCommand(memory_ids=(memory_id(1),), reason="asked", hard=hard), first=4)
    pipeline.run()
    assert stored(pipeline) == []
    assert ask(pipeline, GetEntity("ana", "ana"))["summary"] is None
    # What else it was drawn from stays as it is.
    texts = pipeline.values("SELECT content FROM memories ORDER BY content")
    assert texts == ["Ana owns a boat", "Ana sails with Ben"]
    if hard:
        rows = pipeline.rows("SELECT content FROM internal.memory_rows WHERE why = 'erased'")
        assert [row["content"] for row in rows] == ["", ""]


def test_what_a_person_forgets_does_not_come_back(pipeline: Pipeline) -> None:
    profiler = Profiler(pipeline)
    profiler.run()
    [row] = stored(pipeline)
    pipeline.command(ForgetCommand(memory_ids=(row["memory_id"],), reason="wrong"), first=4)
    pipeline.run()
    assert profiler.run() == "0 profiles"
    texts = pipeline.values("SELECT count(*) FROM memories")
    assert texts == [3]  # its facts are not hidden with it


def test_a_source_that_changes_meanwhile_refuses_the_profile(pipeline: Pipeline) -> None:
    pipeline.command(
        RememberCommand(
            content="Ana is here",
            type="profile",
            source_id="x",
            drawn_from=(MemoryVersion(memory_id=memory_id(1), version=7),),
        ),
        actor=PROFILER,
        first=4,
    )
    pipeline.run()
    error, _ = pipeline.result(4)
    assert error.startswith("version_conflict")
    assert stored(pipeline) == []


@pytest.mark.parametrize("type_", ["profile", None])
def test_nobody_else_says_that_a_memory_was_drawn(pipeline: Pipeline, type_: str | None) -> None:
    drawn = (MemoryVersion(memory_id=memory_id(1), version=1),)
    for first, actor in ((4, Actor()), (5, Actor(id="bot", type="agent"))):
        pipeline.command(
            RememberCommand(content="Ana is here", type=type_, drawn_from=drawn),
            actor=actor,
            first=first,
        )
        pipeline.run()
        error, _ = pipeline.result(first)
        assert error.startswith("forbidden")
    pipeline.command(RememberCommand(content="Ana is here", type="profile"), first=6)
    pipeline.run()
    assert pipeline.result(6)[0].startswith("invalid_request")


def test_frozen_scopes_and_poor_replies(pipeline: Pipeline) -> None:
    with pytest.raises(JobFailed, match="none of 1 profiles"):
        Profiler(pipeline, "").run()
    pipeline.command(SetFlagsCommand(autonomous_frozen=True), first=4)
    pipeline.run()
    assert Profiler(pipeline).run() == "0 profiles"


def test_a_reply_is_paid_for_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """The process is killed between the reply and its record in the log."""
    kept = RecordedReplies(tmp_path / "replies.sqlite", pipeline.clock, 7, 1 << 20)
    profiler = Profiler(pipeline)
    profiler.port.replies = kept

    def killed(records: Any) -> None:
        raise OSError("killed")

    settings = pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
    context = replace(context_of(pipeline), models=profiler.port, settings=settings, append=killed)
    with pytest.raises(OSError, match="killed"):
        asyncio.run(profiles(context))
    assert len(profiler.model.prompts) == 1
    assert profiler.run() == "1 profiles"
    assert len(profiler.model.prompts) == 1
    [row] = stored(pipeline)
    commands = pipeline.log.read(MEMORY_COMMANDS.name, 0, 0, 100)
    assert (row["content"], len(commands)) == (SUMMARY, 4)


def test_an_erased_fact_takes_its_profiles_out_of_every_file(tmp_path: Path) -> None:
    """Also one that was replaced before; and what is left of the log leads to the same store."""
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        running.command(*FACTS, told("Ben sails with Ana", ("Ben", "sails with", "Ana")))
        running.run()
        Profiler(running, "Ana of the Königsstraße.").run()
        running.clock.advance(minutes=1)
        running.command(modified(memory_id(2), content="Ana sails alone"), first=5)
        running.run()
        Profiler(running, "Ana of the green flowerpot.").run()
        running.shard.vector_table().sync()
        assert where(tmp_path, "Königsstraße", "flowerpot")
        erase(running, memory_id(1))
        assert where(tmp_path, "Königsstraße", "flowerpot", "lives in Porto") == []
        assert where(tmp_path, "sails alone")
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_profile_that_came_too_late_is_erased_with_what_it_was_drawn_from(
    tmp_path: Path,
) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        running.command(*FACTS)
        running.run()
        profiler = Profiler(running, "Ana of the green flowerpot.")
        running.command(modified(memory_id(1), content="Ana lives in Lisbon"), first=4)
        running.run("normalize")
        profiler.run()  # as the facts were before
        assert stored(running) == []
        assert where(tmp_path, "flowerpot")
        erase(running, memory_id(1))
        assert where(tmp_path, "flowerpot") == []
