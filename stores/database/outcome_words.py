"""The words in which outcomes are reported, one word for one outcome.

Messages on the log, and the rows made of them, keep the words that they were written with.
"""

from __future__ import annotations

TOLD = {"modified": "updated"}
"""From the stored word to the one that is reported, where they differ."""


def told_word(column: str) -> str:
    """The word of a column's outcome as it is reported, as SQL."""
    cases = " ".join(f"WHEN '{stored}' THEN '{word}'" for stored, word in TOLD.items())
    return f"CASE {column} {cases} ELSE {column} END"
