"""What of a long text is read as the question."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.question import LONG, MAX_WORDS, question_of
from tests.memory_rows import SCOPE, open_shard, turn, write
from tests.processor_time import takes_at_most
from tests.unit.recall_parts import answer, ids

PREAMBLE = (
    "We had a long week at work and the garden fence is finally painted. The children were at the"
    " museum with the neighbours, and afterwards everyone came over for cake and tea. How are you?"
    " I forgot to buy milk, which is why my sister went out again in the rain, and then the shop"
    " was shut."
)
ASKED = "When does the plumber come back?"
JAPANESE = "配管工はいつ来ますか？"
RUN_ON = PREAMBLE.casefold().replace(".", ",").replace("?", ",")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PREAMBLE} {ASKED}", ASKED),
        (f"{ASKED} {PREAMBLE}", ASKED),
        (f"{PREAMBLE} {ASKED} {PREAMBLE}", ASKED),
        (f"{PREAMBLE}\n\n{ASKED}\nThanks!", ASKED),
        (f"{PREAMBLE} {ASKED} Who lets him in?", f"{ASKED} Who lets him in?"),
        (f"{PREAMBLE} Tell me when the plumber is back.", "Tell me when the plumber is back."),
        (f"{PREAMBLE} So, what is the plumber's number", "So, what is the plumber's number"),
        (f"{RUN_ON} so when does the plumber return", "when does the plumber return"),
        (f"{PREAMBLE} Wann kommt der Klempner", "Wann kommt der Klempner"),
        ("今日は庭で本を読みました。" * 9 + JAPANESE, JAPANESE),
        (
            f"{PREAMBLE} My colleague Pavel rang about the boiler. What was his name?",
            "My colleague Pavel rang about the boiler. What was his name?",
        ),
    ],
)
def test_a_long_text_is_read_by_what_asks_in_it(text: str, expected: str) -> None:
    assert question_of(text) == expected


@pytest.mark.parametrize("text", ["", "?", ASKED, f"I locked the shed. {ASKED}", PREAMBLE])
def test_a_short_text_and_one_in_which_nothing_asks_are_read_whole(text: str) -> None:
    assert question_of(text) == text


def test_no_more_is_read_of_many_questions_than_of_one() -> None:
    many = " ".join(f"Where did Ana put box number {number}?" for number in range(500))
    assert len(question_of(many).split()) <= MAX_WORDS
    assert question_of(many).endswith("number 499?")
    assert LONG > MAX_WORDS


@pytest.mark.parametrize("part", ["a ", "what is ", "? ", "so ", "so,", "((", "a\n", "when is x? "])
def test_reading_takes_linear_time(part: str) -> None:
    assert takes_at_most(1, lambda: question_of(part * 40_000))


def test_a_question_after_a_preamble_finds_what_it_asks_for(tmp_path: Path) -> None:
    texts = (PREAMBLE, "The plumber comes back on 14 May.", "The garden fence is painted green.")
    shard = open_shard(tmp_path / "shard")
    write(shard, [turn(f"t{number}", text, number) for number, text in enumerate(texts)])
    found = answer(shard, Query(SCOPE, f"{PREAMBLE} {ASKED}"))
    assert ids(found)[0] == "t1"
    assert found.query == f"{PREAMBLE} {ASKED}"
    shard.close()
