"""The resident index of one scope: postings, vectors and filter columns, exact and incremental.

It is a cache of DuckDB's rows, loaded when a scope is first searched and kept current after every
commit. Its two segments are raw turns and everything else. Writers hold `lock`, and so do readers
while they follow its lists and maps; columns already taken may be read without it."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path

import numpy as np

from palimpsest.schemas.rows.graph import MentionRow, NameRow, RelationRow
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.stores.database.analysis import query_tokens
from palimpsest.stores.index.fulltext import terms_of
from palimpsest.stores.index.scope_graph import GraphRemoval, ScopeGraph
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import Places, Segment, StringInterner
from palimpsest.stores.index.vector_column import Codes, Vector

DERIVED_FROM = "derived_from"
TURNS, FACTS = 0, 1
"""Numbers of the segments."""
STALE_SHARE = 0.02
"""By how much the number of vectors may change before the lengths of `rest_lengths` are computed
again: they only choose which places are scored exactly."""


class ScopeIndex:
    """Raw turns (`turns`) and everything else (`facts`) of a scope, and how they are related."""

    is_whole = True
    """Whether it has all memories of the scope, and its graph."""

    def __init__(self, dimensions: int, folder: Path | None = None) -> None:
        """`folder` is for the vectors of a large scope (`stores.index.vector_column`)."""
        self.lock = threading.RLock()
        self.numbers = StringInterner()
        self.turns = Segment(dimensions, self.numbers, folder)
        self.facts = Segment(dimensions, self.numbers, folder)
        self.graph = ScopeGraph(self.turns, self.facts, self.lock)
        self.turns_by_session: dict[int, array[int]] = {}
        """Places of a session's turns by position, by the session's number; -1 for a gap."""
        self.derived_from: dict[str, tuple[str, ...]] = {}
        """Ids that a memory was derived from, by its id."""
        self._pairs = np.zeros((16, 2), dtype=np.int32)
        self._pair_count = 0
        self.has_changes = False
        """Whether any memory was ever changed or deleted, has an end, or is to be changed when a
        person says so; once true, it stays."""
        self.changes = 0
        """A number that changes with every change of this index."""
        self.empty_slots: dict[str, int] = {}
        """Positions in their sessions of turns that were deleted before they were ever here."""
        self._rest: dict[int, tuple[int, Vector]] = {}
        self._speakers: tuple[tuple[int, int], list[int]] = ((-1, -1), [])
        self._other_speakers: set[int] = set()
        self._names: tuple[list[int], str, dict[int, list[frozenset[str]]]] = ([], "", {})

    @property
    def segments(self) -> tuple[Segment, Segment]:
        return self.turns, self.facts

    @property
    def pairs(self) -> Places:
        """(m, 2): the places of a turn and of a fact that was derived from it. Either may be
        dead."""
        return self._pairs[: self._pair_count]

    def segment_of(self, memory_type: str) -> Segment:
        return self.turns if memory_type == "episodic" else self.facts

    def search(self, plan: SearchPlan) -> ScopeIndex:
        """Returns an index that has at least what the plan needs."""
        return self

    def including(self, memory_ids: Collection[str]) -> ScopeIndex:
        """Returns an index of the scope that also has these memories, if they exist."""
        return self

    def know_speakers(self, names: Iterable[str]) -> None:
        """Adds names of speakers who have turns, resident or not."""
        self._other_speakers.update(map(self.numbers.of, names))

    def find(self, memory_id: str) -> tuple[Segment, int] | None:
        """Returns where a memory is; None if it is not or no longer here. Under `lock`."""
        for segment in self.segments:
            place = segment.place_of.get(memory_id)
            if place is not None:
                return segment, place
        return None

    def said_at(self, segment: Segment, place: int) -> datetime:
        """When a memory was said, by its speaker's clock: of a fact, that of the turn that said it
        then. Under `lock`."""
        if segment is self.turns:
            return segment.said_at(place)
        at = segment.time(place, "occurred")
        for memory_id in sorted(self.derived_from.get(segment.ids[place], ())):
            turn = self.turns.place_of.get(memory_id)
            if turn is not None and self.turns.time(turn, "occurred") == at:
                return self.turns.said_at(turn)
        return at

    def vectors_of(self, memory_ids: Sequence[str]) -> Vector:
        """(n, d), a row of zeros for what has none."""
        vectors = np.zeros((len(memory_ids), self.turns.vectors.shape[1]), dtype=np.float32)
        with self.lock:
            for row, memory_id in enumerate(memory_ids):
                found = self.find(memory_id)
                if found is not None:
                    vectors[row] = found[0].vectors[found[1]]
        return vectors

    def put_row(self, row: MemoryRow, vector: Vector | None, language: str) -> None:
        """Indexes a memory again, or removes it when it is deleted."""
        self._note_changes(row)
        if not row.is_deleted:
            self.put(row, terms_of(row, language), vector)
            return
        self.remove(row.memory_id)
        # A turn that was deleted before it was ever seen here still has its place in the session,
        # as the edges between turns have it.
        session = self.numbers.of(row.session_id)
        is_known = self.turns.last_place(row.memory_id) is not None
        if row.type == "episodic" and session >= 0 and not is_known:
            with self.lock:
                slots = self.turns_by_session.setdefault(session, array("i"))
                self.empty_slots.setdefault(row.memory_id, len(slots))
                if self.empty_slots[row.memory_id] == len(slots):
                    slots.append(-1)

    def note_changes(self, is_first: bool = True) -> None:
        """Records that a change was made or is pending, or (not `is_first`) was settled."""
        with self.lock:
            self.has_changes |= is_first
            self.changes += 1

    def _note_changes(self, row: MemoryRow) -> None:
        if row.version > 1 or row.is_deleted or row.valid_until is not None:
            self.note_changes()

    def put(self, row: MemoryRow, terms: Mapping[str, int], vector: Vector | None) -> None:
        """What is recovered takes its old place in session and links."""
        with self.lock:
            segment = self.segment_of(row.type)
            before = segment.last_place(row.memory_id)
            other = self.facts if segment is self.turns else self.turns
            other.remove(row.memory_id)
            if segment is self.turns:
                place = self._put_turn(row, terms, vector, before)
            else:
                place = segment.put(row, terms, vector)
            if before is not None:
                column = self.pairs[:, 0 if segment is self.turns else 1]
                column[column == before] = place
            elif row.version > 1:
                # It may have been deleted when this index was loaded, and its links left out.
                links = ((d, source) for d, some in self.derived_from.items() for source in some)
                for derived, source in links:
                    if row.memory_id in (derived, source):
                        self._pair(derived, source)
            self.graph.note_place(row.memory_id)

    def _put_turn(
        self, row: MemoryRow, terms: Mapping[str, int], vector: Vector | None, before: int | None
    ) -> int:
        """Keeps a turn's earlier position in the session; a new turn gets the next one."""
        session = self.numbers.of(row.session_id)
        if session < 0:
            return self.turns.put(row, terms, vector)
        slots = self.turns_by_session.setdefault(session, array("i"))
        empty = self.empty_slots.pop(row.memory_id, None)
        if empty is not None:
            position = empty
        elif before is not None and int(self.turns.meta[before]["session"]) == session:
            position = int(self.turns.meta[before]["position"])
        else:
            position = len(slots)
            slots.append(-1)
        place = self.turns.put(row, terms, vector, position)
        slots[position] = place
        return place

    def update_row(self, row: MemoryRow, vector: Vector | None) -> None:
        """Applies changes to a memory whose text did not change."""
        self._note_changes(row)
        self.weigh(row, vector)

    def weigh(self, row: MemoryRow, vector: Vector | None = None) -> None:
        """Applies accesses and decay: nothing that is cached of a scope depends on them."""
        with self.lock:
            self.segment_of(row.type).update(row, vector)

    def remove(self, memory_id: str) -> None:
        with self.lock:
            for segment in self.segments:
                segment.remove(memory_id)

    def erase(self, memory_ids: Iterable[str]) -> None:
        """Removes memories with their texts and vectors. A repeat changes nothing."""
        with self.lock:
            for memory_id in memory_ids:
                for segment in self.segments:
                    segment.remove(memory_id)
                    segment.erase(memory_id)
            self.note_changes()

    def set_vector(self, memory_id: str, vector: Vector) -> None:
        """The vector of a memory that had none."""
        with self.lock:
            self.turns.set_vector(memory_id, vector)
            self.facts.set_vector(memory_id, vector)
            self._rest.clear()

    def note_passages(self, memory_id: str) -> None:
        """All that a turn says was embedded: its passages are to be read."""
        with self.lock:
            place = self.turns.place_of.get(memory_id)
            if place is not None:
                self.turns.unread.add(place)

    def remove_from_graph(self, removal: GraphRemoval) -> None:
        with self.lock:
            self.graph.remove(removal)
            self.changes += 1

    def link(self, edge: EdgeRow) -> None:
        """Adds an edge, if ranking uses its kind. A repeat changes nothing."""
        if edge.relation_type == DERIVED_FROM:
            with self.lock:
                self.link_ids(edge.source_id, edge.target_id)

    def put_graph_row(self, row: NameRow | RelationRow | MentionRow) -> None:
        """Adds rows for the graph. A repeat changes nothing."""
        with self.lock:
            if isinstance(row, NameRow):
                self.graph.put_name(row)
            elif isinstance(row, RelationRow):
                self.graph.put_relation(row)
            else:
                self.graph.put_mention(row)

    def link_ids(self, derived: str, source: str) -> None:
        sources = self.derived_from.get(derived, ())
        if source in sources:
            return
        self.derived_from[derived] = (*sources, source)
        self._pair(derived, source)

    def _pair(self, derived: str, source: str) -> None:
        """Adds the places of a link's ends, also of a deleted one, which may be recovered."""
        turn, fact = self.turns.last_place(source), self.facts.last_place(derived)
        if turn is None or fact is None:
            return
        if self._pair_count == len(self._pairs):
            grown = np.zeros((2 * len(self._pairs), 2), dtype=np.int32)
            grown[: self._pair_count] = self.pairs
            self._pairs = grown
        self._pairs[self._pair_count] = (turn, fact)
        self._pair_count += 1

    def rest_lengths(self, number: int, off: Vector) -> Vector:
        """Length of every vector of segment `number` less what is nearly `off`."""
        segment = self.segments[number]
        made_at, lengths = self._rest.get(number, (-1, np.zeros(0, dtype=np.float32)))
        count = sum(each.vector_count for each in self.segments)
        if made_at < 0 or abs(count - made_at) > STALE_SHARE * made_at:
            made_at, lengths = count, np.zeros(0, dtype=np.float32)
        if len(lengths) < segment.places or not len(lengths):
            # |x - s m|^2 = |x|^2 - 2 s x.m + s^2 |m|^2, without a second array of vectors.
            codes = segment.codes
            new = Codes(codes.numbers[len(lengths) :], codes.scales[len(lengths) :])
            squares = 1.0 - 2.0 * new.products(off[None, :])[0] + float(off @ off)
            lengths = np.concatenate((lengths, np.sqrt(np.maximum(squares, 1e-6))))
            self._rest[number] = (made_at, lengths)
        return lengths

    def named_speaker(self, query_terms: frozenset[str], language: str) -> int | None:
        """Returns the number of the one speaker of the scope named by these terms; None if there is
        none or several."""
        names = self.speaker_names(language)
        if len(names) < 2:
            return None
        named = [who for who, ways in names.items() if any(terms <= query_terms for terms in ways)]
        return named[0] if len(named) == 1 else None

    def speaker_names(self, language: str) -> dict[int, list[frozenset[str]]]:
        """By a speaker's number, the terms of each name that distinguishes them from the others:
        the whole, and its first word if no other speaker's name has it."""
        state = (self.turns.places, len(self.turns))
        if self._speakers[0] != state:
            numbers = self.turns.meta["who"][self.turns.alive]
            here = np.flatnonzero(np.bincount(numbers[numbers >= 0])).tolist()
            self._speakers = (state, sorted(self._other_speakers.union(here)))
        speaking = self._speakers[1]
        if self._names[:2] != (speaking, language):
            terms = {who: frozenset(query_tokens(self._name(who), language)) for who in speaking}
            often = Counter(chain.from_iterable(terms.values()))
            names = {}
            for who, whole in terms.items():
                first = frozenset(query_tokens(self._name(who).partition(" ")[0], language))
                own = [first] if all(often[term] == 1 for term in first) else []
                names[who] = [each for each in dict.fromkeys((whole, *own)) if each]
            self._names = (speaking, language, names)
        return self._names[2]

    def _name(self, who: int) -> str:
        return self.numbers.names[who]

    def bytes_used(self) -> int:
        links = 250 * len(self.derived_from) + int(self._pairs.nbytes)
        slots = sum(4 * len(slots) + 100 for slots in self.turns_by_session.values())
        segments = self.turns.bytes_used() + self.facts.bytes_used()
        return segments + links + slots + self.graph.bytes_used()
