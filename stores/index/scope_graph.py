"""The graph of a resident scope: names by their words, relations, and mentions by name.

It is kept next to the scope's index and updated with it, under its lock. Relations and mentions are
kept per name, as in the tables (stores/database/graph_views.py): names are resolved to entities,
and mentions to those of present texts, when they are requested. `Graph` is what recall reads, of
any scope."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from palimpsest.schemas.rows import MentionRow, NameRow, RelationRow
from palimpsest.stores.index.name_words import (
    MIN_TOKEN_CHARACTERS,
    folded,
    stands_whole,
    words_of_name,
)
from palimpsest.stores.index.segment import Floats, Mask, Segment, digest, microseconds

MemoryNumbers = NDArray[np.int32]

Stated = tuple[int, float]
"""How often a relation was stated, and its confidence."""


@dataclass(frozen=True, slots=True)
class KnownName:
    """The fields of a `NameRow` that recall needs."""

    name_id: str
    name: str
    canonical_name: str
    entity_id: str
    entity_type: str
    summary: str | None
    mentions: int


NAME_COLUMNS = tuple(column.name for column in fields(KnownName))


def known_name(row: NameRow) -> KnownName:
    return KnownName(*(getattr(row, column) for column in NAME_COLUMNS))


@dataclass(frozen=True, slots=True)
class Mentions:
    """The memories whose present texts mention some entities, each memory once per entity, as
    columns (n,): `entities` are places among the requested ones, `memories` numbers, whose ids are
    `ids`. `column` returns the "importance" or "occurred" of memories by number."""

    entities: NDArray[np.intp]
    memories: MemoryNumbers
    confidences: Floats
    ids: Sequence[str]
    column: Callable[[MemoryNumbers, str], Floats]


class Graph(Protocol):
    """The graph of one scope, in memory or in the tables; readable by any thread."""

    def documents(self) -> int:
        """Returns the number of memories of the scope."""

    def named(
        self, query: str, tokens: frozenset[str], language: str
    ) -> Mapping[str, Sequence[KnownName]]:
        """Returns all names of each entity, by its id, of which a name has one of the tokens as a
        whole word, or is in a script without spaces and occurs in the folded query."""

    def related(self, entity_ids: Collection[str]) -> Sequence[tuple[str, Stated]]:
        """Returns the other entity of each living relation of these, in either direction, unless it
        is one of them; and how the relation was stated."""

    def mentions(self, entity_ids: Sequence[str]) -> Mentions: ...


@dataclass(slots=True)
class _NameMentions:
    """Of one name, in columns: memory, digest of the text, confidence, number of the words."""

    memories: array[int] = field(default_factory=lambda: array("i"))
    texts: array[int] = field(default_factory=lambda: array("q"))
    confidences: array[float] = field(default_factory=lambda: array("d"))
    words: array[int] = field(default_factory=lambda: array("i"))

    def add(self, memory: int, text: int, confidence: float, words: int) -> None:
        """A repeat changes nothing."""
        known = np.array(self.memories) == memory
        if not np.any(known & (np.array(self.texts) == text)):
            self.memories.append(memory)
            self.texts.append(text)
            self.confidences.append(confidence)
            self.words.append(words)


@dataclass(frozen=True, slots=True)
class _AllMentions:
    """Of all names: memory, digest of the text, and place of the name in `names`."""

    memories: MemoryNumbers
    texts: NDArray[np.int64]
    of_name: NDArray[np.intp]
    names: list[str]


class _NameTokens:
    """Name ids by the words of the names, in one language."""

    def __init__(self) -> None:
        self.by_word: dict[str, list[str]] = {}
        self.unspaced: dict[str, str] = {}
        self.read = 0

    def catch_up(self, names: Sequence[KnownName], language: str) -> None:
        for known in names[self.read :]:
            name = folded(known.canonical_name)
            if not stands_whole(name):
                for word in words_of_name(name, language):
                    self.by_word.setdefault(word, []).append(known.name_id)
            elif len(name) >= MIN_TOKEN_CHARACTERS:
                self.unspaced[known.name_id] = name
        self.read = len(names)


class ScopeGraph:
    """The graph of a resident scope (`Graph`); written under the index's lock, which reading takes.
    A memory has a number once it is mentioned; `ids` are the memories by number."""

    def __init__(
        self, turns: Segment, facts: Segment, lock: AbstractContextManager[object]
    ) -> None:
        self._segments = (turns, facts)
        self._lock = lock
        self.names: dict[str, KnownName] = {}
        self.ids: list[str] = []
        self._first_known: list[KnownName] = []
        self._names_of: dict[str, set[str]] = {}
        self._relations: dict[str, dict[tuple[str, str, bool], Stated]] = {}
        self._relation_count = 0
        self._mentions: dict[str, _NameMentions] = {}
        self._mention_count = 0
        self._numbers: dict[str, int] = {}
        self._turns = array("b")
        """Whether a memory is a turn, by number, also of one that was never here."""
        self._all_mentions: _AllMentions | None = None
        self._slots = array("i")
        """Twice the place of a memory by number, one more in the facts; -1 where it never was."""
        self._tokens: dict[str, _NameTokens] = {}

    # --- writing ---------------------------------------------------------------------------

    def put_name(self, name: KnownName) -> None:
        before = self.names.get(name.name_id)
        if before is None:
            self._first_known.append(name)
        elif before.entity_id != name.entity_id:
            self._names_of[before.entity_id].discard(name.name_id)
        self.names[name.name_id] = name
        self._names_of.setdefault(name.entity_id, set()).add(name.name_id)

    def put_relation(self, row: RelationRow) -> None:
        source, target, kind = row.source_name_id, row.target_name_id, row.relation_type
        weight = (row.mentions, row.confidence)
        self._relation_count += (target, kind, True) not in self._relations.get(source, {})
        self._relations.setdefault(source, {})[target, kind, True] = weight
        self._relations.setdefault(target, {})[source, kind, False] = weight

    def put_mention(self, row: MentionRow) -> None:
        held = self._mentions.setdefault(row.name_id, _NameMentions())
        self._mention_count -= len(held.memories)
        number = self._number_of(row.memory_id)
        words = self._segments[0].numbers.of(row.mention_text)
        held.add(number, digest(row.text_key), row.confidence, words)
        self._mention_count += len(held.memories)
        self._all_mentions = None

    def load_mentions(self, rows: pa.Table) -> None:
        """`memory_id`, `text_key`, `name_id`, `confidence`, `mention_text` and `is_turn` of
        mentions, ordered by name; none is known yet."""
        if not rows.num_rows:
            return
        memories = rows["memory_id"].combine_chunks().dictionary_encode()
        numbers = np.array([self._number_of(i) for i in memories.dictionary.to_pylist()], np.int32)
        of_row = numbers[memories.indices.to_numpy()]
        np.frombuffer(self._turns, dtype=np.int8)[of_row] = rows["is_turn"].to_numpy()
        number_of = self._segments[0].numbers.of
        words = np.array([number_of(text) for text in rows["mention_text"].to_pylist()], np.int32)
        texts = np.array([digest(key) for key in rows["text_key"].to_pylist()], np.int64)
        confidences = rows["confidence"].to_numpy()
        names = rows["name_id"].combine_chunks().dictionary_encode()
        of_name = names.indices.to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(of_name)) + 1).tolist(), len(of_name)]
        for start, end in pairwise(starts):
            self._mentions[names.dictionary[int(of_name[start])].as_py()] = _NameMentions(
                array("i", of_row[start:end].tobytes()),
                array("q", texts[start:end].tobytes()),
                array("d", confidences[start:end].tobytes()),
                array("i", words[start:end].tobytes()),
            )
        self._mention_count = rows.num_rows

    def note_place(self, memory_id: str) -> None:
        """Notes where a memory is now."""
        number = self._numbers.get(memory_id)
        if number is not None:
            self._slots[number] = self._find(memory_id, self._slots[number])

    def _number_of(self, memory_id: str) -> int:
        number = self._numbers.get(memory_id)
        if number is None:
            slot = self._find(memory_id, -1)
            if slot >= 0:
                memory_id = self._segments[slot & 1].ids[slot >> 1]  # one object for both
            number = self._numbers[memory_id] = len(self.ids)
            self.ids.append(memory_id)
            self._slots.append(slot)
            self._turns.append(slot >= 0 and not slot & 1)
        return number

    def _find(self, memory_id: str, otherwise: int) -> int:
        for number, segment in enumerate(self._segments):
            place = segment.place_of.get(memory_id)
            if place is not None:
                return 2 * place + number
        return otherwise

    # --- reading ---------------------------------------------------------------------------

    def documents(self) -> int:
        return sum(map(len, self._segments))

    def named(
        self, query: str, tokens: frozenset[str], language: str
    ) -> dict[str, list[KnownName]]:
        with self._lock:
            index = self._tokens.setdefault(language, _NameTokens())
            index.catch_up(self._first_known, language)
            found = {name_id for token in tokens for name_id in index.by_word.get(token, ())}
            found.update(name_id for name_id, name in index.unspaced.items() if name in query)
            entities = {self.names[name_id].entity_id for name_id in found}
            return {entity_id: self.names_of(entity_id) for entity_id in entities}

    def related(self, entity_ids: Collection[str]) -> list[tuple[str, Stated]]:
        with self._lock:
            support = _Support(self, microseconds(datetime.now(UTC)))
            return [
                (other.entity_id, stated)
                for entity_id in entity_ids
                for name in self.names_of(entity_id)
                for other_id, kind, out, stated in self.relations_of(name.name_id)
                if (other := self.names.get(other_id)) is not None
                and other.entity_id not in entity_ids
                and other.entity_id in self.names
                and not support.is_lost(entity_id, other.entity_id, kind, out)
            ]

    def mentions(self, entity_ids: Sequence[str]) -> Mentions:
        with self._lock:
            present = [self._present_of(entity_id) for entity_id in entity_ids]
        return Mentions(
            np.repeat(np.arange(len(present)), [len(numbers) for numbers, _ in present]),
            np.concatenate([np.zeros(0, np.int32), *(numbers for numbers, _ in present)]),
            np.concatenate([np.zeros(0), *(confidences for _, confidences in present)]),
            self.ids,
            self._column,
        )

    def names_of(self, entity_id: str) -> list[KnownName]:
        return [self.names[name_id] for name_id in self._names_of.get(entity_id, ())]

    def relations_of(self, name_id: str) -> Iterator[tuple[str, str, bool, Stated]]:
        """Yields the names related to this one: name, type, whether the relation starts at this
        one, and how often and with what confidence it was stated."""
        for (other, kind, out), stated in self._relations.get(name_id, {}).items():
            yield other, kind, out, stated

    def lost_with(self, entity_id: str, now: int) -> dict[str, bool]:
        """The entities that occur in a lost text together with this one, and whether any of these
        texts is not a turn's. A text is lost when no memory has it any more, or only one that is
        deleted or ended before `now`, in microseconds."""
        lost: set[tuple[int, int]] = set()
        for name_id in self._names_of.get(entity_id, ()):
            held = self._mentions.get(name_id)
            if held is not None:
                numbers, texts = np.array(held.memories, np.int32), np.array(held.texts, np.int64)
                gone = ~self._having(numbers, texts, now)
                lost.update(zip(numbers[gone].tolist(), texts[gone].tolist(), strict=True))
        found: dict[str, bool] = {}
        if not lost:
            return found
        every = self._every_mention()
        for place in np.flatnonzero(np.isin(every.memories, [n for n, _ in lost])).tolist():
            key = int(every.memories[place]), int(every.texts[place])
            name = self.names.get(every.names[int(every.of_name[place])])
            if key in lost and name is not None and name.entity_id != entity_id:
                is_fact = not self._turns[key[0]]
                found[name.entity_id] = found.get(name.entity_id, False) or is_fact
        return found

    def texts_naming(self, a: str, b: str, with_turns: bool, now: int) -> list[str]:
        """The texts of living memories that name both entities, those of turns too or not. That of
        a fact must have both names in words."""
        first, second = self._words_in_texts(a, now), self._words_in_texts(b, now)
        found = []
        for number in first.keys() & second.keys():
            slot = self._slots[number]
            text = self._segments[slot & 1].contents[slot >> 1]
            if self._turns[number]:
                names_both = with_turns
            else:
                names_both = all(any(w in text for w in each[number]) for each in (first, second))
            if names_both:
                found.append(text)
        return found

    def _words_in_texts(self, entity_id: str, now: int) -> dict[int, list[str]]:
        """By the number of a living memory the words by which its text names the entity."""
        found: dict[int, list[str]] = {}
        for name_id in self._names_of.get(entity_id, ()):
            held = self._mentions.get(name_id)
            if held is not None:
                numbers, texts = np.array(held.memories, np.int32), np.array(held.texts, np.int64)
                for place in np.flatnonzero(self._having(numbers, texts, now)).tolist():
                    words = self._segments[0].numbers.name(held.words[place])
                    found.setdefault(int(numbers[place]), []).append(words)
        return found

    def _every_mention(self) -> _AllMentions:
        if self._all_mentions is None:
            names = list(self._mentions)
            held = list(self._mentions.values())
            self._all_mentions = _AllMentions(
                np.concatenate([np.array(each.memories, np.int32) for each in held]),
                np.concatenate([np.array(each.texts, np.int64) for each in held]),
                np.repeat(np.arange(len(held)), [len(each.memories) for each in held]),
                names,
            )
        return self._all_mentions

    def _present_of(self, entity_id: str) -> tuple[MemoryNumbers, Floats]:
        """Returns the memories that mention the entity now, each once, with the confidence."""
        found = [
            self._present(held)
            for name_id in self._names_of.get(entity_id, ())
            if (held := self._mentions.get(name_id)) is not None
        ]
        if len(found) == 1:
            return found[0]
        numbers = np.concatenate([np.zeros(0, np.int32), *(numbers for numbers, _ in found)])
        confidences = np.concatenate([np.zeros(0), *(confidences for _, confidences in found)])
        unique, places = np.unique(numbers, return_inverse=True)
        surest = np.full(len(unique), -np.inf)
        np.maximum.at(surest, places, confidences)
        return unique, surest

    def _present(self, held: _NameMentions) -> tuple[MemoryNumbers, Floats]:
        numbers = np.array(held.memories, dtype=np.int32)
        live = self._having(numbers, np.array(held.texts, dtype=np.int64))
        return numbers[live], np.array(held.confidences)[live]

    def _having(
        self, numbers: MemoryNumbers, texts: NDArray[np.int64], now: int | None = None
    ) -> Mask:
        """Which of these memories are active and have these texts, and have not ended `now`."""
        slots = np.frombuffer(self._slots, dtype=np.int32)[numbers]
        live = np.zeros(len(numbers), dtype=np.bool_)
        for number, segment in enumerate(self._segments):
            here = np.flatnonzero((slots >= 0) & ((slots & 1) == number))
            places = slots[here] >> 1
            live[here] = segment.alive[places] & (segment.meta["text"][places] == texts[here])
            if now is not None:
                live[here] &= segment.meta["ends"][places] > now
        return live

    def _column(self, numbers: MemoryNumbers, name: str) -> Floats:
        """A column of `META` of memories that are present, exact below 2**53."""
        with self._lock:
            slots = np.frombuffer(self._slots, dtype=np.int32)[numbers]
            values = np.zeros(len(slots))
            for number, segment in enumerate(self._segments):
                here = (slots & 1) == number
                values[here] = segment.meta[name][slots[here] >> 1]
        return values

    def bytes_used(self) -> int:
        """A close estimate of resident bytes."""
        names = 900 * len(self.names) + 500 * self._relation_count
        return names + 130 * len(self.ids) + 24 * self._mention_count


@dataclass(slots=True)
class _Support:
    """Which relations of a graph no memory supports any more, `now` in microseconds; as the view
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
            for other, kind, out, _ in self.graph.relations_of(name.name_id)
            if out and other in targets
        }
        left = set(kinds)
        for text in self.graph.texts_naming(source, target, not by_fact, self.now):
            stated = {kind for kind in kinds if _relation_key(kind) in text.lower()}
            left -= stated or kinds
        return left


def _relation_key(kind: str) -> str:
    """The beginning of the longest word of a relation's type, by which a text states it."""
    word = max(re.split(r"[\s_]+", kind.lower()), key=lambda word: (len(word), word))
    return word[: max(3, len(word) - 2)]


NAMES = f"SELECT {', '.join(NAME_COLUMNS)} FROM name_rows WHERE scope = $scope"
RELATIONS = (
    "SELECT source_name_id, target_name_id, relation_type, scope, mentions, confidence"
    " FROM relation_rows WHERE scope = $scope"
)
MENTIONS = (
    "SELECT m.memory_id, m.text_key, m.name_id, m.confidence, m.mention_text,"
    " CAST(coalesce(r.type = 'episodic', false) AS TINYINT) AS is_turn"
    " FROM mention_rows m LEFT JOIN memory_rows r USING (memory_id) WHERE m.scope = $scope"
    " ORDER BY m.name_id"
)


def fill_graph(graph: ScopeGraph, names: pa.Table, relations: pa.Table, mentions: pa.Table) -> None:
    """Put the rows of `NAMES`, `RELATIONS` and `MENTIONS` into an empty graph, once its memories
    have their places."""
    for name in names.to_pylist():
        graph.put_name(KnownName(**name))
    for relation in relations.to_pylist():
        graph.put_relation(RelationRow(**relation))
    graph.load_mentions(mentions)
