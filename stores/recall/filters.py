"""The filters of a query, each defined once, and the memories that a query may show: masks over the
segments of an index.

The masks apply to everything that an answer shows (results and the memories that they represent,
neighbours, what the intent adds, evidence), and nothing hidden influences what is shown, neither by
words nor by score. In a scope that is searched where it is stored, the same filters as SQL restrict
the candidates that are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np

from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.search_plan import EVERYTHING
from palimpsest.stores.index.segment import Mask, Segment, microseconds
from palimpsest.stores.recall.query import METADATA_PASSES, Query

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Rows:
    """The places of a segment."""

    index: ScopeIndex
    segment: Segment

    def column(self, name: str) -> np.ndarray:
        values: np.ndarray = self.segment.meta[name]
        return values

    def named(
        self, column: str, names: Sequence[str], normalized: Callable[[str], str] = str
    ) -> Mask:
        """Marks the rows with one of these names, compared as `normalized`; the empty name is that
        of rows without one."""
        wanted = {normalized(name) for name in names}
        known = self.segment.numbers.names
        numbers = [number for number, name in enumerate(known) if normalized(name) in wanted]
        return np.isin(self.column(column), [*numbers, *([-1] if "" in names else [])])

    def said_by(self, column: Literal["who", "role"], names: Sequence[str]) -> Mask:
        """Marks the rows of speakers with these names or roles (ignoring case), and those derived
        from one of theirs."""
        mask = self.named(column, names, str.casefold)
        if self.segment is self.index.facts:
            turns = self.index.turns
            said = _Rows(self.index, turns).named(column, names, str.casefold)
            for memory_id, sources in self.index.derived_from.items():
                place = self.segment.place_of.get(memory_id)
                if place is not None and not mask[place]:
                    found = (turns.place_of.get(source) for source in sources)
                    mask[place] = any(said[there] for there in found if there is not None)
        return mask

    def each(self, values: Sequence[T], test: Callable[[T], bool]) -> Mask:
        return np.fromiter(map(test, values), dtype=np.bool_, count=len(values))


@dataclass(frozen=True, slots=True)
class Filter:
    """One field of `Query`: as a mask of the rows that pass a value, and as a condition in SQL over
    `memory_rows m`, in which the value has the field's name."""

    mask: Callable[[_Rows, Any], Mask]
    sql: str


_DERIVED_FROM: Final = (
    "({0} OR m.memory_id IN (SELECT e.source_id FROM memory_edges e"
    " JOIN memory_rows t ON t.memory_id = e.target_id WHERE e.scope = $scope"
    " AND e.relation_type = 'derived_from' AND NOT t.is_deleted AND {1}))"
)
_WHO: Final = "lower({}.who) = lower($who)"
_ROLE: Final = "list_contains(list_transform($roles, lambda role: lower(role)), lower({}.role))"
FILTERS: Final[Mapping[str, Filter]] = {
    "types": Filter(lambda rows, names: rows.named("kind", names), "list_contains($types, m.type)"),
    "who": Filter(
        lambda rows, name: rows.said_by("who", (name,)),
        _DERIVED_FROM.format(_WHO.format("m"), _WHO.format("t")),
    ),
    "roles": Filter(
        lambda rows, names: rows.said_by("role", names),
        _DERIVED_FROM.format(_ROLE.format("m"), _ROLE.format("t")),
    ),
    "session_id": Filter(
        lambda rows, name: rows.named("session", (name,)), "m.session_id = $session_id"
    ),
    "project": Filter(
        lambda rows, name: rows.named("project", (name,)), "coalesce(m.project, '') = $project"
    ),
    "pinned": Filter(lambda rows, value: rows.column("pinned") == value, "m.pinned = $pinned"),
    "min_importance": Filter(
        lambda rows, least: (rows.column("importance") >= least) | rows.column("pinned"),
        "(m.importance >= $min_importance OR m.pinned)",
    ),
    "since": Filter(
        lambda rows, time: rows.column("occurred") >= microseconds(time), "m.occurred_at >= $since"
    ),
    "until": Filter(
        lambda rows, time: rows.column("occurred") < microseconds(time), "m.occurred_at < $until"
    ),
    "valid_at": Filter(
        lambda rows, time: rows.column("ends") > microseconds(time),
        "(m.valid_until IS NULL OR m.valid_until > $valid_at)",
    ),
    "as_of": Filter(
        lambda rows, time: rows.column("created") <= microseconds(time), "m.created_at <= $as_of"
    ),
    "tags": Filter(
        lambda rows, tags: rows.each(rows.segment.tags, _shares_one(tags)),
        "list_has_any(m.tags, $tags)",
    ),
    "all_tags": Filter(
        lambda rows, tags: rows.each(rows.segment.tags, set(tags).issubset),
        "list_has_all(m.tags, $all_tags)",
    ),
    "categories": Filter(
        lambda rows, names: rows.each(rows.segment.categories, _shares_one(names)),
        "list_has_any(m.categories, $categories)",
    ),
    "metadata": Filter(
        lambda rows, pairs: rows.each(rows.segment.metadata, _has_all(pairs)),
        METADATA_PASSES.format(wanted="$metadata", memory="m."),
    ),
}


def filters_of(query: Query) -> dict[str, Any]:
    """Returns the values that a query filters by, by the names of FILTERS."""
    values = {name: getattr(query, name) for name in FILTERS}
    return {name: value for name, value in values.items() if value is not None and value != ()}


def in_sql(query: Query) -> tuple[str, Mapping[str, object]]:
    """Returns `passes` and `values` of a `SearchPlan`."""
    values = filters_of(query)
    condition = " AND ".join(FILTERS[name].sql for name in values) or EVERYTHING
    return condition, {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}


@dataclass(frozen=True, slots=True)
class VisibilityMask:
    """What a query may show of the places that each segment had (None: all)."""

    index: ScopeIndex
    query: Query
    passes: tuple[Mask | None, ...]

    @classmethod
    def by(cls, index: ScopeIndex, query: Query) -> Self:
        values = filters_of(query)
        passes: list[Mask | None] = []
        with index.lock:
            for segment in index.segments:
                rows = _Rows(index, segment)
                masks = [FILTERS[name].mask(rows, value) for name, value in values.items()]
                if not segment.has_no_tombstones:
                    masks.append(segment.alive)
                passes.append(np.logical_and.reduce(masks) if masks else None)
        return cls(index, query, tuple(passes))

    @property
    def is_filtered(self) -> bool:
        """Whether any living memory may be left out."""
        return any(mask is not None for mask in self.passes)

    def including(self, memory_ids: Collection[str]) -> Self:
        """Returns the mask of an index that also has these memories, if they exist."""
        index = self.index.including(memory_ids)
        return self if index is self.index else type(self).by(index, self.query)

    def among(self, memory_ids: Iterable[str]) -> set[str]:
        """Returns those of these memories that may be shown; not those added meanwhile."""
        memory_ids = list(memory_ids)
        mask = self.including(memory_ids)
        shown = set()
        with mask.index.lock:
            for segment, passes in zip(mask.index.segments, mask.passes, strict=True):
                for memory_id in memory_ids:
                    place = segment.place_of.get(memory_id)
                    if place is not None and (
                        passes is None or (place < len(passes) and bool(passes[place]))
                    ):
                        shown.add(memory_id)
        return shown


def failed_filters(allowed: VisibilityMask, memory_id: str) -> tuple[str, ...] | None:
    """Returns the filters of the query that a memory does not pass; None if it is not active."""
    query = allowed.query
    unfiltered = VisibilityMask.by(allowed.index, Query(query.scope, query.query))
    if not unfiltered.among([memory_id]):
        return None
    values = filters_of(query)
    each_alone = {name: replace(unfiltered.query, **{name: values[name]}) for name in values}
    index = unfiltered.including([memory_id]).index
    return tuple(
        name
        for name, alone in each_alone.items()
        if not VisibilityMask.by(index, alone).among([memory_id])
    )


def _shares_one(names: Sequence[str]) -> Callable[[tuple[str, ...]], bool]:
    wanted = set(names)
    return lambda found: not wanted.isdisjoint(found)


def _has_all(wanted: Sequence[str]) -> Callable[[str], bool]:
    """Tests metadata as it is stored; like `METADATA_PASSES`."""
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
