"""Texts are the same statement if they differ in nothing that says something."""

from __future__ import annotations

import pytest

from palimpsest.schemas.normal_forms import statement_key


@pytest.mark.parametrize(
    "text",
    [
        "The dentist is on 14 May at 9:30.",
        "the DENTIST is on 14 May,  at 9:30!",
        "Reminder: the dentist is on 14 May at 9:30",
        "**Reminder:** The dentist is on 14 May at 9:30.",
        "Just a quick reminder - the dentist is on 14 May at 9:30.",
        "FYI, reminder: the dentist is on 14 May at 9:30 …",
        "Zur Erinnerung: “The dentist is on 14 May at 9:30”",
        "The\tdentist\nis on (14 May) at 9:30",
        "Fwd: The dentist is on 14 May at 9:30",
        "FW: Re: the dentist is on 14 May at 9:30.",
        "WG: Fwd: Reminder: the dentist is on 14 May at 9:30.",
        "---------- Forwarded message ----------\nThe dentist is on 14 May at 9:30.",
        "Hi Ana, the dentist is on 14 May at 9:30.",
        "Hello everyone, the dentist is on 14 May at 9:30.",
        "Dear Ms. Lang,\n\nthe dentist is on 14 May at 9:30.",
        "Good morning! The dentist is on 14 May at 9:30.",
        "Hey Ben – the dentist is on 14 May at 9:30",
        "Re: Hi all, just a reminder: the dentist is on 14 May at 9:30",
    ],
)
def test_one_statement_in_other_dress(text: str) -> None:
    assert statement_key(text) == statement_key("The dentist is on 14 May at 9:30.")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The build takes 16 minutes", "The build takes 17 minutes"),
        ("It is -5 degrees", "It is 5 degrees"),
        ("It costs 1.5 euros", "It costs 15 euros"),
        ("It costs $5", "It costs €5"),
        ("Rent rose 5%", "Rent rose 5"),
        ("Ana moved to Berlin", "Ana moved to Hamburg"),
        ("Ana: I like tea", "Ben: I like tea"),
        ("I can eat nuts", "I can't eat nuts"),
        ("I can eat nuts", "I can not eat nuts"),
        ("a = b", "a != b"),
        ("I write C", "I write C#"),
        ("I write C", "I write C++"),
        ("We're happy", "Were happy"),
        ("I like 🍎", "I like 🍌"),
        ("Note-taking is fun", "Taking is fun"),
        ("Fwd: I'm allergic to kiwi", "I'm allergic to kiwi"),
        ("Re: is the dentist on 14 May?", "The dentist is on 14 May."),
        ("Hi Ana, it's your turn to cook", "Hi Ben, it's your turn to cook"),
        ("Hi Ana, call the dentist", "Hi Ben, call the dentist"),
        ("Hi Ana, call the dentist", "Call the dentist"),
        ("Hi Ana", "Hi Ben"),
        ("Hey Jude is a song", "Is a song"),
        ("Hello World, the game, is out", "The play is out"),
        ("Dear Ana is a film", "Ana is a film"),
        ("Re-read the book", "Read the book"),
        ("Ana lives here", "Ana lives here?"),
        ("Ana lent Ben money", "Ben lent Ana money"),
        ("東京に住んでいる", "大阪に住んでいる"),
        ("मैं चाय पीता हूँ", "मैं चाय पीती हूँ"),
    ],
)
def test_another_statement_however_close(a: str, b: str) -> None:
    assert statement_key(a) != statement_key(b)


def test_nothing_said_has_no_key() -> None:
    assert [statement_key(text) for text in ("", " …", "?!", "Reminder:")] == [""] * 4
