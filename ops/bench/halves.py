"""Of a folder's conversations, in the order of their names, the first three fifths are the half
that choices are made with, the others the half that they are checked with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeVar

CHOOSING: Final = 0.6
"""Share of the conversations that choices are made with."""
T = TypeVar("T")


class Half(StrEnum):
    choose = "choose"
    check = "check"


def by_half(conversations: Sequence[T]) -> dict[T, Half]:
    """Which half each belongs to, given all of a folder in order."""
    chosen = round(CHOOSING * len(conversations))
    return {
        each: Half.choose if number < chosen else Half.check
        for number, each in enumerate(conversations)
    }
