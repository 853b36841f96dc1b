"""Names that are words, too, and names in cases and in pictures: where a text names somebody, and
where a question does."""

from __future__ import annotations

import pytest

from palimpsest.stores.index.name_words import folded, query_words, stands_in
from palimpsest.streams.text.linker import name_fault, names_in

TEXTS = [
    # the name, texts that name it, texts that do not
    ("art", ["We saw Art today"], ["Bartholomew came", "modern art", "the artist"]),
    (
        "will",
        ["Will will come", "ask Will", "Mr. Will said so", "Will came. He sat down"],
        ["I will come", "Will you come?", "Ana: Will the car start?", "Right! Will we go?"],
    ),
    (
        "may",
        ["In May we met May", "I told May everything", "May said no"],
        ["they may come", "May I come in May?", "since May 2021", "5 May", "on the 3rd of May"],
    ),
    ("hope", ["Hope and I sang"], ["Hope you are well", "we hope so"]),
    ("us", ["the US and us", "US troops", "US"], ["Let us go", "Us too", "LET US GO HOME"]),
    ("anna berg", ["I met Anna Berg"], ["I met Anna Schmidt", "Anna met Berg's dog in March"]),
    ("anna", ["I met Anna Berg", "Anna's dog"], ["Susanna came", "Annalena"]),
    ("田中", ["田中さんと話した", "田中に会う", "田中は来た", "車は田中の"], ["中田さん"]),
    (
        "анна",
        ["Анна пришла", "Встретил Анну вчера", "гуляли с Анной", "у Анны", "письмо Анне"],
        ["Аня пришла", "Аннотация готова"],
    ),
    ("иван", ["письмо Ивану", "без Ивана", "с Иваном", "об Иване"], ["Иванов пришёл"]),
    ("коля", ["Коле пора", "вижу Колю", "с Колей"], ["Колька"]),
    ("игорь", ["с Игорем", "у Игоря"], []),
    ("мария", ["Марии нет", "Марию видели"], ["Марина"]),
    ("анна каренина", ["роман об Анне Карениной", "Анну Каренину"], ["Анна и Каренина"]),
    ("🦊 fox", ["I met 🦊 Fox"], ["I met Fox", "🦊 came"]),
    ("🦊fox", ["I met 🦊Fox today"], ["I met Fox"]),
    ("fox", ["I met 🦊Fox today", "Fox🦊"], ["Foxes"]),
]


def test_a_text_names() -> None:
    pairs = [(text, name) for name, naming, _ in TEXTS for text in naming]
    assert not [pair for pair in pairs if names_in(*pair) is None]


def test_a_text_does_not_name() -> None:
    pairs = [(text, name) for name, _, others in TEXTS for text in others]
    assert not [pair for pair in pairs if names_in(*pair) is not None]


@pytest.mark.parametrize(
    ("shown", "fault"),
    [
        ("q", "is too short"),
        ("🦊", "is too short"),
        ("🦊🦊", "has no letter or digit"),
        ("🦊 Fox", None),
        ("Al", None),
        ("李", "is too short"),
        ("us", "names nobody"),
        ("US", None),
        ("Will", None),
    ],
)
def test_what_may_be_a_name(shown: str, fault: str | None) -> None:
    assert name_fault(shown) == fault


@pytest.mark.parametrize(
    ("question", "name", "is_named"),
    [
        ("What does art mean to Bartholomew?", "bartholomew", True),
        ("Where does Bartholomew live?", "art", False),
        ("What did Will say?", "will", True),
        ("Will it rain?", "will", False),
        ("What will Anna do?", "will", False),
        ("May I ask something?", "may", False),
        ("When may we go?", "may", False),
        ("Where does May live?", "may", True),
        ("What about us?", "us", False),
        ("What about the US?", "us", True),
        ("WHAT ABOUT US?", "us", False),
        ("Где видели Анну?", "анна", True),
        ("с кем гуляли Анной", "анна", True),
        ("田中さんは?", "田中", True),
        ("who is 🦊 Fox?", "🦊 fox", True),
    ],
)
def test_a_question_names(question: str, name: str, is_named: bool) -> None:
    words = query_words(question)
    assert stands_in(name, folded(question), words, "english") == is_named
