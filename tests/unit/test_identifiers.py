"""Identifiers and names of a question, and the texts that have them."""

from __future__ import annotations

import pytest

from palimpsest.streams.sensitive.identifiers import (
    alike,
    asked,
    having_words,
    identifiers,
    identifiers_asked,
    naming,
)

IGNORED = frozenset({"where", "the", "of", "about"})


def found(question: str, text: str) -> bool:
    return any(pattern.search(text) for pattern in identifiers(question))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("+49 170 5551234", "ring 0170-555 12 34"),
        ("0170 555 1234", "+49 170 5551234"),
        ("the number 415-555-0134", "(415) 555.0134 is hers"),
        ("Pay@North.example", "sent to pay+late@north.example."),
        ("10.0.4.7", "at 010.000.004.007"),
        ("OPS-31", "see ops 31."),
        ("2027-03-14", "on 14.03.2027"),
        ("2027-03-14", "on 3/14/2027"),
        ("https://a.example/rain/", "reads a.example/rain daily"),
        ("@mossy_lane", "mossy_lane has access"),
        ("plate HH KL 482", "HHKL482 was towed"),
        ("room 12", "Room 12 is free"),
    ],
)
def test_an_identifier_is_found_in_its_other_forms(question: str, text: str) -> None:
    assert found(question, text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("OPS-31", "OPS-310"),
        ("kim@shop.example", "kim.park@shop.example"),
        ("eva@mail.example", "eva@mail.example.au"),
        ("/srv/app/conf", "/srv/app/conf.old"),
        ("room 12", "room 112, or issue 12"),
        ("10.0.4.7", "10.0.4.70"),
        ("example.com", "example.com.br"),
        ("Dmitri Orlov / Дмитрий Орлов", "Dmitri Orlov"),
        ("where I live", "I live here"),
    ],
)
def test_what_looks_like_an_identifier_is_not_found(question: str, text: str) -> None:
    assert not found(question, text)


def test_the_kind_that_is_asked_for_gives_the_identifiers_of_a_text() -> None:
    texts = ["Anna's phone: 0170 5551234, a@b.example"]
    [phone] = identifiers_asked("Anna's phone number", texts)
    assert phone.search("+49 170 5551234")
    assert not phone.search("a@b.example")
    assert identifiers_asked("where Anna lives", texts) == []


def test_names_are_told_by_their_capitals_and_all_their_words() -> None:
    texts = {"a": "Frank is a welder.", "b": "We had a frank talk.", "c": "Mia Sternberg"}
    assert naming("about Frank", texts, IGNORED) == ({"a"}, set())
    assert naming("where Frank works", texts, IGNORED) == ({"a"}, {"works"})
    assert naming("Mia Stern", texts | {"d": "Stern, Mia"}, IGNORED).ids == {"d"}
    assert naming("Ken Sato / 佐藤健", {"a": "佐藤健 came", "b": "Sato Ken"}, IGNORED) == (
        {"a", "b"},
        set(),
    )
    assert naming("where I work", {"a": "We work."}, IGNORED).ids == set()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Anna Belova", "Анна Белова"),
        ("Sergey Kuznetsov", "Сергей Кузнецов"),
        ("Dmitri", "Дмитрий"),
        ("Giorgos Nikolaou", "Γιώργος Νικολάου"),
        ("Jürgen Groß", "Juergen Gross"),
    ],
)
def test_a_name_is_found_in_another_script(one: str, other: str) -> None:
    assert naming(one, {"a": other, "b": "Olga"}, IGNORED) == ({"a"}, set())
    assert naming(other, {"a": one, "b": "Olga"}, IGNORED) == ({"a"}, set())
    assert naming("Marko", {"a": "Marco"}, IGNORED).ids == set()


def test_what_asks_is_told_from_what_is_asked_for() -> None:
    assert asked("Please forget what I told you about Tariq.") == ("Tariq", True, True)
    assert asked("I don't want you to remember Tariq any more") == ("Tariq", False, True)
    assert asked("erase the Meridian project") == ("the Meridian project", False, True)
    assert asked("forget where I live") == ("where I live", False, False)
    assert asked("where I live") == ("where I live", False, False)


def test_a_longer_word_only_looks_alike() -> None:
    texts = {"a": "User ops may restart.", "b": "User ops2 may read.", "c": "Users may sing."}
    assert alike("user ops", texts) == {"b"}
    assert having_words({"user", "ops"}, texts) == {"a"}


def test_a_date_in_words_is_the_date() -> None:
    [date] = identifiers("the inspection on 8 September 2026")
    for text in ("2026-09-08", "Sep 8, 2026", "September 8th 2026", "8.9.2026"):
        assert date.search(text), text
    assert not date.search("2026-09-09")
