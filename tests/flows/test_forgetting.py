"""Forgetting by a question: what is named goes in every form in which it was written, and what
only looks alike or stands beside it stays. Cases of the kinds of ForgetEval, without a model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from palimpsest import Memory

FILE = Path(__file__).parents[1] / "data" / "forgetting.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
MIN_SHARE = 0.75


def shown(memory: Memory, question: str, scope: str) -> str:
    found = memory.recall(question, scope=scope, limit=10)
    return "\n".join(each.content for each in found.results if not each.marks)


def play(memory: Memory, case: Mapping[str, Any], scope: str) -> list[str]:
    """What is wrong after the case was played."""
    for text in case.get("texts", ()):
        memory.remember(text, scope=scope)
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
            settings={**common, "search.language": language},
        )
        for language in ("english", "none")
    }
    yield made
    for each in made.values():
        each.close()


def test_hand_written_cases(memories: dict[str, Memory]) -> None:
    right: Counter[str] = Counter()
    wrong: list[str] = []
    for number, case in enumerate(CASES, 1):
        found = play(memories[case.get("language", "english")], case, f"case-{number}")
        right[case["kind"]] += not found
        wrong += [f"{case['kind']} {number} {case.get('forget', case.get('say'))}: {found}"] * bool(
            found
        )
    total = Counter(case["kind"] for case in CASES)
    print(*wrong, *(f"{kind}: {right[kind]} of {count}" for kind, count in total.items()), sep="\n")
    assert right.total() >= MIN_SHARE * len(CASES), wrong
