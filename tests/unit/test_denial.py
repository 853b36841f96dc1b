"""Which clauses of a text state something of a name."""

from __future__ import annotations

import pytest

from palimpsest.streams.claims.denial import EVERY_CLAUSE, stated_clauses

DENIED = (
    ("Ana no longer works at Oceano.", "Ana", "Oceano"),
    ("Ana does not work at Oceano", "Ana", "Oceano"),
    ("Ana doesn’t work at Oceano any more.", "Ana", "Oceano"),
    ("Ana isn't at Oceano anymore", "Ana", "Oceano"),
    ("Ana quit their job at Oceano.", "Ana", "Oceano"),
    ("Ana left Brightwave.", "Ana", "Brightwave"),
    ("Ana has just resigned from Oceano.", "Ana", "Oceano"),
    ("Ana got fired from Oceano in May", "Ana", "Oceano"),
    ("Ana is no longer married to Tom.", "Ana", "Tom"),
    ("Ana quit their job at Oceano today.", "Ana", "Oceano"),
    ("Ana no longer works at Oceano this week", "Ana", "Oceano"),
    ("Ana lost her job at Oceano", "Ana", "Oceano"),
    ("Ana used to work at Oceano", "Ana", "Oceano"),
    ("Tom is Ana's ex-husband", "Ana", "Tom"),
    ("Will no longer works at Oceano", "Will", "Oceano"),
    ("Ana no longer works at O’Neil", "Ana", "O’Neil"),
    ("Ana divorced Tom.", "Ana", "Tom"),
    ("Ana broke up with Tom.", "Ana", "Tom"),
    ("Ana and Tom split up", "Ana", "Tom"),
    ("Ana and Tom are not married anymore.", "Ana", "Tom"),
    ("Ana sold their car.", "Ana", "car"),
    ("Ana moved out of Porto.", "Ana", "Porto"),
    ("Ana moved from Porto to Lisbon.", "Ana", "Porto"),
    ("Ana left Oceano for Brightwave", "Ana", "Oceano"),
    ("Ana quit Oceano to join Brightwave", "Ana", "Oceano"),
    ("Ana no longer works at Oceano but lives in Porto", "Ana", "Oceano"),
    ("Ana works at Brightwave, not Oceano", "Ana", "Oceano"),
    ("Ana no longer works at Marks and Spencer", "Ana", "Marks and Spencer"),
    ("Ana no longer works at Oceano. Oceano is a bank. Ana lives in Porto.", "Ana", "Oceano"),
    ("Ben no longer works at Oceano, but Ana does", "Ben", "Oceano"),
    ("Ana works at Oceano, but Ben does not", "Ben", "Oceano"),
    ("Ben no longer works at Oceano, but Ana works at Oceano", "Ben", "Oceano"),
    ("Neither Ana nor Ben works at Oceano", "Ana", "Oceano"),
    ("Ana: I no longer work at Oceano", "Ana", "Oceano"),
    ("Ana no longer lives with Tom because she moved out.", "Ana", "Tom"),
)
STATED = (
    ("Ana works at Oceano.", "Ana", "Oceano"),
    ("Ana never left Oceano.", "Ana", "Oceano"),
    ("Ana did not quit Oceano.", "Ana", "Oceano"),
    ("Ana has not resigned from Oceano", "Ana", "Oceano"),
    ("Ana still works at Oceano, she did not quit.", "Ana", "Oceano"),
    ("Ana works at Oceano, Ben left it", "Ana", "Oceano"),
    ("Ben no longer works at Oceano, but Ana does", "Ana", "Oceano"),
    ("Ben no longer works at Oceano. Ana works at Oceano", "Ana", "Oceano"),
    ("Ana works at Oceano and no longer lives in Porto", "Ana", "Oceano"),
    ("Ana no longer works at Oceano but lives in Porto", "Ana", "Porto"),
    ("Ana no longer works at Oceano. She lives in Porto.", "Ana", "Porto"),
    ("Ana left Oceano for Brightwave", "Ana", "Brightwave"),
    ("Ana moved from Porto to Lisbon.", "Ana", "Lisbon"),
    ("Ana does not work at Oceano but at Brightwave", "Ana", "Brightwave"),
    ("Ana not only works at Oceano", "Ana", "Oceano"),
    ("No, Ana works at Oceano", "Ana", "Oceano"),
    ("Does Ana no longer work at Oceano?", "Ana", "Oceano"),
    ("Ana wants to quit Oceano", "Ana", "Oceano"),
    ("Ana will not quit Oceano", "Ana", "Oceano"),
    ("If Ana quit Oceano, she would travel", "Ana", "Oceano"),
    ("Ana does not work at Oceano on Fridays", "Ana", "Oceano"),
    ("Ana is used to working at Oceano", "Ana", "Oceano"),
    ("Ana did not work at Oceano until 2020", "Ana", "Oceano"),
    ("Ana ended up at Oceano", "Ana", "Oceano"),
    ("Ana works at Oceano on the left bank", "Ana", "Oceano"),
    ('Ana of Oceano sang "I no longer work here"', "Ana", "Oceano"),
    ("Ana denies that she left Oceano", "Ana", "Oceano"),
    # Another language is left alone.
    ("Ana arbeitet nicht mehr bei Oceano", "Ana", "Oceano"),
    ("Ana ne travaille plus chez Oceano, no", "Ana", "Oceano"),
    ("アナはOceanoを辞めた", "アナ", "Oceano"),
)


@pytest.mark.parametrize(("text", "source", "target"), DENIED)
def test_what_a_text_denies_it_does_not_support(text: str, source: str, target: str) -> None:
    assert stated_clauses(text, source) & stated_clauses(text, target) == 0


@pytest.mark.parametrize(("text", "source", "target"), STATED)
def test_what_a_text_does_not_deny_it_supports(text: str, source: str, target: str) -> None:
    assert stated_clauses(text, source) & stated_clauses(text, target)


def test_a_text_without_a_denial_supports_whatever_it_names() -> None:
    assert stated_clauses("Ana knows Ben. Rita works at Oceano", "Ben") == EVERY_CLAUSE
    assert stated_clauses("Ana no longer works at Oceano", "Rita") == EVERY_CLAUSE
