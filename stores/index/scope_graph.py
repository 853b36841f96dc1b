"""The graph of a resident scope: names by their words, relations, and mentions by name.

It is kept next to the scope's index and updated with it, under its lock. Relations and mentions are
kept per name, as in the tables (stores/database/graph_views.py): names are resolved to entities,
and mentions to those of present texts, when they are requested."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from palimpsest.schemas.rows.graph import MentionRow, NameRow, RelationRow
from palimpsest.stores.index.name_words import (
    MIN_TOKEN_CHARACTERS,
    folded,
    stands_whole,
    words_of_name,
)
from palimpsest.stores.index.segment import Floats, Mask, Segment, digest, microseconds

MemoryNumbers = NDArray[np.int32]
Integer = TypeVar("Integer", np.int32, np.int64)
MentionTable = NDArray[np.void]
MENTION = np.dtype(
    [
        ("name", "i4"),
        ("memory", "i4"),
        ("text", "i8"),
        ("confidence", "f8"),
        ("words", "i4"),
        ("stated", "i8"),
    ]
)
"""A mention: `memory` by its number in the graph, `text` by its digest, `name` (its id) and `words`
by their numbers in the index; `stated` as in its row."""

Stated = tuple[int, float]
"""How often a relation was stated, and its confidence."""
_NAME_FIELDS = [column.name for column in fields(NameRow)]
NAME_COLUMNS = ", ".join(_NAME_FIELDS)


def name_row(values: Sequence[object]) -> NameRow:
    """The row that has these values of `NAME_COLUMNS`."""
    return NameRow(**dict(zip(_NAME_FIELDS, values, strict=True)))  # type: ignore[arg-type]


def is_archived(names: Sequence[NameRow]) -> bool:
    """Whether the entity with these names is out of the graph."""
    return any(name.archived for name in names)


@dataclass(frozen=True, slots=True)
class Mentions:
    """The memories whose present texts mention some entities, each memory once per entity, as
    columns (n,): `entities` are places among the requested ones, `memories` numbers, whose ids are
    `ids`. `column` returns "importance", "pinned" or "occurred" of memories by number."""

    entities: NDArray[np.intp]
    memories: MemoryNumbers
    confidences: Floats
    ids: Sequence[str]
    column: Callable[[MemoryNumbers, str], Floats]


@dataclass(frozen=True, slots=True)
class GraphRemoval:
    """What a scope's graph has lost: `mentions` as pairs of name and memory, `relations` as source,
    target and type, `names` with all of theirs; and the present state of names that it `kept`."""

    mentions: Sequence[tuple[str, str]] = ()
    relations: Sequence[tuple[str, str, str]] = ()
    names: Sequence[str] = ()
    kept: Sequence[NameRow] = ()


def best_of_each(
    keys: NDArray[Integer], values: Floats
) -> tuple[NDArray[Integer], NDArray[np.intp], Floats]:
    """The distinct keys (m,), such as numbers of memories, the place of each value's (n,) among
    them, and the largest of the values of each (m,)."""
    numbers, places = np.unique(keys, return_inverse=True)
    best = np.full(len(numbers), -np.inf)
    np.maximum.at(best, places, values)
    return numbers, places, best


class _NameTokens:
    """Name ids by the words of the names, in one language."""

    def __init__(self) -> None:
        self.by_word: dict[str, list[str]] = {}
        self.unspaced: dict[str, str] = {}
        self.read = 0

    def catch_up(self, names: Sequence[NameRow], language: str) -> None:
        for known in names[self.read :]:
            name = folded(known.canonical_name)
            if not stands_whole(name):
                for word in words_of_name(name, language):
                    self.by_word.setdefault(word, []).append(known.name_id)
            elif len(name) >= MIN_TOKEN_CHARACTERS:
                self.unspaced[known.name_id] = name
        self.read = len(names)


class ScopeGraph:
    """The graph of a resident scope; written under the index's lock, which reading takes. A memory
    has a number once it is mentioned; `ids` are the memories by number."""

    def __init__(
        self, turns: Segment, facts: Segment, lock: AbstractContextManager[object]
    ) -> None:
        self._segments = (turns, facts)
        self._interned = turns.numbers
        self._lock = lock
        self.names: dict[str, NameRow] = {}
        self.ids: list[str] = []
        self._first_known: list[NameRow] = []
        self._names_of: dict[str, set[str]] = {}
        self.authored: set[tuple[str, str, str]] = set()
        """Source, target and type of relations that stand without a memory."""
        self._relations: dict[str, dict[tuple[str, str, bool], Stated]] = {}
        """By name: the other name, the type, and whether the relation starts at this one."""
        self._mentions: dict[str, MentionTable] = {}
        self._all_mentions: MentionTable | None = None
        self._numbers: dict[str, int] = {}
        self._slots = array("i")
        """Twice the place of a memory by number, one more in the facts; -1 where it never was."""
        self._turns = array("b")
        """Whether a memory is a turn, by number, also of one that was never here."""
        self._tokens: dict[str, _NameTokens] = {}

    # --- writing ---------------------------------------------------------------------------

    def put_name(self, name: NameRow) -> None:
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
        (self.authored.add if row.authored else self.authored.discard)((source, target, kind))
        if not row.mentions:
            self.remove(GraphRemoval(relations=[(source, target, kind)]))
            return
        self._relations.setdefault(source, {})[target, kind, True] = weight
        self._relations.setdefault(target, {})[source, kind, False] = weight

    def put_mention(self, row: MentionRow) -> None:
        """Takes the place of the mention of the same text, as the tables let it."""
        held = self._mentions_by([row.name_id])
        number, text = self._number_of(row.memory_id), digest(row.text_key)
        others = held[(held["memory"] != number) | (held["text"] != text)]
        of = self._interned.of
        new = of(row.name_id), number, text, row.confidence, of(row.mention_text), row.stated
        self._mentions[row.name_id] = np.append(others, np.array([new], MENTION))
        self._all_mentions = None

    def remove(self, removal: GraphRemoval) -> None:
        """A repeat changes nothing."""
        lost: dict[str, list[int]] = {}
        for name_id, memory_id in removal.mentions:
            lost.setdefault(name_id, []).append(self._numbers.get(memory_id, -1))
        for name_id, numbers in lost.items():
            held = self._mentions_by([name_id])
            self._mentions[name_id] = held[~np.isin(held["memory"], numbers)]
        for source, target, kind in removal.relations:
            self._relations.get(source, {}).pop((target, kind, True), None)
            self._relations.get(target, {}).pop((source, kind, False), None)
        for name in removal.kept:
            if name.name_id in self.names:
                self.put_name(name)
        gone = [self.names.pop(name_id) for name_id in removal.names if name_id in self.names]
        for name in gone:
            self._names_of[name.entity_id].discard(name.name_id)
            self._mentions.pop(name.name_id, None)
        if gone:
            self._first_known = [each for each in self._first_known if each.name_id in self.names]
            self._tokens.clear()
        self._all_mentions = None

    def load_mentions(self, rows: pa.Table) -> None:
        """`memory_id`, `text_key`, `name_id`, `confidence`, `mention_text`, `stated` and `is_turn`
        of mentions, ordered by name; none is known yet."""
        made = np.zeros(rows.num_rows, MENTION)
        made["memory"] = _coded(rows["memory_id"], self._number_of)
        made["text"] = _coded(rows["text_key"], digest)
        made["name"] = _coded(rows["name_id"], self._interned.of)
        made["words"] = _coded(rows["mention_text"], self._interned.of)
        made["confidence"] = rows["confidence"].to_numpy()
        made["stated"] = rows["stated"].to_numpy()
        turns = np.frombuffer(self._turns, dtype=np.int8)
        turns[made["memory"]] = rows["is_turn"].to_numpy()
        starts = np.flatnonzero(np.diff(made["name"], prepend=-1, append=-1)).tolist()
        for start, end in pairwise(starts):
            self._mentions[self._interned.name(int(made["name"][start]))] = made[start:end]

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
        """Returns the number of memories of the scope."""
        return sum(map(len, self._segments))

    def named(self, query: str, tokens: frozenset[str], language: str) -> dict[str, list[NameRow]]:
        """Returns all names of each entity, by its id, of which a name has one of the tokens as a
        whole word, or is in a script without spaces and occurs in the folded query."""
        with self._lock:
            index = self._tokens.setdefault(language, _NameTokens())
            index.catch_up(self._first_known, language)
            found = {name_id for token in tokens for name_id in index.by_word.get(token, ())}
            found.update(name_id for name_id, name in index.unspaced.items() if name in query)
            entities = {self.names[name_id].entity_id for name_id in found}
            names = {entity_id: self.names_of(entity_id) for entity_id in entities}
            return {key: each for key, each in names.items() if not is_archived(each)}

    def related(self, entity_ids: Collection[str]) -> list[tuple[str, Stated]]:
        """Returns the other entity of each living relation of these, in either direction, unless it
        is one of them; and how the relation was stated."""
        with self._lock:
            support = _Support(self, microseconds(datetime.now(UTC)))
            return [
                (other.entity_id, stated)
                for entity_id in entity_ids
                for name in self.names_of(entity_id)
                for (other_id, kind, out), stated in self.relations_of(name.name_id).items()
                if (other := self.names.get(other_id)) is not None
                and other.entity_id not in entity_ids
                and other.entity_id in self.names
                and not is_archived(self.names_of(other.entity_id))
                and not support.is_lost(name, other, kind, out)
            ]

    def mentions(self, entity_ids: Sequence[str]) -> Mentions:
        with self._lock:
            # All entities at once: a question reaches 70, and each step takes as long for one.
            by_entity = [self._mentions_by(self._names_of.get(each, ())) for each in entity_ids]
            held = np.concatenate([np.zeros(0, MENTION), *by_entity])
            entities = np.repeat(np.arange(len(by_entity)), [len(each) for each in by_entity])
            present = self._having(held)
            held, memories = held[present], len(self.ids) or 1
            pairs = entities[present] * memories + held["memory"]
            unique, _, surest = best_of_each(pairs, held["confidence"])
        return Mentions(
            (unique // memories).astype(np.intp),
            (unique % memories).astype(np.int32),
            surest,
            self.ids,
            self._column,
        )

    def names_of(self, entity_id: str) -> list[NameRow]:
        return [self.names[name_id] for name_id in self._names_of.get(entity_id, ())]

    def relations_of(self, name_id: str) -> Mapping[tuple[str, str, bool], Stated]:
        """How the relations of a name were stated, by the other name, the type, and whether the
        relation starts at this one."""
        return self._relations.get(name_id, {})

    def lost_with(self, entity_id: str, now: int) -> dict[str, bool]:
        """The entities that occur in a lost text together with this one, and whether any of these
        texts is not a turn's. A text is lost when no memory has it any more, or only one that is
        deleted or ended before `now`, in microseconds."""
        held = self._mentions_by(self._names_of.get(entity_id, ()))
        lost = held[~self._having(held, now)]
        found: dict[str, bool] = {}
        if not len(lost):
            return found
        texts = {*lost[["memory", "text"]].tolist()}
        if self._all_mentions is None:
            self._all_mentions = self._mentions_by(self._mentions)
        every = self._all_mentions
        for each in every[np.isin(every["memory"], lost["memory"])]:
            name = self.names.get(self._interned.name(int(each["name"])))
            key = int(each["memory"]), int(each["text"])
            if key in texts and name is not None and name.entity_id != entity_id:
                is_fact = not self._turns[key[0]]
                found[name.entity_id] = found.get(name.entity_id, False) or is_fact
        return found

    def texts_naming(self, a: str, b: str, with_turns: bool, now: int) -> list[str]:
        """The texts of living memories that name both entities, and not only in what they deny;
        those of turns too or not. That of a fact must have both names in words."""
        first, second = self._words_in_texts(a, now), self._words_in_texts(b, now)
        found = []
        for number in first.keys() & second.keys():
            slot = self._slots[number]
            text = self._segments[slot & 1].contents[slot >> 1]
            (words, stated), (others, also_stated) = first[number], second[number]
            if not stated & also_stated:
                names_both = False
            elif slot & 1:
                names_both = all(any(w in text for w in each) for each in (words, others))
            else:
                names_both = with_turns
            if names_both:
                found.append(text)
        return found

    def _words_in_texts(self, entity_id: str, now: int) -> dict[int, tuple[list[str], int]]:
        """By the number of a living memory the words by which its text names the entity, and the
        clauses that state something of it."""
        held = self._mentions_by(self._names_of.get(entity_id, ()))
        held = held[self._having(held, now)]
        found: dict[int, tuple[list[str], int]] = {}
        for number, words, stated in held[["memory", "words", "stated"]].tolist():
            known, clauses = found.get(number, ([], 0))
            found[number] = ([*known, self._interned.name(words)], clauses | stated)
        return found

    def _mentions_by(self, name_ids: Collection[str]) -> MentionTable:
        held = [self._mentions[name_id] for name_id in name_ids if name_id in self._mentions]
        return held[0] if len(held) == 1 else np.concatenate([np.zeros(0, MENTION), *held])

    def _having(self, mentions: MentionTable, now: int | None = None) -> Mask:
        """Which of these are of active memories that have the text, and have not ended `now`."""
        slots = np.frombuffer(self._slots, dtype=np.int32)[mentions["memory"]]
        live = np.zeros(len(slots), dtype=np.bool_)
        for number, segment in enumerate(self._segments):
            here = np.flatnonzero((slots >= 0) & ((slots & 1) == number))
            places = slots[here] >> 1
            live[here] = segment.alive[places]
            live[here] &= segment.meta["text"][places] == mentions["text"][here]
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
        relations = sum(map(len, self._relations.values())) // 2
        mentions = sum(held.nbytes for held in self._mentions.values())
        return 900 * len(self.names) + 500 * relations + 130 * len(self.ids) + mentions


@dataclass(slots=True)
class _Support:
    """Which relations of a graph no memory supports any more, `now` in microseconds; as the view
    `living_relations` has it (`stores.database.graph_views`)."""

    graph: ScopeGraph
    now: int
    _lost: dict[str, dict[str, bool]] = field(default_factory=dict)
    _unsupported: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def is_lost(self, name: NameRow, other: NameRow, kind: str, out: bool) -> bool:
        """Whether the relation of this type between the two, from the first where `out`, is."""
        entity_id = name.entity_id
        if entity_id not in self._lost:
            self._lost[entity_id] = self.graph.lost_with(entity_id, self.now)
        by_fact = self._lost[entity_id].get(other.entity_id)
        one, two = (name, other) if out else (other, name)
        if by_fact is None or (one.name_id, two.name_id, kind) in self.graph.authored:
            return False
        source, target = one.entity_id, two.entity_id
        left = self._unsupported.get((source, target))
        if left is None:
            targets = {name.name_id for name in self.graph.names_of(target)}
            kinds = {
                each
                for name in self.graph.names_of(source)
                for other, each, leaves in self.graph.relations_of(name.name_id)
                if leaves and other in targets
            }
            # A text states a relation by the beginning of the longest word of its type.
            begins = {}
            for each in kinds:
                word = max(re.split(r"[\s_]+", each.lower()), key=lambda word: (len(word), word))
                begins[each] = word[: max(3, len(word) - 2)]
            left = set(kinds)
            for text in self.graph.texts_naming(source, target, not by_fact, self.now):
                left -= {each for each in kinds if begins[each] in text.lower()} or kinds
            self._unsupported[source, target] = left
        return kind in left


def _coded(column: pa.ChunkedArray, number_of: Callable[[str], int]) -> NDArray[np.int64]:
    """The numbers of texts, each text asked for once."""
    encoded = column.combine_chunks().dictionary_encode()
    numbers = np.array([number_of(text) for text in encoded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


NAMES = f"SELECT {NAME_COLUMNS} FROM name_rows WHERE scope = $scope"
RELATIONS = (
    "SELECT source_name_id, target_name_id, relation_type, scope, mentions, confidence, authored"
    " FROM relation_rows WHERE scope = $scope AND mentions > 0"
)
MENTIONS = (
    "SELECT m.memory_id, m.text_key, m.name_id, m.confidence, m.mention_text, m.stated,"
    " CAST(coalesce(r.type = 'episodic', false) AS TINYINT) AS is_turn"
    " FROM mention_rows m LEFT JOIN memory_rows r USING (memory_id) WHERE m.scope = $scope"
    " ORDER BY m.name_id"
)


def fill_graph(graph: ScopeGraph, names: pa.Table, relations: pa.Table, mentions: pa.Table) -> None:
    """Put the rows of `NAMES`, `RELATIONS` and `MENTIONS` into an empty graph, once its memories
    have their places."""
    for name in names.to_pylist():
        graph.put_name(NameRow(**name))
    for relation in relations.to_pylist():
        graph.put_relation(RelationRow(**relation))
    graph.load_mentions(mentions)
