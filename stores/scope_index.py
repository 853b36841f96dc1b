"""The resident index of one scope: postings and vectors as arrays, exact and incremental.

It is a cache of DuckDB's rows (`fts_postings`, `embeddings`), loaded when a scope is first
searched and kept current after every commit. An index has *parts* (raw turns, all else, and
what a batch has decided but not yet written); a search runs over any of them together, with
statistics over just those, so what a search sees does not depend on how its documents are split
into parts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schemas.rows import MemoryRow
from stores.analysis import tokens
from stores.fulltext import terms_of

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Vector = NDArray[np.float32]

K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class Document:
    """What the index keeps of a memory. `decision_order` is -1 where no decision wrote it."""

    memory_id: str
    terms: Mapping[str, int]
    length: int
    vector: Vector | None
    version: int = 1
    type: str = "fact"
    content: str = ""
    content_hash: str = ""
    write_seq: int = 0
    decision_order: int = -1


class Part:
    """Documents with their postings and vectors. Replacing or removing one leaves its old place
    dead; dead places are skipped by every search and by the statistics."""

    def __init__(self, dimensions: int) -> None:
        self.documents: list[Document] = []
        self.place_of: dict[str, int] = {}
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        self._alive = np.zeros(16, dtype=bool)
        self._lengths = np.zeros(16, dtype=np.float64)
        self._vectors = np.zeros((16, dimensions), dtype=np.float32)
        self.total_length = 0

    def __len__(self) -> int:
        return len(self.place_of)

    @property
    def places(self) -> int:
        return len(self.documents)

    @property
    def alive(self) -> NDArray[np.bool_]:
        return self._alive[: self.places]

    @property
    def lengths(self) -> Floats:
        return self._lengths[: self.places]

    @property
    def vectors(self) -> NDArray[np.float32]:
        """(places, dimensions); a row of zeros where there is no vector."""
        return self._vectors[: self.places]

    def bytes_used(self) -> int:
        """A close estimate of resident bytes: vectors, postings and per-document overhead."""
        postings = sum(8 * len(pair[0]) + 200 for pair in self._postings.values())
        return int(self._vectors.nbytes) + postings + 600 * self.places

    def put(self, document: Document) -> None:
        """Add a document, replacing the one with its id."""
        self.remove(document.memory_id)
        place = self.places
        if place == len(self._alive):
            self._grow()
        self.documents.append(document)
        self.place_of[document.memory_id] = place
        self._alive[place] = True
        self._lengths[place] = document.length
        if document.vector is not None:
            self._vectors[place] = document.vector
        self.total_length += document.length
        for term, count in document.terms.items():
            pair = self._postings.get(term)
            if pair is None:
                pair = self._postings[term] = (array("i"), array("i"))
            pair[0].append(place)
            pair[1].append(count)

    def remove(self, memory_id: str) -> bool:
        place = self.place_of.pop(memory_id, None)
        if place is None:
            return False
        self._alive[place] = False
        self.total_length -= self.documents[place].length
        return True

    def update(self, row: MemoryRow, vector: Vector | None) -> None:
        """Note version and write sequence of a document whose text stays as it is."""
        place = self.place_of.get(row.memory_id)
        if place is None:
            return
        self.documents[place] = replace(
            self.documents[place],
            version=row.version,
            type=row.type,
            write_seq=row.write_seq,
            decision_order=_order(row),
        )
        if vector is not None:
            self._vectors[place] = vector

    def set_vector(self, memory_id: str, vector: Vector) -> None:
        place = self.place_of.get(memory_id)
        if place is not None:
            self._vectors[place] = vector

    def postings(self, term: str) -> tuple[NDArray[np.int32], NDArray[np.int32]] | None:
        """Places and counts of a term, dead places included; None where it never occurs.

        The arrays are copies: a view would forbid the postings to grow while it lives.
        """
        pair = self._postings.get(term)
        if pair is None:
            return None
        return np.array(pair[0], dtype=np.int32), np.array(pair[1], dtype=np.int32)

    def _grow(self) -> None:
        size = 2 * len(self._alive)
        self._alive = np.resize(self._alive, size)
        self._lengths = np.resize(self._lengths, size)
        vectors = np.zeros((size, self._vectors.shape[1]), dtype=np.float32)
        vectors[: len(self._vectors)] = self._vectors
        self._vectors = vectors


def keyword_scores(
    parts: Sequence[Part], terms: Iterable[str], masks: Sequence[Mask] | None = None
) -> list[Floats]:
    """BM25 (k1 1.2, b 0.75) of every place of every part, 0 where no term occurs.

    Only the places of `masks` count, also for the statistics (default: the living ones). idf is
    ln(1 + (N - df + 0.5) / (df + 0.5)): Robertson and Zaragoza, "The Probabilistic Relevance
    Framework: BM25 and Beyond" (2009), with the 1 added so that it is never negative.
    """
    scores = [np.zeros(part.places) for part in parts]
    if masks is None:
        masks = [part.alive for part in parts]
    count = sum(int(mask.sum()) for mask in masks)
    if not count:
        return scores
    lengths = sum(
        float(part.lengths[mask].sum()) for part, mask in zip(parts, masks, strict=True)
    )
    average = max(lengths / count, 1.0)
    for term in sorted(set(terms)):
        found = []
        df = 0
        for number, part in enumerate(parts):
            pair = part.postings(term)
            if pair is None:
                continue
            counted = masks[number][pair[0]]
            places, counts = pair[0][counted], pair[1][counted]
            df += len(places)
            found.append((number, places, counts))
        if not df:
            continue
        idf = math.log(1.0 + (count - df + 0.5) / (df + 0.5))
        for number, places, counts in found:
            norm = K1 * (1.0 - B + B * parts[number].lengths[places] / average)
            scores[number][places] += idf * counts * (K1 + 1.0) / (counts + norm)
    return scores


def cosines(parts: Sequence[Part], vector: Vector) -> list[Floats]:
    """Cosine of a unit query vector to every place; 0 where a place has no vector."""
    return [(part.vectors @ vector).astype(np.float64) for part in parts]


def exact_cosine(a: Vector, b: Vector) -> float:
    """Cosine of two unit vectors in double precision: the same whatever batch it is part of."""
    return float(np.dot(a.astype(np.float64), b.astype(np.float64)))


class ScopeIndex:
    """The parts of one scope: raw turns (`turns`) and everything else (`facts`)."""

    def __init__(self, dimensions: int) -> None:
        self.turns = Part(dimensions)
        self.facts = Part(dimensions)

    def part_of(self, memory_type: str) -> Part:
        return self.turns if memory_type == "episodic" else self.facts

    def put(self, document: Document) -> None:
        other = self.facts if document.type == "episodic" else self.turns
        other.remove(document.memory_id)
        self.part_of(document.type).put(document)

    def put_row(self, row: MemoryRow, vector: Vector | None, language: str) -> None:
        """Index a memory anew, or drop it when it is deleted."""
        if row.is_deleted:
            self.remove(row.memory_id)
        else:
            self.put(document_of(row, terms_of(row, language), vector))

    def update_row(self, row: MemoryRow, vector: Vector | None) -> None:
        """Note what changed of a memory whose text did not."""
        self.part_of(row.type).update(row, vector)

    def remove(self, memory_id: str) -> None:
        self.turns.remove(memory_id)
        self.facts.remove(memory_id)

    def bytes_used(self) -> int:
        return self.turns.bytes_used() + self.facts.bytes_used()


def query_terms(text: str, language: str) -> list[str]:
    """The distinct terms of a query, in a fixed order."""
    return sorted(set(tokens(text, language)))


def document_of(row: MemoryRow, terms: Mapping[str, int], vector: Vector | None) -> Document:
    """The index entry of a row. A turn's content is not kept: it is read when it is shown."""
    return Document(
        memory_id=row.memory_id,
        terms=terms,
        length=sum(terms.values()),
        vector=vector,
        version=row.version,
        type=row.type,
        content="" if row.type == "episodic" else row.content,
        content_hash=row.content_hash,
        write_seq=row.write_seq,
        decision_order=_order(row),
    )


def _order(row: MemoryRow) -> int:
    return -1 if row.decision_order is None else row.decision_order
