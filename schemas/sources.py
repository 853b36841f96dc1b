"""The texts that memories were drawn from, with what was drawn from them."""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.schemas.rows import MemoryRow

FORGOTTEN = "forgotten"
HIDDEN = "a statement of it was forgotten or recovered"
"""Why a state of a memory was archived: the memory was forgotten; something drawn from it was."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a memory says that was drawn from a text, as it was drawn. `is_forgotten`: a command has
    forgotten the memory, and nobody recovered it."""

    memory_id: str
    text: str
    is_forgotten: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A memory that others were drawn from, with all that was drawn from it. `text` and `metadata`
    are those that it has with nothing of it hidden; `is_hidden`: it is deleted since all of it is
    hidden, and not because somebody has forgotten it."""

    row: MemoryRow
    text: str
    metadata: str
    is_hidden: bool
    statements: tuple[Statement, ...]
