"""Which places of an index a query may find: its filters as masks, applied before the search.

They have this one meaning: whatever an answer shows (results and what they stand for, neighbours,
what the intent adds, evidence) passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from stores.part import Mask, Part, microseconds
from stores.recall_types import Query
from stores.scope_index import ScopeIndex


def existing(part: Part, query: Query, places: int) -> Mask | None:
    """Of the first `places`: what is there at all for this query, also to lend its score (None:
    all)."""
    if query.as_of is None:
        return None if part.is_full_of_life else part.alive[:places]
    mask: Mask = part.alive[:places] & (part.meta["created"][:places] <= microseconds(query.as_of))
    return mask


def wanted(index: ScopeIndex, part: Part, query: Query, places: int) -> Mask | None:
    """Of the first `places`: what passes the filters (None: all)."""
    meta = part.meta[:places]
    masks: list[Mask] = []
    if query.types:
        masks.append(_named(part, meta["kind"], query.types, _same))
    if query.who is not None:
        masks.append(_said_by(index, part, query.who, places))
    if query.session is not None:
        masks.append(_named(part, meta["session"], (query.session,), _same))
    if query.project is not None:
        masks.append(_named(part, meta["project"], (query.project,), _same))
    if query.pinned is not None:
        masks.append(meta["pinned"] == query.pinned)
    if query.importance_min is not None:
        masks.append(meta["importance"] >= query.importance_min)
    if query.since is not None:
        masks.append(meta["occurred"] >= microseconds(query.since))
    if query.until is not None:
        masks.append(meta["occurred"] < microseconds(query.until))
    if query.tags_any:
        masks.append(_lists(part.tags[:places], set(query.tags_any), _any))
    if query.tags_all:
        masks.append(_lists(part.tags[:places], set(query.tags_all), _all))
    if query.categories:
        masks.append(_lists(part.categories[:places], set(query.categories), _any))
    return np.logical_and.reduce(masks) if masks else None


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a query may show of a scope: there at all, and through the filters."""

    index: ScopeIndex
    masks: tuple[Mask | None, ...]

    @classmethod
    def by(cls, index: ScopeIndex, query: Query) -> Self:
        with index.lock:
            masks = (
                both(existing(part, query, part.places), wanted(index, part, query, part.places))
                for part in index.parts
            )
            return cls(index, tuple(masks))

    @property
    def is_filtered(self) -> bool:
        """Whether anything that is alive may be left out."""
        return any(mask is not None for mask in self.masks)

    def among(self, memory_ids: Iterable[str]) -> set[str]:
        """Those of these memories that may be shown; not those that came meanwhile."""
        found = set()
        with self.index.lock:
            for memory_id in memory_ids:
                for part, mask in zip(self.index.parts, self.masks, strict=True):
                    place = part.place_of.get(memory_id)
                    if place is not None and (
                        mask is None or (place < len(mask) and bool(mask[place]))
                    ):
                        found.add(memory_id)
        return found


def both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _named(
    part: Part, numbers: np.ndarray, names: Sequence[str], same: Callable[[str, str], bool]
) -> Mask:
    asked = [n for n, name in enumerate(part.numbers.names) if any(same(name, a) for a in names)]
    if "" in names:
        asked.append(-1)
    return np.isin(numbers, asked)


def _same(name: str, asked: str) -> bool:
    return name == asked


def _same_person(name: str, asked: str) -> bool:
    return name.casefold() == asked.casefold()


def _said_by(index: ScopeIndex, part: Part, who: str, places: int) -> Mask:
    """What a person said or wrote, and what was drawn from that."""
    mask = _named(part, part.meta["who"][:places], (who,), _same_person)
    if part is index.facts:
        turns = index.turns
        said = _named(turns, turns.meta["who"], (who,), _same_person)
        for memory_id, sources in index.drawn_from.items():
            place = part.place_of.get(memory_id, places)
            if place < places and not mask[place]:
                mask[place] = any(said[turns.place_of[s]] for s in sources if s in turns.place_of)
    return mask


def _lists(
    lists: Sequence[tuple[str, ...]],
    asked: set[str],
    test: Callable[[set[str], tuple[str, ...]], bool],
) -> Mask:
    return np.fromiter((test(asked, found) for found in lists), dtype=np.bool_, count=len(lists))


def _any(asked: set[str], found: tuple[str, ...]) -> bool:
    return not asked.isdisjoint(found)


def _all(asked: set[str], found: tuple[str, ...]) -> bool:
    return asked.issubset(found)
