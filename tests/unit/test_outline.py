"""What the vector of a long text by no person is made from."""

from __future__ import annotations

import pytest

from palimpsest.schemas.memory_texts import OUTLINE_CHARACTERS, outline

ADVICE = (
    "Here is how to keep a sourdough starter alive while you travel. "
    + "It needs little, as long as it is cold. " * 5
    + " ".join(
        f"{number}. **{title}**: " + "do it slowly and with care, then wait a day. " * 6
        for number, title in enumerate(("Feed it", "Dry it", "Freeze it", "Share it"), start=1)
    )
)


def test_a_short_text_is_as_it_is() -> None:
    text = "1. Feed it 2. Dry it"
    assert outline(text) == text


def test_of_a_list_there_is_the_beginning_of_each_item() -> None:
    found = outline(ADVICE)
    assert len(found) <= OUTLINE_CHARACTERS
    assert found.startswith("Here is how to keep a sourdough starter alive while you travel.")
    assert [word for word in ("Feed", "Dry", "Freeze", "Share") if word in found] == [
        "Feed",
        "Dry",
        "Freeze",
        "Share",
    ]


def test_signs_of_markdown_are_left_out() -> None:
    found = outline("# Plan --- | **Day** | `where` | ## The __first__ day: a-b, 2*3, C# " + ADVICE)
    assert found.startswith("Plan Day where The first day: a-b, 2*3, C# Here is how")


def test_prose_is_cut_between_two_words() -> None:
    text = "It needs little, as long as it is cold. " * 20
    assert text.startswith(outline(text) + " ")
    assert len(outline(text)) > OUTLINE_CHARACTERS - 10


@pytest.mark.parametrize(
    "text", ["x" * 5_000, "1. " * 5_000, "- y" * 5_000, "| " * 5_000, "あ" * 5_000]
)
def test_it_is_never_longer_nor_empty(text: str) -> None:
    assert 0 < len(outline(text)) <= OUTLINE_CHARACTERS


def test_an_outline_has_itself_as_its_outline() -> None:
    assert outline(outline(ADVICE)) == outline(ADVICE)
