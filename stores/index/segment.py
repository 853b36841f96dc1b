"""A segment of a scope's index: documents as columns, with their postings and vectors.

A *place* is the number of a document's row in every column. Replacing or removing a document
leaves its old place dead; dead places are skipped by every search and by the statistics. Columns
only grow at their end and growing replaces them, so arrays that a reader holds stay as they were
up to the places that it knows.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.envelope import local_time
from palimpsest.schemas.memory_texts import OUTLINE_CHARACTERS
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.token_vectors import PASSAGE_TOKENS
from palimpsest.stores.index.vector_column import (
    Codes,
    HalfVectors,
    PassageColumn,
    Vector,
    VectorColumn,
    coded,
)

Places = NDArray[np.int32]
Counts = NDArray[np.uint16]
MAX_COUNT = 65_535


class Postings:
    """Places and counts by term: one loaded block, and later additions.

    The block is one array of places and one of counts, sorted by term, with the terms' starts: 6
    bytes a posting and no object per term but its name. Later additions are in a small growing
    array per term. Nothing is ever removed: readers skip dead places."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._starts: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._places: Places = np.zeros(0, dtype=np.int32)
        self._counts: Counts = np.zeros(0, dtype=np.uint16)
        self._late: dict[str, tuple[array[int], array[int]]] = {}
        self._late_size = 0

    def load(self, terms: Sequence[str], of_term: Places, places: Places, counts: Counts) -> None:
        """Take all postings of a store at once; nothing may have been added before.

        `terms` (t,) are the names, `of_term` (p,) the number of each posting's term, ascending.
        """
        if self._number or self._late:
            raise ValueError("postings can only be loaded into an empty index")
        self._number = {term: number for number, term in enumerate(terms)}
        self._starts = np.searchsorted(of_term, np.arange(len(terms) + 1)).astype(np.int64)
        self._places = places.astype(np.int32, copy=False)
        self._counts = counts.astype(np.uint16, copy=False)

    def add(self, place: int, terms: Mapping[str, int]) -> None:
        for term, count in terms.items():
            pair = self._late.get(term)
            if pair is None:
                pair = self._late[term] = (array("i"), array("H"))
            pair[0].append(place)
            pair[1].append(min(count, MAX_COUNT))
        self._late_size += len(terms)

    def get(self, term: str) -> tuple[Places, Counts] | None:
        """Places and counts of a term in the order in which they were added; None where it never
        occurs. Views of the loaded block where nothing came after it: not to be written to."""
        number = self._number.get(term)
        late = self._late.get(term)
        if number is None:
            return None if late is None else _copied(late)
        here = slice(self._starts[number], self._starts[number + 1])
        block = (self._places[here], self._counts[here])
        if late is None:
            return block
        # A copy: a view would forbid the array to grow while it lives.
        places, counts = _copied(late)
        return np.concatenate((block[0], places)), np.concatenate((block[1], counts))

    def bytes_used(self) -> int:
        """A close estimate of resident bytes."""
        block = self._places.nbytes + self._counts.nbytes + self._starts.nbytes
        return int(block) + 150 * len(self._number) + 400 * len(self._late) + 7 * self._late_size


def _copied(late: tuple[array[int], array[int]]) -> tuple[Places, Counts]:
    return np.array(late[0], dtype=np.int32), np.array(late[1], dtype=np.uint16)


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
META = np.dtype(
    [
        ("write_seq", "i8"),
        ("decision_order", "i8"),
        ("version", "i8"),
        ("digest", "i8"),
        ("text", "i8"),
        ("occurred", "i8"),
        ("created", "i8"),
        ("ends", "i8"),
        ("accesses", "i8"),
        ("accessed", "i8"),
        ("importance", "f8"),
        ("kind", "i4"),
        ("who", "i4"),
        ("role", "i4"),
        ("session", "i4"),
        ("position", "i4"),
        ("zone", "i4"),
        ("project", "i4"),
        ("pinned", "?"),
    ]
)
"""The columns of a place besides its text: `digest` of its content hash, `text` of its
`embedding_key`, times in microseconds since 1970, `kind`, `who`, `role`, `session` and `project`
as numbers of `StringInterner`, -1 for none; `position` in the session; `zone`, the minutes that the
speaker's clock is ahead of UTC."""

NEVER = np.iinfo(np.int64).max
UNIT = float(2**30)
"""Vectors are summed as integers of this fraction: exact, so the mean does not depend on the
order in which memories came and went."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class StringInterner:
    """Names as small numbers, in order of first sight."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []

    def of(self, name: str | None) -> int:
        """The number of a name, a new one for a new name; -1 for none."""
        if not name:
            return -1
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def name(self, number: int) -> str:
        """The name of a number, empty for none."""
        return self.names[number] if number >= 0 else ""


@dataclass(frozen=True, slots=True)
class Block:
    """Many documents at once, as columns of equal length n. `vectors` (n, d) has rows of zeros
    where `has_vector` is false."""

    ids: list[str]
    contents: list[str]
    source_ids: list[str | None]
    meta: NDArray[np.void]
    lengths: Floats
    vectors: HalfVectors
    has_vector: Mask
    tags: list[tuple[str, ...]]
    categories: list[tuple[str, ...]]
    metadata: list[str]


@dataclass(frozen=True, slots=True)
class Beyond:
    """Documents that count in the statistics of a search and are not in a segment: how many, their
    terms in all, and how many of them have a term. (The vectors beyond are in `vector_sum`.)"""

    documents: int = 0
    total_length: float = 0.0
    frequency: Mapping[str, int] = field(default_factory=dict)


class Segment:
    """Documents of one kind. Not for writing by two threads at once."""

    def __init__(
        self, dimensions: int, numbers: StringInterner | None = None, folder: Path | None = None
    ) -> None:
        """`folder` is for the file of vectors, once they are many; without one they stay in
        memory."""
        self.numbers = numbers or StringInterner()
        self.ids: list[str] = []
        self.contents: list[str] = []
        self.source_ids: list[str | None] = []
        self.tags: list[tuple[str, ...]] = []
        self.categories: list[tuple[str, ...]] = []
        self.metadata: list[str] = []
        """JSON objects, one text for all that are the same: most are empty."""
        self.place_of: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        """Where removed documents were, which may be recovered."""
        self.postings = Postings()
        self._meta = np.zeros(16, dtype=META)
        self._alive = np.zeros(16, dtype=np.bool_)
        self._has_vector = np.zeros(16, dtype=np.bool_)
        self._lengths = np.zeros(16, dtype=np.float64)
        self._vectors = VectorColumn(dimensions, folder)
        self._codes = np.zeros((16, dimensions), dtype=np.int8)
        self._code_scales = np.zeros(16, dtype=np.float32)
        self._uncoded: list[int] = []
        self._metadata_bytes = 0
        self.unread: set[int] = set()
        """Places of long texts whose passages were not looked up."""
        self.passages = PassageColumn(dimensions)
        self.total_length = 0.0
        self.newest_write = -1
        """The largest write sequence of any document that ever was here."""
        self.vector_sum = np.zeros(dimensions, dtype=np.int64)
        self.vector_count = 0
        self.beyond = Beyond()

    def __len__(self) -> int:
        return len(self.place_of)

    @property
    def places(self) -> int:
        return len(self.ids)

    @property
    def has_no_tombstones(self) -> bool:
        """Whether no place is dead: masks are then not needed."""
        return len(self.place_of) == len(self.ids)

    @property
    def alive(self) -> Mask:
        return self._alive[: self.places]

    @property
    def has_vector(self) -> Mask:
        return self._has_vector[: self.places]

    @property
    def lengths(self) -> Floats:
        return self._lengths[: self.places]

    @property
    def meta(self) -> NDArray[np.void]:
        """(places,) of `META`."""
        return self._meta[: self.places]

    def name(self, place: int, column: str) -> str:
        """The name of a place's `kind`, `who`, `role`, `session` or `project`; empty for none."""
        return self.numbers.name(int(self._meta[place][column]))

    def time(self, place: int, column: str) -> datetime:
        return from_microseconds(int(self._meta[place][column]))

    def said_at(self, place: int) -> datetime:
        """When a document was said, by the clock of who said it."""
        return local_time(self.time(place, "occurred"), int(self._meta[place]["zone"]))

    @property
    def vectors(self) -> HalfVectors:
        """(places, dimensions); a row of zeros where there is no vector."""
        return self._vectors.rows[: self.places]

    @property
    def codes(self) -> Codes:
        """The vectors in a quarter of their bytes: nearly right, for choosing by. Those of single
        documents are made here, many at once; so not by two threads at once."""
        if self._uncoded:
            some = self._uncoded
            self._codes[some], self._code_scales[some] = coded(self._vectors.rows[some])
            self._uncoded = []
        return Codes(self._codes[: self.places], self._code_scales[: self.places])

    def last_place(self, memory_id: str) -> int | None:
        """Where a document is or, removed, was last."""
        return self.place_of.get(memory_id, self._gone.get(memory_id))

    def bytes_used(self) -> int:
        """A close estimate of resident bytes."""
        columns = self._vectors.resident_bytes + self._codes.nbytes + self._meta.nbytes
        columns += 14 * len(self._alive) + self._metadata_bytes
        columns += self.passages.resident_bytes
        return int(columns) + 550 * self.places + self.postings.bytes_used()

    def put(
        self, row: MemoryRow, terms: Mapping[str, int], vector: Vector | None, position: int = 0
    ) -> int:
        """Adds a document, replacing the one with its id. Returns its place."""
        self.remove(row.memory_id)
        self._gone.pop(row.memory_id, None)
        place = self.places
        self._make_room(1)
        self.ids.append(row.memory_id)
        self.contents.append(row.content)
        if is_long(row.content):
            self.unread.add(place)
        self.source_ids.append(row.source_id)
        self.tags.append(row.tags)
        self.categories.append(row.categories)
        self.metadata.append(sys.intern(row.metadata))
        self._metadata_bytes += len(row.metadata)
        self._meta[place] = meta_of(row, self.numbers, position)
        self.newest_write = max(self.newest_write, row.write_seq)
        self.place_of[row.memory_id] = place
        self._alive[place] = True
        length = sum(terms.values())
        self._lengths[place] = length
        self.total_length += length
        if vector is not None:
            self._set_vector(place, vector)
        self.postings.add(place, terms)
        return place

    def load(self, block: Block) -> None:
        """Add many documents whose ids are new; their postings come apart."""
        first, count = self.places, len(block.ids)
        self._make_room(count)
        here = slice(first, first + count)
        self._meta[here] = block.meta
        self._alive[here] = True
        self._has_vector[here] = block.has_vector
        self._lengths[here] = block.lengths
        self._vectors.write(first, block.vectors)
        self.ids += block.ids
        self.contents += block.contents
        self.unread |= {first + n for n, text in enumerate(block.contents) if is_long(text)}
        self.source_ids += block.source_ids
        self.tags += block.tags
        self.categories += block.categories
        self.metadata += block.metadata
        self._metadata_bytes += sum(map(len, block.metadata))
        self.place_of.update(zip(block.ids, range(first, first + count), strict=True))
        self.total_length += float(block.lengths.sum())
        self.newest_write = max(self.newest_write, int(block.meta["write_seq"].max(initial=-1)))
        self.vector_count += int(block.has_vector.sum())
        for start in range(0, count, 4096):
            some = block.vectors[start : start + 4096]
            at = slice(first + start, first + start + len(some))
            self._codes[at], self._code_scales[at] = coded(some)
            self.vector_sum += whole(some).sum(axis=0)

    def remove(self, memory_id: str) -> bool:
        place = self.place_of.pop(memory_id, None)
        if place is None:
            return False
        self._alive[place] = False
        self._gone[memory_id] = place
        self.unread.discard(place)
        self.passages.remove(place)
        self.total_length -= float(self._lengths[place])
        if self._has_vector[place]:
            self.vector_sum -= whole(self._vectors.rows[place])
            self.vector_count -= 1
        return True

    def erase(self, memory_id: str) -> None:
        """Takes the texts and the vector from where a removed document was last; its place and its
        words stay, as those of any removed one."""
        place = self._gone.get(memory_id)
        if place is None:
            return
        self.contents[place], self.source_ids[place] = "", None
        self.tags[place] = self.categories[place] = ()
        self._metadata_bytes -= len(self.metadata[place])
        self.metadata[place] = ""
        self._vectors.write(place, np.zeros((1, self._codes.shape[1]), dtype=np.float16))
        self._codes[place] = 0

    def update(self, row: MemoryRow, vector: Vector | None) -> None:
        """Applies changes to a document whose text stays the same."""
        place = self.place_of.get(row.memory_id)
        if place is None:
            return
        position = int(self._meta[place]["position"])
        self._meta[place] = meta_of(row, self.numbers, position)
        self.newest_write = max(self.newest_write, row.write_seq)
        self.tags[place] = row.tags
        self.categories[place] = row.categories
        self._metadata_bytes += len(row.metadata) - len(self.metadata[place])
        self.metadata[place] = sys.intern(row.metadata)
        if vector is not None and not self._has_vector[place]:
            self._set_vector(place, vector)

    def set_vector(self, memory_id: str, vector: Vector) -> None:
        """The vector of a document that had none, or not of all of its text."""
        place = self.place_of.get(memory_id)
        if place is None:
            return
        if not self._has_vector[place]:
            self._set_vector(place, vector)
        if is_long(self.contents[place]):
            self.unread.add(place)

    def _set_vector(self, place: int, vector: Vector) -> None:
        self._vectors.write(place, vector[None, :])
        self._uncoded.append(place)
        self._has_vector[place] = True
        self.vector_sum += whole(self._vectors.rows[place])
        self.vector_count += 1

    def _make_room(self, count: int) -> None:
        needed = self.places + count
        size = len(self._alive)
        if needed <= size:
            return
        # By a half: at 100,000 memories doubling would hold 100 MB in reserve.
        size = max(needed, size + size // 2 if size >= 1024 else 2 * size)
        self._vectors.grow(size)
        for name in ("_meta", "_alive", "_has_vector", "_lengths", "_codes", "_code_scales"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), dtype=old.dtype)
            new[: self.places] = old[: self.places]
            setattr(self, name, new)


def is_long(text: str) -> bool:
    """Whether a text may have passages: it may have more tokens than one, up to three a character
    of a syllable that is written as one, or be embedded by its outline."""
    return len(text) > min(PASSAGE_TOKENS // 3, OUTLINE_CHARACTERS)


def meta_of(row: MemoryRow, numbers: StringInterner, position: int) -> tuple[object, ...]:
    """A row as one entry of `META`."""
    return (
        row.write_seq,
        -1 if row.decision_order is None else row.decision_order,
        row.version,
        digest(row.content_hash),
        digest(row.embedding_key),
        microseconds(row.occurred_at),
        microseconds(row.created_at),
        NEVER if row.valid_until is None else microseconds(row.valid_until),
        row.access_count,
        microseconds(row.last_accessed or row.created_at),
        row.importance,
        numbers.of(row.type),
        numbers.of(row.who),
        numbers.of(row.role),
        numbers.of(row.session_id),
        position,
        row.utc_offset_minutes or 0,
        numbers.of(row.project),
        row.pinned,
    )


def digest(content_hash: str) -> int:
    """The first 63 bits of a hash in hex; 0 for what is none."""
    try:
        return int(content_hash[:16], 16) >> 1
    except ValueError:
        return 0


def microseconds(time: datetime) -> int:
    """Since 1970, exactly."""
    return (time - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def mean_vector(segments: Sequence[Segment]) -> tuple[Vector, int]:
    """The mean (d,) of the vectors of some segments, and how many they are; the same whatever the
    order in which they came."""
    count = sum(segment.vector_count for segment in segments)
    total: Integers = np.asarray(sum(segment.vector_sum for segment in segments), dtype=np.int64)
    return mean_of(total, count), count


def mean_of(total: Integers, count: int) -> Vector:
    """The mean (d,) of vectors whose sum, in fractions of `UNIT`, is this."""
    mean: Vector = np.asarray(total / (UNIT * max(count, 1)), dtype=np.float32)
    return mean


def whole(vectors: HalfVectors) -> Integers:
    """Vectors in fractions of `UNIT`."""
    whole: Integers = np.rint(vectors * np.float32(UNIT)).astype(np.int64)
    return whole
