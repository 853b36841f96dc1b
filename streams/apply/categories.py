"""The categories of a scope while one record is applied: new ones are folded onto those there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from palimpsest.schemas.category_rows import CategoriesRow
from palimpsest.schemas.rows import MemoryRow
from palimpsest.streams.store_port import Loaded, Put, Write
from palimpsest.streams.text.category_names import folded

MOST_NAMES = 2_000
"""Of a scope that new categories are folded onto; further ones stay as they come."""


@dataclass(slots=True)
class ScopeCategories:
    """What the store had (`stored`), and with what has come since (`names`)."""

    scope: str
    stored: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, scope: str, loaded: Loaded) -> Self:
        """`loaded` with `categories` asked for."""
        return cls(scope, loaded.categories, loaded.categories)

    def folded(self, row: MemoryRow) -> MemoryRow:
        """The memory with its categories as the scope calls them, which are noted."""
        if row.is_deleted or not row.categories:
            return row
        row = replace(row, categories=folded(row.categories, self.names))
        self.note(row)
        return row

    def note(self, row: MemoryRow) -> None:
        """Take note of a memory's categories as they are."""
        new = [name for name in row.categories if name not in self.names]
        room = MOST_NAMES - len(self.names)
        if new and room > 0:
            self.names = tuple(sorted({*self.names, *new[:room]}))

    def writes(self) -> list[Write]:
        if self.names == self.stored:
            return []
        return [Put(CategoriesRow(scope=self.scope, names=self.names))]
