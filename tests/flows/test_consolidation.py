"""A language model draws facts from a session as a whole; decide treats them as any extracted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.ops.lifecycle.consolidation import CONSOLIDATOR, consolidation
from palimpsest.ops.operations.provenance import Explain
from palimpsest.ops.replay.diff import compared
from palimpsest.ops.replay.requests import Diff
from palimpsest.ops.scheduling.jobs import JobFailed
from palimpsest.schemas.commands import (
    ConsolidateCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    SessionEndCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.extraction import Fact, FactsExtracted, ModelCall, TurnReference
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import FACTS_EXTRACTED, MEMORY_COMMANDS
from palimpsest.streams.memory_rows import turn_memory
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.models.recorded import RecordedReplies
from palimpsest.streams.models.settings import LlmSettings
from palimpsest.streams.normalize import normalized
from palimpsest.streams.prompting.prompts import consolidation_prompt, session_pages
from palimpsest.streams.prompting.replies import read_consolidation
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.sensitive.settings import PiiSettings
from palimpsest.streams.settings import ExtractionSettings
from tests.erased_bytes import where
from tests.flows.test_erasing import assert_rebuilt_is_the_same, erase
from tests.flows.test_profiles import fold_again
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import BEGIN, published, turn
from tests.privacy_by_hand import level
from tests.replayed import Live, facts, live_settings, provider, rows
from tests.sessions_by_hand import ask
from tests.spoken_model import ScriptedModel
from tests.sweeping import context_of

SAID = ("We bake on Sunday", "The dough rests overnight", "Then it goes into a hot pot")
BAKING = "Ana lets dough rest overnight and bakes it in a hot pot."
Item = dict[str, Any]


def fact(content: str = BAKING, turns: Sequence[object] = (2, 3), **fields: Any) -> Item:
    return {
        "turns": [*turns],
        "content": content,
        "type": "procedural",
        "confidence": 0.9,
        **fields,
    }


def turn_id(number: int) -> str:
    return turn_memory_id("ana", f"t{number}")


class Consolidator:
    """The job on a pipeline, with a model that answers `reply` to each page."""

    def __init__(
        self, pipeline: Pipeline, *facts: Item, reply: Callable[[Prompt], str] | None = None
    ):
        self.pipeline = pipeline
        self.model = ScriptedModel(reply or (lambda prompt: json.dumps({"facts": facts})))
        self.port = ModelPort(self.model, pipeline.embedding)

    def context(self, **fields: Any) -> Any:
        settings = self.pipeline.settings.model_copy(update={"llm": LlmSettings(provider="openai")})
        known = {"models": self.port, "settings": settings} | fields
        return replace(context_of(self.pipeline), **known)

    def run(self) -> str:
        done = asyncio.run(consolidation(self.context()))
        self.pipeline.run()
        return done


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as made:
        yield spoken(made)


def spoken(pipeline: Pipeline, *said: str, first: int = 1) -> Pipeline:
    """A session that was silent for long enough."""
    pipeline.say(*(said or SAID), first=first)
    pipeline.run()
    pipeline.clock.advance(minutes=11)
    return pipeline


def drawn(pipeline: Pipeline) -> list[tuple[str, str, set[str]]]:
    """Content, type and sources of what was drawn."""
    rows = pipeline.rows(
        "SELECT m.content, m.type, list(e.target_id) AS turns FROM internal.memory_rows m"
        " JOIN internal.memory_edges e ON e.source_id = m.memory_id"
        " AND e.relation_type = 'derived_from' WHERE NOT m.is_deleted GROUP BY ALL ORDER BY ALL"
    )
    return [(row["content"], row["type"], set(row["turns"])) for row in rows]


STORED = [(BAKING, "procedural", {turn_id(2), turn_id(3)})]


def test_a_silent_session_is_consolidated_once(pipeline: Pipeline) -> None:
    job = Consolidator(pipeline, fact())
    assert job.run() == "1 fact from 1 session, 1 page"
    assert drawn(pipeline) == STORED
    [prompt] = job.model.prompts
    assert "2026-03-01 (Sunday)\n1. Ana: We bake on Sunday\n2. Ana: The dough" in prompt.user
    assert job.run() == "0 facts from 0 sessions, 0 pages"
    assert len(job.model.prompts) == 1
    [memory] = pipeline.rows(
        "SELECT memory_id, occurred_at FROM memories WHERE type = 'procedural'"
    )
    explained = ask(pipeline, Explain(memory["memory_id"], "ana"))
    assert {turn["id"] for turn in explained["derived_from"]} == {turn_id(2), turn_id(3)}
    assert pipeline.balance().facts["extracted"] == pipeline.balance().facts["created"] == 1


def test_an_open_session_waits_and_an_ended_one_does_not(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings()) as pipeline:
        pipeline.say(*SAID)
        pipeline.run()
        assert Consolidator(pipeline, fact()).run().startswith("0 facts from 0 sessions")
        pipeline.command(SessionEndCommand(session_id="s1"))
        pipeline.run()
        assert Consolidator(pipeline, fact()).run().startswith("1 fact from 1 session")


def test_a_rebuild_repeats_it_without_a_model(pipeline: Pipeline, tmp_path: Path) -> None:
    Consolidator(pipeline, fact(), fact("Ana bakes on Sundays.", (1, 2), type="fact")).run()
    with Pipeline(tmp_path / "rebuilt", pipeline.settings) as rebuilt:
        fold_again(pipeline, rebuilt)
        assert len(drawn(rebuilt)) == 2
        assert rebuilt.state() == pipeline.state()


@pytest.mark.parametrize("again", [BAKING, BAKING.upper().rstrip(".")])
def test_a_session_that_goes_on_is_consolidated_again_and_doubles_nothing(
    pipeline: Pipeline, again: str
) -> None:
    Consolidator(pipeline, fact()).run()
    spoken(pipeline, "It is delicious", first=4)
    job = Consolidator(
        pipeline, fact(again, (2, 3, 4)), fact("Ana bakes a lot.", (1, 4), type="fact")
    )
    assert job.run() == "2 facts from 1 session, 1 page"
    texts = [content for content, _, _ in drawn(pipeline)]
    assert len(texts) == 2
    assert "Ana bakes a lot." in texts


def test_what_was_forgotten_does_not_come_back_when_the_session_goes_on(
    pipeline: Pipeline,
) -> None:
    Consolidator(pipeline, fact()).run()
    [memory_id] = pipeline.values("SELECT memory_id FROM memories WHERE type = 'procedural'")
    pipeline.command(ForgetCommand(memory_ids=(memory_id,), reason="wrong"))
    spoken(pipeline, "It is delicious", first=4)
    Consolidator(pipeline, fact(turns=(2, 4))).run()
    assert drawn(pipeline) == []


def test_pages_know_what_was_drawn_before(tmp_path: Path) -> None:
    settings = pipeline_settings().model_copy(
        update={"extraction": ExtractionSettings(max_input_characters=100)}
    )

    def reply(prompt: Prompt) -> str:
        [[first, *_], *_] = prompt.subject["turns"]  # type: ignore[misc]
        if prompt.subject["earlier"]:
            return json.dumps({"facts": [fact("Ana bakes in a pot all year.", (2, first))]})
        return json.dumps({"facts": [fact("Ana lets the dough rest.", (1, 2))]})

    with Pipeline(tmp_path, settings) as pipeline:
        spoken(pipeline, *SAID[:2], "So it is light in the end and keeps for a whole week or so")
        job = Consolidator(pipeline, reply=reply)
        assert job.run() == "2 facts from 1 session, 2 pages"
        first, second = job.model.prompts
        assert "3. Ana" not in first.user
        assert 'turns 1, 2: "Ana lets the dough rest."' in second.user
        assert ("Ana bakes in a pot all year.", "procedural", {turn_id(2), turn_id(3)}) in drawn(
            pipeline
        )
        costs = "SELECT input_tokens FROM extractions WHERE prompt_version LIKE 'consolidate%'"
        assert [each for each in pipeline.values(costs) if each] == [10, 10]


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(1, 200))
def test_pages_have_every_turn_once_and_fit(said: list[str], most: int) -> None:
    now = published(turn("x"))
    turns = {
        number: turn_memory(now, normalized("ana", turn(f"{text}.", number)), number)
        for number, text in enumerate(said, 1)
    }
    pages = session_pages(turns, most)
    assert [number for page in pages for number in page] == [*turns]
    for page in pages:
        shown = consolidation_prompt({number: turns[number] for number in page}, {}).user
        lines = shown.splitlines()[2:-2]
        assert len(lines) == len(page)
        assert len(page) == 1 or sum(map(len, lines)) <= most


REFUSED = (
    (fact(turns=(2, 9)), "names turn 9, which was not shown"),
    (fact(turns=()), "names no turn"),
    (fact(turns=("2", True)), "names no turn"),
    (fact("short"), "shorter than 10 characters"),
    (fact(""), "shorter than 10 characters"),
    (fact(turns=(2,), type="fact"), "rests on one turn"),
    (fact("Bread from a shop is bad.", (2,), type="opinion", holder=None), "does not say whose"),
    (
        fact("Ana thinks shops bake badly.", (2,), type="opinion", holder="Ben"),
        "does not say whose",
    ),
    (fact("Ben thinks shops bake badly.", (2,), type="opinion", holder="Ben"), "do not name"),
    (fact(turns=range(1, 30)), "names turn 4"),
)


@pytest.mark.parametrize(("item", "why"), REFUSED)
def test_a_result_that_is_none_is_refused(pipeline: Pipeline, item: Item, why: str) -> None:
    assert Consolidator(pipeline, item).run() == "0 facts from 1 session, 1 page"
    assert drawn(pipeline) == []
    [warnings] = pipeline.values(
        "SELECT warnings FROM extractions WHERE prompt_version LIKE 'consolidate%'"
    )
    assert why in " ".join(warnings)


def test_a_fact_does_not_rest_on_half_a_session() -> None:
    reply = json.dumps({"facts": [fact(turns=range(1, 11)), fact("Ana bakes.", range(1, 10))]})
    draft = read_consolidation(reply, BEGIN, dict.fromkeys(range(1, 50), ("Ana", "so")))
    assert [each.content for each in draft.facts] == ["Ana bakes."]
    assert draft.warnings == ("fact 1 rejected: names 10 turns, so none in particular",)


@pytest.mark.parametrize(
    ("content", "is_copied"),
    [
        ("I let the dough rise.", True),
        ("Wow!  i LET the dough rise.", True),
        ("Ana bakes. I heat the oven then. So.", True),
        ("パン生地を一晩寝かせておきます。", True),
        ("Ana lets the dough rise.", False),
        ("I heat.", False),
    ],
)
def test_a_copy_of_a_turn_is_no_fact(content: str, is_copied: bool) -> None:
    """It does not tell who "I" is, and the turn was read by itself."""
    said = ("I let the dough rise. It takes long.", "I heat the oven then.")
    shown = {
        n: ("Ana", text) for n, text in enumerate((*said, "パン生地を一晩寝かせておきます。"), 1)
    }
    reply = json.dumps({"facts": [fact(content, (1, 2, 3), type="fact")]})
    draft = read_consolidation(reply, BEGIN, shown)
    assert bool(draft.warnings and "repeats a turn" in draft.warnings[0]) == is_copied


@pytest.mark.parametrize(
    ("content", "is_kept"),
    [
        ("To bake bread, Ana follows two steps. I let the dough rise.", True),
        ("I let the dough rise. I heat the oven then.", False),
    ],
)
def test_a_procedure_may_have_the_words_of_its_steps(content: str, is_kept: bool) -> None:
    shown = {1: ("Ana", "I let the dough rise."), 2: ("Ana", "I heat the oven then.")}
    draft = read_consolidation(json.dumps({"facts": [fact(content, (1, 2))]}), BEGIN, shown)
    assert bool(draft.facts) == is_kept


def test_an_opinion_names_its_holder(pipeline: Pipeline) -> None:
    text = "Ana thinks that shops bake badly."
    Consolidator(pipeline, fact(text, (1,), type="opinion", holder="Ana")).run()
    assert drawn(pipeline) == [(text, "opinion", {turn_id(1)})]


def test_what_is_too_long_is_cut_and_what_cannot_be_read_is_not_asked_for_for_ever(
    pipeline: Pipeline,
) -> None:
    Consolidator(pipeline, fact("Ana bakes. " * 300)).run()
    [(text, _, _)] = drawn(pipeline)
    assert len(text) <= 2_000
    spoken(pipeline, "More", first=4)
    job = Consolidator(pipeline, reply=lambda prompt: "I would rather not say.")
    assert job.run() == "0 facts from 1 session, 1 page, 1 of them without a readable reply"
    assert len(job.model.prompts) == pipeline.settings.worker.max_attempts
    assert job.run() == "0 facts from 0 sessions, 0 pages"


@pytest.mark.parametrize("mode", ["redact", "reject"])
def test_a_secret_is_kept_as_little_as_by_extraction(tmp_path: Path, mode: str) -> None:
    settings = pipeline_settings().model_copy(update={"pii": PiiSettings(mode=mode)})  # type: ignore[arg-type]
    with Pipeline(tmp_path, settings) as pipeline:
        spoken(pipeline)
        secrets = ("Ana's card is 4111 1111 1111 1111.", "Ana says her password is known to Ben.")
        Consolidator(pipeline, *(fact(each) for each in secrets), fact()).run()
        assert BAKING in [content for content, _, _ in drawn(pipeline)]
        assert where(tmp_path, "4111 1111") == []
        assert Consolidator(pipeline).run().startswith("0 facts from 0 sessions")


def test_without_a_model_and_without_an_answer(pipeline: Pipeline) -> None:
    done = asyncio.run(consolidation(context_of(pipeline)))
    assert done == "no language model is set (llm.provider): sessions are not consolidated"

    def down(prompt: Prompt) -> str:
        from palimpsest.streams.models.base import TransientModelError

        raise TransientModelError("down")

    with pytest.raises(JobFailed, match="none of 1 session: the model did not answer"):
        Consolidator(pipeline, reply=down).run()
    assert Consolidator(pipeline, fact()).run().startswith("1 fact")


@pytest.mark.parametrize(
    "flags",
    [{"enabled": False}, {"mutations_frozen": True}, {"autonomous_frozen": True}],
)
def test_a_frozen_scope_is_left_alone(pipeline: Pipeline, flags: dict[str, bool]) -> None:
    pipeline.command(SetFlagsCommand(**flags))
    pipeline.run()
    job = Consolidator(pipeline, fact())
    assert job.run().startswith("0 facts from 0 sessions")
    assert job.model.prompts == []


def test_what_was_said_while_the_scope_was_off_is_shown_to_no_model(tmp_path: Path) -> None:
    with Pipeline(tmp_path, pipeline_settings()) as pipeline:
        pipeline.command(SetFlagsCommand(enabled=False))
        pipeline.run()
        pipeline.say("My secret")
        pipeline.run()
        pipeline.command(SetFlagsCommand(enabled=True), first=2)
        pipeline.run()
        pipeline.clock.advance(days=1)
        spoken(pipeline, *SAID, first=2)
        pipeline.say("Indeed", first=5, role="assistant")
        pipeline.run()
        pipeline.clock.advance(minutes=11)
        job = Consolidator(pipeline, fact())
        assert job.run().startswith("1 fact from 1 session")
        [prompt] = job.model.prompts
        assert "secret" not in prompt.user
        assert "Indeed" not in prompt.user
        assert Consolidator(pipeline).run().startswith("0 facts from 0 sessions")


def test_a_private_speaker_is_shown_to_no_model(pipeline: Pipeline) -> None:
    pipeline.clock.advance(minutes=-11)
    pipeline.say("I loathe pots", speaker="Ben", first=4)
    pipeline.command(level("Ben", "full"))
    spoken(pipeline, "So be it", first=5)
    job = Consolidator(pipeline, fact())
    job.run()
    assert "loathe" not in job.model.prompts[0].user
    pipeline.command(level("Ana", "full"), first=2)
    spoken(pipeline, "I keep on", first=6)
    assert Consolidator(pipeline, fact()).run().startswith("0 facts from 0 sessions")


def command_of(sources: Sequence[int], version: int = 1) -> ConsolidateCommand:
    *others, newest = map(turn_id, sources)
    stated = Fact(item_id="i1", content=BAKING, confidence=0.9, drawn_from=tuple(others) or None)
    call = ModelCall(provider="p", model="m", prompt_version="consolidate-1")
    turn = TurnReference(turn_id=newest, memory_id=newest, session_id="s1", speaker="Ana")
    extraction = FactsExtracted(turn=turn, facts=(stated,), call=call)
    seen = [{"memory_id": turn_id(n), "version": version} for n in sources]
    return ConsolidateCommand.model_validate(
        {"session_id": "s1", "extraction": extraction, "sources": seen}
    )


def test_what_was_changed_or_forgotten_meanwhile_is_left_out(pipeline: Pipeline) -> None:
    patch = MemoryPatch(memory_id=turn_id(2), content="The dough rests for an hour")
    pipeline.command(
        ModifyCommand(patches=(patch,), reason="wrong"),
        ForgetCommand(memory_ids=(turn_id(3),), reason="wrong"),
    )
    pipeline.run()
    for number, sources in enumerate(((1, 2), (1, 3), (2,), (3,), (1, 7)), start=3):
        pipeline.command(command_of(sources), actor=CONSOLIDATOR, first=number)
        pipeline.run()
        assert pipeline.result(number)[1]["left_out"] == 1
    assert drawn(pipeline) == []


@pytest.mark.parametrize("actor", [Actor(), Actor(id="bot", type="agent")])
def test_nobody_else_says_what_was_drawn(pipeline: Pipeline, actor: Actor) -> None:
    pipeline.command(command_of((1, 2)), actor=actor)
    pipeline.run()
    assert pipeline.result(1)[0].startswith("forbidden")


@pytest.mark.parametrize("gone", [1, 2])
def test_a_forget_fences_what_is_under_way(pipeline: Pipeline, gone: int) -> None:
    """Also of a turn that is not the fact's newest: decide has seen the fact, and nothing of it may
    be written any more."""
    pipeline.command(command_of((1, 2)), actor=CONSOLIDATOR)
    pipeline.run("normalize").run("apply-writes")
    assert len(pipeline.messages(FACTS_EXTRACTED)) == 4
    erasure = ForgetCommand(memory_ids=(turn_id(gone),), reason="asked", hard=True)
    pipeline.command(erasure, first=2)
    pipeline.run("normalize").run("apply-writes")
    pipeline.run()
    assert drawn(pipeline) == []
    assert pipeline.facts_settled() == {("skipped", "source_forgotten"): 1}
    assert pipeline.values("SELECT content FROM facts WHERE content LIKE '%dough%'") == []


def test_a_level_that_is_raised_meanwhile_keeps_what_is_under_way_out(pipeline: Pipeline) -> None:
    pipeline.say("So it is", first=4)
    pipeline.say("It is indeed", first=5, speaker="Ben")
    pipeline.run()
    pipeline.command(command_of((5, 4)), actor=CONSOLIDATOR)
    pipeline.run("normalize").run("apply-writes")
    pipeline.command(level("Ben", "full"), first=2)
    pipeline.run("normalize").run("apply-writes")
    pipeline.run()
    assert drawn(pipeline) == []
    assert pipeline.values("SELECT content FROM facts WHERE content LIKE '%dough%'") == []


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_fact_goes_with_the_last_turn_that_it_rests_on(tmp_path: Path, all_of_them: bool) -> None:
    with Pipeline(tmp_path / "live", pipeline_settings(FULL)) as running:
        spoken(running)
        Consolidator(running, fact(), fact("Ana hums in the Königsstraße.", (1,))).run()
        running.shard.vector_table().sync()
        assert where(tmp_path, "Königsstraße")
        for number in (1, 2, 3) if all_of_them else (1, 2):
            erase(running, turn_id(number), number=50 + number, cascade=True)
        assert where(tmp_path, "Königsstraße", "rests overnight") == []
        left = [] if all_of_them else [(BAKING, "procedural", {turn_id(2), turn_id(3)})]
        assert drawn(running) == left
        assert bool(where(tmp_path, "and bakes it in a hot pot")) != all_of_them
        assert_rebuilt_is_the_same(running, tmp_path / "anew")


def test_a_reply_is_paid_for_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """The process is killed between the reply and its records in the log, and once they are in it
    before the run is recorded."""
    kept = RecordedReplies(tmp_path / "replies.sqlite", pipeline.clock, 7, 1 << 20)
    job = Consolidator(pipeline, fact(), fact("Ana bakes on Sundays.", (1, 2), type="fact"))
    job.port.replies = kept

    def killed_before(records: Any) -> None:
        raise OSError("killed")

    def killed_after(records: Any) -> None:
        pipeline.log.append(records)
        raise OSError("killed")

    def killed_halfway(records: Any) -> None:
        pipeline.log.append(records[:1])
        raise OSError("killed")

    for killed in (killed_before, killed_halfway, killed_after):
        with pytest.raises(OSError, match="killed"):
            asyncio.run(consolidation(job.context(append=killed)))
    assert job.run().startswith("2 facts")
    assert len(job.model.prompts) == 1
    assert len(drawn(pipeline)) == 2
    assert pipeline.dead_letters() == []
    assert len({message.id for message in pipeline.messages(MEMORY_COMMANDS)}) == 2
    assert pipeline.balance().facts["extracted"] == pipeline.balance().facts["created"] == 2


@pytest.mark.parametrize(
    ("stage", "step"),
    [("apply-writes", "commit"), ("apply-writes", "send"), ("decide", "send"), ("audit", "commit")],
)
def test_a_crash_of_a_stage_applies_it_once(tmp_path: Path, stage: str, step: str) -> None:
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        spoken(pipeline)
        asyncio.run(consolidation(Consolidator(pipeline, fact()).context()))
        pipeline.crash_at(stage, step)
        pipeline.run_through()
        assert drawn(pipeline) == STORED
        assert pipeline.balance().facts["extracted"] == pipeline.balance().facts["created"] == 1


def test_scopes_are_apart(pipeline: Pipeline) -> None:
    pipeline.say("Ben has a secret", "It is his", "He keeps it", scope="ben")
    pipeline.run()
    pipeline.clock.advance(minutes=11)
    job = Consolidator(pipeline, fact())
    assert job.run().startswith("2 facts from 2 sessions")
    assert all(("secret" in p.user) != ("dough" in p.user) for p in job.model.prompts)
    only = Consolidator(pipeline, fact())
    pipeline.say("More", first=4, scope="ben")
    spoken(pipeline, "More", first=4)
    asyncio.run(consolidation(only.context(scope="ben")))
    assert len(only.model.prompts) == 1


async def test_a_branch_of_another_model_keeps_what_was_drawn_from_sessions(
    tmp_path: Path,
) -> None:
    """Beside what its own model says of the turns; so a promotion takes none of it away."""
    said = {name: {SAID[1]: [f"Ana lets dough rest, says {name}"]} for name in ("old", "new")}
    async with provider(said) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*SAID)
        await live.run()
        live.command(command_of((2, 3)), actor=CONSOLIDATOR)
        await live.run()
        done = await live.branch()
        assert (done.ended, done.dead) == ("done", 0)
        found = await compared(live.settings, Diff("new"))
    own = facts(live.of_branch())
    assert own.keys() == {"Ana lets dough rest, says new", BAKING}
    assert own[BAKING] == live.facts()[BAKING]
    edges = (
        "SELECT target_id FROM memory_edges WHERE source_id = ? AND relation_type = 'derived_from'"
    )
    for settings in (live.settings, live.of_branch()):
        turns = {target for (target,) in rows(settings, edges, own[BAKING])}
        assert turns == {turn_id(2), turn_id(3)}
    assert found["totals"]["same"] == 1
    calls = rows(live.of_branch(), "SELECT model, count(*) FROM extractions GROUP BY 1 ORDER BY 1")
    assert calls == [("m", 1), ("new", 3)]
