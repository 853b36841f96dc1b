from __future__ import annotations

import asyncio

import numpy as np
import pytest

from palimpsest.stores.recall.intent import (
    COMPLEX,
    EXEMPLARS,
    SIMPLE,
    Exemplars,
    Vector,
    asks_when,
    classify,
    complexity,
)


@pytest.mark.parametrize(
    ("query", "intent"),
    [
        ("Why did Ana move?", "why"),
        ("What was the reason for the delay?", "why"),
        ("What led to the outage", "why"),
        ("Who left because of the noise?", "why"),
        ("WHEN was the wedding?", "when"),
        ("What did Ana do after the trip?", "when"),
        ("What comes next?", "when"),
        ("Who whose whom", "who"),
        ("With whom did Ben travel?", "who"),
        ("What does Ana like?", "what"),
        ("Tell me about the lake house", "what"),
        ("everything about Ana", "what"),
        ("Ana's favourite food", "general"),
        ("the whole thing", "general"),
        ("whatever", "general"),
        ("afternoon tea", "general"),
        ("she was because_of", "why"),
        ("", "general"),
    ],
)
def test_english_by_whole_words_in_order(query: str, intent: str) -> None:
    assert classify(query).intent == intent


@pytest.mark.parametrize(
    ("query", "intent"),
    [
        ("Почему Ольга переехала?", "why"),
        ("Из-за чего они поссорились?", "why"),
        ("Когда у Ивана день рождения?", "when"),
        ("Кому Анна подарила книгу?", "who"),
        ("Какую собаку завела Мария?", "what"),
        ("なぜ健太は仕事を辞めましたか", "why"),
        ("美咲の誕生日はいつですか", "when"),
        ("何月に引っ越しましたか", "when"),
        ("誰がケーキを焼きましたか", "who"),
        ("どんな犬を飼っていますか", "what"),
        ("Warum hat Ana gekündigt?", "why"),
        ("Wer hat gekocht?", "who"),
        ("Was war das?", "general"),
        ("¿Por qué se fue?", "why"),
        ("¿Cuándo viajó Ana?", "when"),
        ("猫の名前", "general"),
        ("いつも何か食べている人", "general"),
        ("Чьи это ключи?", "who"),
        ("кличка кошки", "general"),
    ],
)
def test_other_languages_by_their_question_words(query: str, intent: str) -> None:
    assert classify(query).intent == intent


async def one_hot(text: str) -> Vector:
    """Every exemplar on the axis of its intent."""
    vector = np.zeros(6, dtype=np.float32)
    labels = {text: n for n, texts in enumerate(EXEMPLARS.values()) for text in texts}
    vector[labels.get(text, 5)] = 1.0
    return vector


def exemplars() -> Exemplars:
    return asyncio.run(Exemplars.embed(one_hot))


def axes(**parts: float) -> Vector:
    vector = np.zeros(6, dtype=np.float32)
    for name, part in parts.items():
        vector[list(map(str, EXEMPLARS)).index(name)] = part
    return vector


class TestExemplars:
    def test_the_nearest_intent_above_the_threshold(self) -> None:
        guess = classify("mitä kello on", axes(when=0.6, who=0.5), exemplars())
        assert (guess.intent, guess.by) == ("when", "exemplar")
        assert guess.score == pytest.approx(0.6)
        assert guess.matched in EXEMPLARS["when"]

    def test_below_the_threshold_it_is_general(self) -> None:
        guess = classify("mitä kello on", axes(when=0.44), exemplars())
        assert (guess.intent, guess.by) == ("general", "default")

    def test_near_to_what_is_no_question_it_is_general(self) -> None:
        guess = classify("hyvää huomenta", axes(when=0.6, general=0.7), exemplars())
        assert (guess.intent, guess.by) == ("general", "exemplar")

    def test_key_words_come_first(self) -> None:
        assert classify("why", axes(when=1.0), exemplars()).intent == "why"

    def test_the_number_of_vectors_is_checked(self) -> None:
        with pytest.raises(ValueError, match="exemplars"):
            Exemplars(np.zeros((3, 6), dtype=np.float32))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Where does Ana live?", SIMPLE),
        ("one two three four five six seven eight nine", SIMPLE),
        ("one two three four five six seven eight nine ten", COMPLEX),
        ("tea and cake", SIMPLE),
        ("tea and cake or pie", COMPLEX),
        ("summarize the trip", COMPLEX),
        ("compare both", COMPLEX),
        ("all dogs", COMPLEX),
        ("an overview", COMPLEX),
        ("allow dogs overall", SIMPLE),
        ("健太の犬の名前", SIMPLE),
        ("健太と美咲の旅行について全部教えて", COMPLEX),
        ("健太と美咲が北海道へ行った旅行の思い出の写真", COMPLEX),
        ("сравни два варианта", COMPLEX),
    ],
)
def test_complexity(query: str, expected: object) -> None:
    assert complexity(query) == expected


def test_what_complexity_allows() -> None:
    assert (SIMPLE.depth, SIMPLE.budget) == (2, 1_000)
    assert (COMPLEX.depth, COMPLEX.budget) == (4, 3_000)


@pytest.mark.parametrize(
    "question",
    [
        "When did Ana move?", "when's the wedding", "“When was it?”", "Since when is Ben ill?",
        "What year did they meet?", "In which month was the trip", "WHAT TIME IS IT",
        "Wann war das?", "Quand est-ce arrivé ?", "¿Cuándo ocurrió?", "Когда она приехала?",
        "アナはいつ引っ越したの", "这是什么时候发生的", "언제 왔어?",
    ],
)  # fmt: skip
def test_what_asks_for_a_time(question: str) -> None:
    assert asks_when(question)


@pytest.mark.parametrize(
    "question",
    [
        "When Ana moved, who helped her?", "What did she do when it rained?", "whenever did", "",
        "Who said when?", "What does Ana like?", "what times", "いつも何を飲みますか", "W",
    ],
)  # fmt: skip
def test_what_does_not_ask_for_a_time(question: str) -> None:
    assert not asks_when(question)
