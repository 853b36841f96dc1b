"""Which places of a segment hold a term, and how often."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

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
