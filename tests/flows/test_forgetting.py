"""Forgetting by a question: what is named goes in every form in which it was written, and what
only looks alike or stands beside it stays. Cases of the kinds of ForgetEval, without a model."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory

DATA = Path(__file__).parents[1] / "data"
PHRASES = (
    "forget everything about {}",
    "Please forget what I told you about {}",
    "delete all memories of {}",
    "I don't want you to remember {} any more",
    "everything about {}",
    "remove anything related to {}",
    "erase {}",
    "Can you forget about {}?",
    "what you know about {}",
)
SUBJECTS = (
    (
        "Zelda Fink",
        ("Zelda Fink keeps geese.", "Yesterday Zelda Fink rang about the fence."),
        ("Zelda Finkel keeps ducks.", "The fence is new."),
    ),
    (
        "the Meridian project",
        ("The Meridian project ends in May.", "Budget of the Meridian project: 40,000 euros."),
        ("The Meridian hotel has a pool.", "The Atlas project ends in June."),
    ),
    (
        "my allergy to kiwi",
        ("I have an allergy to kiwi.", "The allergist confirmed my kiwi allergy."),
        ("I grow kiwi plants.", "My brother has an allergy to dust."),
    ),
    (
        "Tariq",
        ("Tariq lives in Fez.", "Tariq's sister is a judge."),
        ("Fez has old walls.", "Tarik lives in Rabat."),
    ),
    (
        "jon@tide.example",
        ("Send it to jon@tide.example.", "JON@TIDE.EXAMPLE paid twice."),
        ("Send it to jon@tides.example.", "The tide is high."),
    ),
    (
        "ticket QX-58",
        ("Ticket QX-58 is about the lift.", "QX58 was escalated."),
        ("Ticket QX-580 is about the stairs.", "The lift is old."),
    ),
    (
        "my old flat in Leith",
        ("My old flat in Leith had damp.", "I paid 700 for my old flat in Leith."),
        ("My new flat in Perth is dry.", "Leith has a port."),
    ),
    (
        "+31 6 1234 5678",
        ("Ring Sanne on +31 6 1234 5678.", "Sanne: 06-12345678."),
        ("Ring Bram on +31 6 1234 5679.", "Sanne rows."),
    ),
)


def shown(memory: Memory, question: str, scope: str) -> str:
    found = memory.recall(question, scope=scope, limit=10)
    return "\n".join(each.content for each in found.results if not each.marks)


def remember(memory: Memory, texts: Sequence[str], scope: str) -> None:
    """In one batch."""

    async def together() -> None:
        await asyncio.gather(*(memory.aio.remember(text, scope=scope) for text in texts))

    memory.aio.background.blocking(together())


def play(memory: Memory, case: Mapping[str, Any], scope: str) -> list[str]:
    """What is wrong after the case was played."""
    remember(memory, case.get("texts", ()), scope)
    if said := case.get("turns"):
        before = "2026-02-03T10:00:00Z"
        turns = [{"role": "user", "content": text, "occurred_at": before} for text in said]
        memory.add(turns, scope=scope)
        memory.wait_until_processed()
    for text in case.get("say", ()):
        memory.add([{"role": "user", "content": text}], scope=scope)
        memory.wait_until_processed()
    if "forget" in case:
        preview = memory.preview_forget(query=case["forget"], scope=scope)
        named = [each.id for each in preview.candidates]
        if named:
            memory.forget(named, reason="asked", scope=scope)
    questions = [case["query"]] if "query" in case else []
    questions += [case.get("forget", "")] if "forget" in case else []
    questions += case["kept"]
    text = "\n".join(shown(memory, question, scope) for question in questions).casefold()
    wrong = [f"shown: {each}" for each in case["gone"] if each.casefold() in text]
    return wrong + [f"lost: {each}" for each in case["kept"] if each.casefold() not in text]


@pytest.fixture(scope="module")
def memories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Memory]]:
    common = {"pii.mode": "off", "pipeline.allow_update_delete": True}
    made = {
        language: Memory(
            tmp_path_factory.mktemp(language),
            scope="forgetting",
            wait_seconds=300.0,
            settings={**common, "search.language": language},
        )
        for language in ("english", "none")
    }
    yield made
    for each in made.values():
        each.close()


def measured(
    memories: dict[str, Memory], cases: Sequence[Mapping[str, Any]], name: str, least: float
) -> None:
    def played(number: int, case: Mapping[str, Any]) -> list[str]:
        return play(memories[case.get("language", "english")], case, f"{name}-{number}")

    right: Counter[str] = Counter()
    wrong: list[str] = []
    with ThreadPoolExecutor(64) as together:
        results = [*together.map(played, range(1, len(cases) + 1), cases)]
    for number, (case, found) in enumerate(zip(cases, results, strict=True), 1):
        right[case["kind"]] += not found
        wrong += [f"{case['kind']} {number} {case.get('forget', case.get('say'))}: {found}"] * bool(
            found
        )
    total = Counter(case["kind"] for case in cases)
    print(*wrong, *(f"{kind}: {right[kind]} of {count}" for kind, count in total.items()), sep="\n")
    assert right.total() >= least * len(cases), wrong


@pytest.mark.parametrize(("name", "least"), [("forgetting", 0.95), ("forgetting.held-out", 0.8)])
@pytest.mark.soak
def test_hand_written_cases(memories: dict[str, Memory], name: str, least: float) -> None:
    lines = (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
    measured(memories, [json.loads(line) for line in lines], name, least)


def test_phrases_that_ask_to_forget_all_of_something(memories: dict[str, Memory]) -> None:
    memory = memories["english"]
    wrong: list[str] = []
    for number, (subject, gone, kept) in enumerate(SUBJECTS):
        scope = f"phrases-{number}"
        remember(memory, (*gone, *kept), scope)
        for phrase in PHRASES[number % 3 :: 3]:
            asked = phrase.format(subject)
            preview = memory.preview_forget(query=asked, scope=scope)
            found = {each.content for each in preview.candidates}
            wrong += [f"{asked}: {found}"] * (found != {*gone})
    print(*wrong, sep="\n")
    assert wrong == []
