"""The memories that a query may show: masks over the segments of an index, computed once for the
whole answer.

They apply to everything that an answer shows (results and the memories that they represent,
neighbours, what the intent adds, evidence), and nothing hidden influences what is shown, neither by
words nor by score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

import numpy as np

from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import Mask, Segment, microseconds
from palimpsest.stores.recall.query import Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VisibilityMask:
    """What a query may show of the first places of each segment (None: all)."""

    index: ScopeIndex
    query: Query
    passes: tuple[Mask | None, ...]

    @classmethod
    def by(cls, index: ScopeIndex, query: Query, sizes: Sequence[int] | None = None) -> Self:
        """`sizes` are the numbers of places of each segment that exist for this query (None:
        all)."""
        with index.lock:
            known = sizes or [segment.places for segment in index.segments]
            pairs = list(zip(index.segments, known, strict=True))
            exists = [_existing(segment, query, places) for segment, places in pairs]
            wanted = [_wanted(index, segment, query, places) for segment, places in pairs]
        return cls(index, query, tuple(map(_both, exists, wanted)))

    @property
    def is_filtered(self) -> bool:
        """Whether any living memory may be left out."""
        return any(mask is not None for mask in self.passes)

    def among(self, memory_ids: Iterable[str]) -> set[str]:
        """Returns those of these memories that may be shown; not those added meanwhile."""
        memory_ids = list(memory_ids)
        index = self.index.including(memory_ids)
        if index is not self.index:
            return type(self).by(index, self.query).among(memory_ids)
        with index.lock:
            return {memory_id for memory_id in memory_ids if self._may_show(memory_id)}

    def _may_show(self, memory_id: str) -> bool:
        for segment, mask in zip(self.index.segments, self.passes, strict=True):
            place = segment.place_of.get(memory_id)
            if place is not None and (mask is None or (place < len(mask) and bool(mask[place]))):
                return True
        return False


def _existing(segment: Segment, query: Query, places: int) -> Mask | None:
    if query.as_of is None:
        return None if segment.has_no_tombstones else segment.alive[:places]
    mask: Mask = segment.meta["created"][:places] <= microseconds(query.as_of)
    return mask & segment.alive[:places]


def _wanted(index: ScopeIndex, segment: Segment, query: Query, places: int) -> Mask | None:
    meta = segment.meta[:places]
    masks: list[Mask] = []
    if query.types:
        masks.append(_named(segment, meta["kind"], query.types))
    if query.who is not None:
        masks.append(_said_by(index, segment, "who", (query.who,), places))
    if query.roles:
        masks.append(_said_by(index, segment, "role", query.roles, places))
    if query.session_id is not None:
        masks.append(_named(segment, meta["session"], (query.session_id,)))
    if query.project is not None:
        masks.append(_named(segment, meta["project"], (query.project,)))
    if query.pinned is not None:
        masks.append(meta["pinned"] == query.pinned)
    if query.min_importance is not None:
        masks.append(meta["importance"] >= query.min_importance)
    masks += _in_time(meta, query)
    if query.tags:
        masks.append(_lists(segment.tags[:places], _shares_one(query.tags)))
    if query.all_tags:
        masks.append(_lists(segment.tags[:places], set(query.all_tags).issubset))
    if query.categories:
        masks.append(_lists(segment.categories[:places], _shares_one(query.categories)))
    if query.metadata:
        masks.append(_lists(segment.metadata[:places], _has_all(query.metadata)))
    return np.logical_and.reduce(masks) if masks else None


def _in_time(meta: np.ndarray, query: Query) -> list[Mask]:
    masks: list[Mask] = []
    if query.since is not None:
        masks.append(meta["occurred"] >= microseconds(query.since))
    if query.until is not None:
        masks.append(meta["occurred"] < microseconds(query.until))
    if query.valid_at is not None:
        masks.append(meta["ends"] > microseconds(query.valid_at))
    return masks


def _both(a: Mask | None, b: Mask | None) -> Mask | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _named(
    segment: Segment,
    numbers: np.ndarray,
    names: Sequence[str],
    same: Callable[[str], str] = str,
) -> Mask:
    """Marks the numbers of names that are the `same` as one of these; none for the empty name."""
    wanted = {same(name) for name in names}
    asked = [n for n, name in enumerate(segment.numbers.names) if same(name) in wanted]
    if "" in names:
        asked.append(-1)
    return np.isin(numbers, asked)


def _said_by(
    index: ScopeIndex,
    segment: Segment,
    column: Literal["who", "role"],
    names: Sequence[str],
    places: int,
) -> Mask:
    """Marks what speakers of these names or roles said or wrote (case ignored), and what was
    derived from that."""
    mask = _named(segment, segment.meta[column][:places], names, str.casefold)
    if segment is index.facts:
        turns = index.turns
        said = _named(turns, turns.meta[column], names, str.casefold)
        for memory_id, sources in index.drawn_from.items():
            place = segment.place_of.get(memory_id, places)
            if place < places and not mask[place]:
                mask[place] = any(said[turns.place_of[s]] for s in sources if s in turns.place_of)
    return mask


def _shares_one(asked: Sequence[str]) -> Callable[[tuple[str, ...]], bool]:
    wanted = set(asked)
    return lambda found: not wanted.isdisjoint(found)


def _has_all(wanted: Sequence[str]) -> Callable[[str], bool]:
    """The same as `METADATA_PASSES`, for metadata as it is stored."""
    pairs = [each.partition("=")[::2] for each in wanted]
    # ASCII has one form in all JSON: metadata without it need not be parsed.
    parts = [json.dumps(text)[1:-1] for pair in pairs for text in pair if text.isascii()]

    def test(metadata: str) -> bool:
        if not all(part in metadata for part in parts):
            return False
        found = json.loads(metadata)
        return all(key in found and _written(found[key]) == value for key, value in pairs)

    return test


def _written(value: object) -> str | None:
    """Returns a value in the form used by a filter; None for null."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lists(lists: Sequence[T], test: Callable[[T], bool]) -> Mask:
    return np.fromiter(map(test, lists), dtype=np.bool_, count=len(lists))
