"""A resident scope's graph, with the queries of `stores.recall.graph_boost.StoredGraph` and the
same answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from palimpsest.stores.database.graph_views import VAGUE
from palimpsest.stores.index.name_words import folded, query_words
from palimpsest.stores.index.scope_graph import MemoryNumbers, ScopeGraph
from palimpsest.stores.index.scope_index import ScopeIndex
from palimpsest.stores.index.segment import Floats, from_microseconds, microseconds
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.graph_boost import BoostHit, GraphBoostLimits, NamedEntity


@dataclass(frozen=True, slots=True)
class _Lifted:
    """The memories (numbers) of one entity, and what each gains by it."""

    entity_id: str
    numbers: MemoryNumbers
    share: float
    strength: float


@dataclass(slots=True)
class LivingRelations:
    """Which relations of a graph nothing supports any more, `now` in microseconds; as the view
    `living_relations` has it (`stores.database.graph_views`)."""

    graph: ScopeGraph
    now: int
    _lost: dict[str, dict[str, bool]] = field(default_factory=dict)
    _unsupported: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def is_lost(self, entity_id: str, other_id: str, kind: str, out: bool) -> bool:
        """Whether the relation of this type between the two, from the first where `out`, is."""
        if entity_id not in self._lost:
            self._lost[entity_id] = self.graph.lost_with(entity_id, self.now)
        by_fact = self._lost[entity_id].get(other_id)
        if by_fact is None:
            return False
        ends = (entity_id, other_id) if out else (other_id, entity_id)
        if ends not in self._unsupported:
            self._unsupported[ends] = self._without_support(*ends, by_fact)
        return kind in self._unsupported[ends]

    def _without_support(self, source: str, target: str, by_fact: bool) -> set[str]:
        targets = {name.name_id for name in self.graph.names_of(target)}
        kinds = {
            kind
            for name in self.graph.names_of(source)
            for other, kind, out, _ in self.graph.related(name.name_id)
            if out and other in targets
        }
        left = set(kinds)
        for text in self.graph.texts_naming(source, target, not by_fact, self.now):
            telling = {kind for kind in kinds if relation_key(kind) in text.lower()}
            left -= telling or kinds
        return left


def relation_key(kind: str) -> str:
    """The beginning of the longest word of a relation's type, by which a text tells of it."""
    word = max(re.split(r"[\s_]+", kind.lower()), key=lambda word: (len(word), word))
    return word[: max(3, len(word) - 2)]


@dataclass(frozen=True, slots=True)
class ResidentGraph:
    """Any thread may ask."""

    index: ScopeIndex

    def named(self, query: str, limit: int, language: str) -> tuple[NamedEntity, ...]:
        text, tokens = folded(query), query_words(query, language)
        if not tokens:
            return ()
        graph = self.index.graph
        with self.index.lock:
            found = {
                name.entity_id
                for name in graph.named_in(text, tokens, language)
                if _holds_characters(name.canonical_name, text, tokens)
            }
            entities = [_described(graph, entity_id) for entity_id in found]
        entities.sort(key=lambda entity: (-entity.times_told, entity.entity_id))
        return tuple(entities[:limit])

    def neighbours(self, ids: Sequence[str], limit: int) -> dict[str, str]:
        graph, given = self.index.graph, set(ids)
        counts: dict[str, tuple[int, float]] = {}
        with self.index.lock:
            living = LivingRelations(graph, microseconds(datetime.now(UTC)))
            for name in (name for entity_id in ids for name in graph.names_of(entity_id)):
                for other_id, kind, out, (mentions, confidence) in graph.related(name.name_id):
                    other = graph.names.get(other_id)
                    if other is None or other.entity_id in given:
                        continue
                    if living.is_lost(name.entity_id, other.entity_id, kind, out):
                        continue
                    times, surest = counts.get(other.entity_id, (0, confidence))
                    counts[other.entity_id] = (times + mentions, max(surest, confidence))
            there = (entity_id for entity_id in counts if entity_id in graph.names)
            order = sorted(there, key=lambda i: (-counts[i][0], -counts[i][1], i))
            return {entity_id: graph.names[entity_id].name for entity_id in order[:limit]}

    def memories(
        self, named: Mapping[str, str], around: Mapping[str, str], limits: GraphBoostLimits
    ) -> dict[str, BoostHit]:
        names = {**around, **named}
        graph = self.index.graph
        with self.index.lock:
            documents = len(self.index.turns) + len(self.index.facts)
            lifted: list[_Lifted] = []
            for entity_id in sorted(names):
                share = 1.0 if entity_id in named else limits.neighbour_share
                numbers = graph.present(entity_id).numbers
                spread = len(numbers)
                if not spread or share <= 0:
                    continue
                telling = max(0.0, 1 - math.log(spread) / math.log(max(documents, spread, 2)))
                if telling >= limits.min_telling:
                    lifted.append(_Lifted(entity_id, numbers, share, share * telling))
            return _strongest(lifted, names, graph.ids, limits.max_memories)

    def mentioning(
        self, named: Sequence[NamedEntity], enough: int, allowed: VisibilityMask | None
    ) -> list[tuple[str, list[str], float]]:
        """Memories with the names of those entities that they mention, and how sure that is; as
        `stores.recall.strategies` asks the tables."""
        graph = self.index.graph
        with self.index.lock:
            present = [graph.present(entity.entity_id) for entity in named]
            of_entity = np.repeat(np.arange(len(named)), [len(one.numbers) for one in present])
            mentioned = np.concatenate([one.numbers for one in present])
            numbers, at = np.unique(mentioned, return_inverse=True)
            confidences = np.concatenate([one.confidences for one in present])
            surest = np.full(len(numbers), -np.inf)
            np.maximum.at(surest, at, confidences)
            columns = (
                -np.bincount(at, minlength=len(numbers)).astype(np.float64),
                -surest,
                -graph.column(numbers, "importance"),
                -graph.column(numbers, "occurred"),
            )
            ids = [graph.ids[number] for number in numbers.tolist()]
        may = np.ones(len(ids), dtype=np.bool_)
        if allowed is not None and allowed.is_filtered:
            shown = allowed.among(ids)
            may = np.fromiter((i in shown for i in ids), dtype=np.bool_, count=len(ids))
        taken = _first(columns, np.flatnonzero(may), ids, enough)
        names: dict[int, set[str]] = {place: set() for place in taken}
        for pair in np.flatnonzero(np.isin(at, taken)).tolist():
            names[int(at[pair])].add(named[of_entity[pair]].name)
        return [(ids[place], sorted(names[place]), float(surest[place])) for place in taken]

    def living(self, ids: Iterable[str]) -> dict[str, tuple[str, str, str, str, datetime, str]]:
        """Content, type, who, session, time and role of those that live, by id."""
        found: dict[str, tuple[str, str, str, str, datetime, str]] = {}
        name = self.index.numbers.name
        with self.index.lock:
            for memory_id in ids:
                where = self.index.find(memory_id)
                if where is None:
                    continue
                segment, place = where
                meta = segment.meta[place]
                kind, who, session, role = (
                    name(int(meta[key])) for key in ("kind", "who", "session", "role")
                )
                at = from_microseconds(int(meta["occurred"]))
                found[memory_id] = (segment.contents[place], kind, who, session, at, role)
        return found


def _holds_characters(name: str, query: str, tokens: Iterable[str]) -> bool:
    """What the database looks for before whole tokens are distinguished."""
    return name in query or any(token in name for token in tokens)


def _described(graph: ScopeGraph, entity_id: str) -> NamedEntity:
    """As the view `known_entities` has it."""
    names = sorted(
        graph.names_of(entity_id), key=lambda n: (n.name_id != entity_id, n.canonical_name)
    )
    telling = (name.entity_type for name in names if name.entity_type not in VAGUE)
    return NamedEntity(
        entity_id,
        names[0].name,
        next(telling, names[0].entity_type),
        next((name.summary for name in names if name.summary is not None), None),
        sum(name.mentions for name in names),
    )


def _strongest(
    lifted: Sequence[_Lifted], names: Mapping[str, str], ids: Sequence[str], limit: int
) -> dict[str, BoostHit]:
    """The memories that gain most, then of the most entities, then by id."""
    if not lifted:
        return {}
    numbers, at = np.unique(np.concatenate([one.numbers for one in lifted]), return_inverse=True)
    each = [len(one.numbers) for one in lifted]
    strengths = np.full(len(numbers), -np.inf)
    np.maximum.at(strengths, at, np.repeat([one.strength for one in lifted], each))
    counts = np.bincount(at, minlength=len(numbers)).astype(np.float64)
    memory_ids = [ids[number] for number in numbers.tolist()]
    taken = _first((-strengths, -counts), np.arange(len(numbers)), memory_ids, limit)
    reached: dict[int, list[_Lifted]] = {place: [] for place in taken}
    wanted = np.zeros(len(numbers), dtype=np.bool_)
    wanted[taken] = True
    of_entity = np.repeat(np.arange(len(lifted)), each)
    for pair in np.flatnonzero(wanted[at]).tolist():
        reached[int(at[pair])].append(lifted[of_entity[pair]])
    return {
        memory_ids[place]: BoostHit(
            float(strengths[place]),
            tuple(names[one.entity_id] for one in by),
            any(one.share >= 1 for one in by),
        )
        for place, by in reached.items()
    }


def _first(
    columns: Sequence[Floats], places: NDArray[np.intp], ids: Sequence[str], limit: int
) -> list[int]:
    """The first of these places by the columns, then by id."""
    order = places[np.lexsort([column[places] for column in reversed(columns)])]
    if len(order) > limit:
        # All that are as good as the last one: which of them are taken, their ids say.
        rest = order[limit:]
        same = np.logical_and.reduce(
            [column[rest] == column[order[limit - 1]] for column in columns]
        )
        order = np.concatenate((order[:limit], rest[same]))
    key = [column.tolist() for column in columns]
    return sorted(order.tolist(), key=lambda i: (*(column[i] for column in key), ids[i]))[:limit]
