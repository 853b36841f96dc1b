"""A block that `context` printed comes back in turns of the same scope."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest.ops.operations.memories import Context, Recall
from palimpsest.schemas.echoes import CLOSE, OPEN
from palimpsest.stores.recall.context import estimate_tokens
from palimpsest.streams.settings import ExtractionSettings
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.sessions_by_hand import ask

FACTS = ("I live in Oslo.", "I drink tea.", "My sister is called Lea.")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    settings = pipeline_settings(FULL)
    roles = ExtractionSettings(roles=("user", "assistant", "system"))
    settings = settings.model_copy(update={"extraction": roles})
    with Pipeline(tmp_path, settings=settings) as made:
        made.say(*FACTS)
        yield made.run()


def block(pipeline: Pipeline, text: str = "where does Ana live?", **fields: Any) -> Any:
    return ask(pipeline, Context(text, "ana", **fields))


def facts(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    rows = pipeline.rows(
        "SELECT content, is_deleted, occurred_at FROM memory_rows WHERE type != 'episodic'"
        " ORDER BY content, occurred_at"
    )
    return [tuple(row.values()) for row in rows]


def test_what_is_printed_stands_between_marks_within_the_budget(pipeline: Pipeline) -> None:
    for fields in ({}, {"budget": 60}, {"session_id": "s1"}):
        found = block(pipeline, **fields)
        assert found["text"].startswith(f"{OPEN}\n## ")
        assert found["text"].endswith(f"\n{CLOSE}")
        assert found["text"].count("recalled>") == 2
        assert found["tokens"] == estimate_tokens(found["text"]) <= found["budget"]


@pytest.mark.parametrize("role", ["user", "system", "assistant"])
def test_an_echo_gives_no_facts_and_reverts_none(pipeline: Pipeline, role: str) -> None:
    before = block(pipeline)["text"]
    pipeline.say("I moved to Bergen.", first=10)
    pipeline.run()
    known = facts(pipeline)
    bare = before.removeprefix(f"{OPEN}\n").removesuffix(f"\n{CLOSE}")
    pipeline.say(f"{before}\n\nWhat should I cook?", before, bare, first=11, role=role)
    pipeline.run()
    assert facts(pipeline) == known
    pipeline.say(f"{before}\n\nI have a dog.", first=20)
    pipeline.run()
    assert [fact[0] for fact in facts(pipeline) if fact not in known] == ["Ana has a dog."]


@pytest.mark.parametrize("question", ["Where was that?", "Question {}: where was that?"])
def test_echoes_take_the_places_of_no_results(pipeline: Pipeline, question: str) -> None:
    rooms = ("kitchen", "hall", "attic", "garden", "cellar", "bath", "garage", "study")
    pipeline.say(*(f"I painted the {room} of my house." for room in rooms), first=20)
    for number in range(10):
        pipeline.run()
        asked = f"which rooms of her house did Ana paint? {number}"
        text = block(pipeline, asked)["text"]
        assert text.count(OPEN) == 1
        pipeline.say(f"{text}\n\n{question.format(number)}", first=30 + number)
    pipeline.run()
    results = ask(pipeline, Recall("which rooms did Ana paint?", "ana", limit=8))["results"]
    assert not [each["content"] for each in results if OPEN in each["content"]]


def test_the_turn_is_stored_whole_and_found(pipeline: Pipeline) -> None:
    text = f"I typed {OPEN}the word xylophone{CLOSE} myself."
    pipeline.say(text, first=10)
    pipeline.run()
    first = ask(pipeline, Recall("xylophone", "ana"))["results"][0]
    assert first["content"] == text


def test_code_keeps_its_lines_in_the_block_and_gives_no_facts_when_it_comes_back(
    pipeline: Pipeline,
) -> None:
    code = "Our script xylophone:\ndef main():\n    return 1\n## Profile\n- I live in Rome."
    pipeline.say(code, first=10, role="assistant")
    pipeline.run()
    shown = "\n      ".join(code.split("\n"))
    # In the session's part, and among what is found.
    for fields in ({"session_id": "s1"}, {}):
        made = block(pipeline, "what is xylophone?", explain=True, **fields)
        assert shown in made["text"]
        of_code = [each for each in made["lines"] if each["text"].startswith(" " * 6)]
        assert [len(each["memory_ids"]) for each in of_code] == [1] * 4
    known = facts(pipeline)
    for number, echo in enumerate((made["text"], made["text"].removesuffix(CLOSE))):
        pipeline.say(f"{echo}\n\nWhat is that?", first=20 + number)
    pipeline.run()
    assert facts(pipeline) == known
