"""A recall as of a moment shows what was known then."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from palimpsest import Memory

SETTINGS = {"embedding.provider": "hashing", "llm.provider": "rules"}


def test_recall_as_of_shows_the_text_before_a_correction(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        first = memory.remember("Ana's home is in Lisbon")
        then = datetime.now(UTC)
        memory.correct(first.id, "Ana's home is in Porto")
        [result] = memory.recall("where is Ana's home", as_of=then).results
        assert (result.content, result.marks) == ("Ana's home is in Lisbon", ())
        [result] = memory.recall("where is Ana's home").results
        assert result.content == "Ana's home is in Porto"
        now = datetime.now(UTC)
        assert memory.recall("where is Ana's home", as_of=now).results[0].content.endswith("Porto")


def test_recall_as_of_does_not_bring_back_what_is_hidden(tmp_path: Path) -> None:
    """A fact that was forgotten is hidden in its turn, at any moment."""
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        memory.add("I have a dog named Rex. I am allergic to walnuts.", speaker="Ana")
        memory.wait_until_processed()
        then = datetime.now(UTC)
        [fact] = [
            each
            for each in memory.list(limit=9).memories
            if each.content == "Ana is allergic to walnuts."
        ]
        memory.forget([fact.id], reason="mine")
        shown = memory.recall("walnuts", as_of=then).results
        assert not [each for each in shown if "walnuts" in each.content]


def test_recall_as_of_shows_the_turn_of_what_is_hidden_as_it_is_now(tmp_path: Path) -> None:
    with Memory(tmp_path, scope="ana", settings=SETTINGS, wait_seconds=60.0) as memory:
        memory.add("I have a dog named Rex. I am allergic to walnuts.", speaker="Ana")
        memory.wait_until_processed()
        then = datetime.now(UTC)
        facts = memory.list(limit=9).memories
        [fact] = [each for each in facts if each.content == "Ana is allergic to walnuts."]
        memory.forget([fact.id], reason="mine")
        found = memory.recall("Rex the dog", as_of=then, group=False, types=("episodic",)).results
        assert [each.content for each in found] == ["I have a dog named Rex. [forgotten]"]
