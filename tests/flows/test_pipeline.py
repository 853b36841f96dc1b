"""The whole pipeline end to end: what goes in, what is remembered, whatever the order and size of
batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from palimpsest.ops.reading.stage_lags import stage_lags
from palimpsest.schemas.commands import (
    AliasCommand,
    ConfirmCommand,
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
)
from palimpsest.schemas.entities import Structure, StructuredAttribute, StructuredEntity
from palimpsest.schemas.envelope import Triple
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import NormalizedTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS, MEMORY_HISTORY, TURNS_NORMALIZED
from palimpsest.stores.database.state_hash import table_hashes
from palimpsest.streams.decide.proposal_policy import SAID_BY_ITS_SOURCE
from palimpsest.streams.settings import Flags
from tests.flows.scripted import assert_settled, scripted
from tests.flows.test_profiles import fold_again
from tests.harness import FULL, Crash, Pipeline, differing, interleaved, nothing
from tests.messages import commanded, published, turn
from tests.spoken_model import ScriptedModel, spoken


def test_no_moment_looks_idle_while_results_are_unsent(tmp_path: Path) -> None:
    """Between the commit of a batch and the sending of its results no stage has input left, which
    a caller who waits for the end would take for it."""

    def lags() -> dict[str, int]:
        found = stage_lags(pipeline.settings, {0: pipeline.shard}, pipeline.log)
        return {each.stage: each.lag for each in found}

    def committed(stage: str, step: str) -> None:
        if step == "commit":
            seen.append(stage)
            assert any(lags().values()), stage

    seen: list[str] = []
    with Pipeline(tmp_path) as pipeline:
        pipeline.on_step = committed
        pipeline.say("I live in Lisbon.")
        pipeline.run()
        assert {"normalize", "extract", "decide", "apply-writes", "graph-persist"} <= {*seen}
        assert not any(lags().values())
        pipeline.on_step = nothing
        pipeline.crash_at("apply-writes", "commit")
        pipeline.say("I love green tea.", first=2)
        with pytest.raises(Crash):
            pipeline.run()
        assert lags()["apply-writes"]
        pipeline.reopen()
        assert lags()["apply-writes"]
        pipeline.run()
        assert not any(lags().values())


# --- with the rules, nothing else installed ---------------------------------------------------


def test_a_conversation_becomes_memory(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.say(
            "Hi! I moved to Lisbon and I work at Oceano.",
            "I love green tea.",
            "Thanks, that's great!",
        )
        pipeline.run()
        assert_settled(pipeline)
        memories = pipeline.memories()
        assert any("Lisbon" in text and "Ana" in text for text in memories)
        assert any("green tea" in text for text in memories)
        edges = Counter(pipeline.values("SELECT relation_type FROM memory_edges"))
        assert edges == {"temporal": 2, "derived_from": len(memories)}
        # Every fact names the turn that it is from.
        assert pipeline.values(
            "SELECT count(*) FROM memory_rows f JOIN memory_edges e ON e.source_id = f.memory_id"
            " JOIN memory_rows t ON t.memory_id = e.target_id"
            " WHERE e.relation_type = 'derived_from' AND t.type = 'episodic'"
        ) == [len(memories)]
        settled = pipeline.balance()
        events = Counter(pipeline.values("SELECT event FROM history_rows"))
        assert events["created"] == settled.turns["stored"] + settled.facts["created"]
        # The topic and the table hold the same events.
        assert len({m.id for m in pipeline.messages(MEMORY_HISTORY)}) == sum(events.values())


def test_unknown_fields_are_passed_on(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        message = published(turn("I love green tea.", mood="cheerful"), weather="rain")
        pipeline.publish(message)
        pipeline.run()
        [normalized] = [m.body for m in pipeline.messages(TURNS_NORMALIZED)]
        assert isinstance(normalized, NormalizedTurn)
        assert normalized.extensions == {"mood": "cheerful"}
        [kept] = pipeline.messages(CONVERSATION_TURNS)
        assert kept.model_extra == {"weather": "rain"}


# --- a hundred at once ------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [16, pytest.param(256, marks=pytest.mark.soak)])
def test_a_hundred_identical_adds_make_one_memory(batch: int, tmp_path: Path) -> None:
    count = 100
    turns = [published(turn("I love green tea", number)) for number in range(count)]
    remembered = RememberCommand(content="Ana loves green tea.")
    commands = [commanded(remembered, number) for number in range(count)]
    with Pipeline(tmp_path, batch=batch) as pipeline:
        pipeline.publish(*interleaved(turns, commands))
        pipeline.run()
        assert_settled(pipeline)
        assert [text.rstrip(".") for text in pipeline.memories()] == ["Ana loves green tea"]
        assert pipeline.values("SELECT count(*) FROM memory_rows WHERE type = 'episodic'") == [
            count
        ]
        facts = pipeline.balance().facts
        results = [pipeline.result(number) for number in range(count)]
        assert {error for error, _ in results} == {None}
        assert len({result["id"] for _, result in results}) == 1
        assert sum(not result["deduped"] for _, result in results) <= 1
        settled = facts["created"] + facts["none"] + facts["deduped"]
        assert settled == facts["extracted"] >= count


NEAR = (
    "I love green tea",
    "I really love green tea",
    "I love the green tea",
    "I love green tea so very much",
    "I love green tea from Japan",
    "I love black tea from China",
    "Green tea is what I love",
    "I love tea, green tea",
    "I no longer love green tea",
    "I also love green tea",
)


def test_near_identical_adds_end_as_when_sent_one_by_one(tmp_path: Path) -> None:
    texts = [f"{NEAR[n % 10]}{'!' * (n // 10 % 3)}" for n in range(20)]
    states = []
    for number, batch in enumerate(({"decide": 1, "apply-writes": 1}, 16, 256)):
        with Pipeline(tmp_path / str(number), batch=batch) as pipeline:
            pipeline.say(*texts)
            if number == 0:
                # One by one where it matters; the rest need not do everything singly.
                pipeline.run("normalize", "extract")
                pipeline.run("decide", "apply-writes")
            pipeline.run()
            assert_settled(pipeline)
            assert 1 < len(pipeline.memories()) <= len(NEAR)
            states.append(pipeline.state_by_table())
    assert [differing(states[0], other) for other in states[1:]] == [[], []]


def test_one_by_one_is_really_one_by_one(tmp_path: Path) -> None:
    """Sent only when the one before is done, and all at once: the same state."""
    with Pipeline(tmp_path / "slow") as slow:
        for number, text in enumerate(NEAR, start=1):
            slow.say(text, first=number)
            slow.run()
        with Pipeline(tmp_path / "fast") as fast:
            fast.say(*NEAR)
            fast.run()
            assert differing(slow.state_by_table(), fast.state_by_table()) == []


def test_facts_of_one_turn_see_each_other(tmp_path: Path) -> None:
    with scripted(tmp_path, FULL) as pipeline:
        pipeline.say(
            "Ana likes the green tea / Ana likes green tea very much"
            " / Now Ana likes green tea and cake / Gone Ana likes green tea and cake"
        )
        pipeline.run()
        assert pipeline.facts_settled() == {
            ("created", "no similar memory"): 1,
            ("created", "it says Ana"): 1,
            ("modified", "it says Now"): 1,
            ("deleted", "it says Gone"): 1,
        }
        assert_settled(pipeline)


def test_a_content_is_free_again_within_a_batch(tmp_path: Path) -> None:
    states = []
    for batch in (1, 256):
        with scripted(tmp_path / str(batch), FULL, batch) as pipeline:
            pipeline.say("Ana lives in Oslo", "Now Ana lives in Bergen", "Ana lives in Oslo")
            pipeline.run()
            assert pipeline.memories() == ["Ana lives in Oslo", "Now Ana lives in Bergen"]
            states.append(pipeline.state_by_table())
    assert differing(*states) == []


def test_the_model_is_shown_the_turns_before_also_after_a_restart(tmp_path: Path) -> None:
    model = ScriptedModel(spoken)
    with Pipeline(tmp_path, language=model) as pipeline:
        pipeline.say("Ana is here", "Ben is there", "Rita is nowhere")
        pipeline.run()
        pipeline.reopen()
        pipeline.say("Cleo is everywhere", first=4)
        pipeline.run()
    shown = {
        str(prompt.subject["content"]): [
            turn["content"] for turn in prompt.subject["context"] if isinstance(turn, dict)
        ]
        for prompt in model.prompts
        if isinstance(prompt.subject["context"], list)
    }
    assert shown == {
        "Ana is here": [],
        "Ben is there": ["Ana is here"],
        "Rita is nowhere": ["Ana is here", "Ben is there"],
        "Cleo is everywhere": ["Ben is there", "Rita is nowhere"],
    }


# --- modes ------------------------------------------------------------------------------------


def test_update_and_delete_in_full_mode(tmp_path: Path) -> None:
    with scripted(tmp_path, FULL) as pipeline:
        pipeline.say("Ana lives in Oslo", "Now Ana lives in Bergen", "Gone Ana lives in Bergen")
        pipeline.run()
        assert pipeline.memories() == []
        [row] = pipeline.rows(
            "SELECT content, version, is_deleted FROM memory_rows WHERE type <> 'episodic'"
        )
        assert row == {"content": "Now Ana lives in Bergen", "version": 3, "is_deleted": True}
        archived = pipeline.rows("SELECT version, content FROM memory_archive ORDER BY version")
        assert [(a["version"], a["content"]) for a in archived] == [
            (1, "Ana lives in Oslo"),
            (2, "Now Ana lives in Bergen"),
        ]
        assert_settled(pipeline)


def test_modes_of_a_scope_change_while_it_runs(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.say("Ana lives in Oslo")
        pipeline.run()
        steps = [
            (SetFlagsCommand(), "blocked"),
            (SetFlagsCommand(shadow_mode=True), "shadowed"),
            (SetFlagsCommand(shadow_mode=False, mutations_frozen=True), "shadowed"),
            (SetFlagsCommand(mutations_frozen=False, enabled=False), None),
            (SetFlagsCommand(enabled=True, allow_update_delete=True), "modified"),
        ]
        seen: list[str] = []
        for number, (flags, event) in enumerate(steps, start=2):
            pipeline.command(flags, first=number)
            pipeline.run()
            text = f"Now Ana lives in Oslo since year {number}"
            pipeline.say(text, first=number)
            pipeline.say("Ben lives in Oslo", text, scope="ben", first=10 * number)
            pipeline.run()
            seen = pipeline.values(
                "SELECT event FROM outcomes WHERE item_kind = 'fact' AND scope = 'ana'"
            )
            assert event is None or Counter(seen)[event] >= 1, event
        assert Counter(seen) == {
            "created": 1,
            "blocked": 1,
            "shadowed": 2,
            "modified": 1,
        }
        # The other scope kept the flags of the settings all along.
        others = pipeline.values(
            "SELECT event FROM outcomes WHERE item_kind = 'fact' AND scope = 'ben'"
        )
        assert set(others) == {"created", "none", "blocked"}
        assert pipeline.values("SELECT count(*) FROM history_rows WHERE event = 'flags'") == [5]
        assert_settled(pipeline)


def test_pinned_and_confirmed_memories_survive_the_machine(tmp_path: Path) -> None:
    with scripted(tmp_path, FULL) as pipeline:
        pipeline.command(RememberCommand(content="critical: Ana lives in Oslo"))
        pipeline.command(RememberCommand(content="Ben sails every summer"), first=2)
        pipeline.run()
        pipeline.command(ConfirmCommand(memory_id=pipeline.result(2)[1]["id"]), first=3)
        pipeline.run()
        pipeline.say("Now Ana lives in Oslo no more", "Gone Ben sails every summer")
        pipeline.run()
        assert pipeline.memories() == ["Ana lives in Oslo", "Ben sails every summer"]
        known = {("none", SAID_BY_ITS_SOURCE): 2}  # what the remembered texts themselves say
        assert pipeline.facts_settled() == {("blocked", "pinned"): 2, **known}


def test_disabled_keeps_turns_only(tmp_path: Path) -> None:
    with scripted(tmp_path, Flags(enabled=False)) as pipeline:
        pipeline.say("Ana lives in Oslo")
        pipeline.run()
        assert pipeline.balance().turns["stored"] == 1
        assert pipeline.balance().facts["extracted"] == 0
        assert pipeline.memories() == []


# --- commands ---------------------------------------------------------------------------------


def test_what_people_do_to_memory(tmp_path: Path) -> None:
    with Pipeline(tmp_path) as pipeline:
        pipeline.command(
            RememberCommand(content="critical: [food]: Ana is allergic to nuts"),
            RememberCommand(content="Ana sails"),
        )
        pipeline.run()
        nuts, sails = (pipeline.result(number)[1]["id"] for number in (1, 2))
        pipeline.command(
            ModifyCommand(
                patches=(MemoryPatch(memory_id=sails, content="Ana sails and swims"),),
                reason="more",
            ),
            ForgetCommand(memory_ids=(nuts,), reason="cured", force=True),
            RememberCommand(content="Ana is allergic to nuts"),
            RecoverCommand(memory_id=nuts),
            first=3,
        )
        pipeline.run()
        assert pipeline.memories() == ["Ana is allergic to nuts", "Ana sails and swims"]
        assert pipeline.result(6)[0].startswith("duplicate_content_hash")
        events = pipeline.values(
            "SELECT event FROM history_rows WHERE memory_id = ? AND event NOT IN ('none', 'graph')"
            " ORDER BY created_at",
            nuts,
        )
        assert events == ["created", "deleted"]
        archived = pipeline.values("SELECT content FROM memory_archive ORDER BY content")
        assert archived == ["Ana is allergic to nuts", "Ana sails"]


def test_a_forget_bars_what_is_in_flight(tmp_path: Path) -> None:
    with scripted(tmp_path) as pipeline:
        pipeline.say("Ana lives in Oslo / Ana > lives_in > Oslo")
        pipeline.run("normalize", "extract", "apply-writes")
        # The turn is stored and its facts lie in the log, not decided yet.
        assert pipeline.balance().facts["in_flight"] == 1
        turn_id = turn_memory_id("ana", "t1")
        pipeline.command(ForgetCommand(memory_ids=(turn_id,), reason="private"))
        pipeline.run("normalize", "apply-writes")
        pipeline.run()
        assert pipeline.memories() == []
        assert pipeline.facts_settled() == {("skipped", "source_forgotten"): 1}
        assert pipeline.values("SELECT count(*) FROM entities") == [0]
        assert_settled(pipeline)


def test_structure_and_aliases(tmp_path: Path) -> None:
    structure = Structure(
        entities=(StructuredEntity(name="PostgreSQL", type="tool"),),
        attributes=(StructuredAttribute(entity="PostgreSQL", aspect="Port"),),
        relations=(Triple(source="Ana", relationship="uses", target="PostgreSQL"),),
    )
    with Pipeline(tmp_path) as pipeline:
        pipeline.say("we run Postgres here", "PostgreSQL is fast")
        pipeline.run()
        pipeline.command(RememberCommand(content="PostgreSQL uses 5432", structured=structure))
        pipeline.run()
        pipeline.command(AliasCommand(name="PostgreSQL", alias="Postgres"), first=2)
        pipeline.run()
        found = pipeline.values(
            "SELECT m.content FROM memory_entity_mentions x JOIN memory_rows m USING (memory_id)"
            " JOIN entities e USING (entity_id) WHERE e.canonical_name = 'postgresql'"
            " AND m.type = 'episodic' ORDER BY 1"
        )
        assert found == ["PostgreSQL is fast", "we run Postgres here"]
        assert pipeline.values("SELECT count(*) FROM entity_attributes") == [1]


def test_structure_of_a_known_text_joins_its_memory(tmp_path: Path) -> None:
    """Also of one that was said in a turn; not what another text of the same source comes with."""
    constraint = StructuredAttribute(entity="Ana", aspect="diet", kind="constraint")
    structure = Structure(attributes=(constraint,))
    with Pipeline(tmp_path / "live") as pipeline:
        pipeline.command(
            RememberCommand(content="Ana avoids nuts", source_id="card"),
            RememberCommand(content="Ana avoids nuts", structured=structure),
            RememberCommand(content="Ben avoids milk", source_id="card", structured=structure),
        )
        pipeline.run()
        stored = "SELECT m.content FROM entity_attributes JOIN memory_rows m USING (memory_id)"
        assert pipeline.values(stored) == ["Ana avoids nuts"]
        assert [pipeline.result(number)[1]["deduped"] for number in (1, 2, 3)] == [
            False,
            True,
            True,
        ]
        assert_settled(pipeline)
        with Pipeline(tmp_path / "rebuilt") as rebuilt:
            fold_again(pipeline, rebuilt)
            assert rebuilt.state() == pipeline.state()


# --- isolation --------------------------------------------------------------------------------


def test_scopes_do_not_see_each_other(tmp_path: Path) -> None:
    texts = ("Ana lives in Oslo / Ana > lives_in > Oslo", "Now Ana lives in Bergen", "Ana sails")
    with scripted(tmp_path / "alone", FULL) as alone:
        alone.say(*texts)
        alone.run()
        with scripted(tmp_path / "among", FULL) as among:
            mine = [published(turn(text, n)) for n, text in enumerate(texts, start=1)]
            others = [
                [published(turn(text, n), scope) for n, text in enumerate(texts[::-1], start=1)]
                for scope in ("ben", "cleo")
            ]
            among.publish(*interleaved(mine, *others))
            among.run()
            assert among.memories("ana") == alone.memories("ana")
            with among.shard.reading() as these, alone.shard.reading() as those:
                assert differing(table_hashes(these, scope="ana"), table_hashes(those)) == []
            # A command of one scope does not reach a memory of another.
            [theirs] = among.values("SELECT memory_id FROM memory_rows WHERE scope = 'ben' LIMIT 1")
            among.command(ForgetCommand(memory_ids=(theirs,), reason="mine?"))
            among.run()
            assert among.result()[1] == [{"id": theirs, "status": "not_found"}]
            assert_settled(among)
