"""The resident index of one scope: postings, vectors and what filters ask, exact and incremental.

It is a cache of DuckDB's rows, loaded when a scope is first searched and kept current after every
commit. Its two parts are raw turns and everything else. `lock` is held by whoever changes it, and
by readers while they follow its lists and maps; columns already taken may be read without it.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping

import numpy as np

from schemas.rows import EdgeRow, MemoryRow
from stores.analysis import query_tokens
from stores.fulltext import terms_of
from stores.part import Numbers, Part, Vector

DERIVED_FROM = "derived_from"
STALE_SHARE = 0.02
"""By how much the number of vectors may change before the lengths of `rest_lengths` are computed
anew: they only choose which places are scored exactly."""


class ScopeIndex:
    """Raw turns (`turns`) and everything else (`facts`) of a scope, and how they hang together."""

    def __init__(self, dimensions: int) -> None:
        self.lock = threading.RLock()
        self.numbers = Numbers()
        self.turns = Part(dimensions, self.numbers)
        self.facts = Part(dimensions, self.numbers)
        self.seats: dict[int, array[int]] = {}
        """Places of a session's turns by position, by the session's number; -1 for a gap."""
        self.drawn_from: dict[str, list[str]] = {}
        """Ids that a memory was derived from, by its id."""
        self.gave: dict[str, list[str]] = {}
        """Ids of the memories that were derived from one, by its id."""
        self._rest: dict[int, tuple[int, Vector]] = {}
        self._speakers: tuple[tuple[int, int], list[int]] = ((-1, -1), [])
        self._name_terms: dict[tuple[int, str], frozenset[str]] = {}

    @property
    def parts(self) -> tuple[Part, Part]:
        return self.turns, self.facts

    def part_of(self, memory_type: str) -> Part:
        return self.turns if memory_type == "episodic" else self.facts

    def put_row(self, row: MemoryRow, vector: Vector | None, language: str) -> None:
        """Index a memory anew, or drop it when it is deleted."""
        if row.is_deleted:
            self.remove(row.memory_id)
        else:
            self.put(row, terms_of(row, language), vector)

    def put(self, row: MemoryRow, terms: Mapping[str, int], vector: Vector | None) -> None:
        with self.lock:
            if row.type != "episodic":
                self.turns.remove(row.memory_id)
                self.facts.put(row, terms, vector)
                return
            self.facts.remove(row.memory_id)
            old = self.turns.place_of.get(row.memory_id)
            session = self.numbers.of(row.session_id)
            seats = self.seats.setdefault(session, array("i")) if session >= 0 else None
            position = 0
            if old is not None and int(self.turns.meta[old]["session"]) == session:
                position = int(self.turns.meta[old]["position"])
            elif seats is not None:
                position = len(seats)
                seats.append(-1)
            place = self.turns.put(row, terms, vector, position)
            if seats is not None:
                seats[position] = place

    def update_row(self, row: MemoryRow, vector: Vector | None) -> None:
        """Note what changed of a memory whose text did not."""
        with self.lock:
            self.part_of(row.type).update(row, vector)

    def remove(self, memory_id: str) -> None:
        with self.lock:
            self.turns.remove(memory_id)
            self.facts.remove(memory_id)

    def set_vector(self, memory_id: str, vector: Vector) -> None:
        """The vector of a memory that had none."""
        with self.lock:
            self.turns.set_vector(memory_id, vector)
            self.facts.set_vector(memory_id, vector)
            self._rest.clear()

    def link(self, edge: EdgeRow) -> None:
        """Note an edge, if it is of a kind that ranking asks for. A repeat is nothing new."""
        if edge.relation_type == DERIVED_FROM:
            with self.lock:
                self.link_ids(edge.source_id, edge.target_id)

    def link_ids(self, derived: str, source: str) -> None:
        sources = self.drawn_from.setdefault(derived, [])
        if source not in sources:
            sources.append(source)
            self.gave.setdefault(source, []).append(derived)

    def rest_lengths(self, number: int, off: Vector) -> Vector:
        """Length of every vector of part `number` less what is nearly `off`."""
        part = self.parts[number]
        made_at, lengths = self._rest.get(number, (-1, np.zeros(0, dtype=np.float32)))
        count = sum(each.vector_count for each in self.parts)
        if made_at < 0 or abs(count - made_at) > STALE_SHARE * made_at:
            made_at, lengths = count, np.zeros(0, dtype=np.float32)
        if len(lengths) < part.places or not len(lengths):
            # |x - s m|^2 = |x|^2 - 2 s x.m + s^2 |m|^2, without a second array of vectors.
            new = part.vectors[len(lengths) :]
            squares = 1.0 - 2.0 * (new @ off) + float(off @ off)
            lengths = np.concatenate((lengths, np.sqrt(np.maximum(squares, 1e-6))))
            self._rest[number] = (made_at, lengths)
        return lengths

    def named_speaker(self, asked: frozenset[str], language: str) -> int | None:
        """The number of the one speaker of the scope whose name's terms are all asked for; None
        where it is none or several."""
        speaking = self._speaking()
        if len(speaking) < 2:
            return None
        named = [
            who for who in speaking if (terms := self.name_terms(who, language)) and terms <= asked
        ]
        return named[0] if len(named) == 1 else None

    def _speaking(self) -> list[int]:
        state = (self.turns.places, len(self.turns))
        if self._speakers[0] != state:
            who = self.turns.meta["who"][self.turns.alive]
            counts = np.bincount(who[who >= 0])
            self._speakers = (state, np.flatnonzero(counts).tolist())
        return self._speakers[1]

    def name_terms(self, who: int, language: str) -> frozenset[str]:
        """The terms of a person's name, by its number."""
        key = (who, language)
        if key not in self._name_terms:
            name = self.numbers.names[who]
            self._name_terms[key] = frozenset(query_tokens(name, language))
        return self._name_terms[key]

    def bytes_used(self) -> int:
        links = 300 * len(self.drawn_from) + 300 * len(self.gave)
        seats = sum(4 * len(seats) + 100 for seats in self.seats.values())
        return self.turns.bytes_used() + self.facts.bytes_used() + links + seats
