"""The categories that a scope has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from palimpsest.schemas.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoriesRow(Row):
    """The categories that memories of a scope were given, in alphabetical order: those of new ones
    are folded onto them."""

    TABLE: ClassVar[str] = "scope_categories"
    KEY: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    names: tuple[str, ...] = ()
