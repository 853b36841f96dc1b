"""Sessions begin with a turn and end by command, silence or a new id; each end is an event."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.ops.errors import RequestError
from palimpsest.ops.operations.sessions import Sessions, SessionTimeline
from palimpsest.schemas.commands import SessionEndCommand, SetFlagsCommand
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.identity import turn_memory_id
from palimpsest.streams.apply.sessions import MOST_OPEN
from tests.harness import Pipeline
from tests.messages import BEGIN, published, turn
from tests.sessions_by_hand import ask, ends_told, listed


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path) as made:
        yield made


def say(pipeline: Pipeline, session_id: str, content: str, scope: str = "ana") -> None:
    """A turn of a session, processed; its text tells it from others."""
    pipeline.ingest(turn(content, content, session_id=session_id), scope=scope)
    pipeline.run()


def test_a_session_is_listed_with_its_beginning_and_its_turns(pipeline: Pipeline) -> None:
    pipeline.say("I like tea", "and milk", session_id="s1")
    pipeline.run()
    [session] = ask(pipeline, Sessions("ana"))["sessions"]
    assert session == {
        "session_id": "s1",
        "scope": "ana",
        "first_turn": turn_memory_id("ana", "t1"),
        "last_turn": turn_memory_id("ana", "t2"),
        "turns": 2,
        "began_at": "2026-03-01T09:30:00Z",
        "last_at": "2026-03-01T09:30:00Z",
        "ended_at": None,
        "ended_by": None,
        "ends": 0,
    }


def test_a_timeline_has_the_turns_in_their_order_with_their_facts(pipeline: Pipeline) -> None:
    texts = ["I live in Lisbon.", "Hello!", "I am allergic to walnuts.", "Bye!"]
    pipeline.say(*texts, session_id="s1")
    pipeline.run()
    shown, cursor = [], None
    for _ in texts:
        page = ask(pipeline, SessionTimeline("s1", "ana", limit=1, cursor=cursor))
        shown += page["turns"]
        cursor = page["next_cursor"]
    assert cursor is None
    assert [turn["content"] for turn in shown] == texts
    assert ask(pipeline, SessionTimeline("s1", "ana"))["turns"] == shown
    drawn = [[(fact["outcome"], fact["is_forgotten"]) for fact in turn["facts"]] for turn in shown]
    assert drawn == [[("created", False)], [], [("created", False)], []]
    for session, scope, cursor in (("s2", "ana", None), ("s1", "ben", None), ("s1", "ana", "x")):
        with pytest.raises(RequestError):
            ask(pipeline, SessionTimeline(session, scope, cursor=cursor))


def test_a_command_ends_a_session_once(pipeline: Pipeline) -> None:
    pipeline.say("I like tea", "and milk")
    pipeline.command(SessionEndCommand(session_id="s1", reason="closed"))
    pipeline.run()
    pipeline.command(SessionEndCommand(session_id="s1"), first=2)
    pipeline.command(SessionEndCommand(session_id="s9"), first=3)
    pipeline.run()
    assert pipeline.result(1)[1] == {
        "session_id": "s1",
        "turns": 2,
        "status": "ended",
        "ended_by": "command",
    }
    assert pipeline.result(2)[1]["status"] == "already"
    assert str(pipeline.result(3)[0]).startswith("not_found: ")
    assert listed(pipeline) == {"s1": "command"}
    assert ends_told(pipeline) == [("s1", "command", 2, 1)]
    [event] = pipeline.rows("SELECT reason FROM history_rows WHERE event = 'session-ended'")
    assert event["reason"] == "closed"


def test_a_frozen_memory_does_not_keep_a_session_from_ending(pipeline: Pipeline) -> None:
    pipeline.say("I like tea")
    pipeline.command(SetFlagsCommand(mutations_frozen=True))
    pipeline.run()
    pipeline.command(SessionEndCommand(session_id="s1"), first=2)
    pipeline.run()
    assert listed(pipeline) == {"s1": "command"}


def test_a_new_id_ends_the_session_before_and_no_other_scope_s(pipeline: Pipeline) -> None:
    say(pipeline, "s1", "I like tea")
    say(pipeline, "s1", "I like tea", scope="ben")
    say(pipeline, "s2", "I moved to Oslo")
    assert listed(pipeline) == {"s2": None, "s1": "new-session"}
    assert listed(pipeline, "ben") == {"s1": None}
    assert ends_told(pipeline) == [("s1", "new-session", 1, 1)]


def test_two_sessions_at_once(pipeline: Pipeline) -> None:
    """The first turn of the second ends the first, whose next turn opens it again; from then on
    both are open until a third comes."""
    for session, content in (("a", "one"), ("b", "two"), ("a", "three"), ("b", "four")):
        say(pipeline, session, content)
    assert listed(pipeline) == {"a": None, "b": None}
    assert ends_told(pipeline) == [("a", "new-session", 1, 1)]
    say(pipeline, "c", "five")
    assert listed(pipeline) == {"a": "new-session", "b": "new-session", "c": None}
    assert set(ends_told(pipeline)[1:]) == {("a", "new-session", 2, 2), ("b", "new-session", 2, 1)}
    assert pipeline.balance().holds


def test_silence_ends_a_session_when_the_log_has_gone_on(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    say(pipeline, "b", "two")
    say(pipeline, "a", "three")
    pipeline.clock.advance(minutes=20)
    say(pipeline, "b", "four")
    assert listed(pipeline) == {"a": None, "b": None}
    pipeline.clock.advance(minutes=10)
    say(pipeline, "b", "five")
    assert listed(pipeline) == {"a": "silence", "b": None}
    [row] = pipeline.rows("SELECT ended_at FROM sessions WHERE session_id = 'a'")
    assert row["ended_at"] == BEGIN + timedelta(minutes=30)


def test_a_turn_after_silence_opens_its_own_session_again(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    pipeline.clock.advance(hours=2)
    say(pipeline, "a", "two")
    assert listed(pipeline) == {"a": None}
    assert ends_told(pipeline) == [("a", "silence", 1, 1)]
    pipeline.command(SessionEndCommand(session_id="a"))
    pipeline.run()
    assert ends_told(pipeline)[1:] == [("a", "command", 2, 2)]


def test_a_producer_s_clock_ends_no_session(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    late = published(turn("two", 2, session_id="a"), occurred_at=BEGIN + timedelta(days=9_000))
    pipeline.publish(late)
    pipeline.run()
    assert ends_told(pipeline) == []


def test_turns_without_a_session_belong_to_none(pipeline: Pipeline) -> None:
    say(pipeline, "a", "one")
    say(pipeline, "", "two")
    assert listed(pipeline) == {"a": None}
    pipeline.clock.advance(hours=1)
    say(pipeline, "", "three")
    assert listed(pipeline) == {"a": "silence"}
    assert ends_told(pipeline) == [("a", "silence", 1, 1)]
    pipeline.command(SessionEndCommand.model_construct(session_id=""))
    pipeline.run()
    error = pipeline.rows("SELECT error FROM command_results")[0]["error"]
    assert str(error).startswith("invalid_request")


def test_a_repeated_turn_begins_and_ends_nothing(pipeline: Pipeline) -> None:
    pipeline.say("one", session_id="a")
    pipeline.say("two", session_id="b", first=2)
    pipeline.run()
    pipeline.say("one", session_id="a")
    pipeline.run()
    assert listed(pipeline) == {"b": None, "a": "new-session"}


def test_a_private_turn_begins_and_ends_nothing(pipeline: Pipeline) -> None:
    pipeline.say("one", session_id="a")
    pipeline.say("secret", session_id="b", first=2, privacy="full")
    pipeline.run()
    assert listed(pipeline) == {"a": None}
    assert pipeline.balance().turns["rejected"] == 1


def test_so_many_sessions_may_be_open_and_no_more(pipeline: Pipeline) -> None:
    ids = [f"s{number:03}" for number in range(MOST_OPEN + 2)]
    for round_ in range(2):
        for number, session_id in enumerate(ids):
            pipeline.say("x", session_id=session_id, first=1000 * round_ + number)
    pipeline.run()
    found = listed(pipeline, limit=100)
    assert [each for each in ids if found[each] is not None] == ids[:2]
    assert {found[each] for each in ids[:2]} == {"crowded"}
    assert sorted(listed(pipeline, limit=100, open=True)) == ids[2:]


def test_pages_of_sessions(pipeline: Pipeline) -> None:
    pipeline.say("x", session_id="a/1")
    pipeline.say("y", session_id="b/2", first=2)
    pipeline.say("z", session_id="c/3", first=3)
    pipeline.run()
    seen, before = [], None
    while True:
        page = ask(pipeline, Sessions("ana", limit=1, cursor=before))
        seen += [each["session_id"] for each in page["sessions"]]
        before = page["next_cursor"]
        if before is None:
            break
    assert seen == ["c/3", "b/2", "a/1"]
    with pytest.raises(RequestError, match="no place in this list"):
        ask(pipeline, Sessions("ana", limit=1, cursor="nonsense"))


def test_a_machine_may_end_a_session(pipeline: Pipeline) -> None:
    pipeline.say("one")
    pipeline.command(SessionEndCommand(session_id="s1"), actor=Actor(id="bot", type="agent"))
    pipeline.run()
    assert listed(pipeline) == {"s1": "command"}
    [row] = pipeline.rows("SELECT changed_by FROM history_rows WHERE event = 'session-ended'")
    assert row["changed_by"] == "bot"
