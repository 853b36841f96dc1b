"""Recorded replies: kept under all that was asked, sealed by it, and gone when they should be."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.streams.logs.base import LogError
from palimpsest.streams.models.base import Prompt, Reply, TransientModelError
from palimpsest.streams.models.recorded import Kept, Question, RecordedReplies, question
from palimpsest.streams.runtime.model_port import ModelPort
from palimpsest.streams.stage import Generate
from tests.erased_bytes import where
from tests.examples import examples
from tests.harness import Clock
from tests.unit.runner_parts import Embedding, Model

SECRET = "Ana keeps the spare key under the third flowerpot"
PROMPT = Prompt("extract", "Draw facts.", SECRET, {"type": "object"}, 100, {})
OTHER = replace(PROMPT, user="Ben works at a bakery")
REPLY = Reply(f"it says: {SECRET}", "m", "scripted", 11, 7, 12.5, 0.25)


def replies(folder: Path, days: float = 30, max_bytes: int = 10**9, **given: Any) -> Any:
    clock = given.get("clock") or Clock()
    return RecordedReplies(folder / "replies.sqlite", clock, days, max_bytes)


def find(kept: RecordedReplies, asked: Question) -> Reply | None:
    return kept.find([asked])[0]


def keep(kept: RecordedReplies, asked: Question, scope: str, reply: Reply, erasures: int) -> None:
    kept.keep([Kept(asked, scope, reply, erasures)])


def of(prompt: Prompt = PROMPT, attempt: int = 1, address: str = "http://a", **model: str) -> Any:
    asked = Model()
    asked.model, asked.provider = model.get("model", "m"), model.get("provider", "scripted")
    return question(asked, address, prompt, attempt)


def test_a_reply_is_found_by_the_same_question_only(tmp_path: Path) -> None:
    kept = replies(tmp_path)
    keep(kept, of(), "ana", REPLY, 0)
    kept.close()
    again = replies(tmp_path)
    assert find(again, of()) == REPLY
    others = [
        of(OTHER),
        of(replace(PROMPT, system="Else.")),
        of(replace(PROMPT, schema={})),
        of(replace(PROMPT, max_output_tokens=99)),
        of(attempt=2),
        of(address="http://b"),
        of(model="n"),
        of(provider="else"),
    ]
    assert [find(again, each) for each in others] == [None] * len(others)
    assert len({each.digest for each in (*others, of())}) == len(others) + 1


def test_the_file_says_nothing_to_who_cannot_ask_the_same(tmp_path: Path) -> None:
    kept = replies(tmp_path)
    keep(kept, of(), "ana", REPLY, 0)
    assert where(tmp_path, SECRET, "flowerpot", "it says") == []
    # With the name of the question alone, and with another one's secret.
    assert find(kept, replace(of(), secret=of(OTHER).secret)) is None
    kept.close()


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200), st.none() | st.integers(0, 10**9), st.none() | st.floats(0, 1e9))
def test_a_reply_comes_back_as_it_was(
    tmp_path: Path, text: str, tokens: int | None, cost: float | None
) -> None:
    kept = replies(tmp_path)
    reply = replace(REPLY, text=text, input_tokens=tokens, cost=cost)
    keep(kept, of(replace(PROMPT, user=text)), "ana", reply, 0)
    assert find(kept, of(replace(PROMPT, user=text))) == reply
    kept.close()


def test_erasing_takes_a_scope_and_its_bytes(tmp_path: Path) -> None:
    kept, other = replies(tmp_path), replies(tmp_path)
    keep(kept, of(), "ana", REPLY, 0)
    keep(kept, of(OTHER), "ben", REPLY, 0)
    [sealed] = kept._connection.execute("SELECT sealed FROM replies WHERE scope = 'ana'").fetchone()
    assert sealed in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    before = kept.erasures
    keep(other, of(attempt=2), "ana", REPLY, 0)
    kept.erase(["ana"])
    assert sealed not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert [find(kept, each) for each in (of(), of(attempt=2), of(OTHER))] == [None, None, REPLY]
    # What was asked before and is answered after.
    keep(kept, of(), "ana", REPLY, before)
    assert find(kept, of()) is None
    keep(kept, of(), "ana", REPLY, kept.erasures)
    assert find(kept, of()) == REPLY
    for each in (kept, other):
        each.close()


def test_what_is_too_old_goes_and_the_oldest_beyond_the_bound(tmp_path: Path) -> None:
    clock = Clock()
    kept = replies(tmp_path, 2, clock=clock)
    for number in range(3):
        keep(kept, of(attempt=number), "ana", REPLY, 0)
        clock.advance(days=1)
    assert kept.expire(clock()) == 2
    assert [find(kept, of(attempt=number)) for number in range(3)] == [None, None, REPLY]
    keep(kept, of(attempt=3), "ana", REPLY, 0)
    kept.close()
    small = replies(tmp_path, 2, 200, clock=clock)
    assert small.expire(clock()) == 1
    assert [find(small, of(attempt=number)) for number in (2, 3)] == [None, REPLY]
    small.close()
    nothing = replies(tmp_path, 0, clock=clock)
    assert nothing.expire(clock() + timedelta(seconds=1)) == 1
    nothing.close()


def test_a_damaged_reply_is_none_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    kept = replies(tmp_path)
    keep(kept, of(), "ana", REPLY, 0)
    kept._connection.execute("UPDATE replies SET sealed = substr(sealed, 1, 40)")
    assert find(kept, of()) is None
    kept.close()
    (tmp_path / "replies.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(LogError, match="delete it"):
        replies(tmp_path)


async def test_what_was_answered_is_not_paid_for_again(tmp_path: Path) -> None:
    kept = replies(tmp_path)
    model = Model("one", "two", TransientModelError("down"))
    port = ModelPort(model, Embedding(), replies=kept, address="http://a")
    first = await port.answer(Generate(PROMPT), "ana")
    assert await port.answer(Generate(PROMPT), "ana") == first
    fresh = await port.answer(Generate(PROMPT, fresh=True), "ana")
    assert await port.answer(Generate(PROMPT), "ana") == fresh
    assert (first and first.text, fresh and fresh.text, len(model.asked)) == ("one", "two", 2)
    used = port.usage.of("llm:scripted")
    assert (used.calls, used.recorded) == (2, 2)
    # What nobody answered is no reply.
    assert await port.answer(Generate(OTHER, advisory=True), "ana") is None
    model.script = ["three"]
    assert await port.answer(Generate(OTHER, advisory=True), "ana") is not None
    kept.close()


async def test_a_reply_that_cannot_be_kept_stops(tmp_path: Path) -> None:
    kept = replies(tmp_path)
    port = ModelPort(Model("one"), Embedding(), replies=kept)
    kept._connection.execute("DROP TABLE replies")
    with pytest.raises(LogError, match=r"replies\.retention_days"):
        await port.answer(Generate(PROMPT), "ana")
    kept.close()
