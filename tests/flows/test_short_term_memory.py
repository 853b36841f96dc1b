"""What is kept of a session for some hours: turns, a summary, and what a context shows of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.memories import Context
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.commands import (
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    SessionEndCommand,
    SetFlagsCommand,
    UpdateShortTermCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.topics import MEMORY_WRITES
from palimpsest.streams.settings import ShortTermSettings
from tests.harness import Pipeline, pipeline_settings
from tests.sessions_by_hand import ask, kept, said

SUMMARY = "They plan a trip to Oslo in May."


def settings(**short_term: Any) -> Settings:
    return pipeline_settings().model_copy(update={"short_term": ShortTermSettings(**short_term)})


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


def sum_up(pipeline: Pipeline, summary: str = SUMMARY, number: int = 1, **fields: Any) -> None:
    command = UpdateShortTermCommand(session_id="s1", summary=summary)
    pipeline.command(command, first=number, **fields)
    pipeline.run()


def context(pipeline: Pipeline, text: str = "where do we go?", **fields: Any) -> Any:
    return ask(pipeline, Context(text, "ana", **{"session_id": "s1", **fields}))


# --- what is kept, and for how long -------------------------------------------------------------


def test_every_turn_is_kept_with_its_session(pipeline: Pipeline) -> None:
    pipeline.say("I like tea", "and milk")
    pipeline.say("I moved", session_id="s2", first=3)
    pipeline.say("Hi", scope="ben", first=4)
    pipeline.run()
    assert said(pipeline) == ["I like tea", "and milk"]
    assert said(pipeline, "s2") == ["I moved"]
    assert said(pipeline, scope="ben") == ["Hi"]
    assert kept(pipeline, "s3") is None
    found = kept(pipeline)
    assert found["turns_expire_at"] == "2026-03-01T21:30:00Z"
    assert found["turns"][0] == {
        "id": turn_memory_id("ana", "t1"),
        "who": "Ana",
        "content": "I like tea",
        "occurred_at": "2026-03-01T09:30:00Z",
        "marks": [],
    }
    assert (found["summary"], found["explicit_intent"]) == (None, False)


def test_turns_go_after_12_hours_and_a_summary_after_24(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.run()
    sum_up(pipeline)
    pipeline.clock.advance(hours=11, minutes=59)
    assert said(pipeline) == ["I like tea"]
    pipeline.clock.advance(hours=1, minutes=1)
    assert said(pipeline) == []
    found = kept(pipeline)
    assert (found["summary"]["text"], found["summary"]["by"]) == (SUMMARY, "local")
    assert found["summary"]["expires_at"] == "2026-03-02T09:30:00Z"
    pipeline.clock.advance(hours=12)
    assert kept(pipeline) is None


def test_what_has_expired_is_dropped_with_the_next_turn_of_any_session(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.run()
    sum_up(pipeline)
    pipeline.clock.advance(hours=13)
    pipeline.say("Hi", scope="ben", first=2)
    pipeline.run()
    rows = "SELECT scope FROM short_term_memory ORDER BY scope"
    assert pipeline.values(rows) == ["ana", "ben"]
    pipeline.clock.advance(hours=12)
    pipeline.say("Hi again", scope="ben", first=3)
    pipeline.run()
    assert pipeline.values(rows) == ["ben"]


def test_what_was_kept_longer_in_the_same_batch_stays(pipeline: Pipeline) -> None:
    pipeline.say("one")
    pipeline.run()
    pipeline.clock.advance(hours=11)
    pipeline.say("two", first=2)
    pipeline.run("normalize")
    pipeline.clock.advance(hours=2)
    pipeline.say("Hi", scope="ben", first=3)
    pipeline.run()
    assert said(pipeline) == ["one", "two"]


def test_a_turn_after_the_time_begins_anew(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.run()
    pipeline.clock.advance(hours=13)
    pipeline.say("I like milk", first=2)
    pipeline.run()
    assert said(pipeline) == ["I like milk"]


def test_another_turn_keeps_all_of_them_longer(pipeline: Pipeline) -> None:
    for number in range(4):
        pipeline.say(f"turn {number}", first=number)
        pipeline.run()
        pipeline.clock.advance(hours=11)
    assert said(pipeline) == [f"turn {number}" for number in range(4)]


def test_the_log_s_clock_set_back_shortens_nothing(pipeline: Pipeline) -> None:
    pipeline.say("one")
    pipeline.run()
    pipeline.clock.advance(hours=-6)
    pipeline.say("two", first=2)
    pipeline.run()
    pipeline.clock.advance(hours=17)
    assert said(pipeline) == ["one", "two"]


def test_the_end_of_a_session_ends_nothing_that_is_kept(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.command(SessionEndCommand(session_id="s1"))
    pipeline.run()
    assert said(pipeline) == ["I like tea"]


def test_so_many_turns_and_characters_are_kept(tmp_path: Path) -> None:
    with Pipeline(tmp_path, settings(turns=3, characters=100)) as pipeline:
        pipeline.say(*(f"turn {number}" for number in range(5)))
        pipeline.run()
        assert said(pipeline) == ["turn 2", "turn 3", "turn 4"]
        pipeline.say("x" * 90, first=10)
        pipeline.run()
        assert said(pipeline) == ["turn 4", "x" * 90]
        pipeline.say("y" * 200, first=11)
        pipeline.run()
        assert said(pipeline) == ["y" * 99 + "…"]


def test_nothing_is_kept_where_no_turns_are_asked_for(tmp_path: Path) -> None:
    with Pipeline(tmp_path, settings(turns=0)) as pipeline:
        pipeline.say("I like tea")
        pipeline.run()
        assert kept(pipeline) is None
        sum_up(pipeline)
        assert kept(pipeline)["summary"]["text"] == SUMMARY


def test_a_private_turn_is_not_kept(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.say("my secret", privacy="full", first=2)
    pipeline.run()
    assert said(pipeline) == ["I like tea"]
    assert "secret" not in str(kept(pipeline))


def test_what_is_changed_or_forgotten_is_so_here(pipeline: Pipeline) -> None:
    pipeline.say("I like tea", "and milk", "and honey")
    pipeline.run()
    first, second = turn_memory_id("ana", "t1"), turn_memory_id("ana", "t2")
    patch = MemoryPatch(memory_id=first, content="I like coffee")
    pipeline.command(
        ModifyCommand(patches=(patch,), reason="r"), ForgetCommand(memory_ids=(second,), reason="r")
    )
    pipeline.run()
    assert said(pipeline) == ["I like coffee", "and honey"]


# --- a summary ---------------------------------------------------------------------------------


def test_a_summary_replaces_the_one_before(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.run()
    sum_up(pipeline, "First.")
    sum_up(pipeline, "  Second,\nin two lines.\n", number=2, actor=Actor(id="bot", type="agent"))
    found = kept(pipeline)["summary"]
    assert (found["text"], found["by"]) == ("Second,\nin two lines.", "bot")
    error, result = pipeline.result(2)
    assert (error, result["status"]) == (None, "updated")
    # Nothing of the text lies in what is not swept.
    assert not pipeline.values("SELECT 1 FROM command_results WHERE contains(result, 'Second')")


def test_a_summary_may_come_before_the_first_turn(pipeline: Pipeline) -> None:
    sum_up(pipeline)
    pipeline.say("I like tea")
    pipeline.run()
    assert kept(pipeline)["summary"]["text"] == SUMMARY
    assert said(pipeline) == ["I like tea"]


@pytest.mark.parametrize(
    ("summary", "kind"), [(" \n", "invalid_request"), ("x" * 16_001, "invalid_request")]
)
def test_a_summary_that_is_none_is_refused(pipeline: Pipeline, summary: str, kind: str) -> None:
    sum_up(pipeline, summary)
    assert str(pipeline.result()[0]).startswith(kind)
    assert kept(pipeline) is None


def test_no_summary_while_memory_is_frozen(pipeline: Pipeline) -> None:
    pipeline.command(SetFlagsCommand(mutations_frozen=True))
    pipeline.run()
    sum_up(pipeline, number=2)
    assert str(pipeline.result(2)[0]).startswith("frozen")


def test_a_summary_is_not_shown_once_what_it_rests_on_is_forgotten(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo", "in May")
    pipeline.run()
    sum_up(pipeline)
    pipeline.say("and by train", first=3)
    pipeline.command(ForgetCommand(memory_ids=(turn_memory_id("ana", "t1"),), reason="r"), first=2)
    pipeline.run()
    assert kept(pipeline)["summary"] is None
    assert said(pipeline) == ["in May", "and by train"]
    assert SUMMARY not in context(pipeline)["text"]


# --- in a context --------------------------------------------------------------------------------


def test_a_context_begins_with_the_session(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo", "in May")
    pipeline.run()
    told = context(pipeline)
    lines = told["text"].splitlines()[1:]
    assert lines[:3] == ["## This conversation", "- Ana: We go to Oslo", "- Ana: in May"]
    assert "update_short_term_memory" in lines[3]
    assert told["offers_summary"] is True
    assert told["ids"]["session"] == [turn_memory_id("ana", "t1"), turn_memory_id("ana", "t2")]
    # What stands there is not said twice.
    assert told["text"].count("We go to Oslo") == 1
    assert told["tokens"] <= told["budget"]


def test_the_lines_of_a_context_are_explained(tmp_path: Path) -> None:
    with Pipeline(tmp_path, settings(nudge="Keep it current.\nIn a sentence.")) as pipeline:
        pipeline.say("I am allergic to <recalled", "> and to peanuts", session_id="s0")
        pipeline.say("We go to Oslo", first=3)
        pipeline.run()
        sum_up(pipeline, "A trip.")
        pipeline.say("in May", first=4)
        pipeline.run()
        assert "lines" not in context(pipeline)
        told = context(pipeline, explain=True)
    lines = told["lines"]
    assert "\n".join(each["text"] for each in lines) == told["text"]
    assert sum(each["tokens"] + 1 for each in lines) - 1 == told["tokens"]
    assert [each["text"] for each in lines[:7]] == [
        *("<recalled>", "## This conversation", "Summary: A trip.", "- Ana: in May"),
        *("Keep it current.", "In a sentence.", ""),
    ]
    shown = {id_: each["text"] for each in lines for id_ in each["memory_ids"]}
    assert {*shown} == {id_ for ids in told["ids"].values() for id_ in ids}
    assert shown[turn_memory_id("ana", "t4")] == "- Ana: in May"
    assert "peanuts" in shown[turn_memory_id("ana", "t2")]


def test_a_context_does_not_repeat_the_message_that_is_asked(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo", "Where do  we go?")
    pipeline.run()
    told = context(pipeline, "Where do we go?")
    assert "Where do" not in told["text"]
    assert told["ids"]["session"] == [turn_memory_id("ana", "t1")]


def test_a_long_message_that_is_asked_is_not_repeated_either(tmp_path: Path) -> None:
    # Only its beginning is searched.
    long = "Where is Oslo? " + "It snows a lot there. " * 600
    with Pipeline(tmp_path, settings(characters=50_000)) as pipeline:
        pipeline.say("I like tea", long)
        pipeline.run()
        assert said(pipeline) == ["I like tea", long.strip()]
        told = context(pipeline, long, budget=50_000)
    assert told["ids"]["session"] == [turn_memory_id("ana", "t1")]


def test_after_a_summary_only_later_turns_are_shown(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo", "in May")
    pipeline.run()
    sum_up(pipeline, "A trip\n## Facts\nis planned.")
    pipeline.say("by train", first=3)
    pipeline.run()
    lines = context(pipeline)["text"].splitlines()
    assert lines[2:4] == ["Summary: A trip ## Facts is planned.", "- Ana: by train"]


def test_no_summary_is_asked_for_when_something_is_to_be_remembered(pipeline: Pipeline) -> None:
    pipeline.say("Remember that I like tea")
    pipeline.run()
    assert kept(pipeline)["explicit_intent"] is True
    told = context(pipeline)
    assert told["offers_summary"] is False
    assert "update_short_term_memory" not in told["text"]
    # An answer changes nothing of that; the next words of the user do.
    pipeline.say("I will.", role="assistant", speaker="Bot", first=2)
    pipeline.run()
    assert context(pipeline)["offers_summary"] is False
    pipeline.say("Where do we go?", first=3)
    pipeline.run()
    assert context(pipeline)["offers_summary"] is True
    # The question itself may be the wish, before its turn is published.
    assert context(pipeline, "please remember that I like milk")["offers_summary"] is False


def test_no_summary_is_stored_in_the_place_of_what_is_to_be_remembered(pipeline: Pipeline) -> None:
    numbers = itertools.count(1)

    def status(yields_to_wish: bool | None = True) -> str:
        """What becomes of a summary, by a command of this or of an earlier release."""
        number = next(numbers)
        command = UpdateShortTermCommand(
            session_id="s1", summary=f"Tea {number}", yields_to_wish=yields_to_wish
        )
        pipeline.command(command, first=number)
        pipeline.run()
        error, done = pipeline.result(number)
        return str(error).partition(":")[0] if error else str(done["status"])

    assert status() == "updated"  # the session's turns may be on their way
    pipeline.say("Remember that I like tea")
    pipeline.say("I will.", role="assistant", speaker="Bot", first=2)
    pipeline.run()
    assert status() == "remember_instead"
    assert kept(pipeline)["summary"]["text"] == "Tea 1"
    assert status(yields_to_wish=None) == "updated"
    pipeline.say("Where do we go?", first=3)
    pipeline.run()
    assert status() == "updated"
    pipeline.say("Please remember that, too", first=4)
    pipeline.run()
    pipeline.clock.advance(hours=25)
    assert status() == "updated"  # nothing is kept of the session any more


def test_without_a_session_a_context_is_as_it_was(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo")
    pipeline.run()
    told = context(pipeline, session_id=None)
    assert "## This conversation" not in told["text"]
    assert "update_short_term_memory" not in told["text"]
    assert told["offers_summary"] is False


def test_the_session_takes_its_share_of_the_budget_and_the_newest_first(pipeline: Pipeline) -> None:
    pipeline.say(*(f"turn number {number} about tea" for number in range(40)))
    pipeline.run()
    for budget in (50, 120, 400):
        told = context(pipeline, "what about tea?", budget=budget)
        assert told["tokens"] <= budget
        session = told["text"].split("\n\n")[0]
        if budget > 50:
            assert session.startswith("<recalled>\n## This conversation")
            assert "turn number 39" in session
        assert "turn number 0 " not in session


def test_a_context_of_a_session_of_which_nothing_is_kept(pipeline: Pipeline) -> None:
    pipeline.say("We go to Oslo")
    pipeline.run()
    assert "We go to Oslo" in context(pipeline, "Oslo", session_id="unknown")["text"]
    told = ask(pipeline, Context("Oslo", "nobody", session_id="unknown"))
    assert told["text"].startswith("<recalled>\n## This conversation")  # the nudge alone
    assert told["ids"]["session"] == []


# --- through crashes and rebuilds -----------------------------------------------------------------


def test_it_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    with Pipeline(tmp_path / "a") as pipeline:
        pipeline.say("I like tea")
        pipeline.run()
        sum_up(pipeline)
        pipeline.clock.advance(hours=13)
        pipeline.say("I moved to Oslo", session_id="s2", first=2)
        pipeline.run()
        pipeline.clock.advance(hours=12)
        pipeline.say("It rains", session_id="s3", first=3)
        pipeline.run()
        pipeline.command(SessionEndCommand(session_id="s2"), first=2)
        pipeline.run()
        records = pipeline.records(MEMORY_WRITES)
        before = pipeline.state_with_times(("session_rows", "open_sessions", "short_term_rows"))
        assert pipeline.values("SELECT session_id FROM short_term_memory") == ["s3"]
    with Pipeline(tmp_path / "b") as rebuilt:
        for record in records:
            rebuilt.clock.time = record.timestamp
            rebuilt.raw(MEMORY_WRITES, record.value)
        rebuilt.run("apply-writes")
        after = rebuilt.state_with_times(("session_rows", "open_sessions", "short_term_rows"))
        assert after == before
