"""The categories of a scope while one record is applied: new ones are folded onto those there.

Names mean the same but for plural, word order and spelling. A stem alone proves nothing
(`university` and `universe` have the same), nor does a small distance (`training` and `trailing`):
two words are the same where one is the other's plural and Snowball agrees, or where they differ as
British and American spelling do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

import Stemmer

from palimpsest.schemas.rows import CategoriesRow, MemoryRow
from palimpsest.streams.store_port import Loaded, Put, Write

MIN_JOINED: Final = 8
"""Characters that names need in all to be the same without their underscores (`e_commerce`)."""

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
    """The names, each as one of the known ones that means the same, if any does; of several the
    first in alphabetical order. No name twice."""
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
    """Equal for names of the same words in any order, and for the same text without a gap."""
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
    """The word without the ending of a plural; as it is where Snowball takes both for two words.
    "movie" is told as "hobby" is: of "movies" and "hobbies" nothing shows which is which."""
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
