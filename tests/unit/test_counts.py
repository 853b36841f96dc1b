"""Numbers with what they count."""

from __future__ import annotations

import pytest

from palimpsest.streams.text.counts import counted


@pytest.mark.parametrize(
    ("count", "plural", "text"),
    [
        (1, "turns", "1 turn"),
        (0, "turns", "0 turns"),
        (1_200, "turns", "1,200 turns"),
        (2, "memories lack", "2 memories lack"),
        (1, "memories lack", "1 memory lacks"),
        (1, "entries are left out", "1 entry is left out"),
        (1, "notices of WhatsApp", "1 notice of WhatsApp"),
        (1, "deleted messages", "1 deleted message"),
        (1, "messages without words", "1 message without words"),
        (1, "media", "1 media"),
        (1, "pages", "1 page"),
    ],
)
def test_what_is_counted_is_singular_with_one(count: int, plural: str, text: str) -> None:
    assert counted(count, plural) == text
