"""Who agrees to an assistant's question says so of themselves only where it is put to them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from palimpsest.streams.claims.turn import claims_of_turn


@pytest.mark.parametrize(
    ("speaker", "asked", "expected"),
    [
        ("Ben", "So you live in Oslo, Ana?", []),
        ("Ben", "Ana, so you live in Oslo?", []),
        ("Ben", "@Ana, do you live in Oslo?", []),
        ("Ben", "Hi Ana! So you live in Oslo?", []),
        ("Ben", "Thanks, Ana. So you live in Oslo?", []),
        ("Ana", "So you live in Oslo, Ana?", ["Ana lives in Oslo."]),
        ("Ana", "Ana, do you live in Oslo?", ["Ana lives in Oslo."]),
        ("Ana Kern", "Hi Ana! So you live in Oslo?", ["Ana Kern lives in Oslo."]),
        ("", "Hi Ana! So you live in Oslo, Ana?", ["The user lives in Oslo."]),
        ("Ben", "So you live in Oslo?", ["Ben lives in Oslo."]),
        ("Ben", "So you live in Oslo, Norway?", ["Ben lives in Oslo, Norway."]),
    ],
)
def test_whom_a_question_is_put_to(speaker: str, asked: str, expected: list[str]) -> None:
    said_at = datetime(2026, 3, 4, tzinfo=UTC)
    found = claims_of_turn("Yes.", speaker or "The user", said_at, asked)
    assert [claim.text for claim in found] == expected
