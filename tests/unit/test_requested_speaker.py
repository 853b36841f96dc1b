"""Whose statements a question asks for."""

from __future__ import annotations

from functools import partial

import pytest

from palimpsest.stores.recall.intent import (
    MAX_SPEAKER_CHARACTERS,
    RequestedSpeaker,
    requested_speaker,
)
from tests.processor_time import takes_at_most

QUESTIONS: list[tuple[str, RequestedSpeaker]] = [
    ("What did you recommend for the balcony?", "assistant"),
    ("You told me about a bakery near the canal. What is it called?", "assistant"),
    ("which knife have you previously suggested", "assistant"),
    ("In our previous conversation you listed three hikes. Which was the last?", "assistant"),
    ("I was going through our last chat about sourdough: how long does it rest?", "assistant"),
    ("Remind me what you suggested for dinner.", "assistant"),
    ("You’ve mentioned a podcast on bees", "assistant"),
    ("What was the second item of your earlier answer?", "assistant"),
    ("What did the assistant say about taxes?", "assistant"),
    ("Can you remind me of the name of the hotel?", "anyone"),
    ("Remind me when my visa ends", "anyone"),
    ("Where do I keep the spare key?", "people"),
    ("Can you recommend a film for tonight?", "people"),
    ("Could you suggest some activities for the evening?", "people"),
    ("What did I tell you about my allergy?", "people"),
    ("What did Mara say about the roof?", "people"),
    ("Where did Jonas and I meet for the first time?", "people"),
    ("How are you?", "people"),
]


@pytest.mark.parametrize(("question", "expected"), QUESTIONS)
def test_whose_words_are_asked_for(question: str, expected: RequestedSpeaker) -> None:
    assert requested_speaker(question) == expected


def test_a_long_question_takes_no_longer_than_its_beginning() -> None:
    for piece in ("did you ", "our ", "you have also ", "your previous ", "had you x"):
        assert takes_at_most(0.5, partial(requested_speaker, piece * 100_000))
    assert requested_speaker(" " * MAX_SPEAKER_CHARACTERS + "what did you recommend") == "people"
