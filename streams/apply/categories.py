"""The categories of a scope while one record is applied: new names are mapped to existing ones.

Two names are equal if they differ only in plural, word order or spelling. An equal stem alone
proves nothing (`university` and `universe` share one), nor does a small distance (`training` and
`trailing`): two words are equal if one is the other's plural and Snowball agrees, or if they differ
as British and American spelling do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

import Stemmer

from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.schemas.rows.pipeline import CategoriesRow
from palimpsest.streams.store_port import Loaded, Put, Write

MIN_JOINED: Final = 8
"""Minimum length of names that are equal if they match without underscores (`e_commerce`)."""

_AMERICAN: Final = tuple(
    (re.compile(british), american)
    for british, american in (
        (r"(?<=behavi|neighb)our", "or"),
        (r"^(arb|arm|col|fav|flav|harb|hon|hum|lab|rum|sav|vap|vig)our", r"\1or"),
        (r"(?<=[a-z]{3})is(?=ation(?:al)?s?$)", "iz"),
        (r"^(organ|real|optim|personal|special|custom|summar|priorit)is(?=e[ds]?$|ing$)", r"\1iz"),
        (r"^(cent|theat|met|lit|fib)re(?=s?$)", r"\1er"),
        (r"^(travel|cancel|model|counsel|jewel)l(?=ing$|ed$|er[s]?$|ery$)", r"\1"),
        (r"^programme(?=s?$)", "program"),
        (r"^(catal|dial|anal)ogue(?=s?$)", r"\1og"),
        (r"^grey(?=s?$)", "gray"),
        (r"^jewelery$", "jewelry"),
    )
)
_STEMMER: Final = Stemmer.Stemmer("english")


def folded(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Returns the names, each replaced by an equal known one if there is any; of several the first
    in alphabetical order. No name occurs twice."""
    there = frozenset(known)
    by_key: dict[tuple[str, ...], str] = {}
    if not there.issuperset(names):
        for name in sorted(known, reverse=True):
            by_key.update(dict.fromkeys(_keys(name), name))
    found: dict[str, None] = {}
    for name in names:
        same = None if name in there else next(filter(None, map(by_key.get, _keys(name))), None)
        kept = name if same is None else same
        found[kept] = None
        by_key = {**dict.fromkeys(_keys(kept), kept), **by_key}
    return tuple(found)


@lru_cache(maxsize=16_384)
def _keys(name: str) -> tuple[tuple[str, ...], ...]:
    """Keys that are equal for names with the same words in any order, and for the same text without
    gaps."""
    words = [_singular(_american(word)) for word in name.split("_") if word]
    joined = "".join(words)
    keys = [tuple(sorted(words))]
    if len(joined) >= MIN_JOINED:
        keys.append((joined,))
    return tuple(keys)


def _american(word: str) -> str:
    for british, american in _AMERICAN:
        word = british.sub(american, word)
    return word


def _singular(word: str) -> str:
    """Returns the word without a plural ending; unchanged if Snowball treats the two as different
    words. "movie" has the same plural ending as "hobby": "movies" and "hobbies" do not show which
    singular they have."""
    if word.endswith(("ies", "ie")) and len(word) > 4:
        return f"{word.removesuffix('s')[:-2]}y"
    if word.endswith(("ches", "shes", "sses", "xes", "zzes")):
        single = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        single = word[:-1]
    else:
        return word
    return single if _STEMMER.stemWord(single) == _STEMMER.stemWord(word) else word


MOST_NAMES = 2_000
"""Maximum number of a scope's names that new categories are mapped to; further ones stay
unchanged."""


@dataclass(slots=True)
class ScopeCategories:
    """The categories in the store (`stored`), and with those added since (`names`)."""

    scope: str
    stored: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, scope: str, loaded: Loaded) -> Self:
        """Requires `loaded` with `categories`."""
        return cls(scope, loaded.categories, loaded.categories)

    def folded(self, row: MemoryRow) -> MemoryRow:
        """Returns the memory with its categories as the scope names them, and adds these."""
        if row.is_deleted or not row.categories:
            return row
        row = replace(row, categories=folded(row.categories, self.names))
        self.note(row)
        return row

    def note(self, row: MemoryRow) -> None:
        """Adds a memory's categories unchanged."""
        new = [name for name in row.categories if name not in self.names]
        room = MOST_NAMES - len(self.names)
        if new and room > 0:
            self.names = tuple(sorted({*self.names, *new[:room]}))

    def writes(self) -> list[Write]:
        if self.names == self.stored:
            return []
        return [Put(CategoriesRow(scope=self.scope, names=self.names))]
