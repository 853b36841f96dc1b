"""The vectors of a segment: in memory while they are few, beyond that in an unnamed file.

Choosing by whole numbers (`Codes`) reads every vector's codes; the vectors themselves
are asked for a few hundred at a time, as half floats: embedding models are less exact than that.
So they need not be resident: the file is mapped, the
system's page cache keeps what is used and may drop it, and nothing of it outlives the process.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import simsimd
from numpy.typing import NDArray

Vector = NDArray[np.float32]
HalfVectors = NDArray[np.float16]

MAPPED_FROM = 8_192
"""Rows, 6 MB of 384 dimensions: below this a file of its own costs more than it saves."""


WORTH_ALL_CORES = 200_000
"""Products: so many take a millisecond."""
CACHED_ROWS = 2_048
"""So many rows of codes (0.8 MB of 384 dimensions) stay near the processor for the next query."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Vectors as whole numbers: `numbers` (n, d) times `scales` (n,) are nearly the vectors."""

    numbers: NDArray[np.int8]
    scales: NDArray[np.float32]

    def products(self, queries: Vector) -> Vector:
        """Dot products (m, n) with vectors (m, d), wrong by some thousandths for unit vectors.

        Whole numbers add up to the same whatever the order, so these are the same every time,
        and the same for a query whichever others stand alongside it. Reading the vectors is what
        takes the time: this reads a quarter of them, once for all queries.
        """
        products = np.zeros((len(queries), len(self.numbers)), dtype=np.float32)
        numbers, scales = coded(queries)
        threads = 0 if products.size >= WORTH_ALL_CORES else 1
        for start in range(0, len(self.numbers), CACHED_ROWS):
            rows = slice(start, start + CACHED_ROWS)
            products[:, rows] = simsimd.cdist(numbers, self.numbers[rows], "dot", threads=threads)
        products *= self.scales
        products *= scales[:, None]
        return products


def coded(vectors: Vector | HalfVectors) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors (d,) or (n, d) as `Codes` has them: each with its largest number as 127."""
    largest = np.abs(vectors).max(axis=-1).astype(np.float32)
    scales = np.asarray(largest / np.float32(127.0), dtype=np.float32)
    divisors = np.where(scales > 0.0, scales, np.float32(1.0))
    numbers = np.rint(vectors / divisors[..., None]).astype(np.int8)
    return numbers, scales


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages of texts: of the text at `places[n]` those from `starts[n]` on."""

    places: NDArray[np.int64]
    starts: NDArray[np.int64]
    codes: Codes

    def __len__(self) -> int:
        return len(self.places)


class PassageColumn:
    """The passages of those places of a segment that have any. Not for writing by two threads at
    once."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._of: dict[int, Codes] = {}
        self._all: Passages | None = None

    def __len__(self) -> int:
        """How many passages there are."""
        return sum(len(each.numbers) for each in self._of.values())

    @property
    def resident_bytes(self) -> int:
        return (self._dimensions + 4) * len(self)

    def put(self, place: int, vectors: HalfVectors) -> None:
        """The passages (n, d) of a place, at least one."""
        self._of[place] = Codes(*coded(vectors))
        self._all = None

    def remove(self, place: int) -> None:
        if self._of.pop(place, None) is not None:
            self._all = None

    def all(self) -> Passages:
        if self._all is None:
            held = [Codes(*coded(np.zeros((0, self._dimensions), np.float16))), *self._of.values()]
            numbers = np.concatenate([each.numbers for each in held])
            scales = np.concatenate([each.scales for each in held])
            ends = np.cumsum([len(each.numbers) for each in held], dtype=np.int64)
            self._all = Passages(
                np.array([*self._of], dtype=np.int64), ends[:-1], Codes(numbers, scales)
            )
            # Views of these, so that nothing is held twice.
            for place, start, end in zip([*self._of], ends, ends[1:], strict=False):
                self._of[place] = Codes(numbers[start:end], scales[start:end])
        return self._all


class VectorColumn:
    """Rows (n, d) that are added at the end or replaced. Arrays that were taken before it grew
    stay readable. Not for writing by two threads at once."""

    def __init__(self, dimensions: int, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self.rows: HalfVectors = np.zeros((16, dimensions), dtype=np.float16)

    @property
    def resident_bytes(self) -> int:
        return 0 if self._file is not None else int(self.rows.nbytes)

    def grow(self, size: int) -> None:
        """Have room for `size` rows; new ones are zeros."""
        if self._folder is None or size < MAPPED_FROM:
            self._keep_in_memory(size)
            return
        file, before = self._file, self.rows
        try:
            if file is None:
                file = tempfile.TemporaryFile(dir=self._folder, prefix="vectors-")  # noqa: SIM115
                _write(file, 0, before)
            length = size * before.shape[1] * before.itemsize
            file.truncate(length)
            with contextlib.suppress(AttributeError):
                os.posix_fallocate(file.fileno(), 0, length)
            pages = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
            with contextlib.suppress(AttributeError):
                # A few hundred rows from anywhere: what stands alongside them is of no use.
                pages.madvise(mmap.MADV_RANDOM)
            self._file = file
            self.rows = np.frombuffer(pages, dtype=np.float16).reshape(size, before.shape[1])
        except OSError:
            self._give_up_file(size)

    def write(self, first: int, vectors: Vector | HalfVectors) -> None:
        """Set rows `first` and on to `vectors` (n, d)."""
        if self._file is not None:
            try:
                _write(self._file, self.rows.itemsize * self.rows.shape[1] * first, vectors)
                return
            except OSError:
                self._give_up_file(len(self.rows))
        self.rows[first : first + len(vectors)] = vectors

    def _keep_in_memory(self, size: int) -> None:
        rows = np.zeros((size, self.rows.shape[1]), dtype=np.float16)
        rows[: len(self.rows)] = self.rows
        self.rows = rows

    def _give_up_file(self, size: int) -> None:
        """A full disk must not stop the search: memory it is, from now on."""
        self._folder = self._file = None
        self._keep_in_memory(size)


def _write(file: IO[bytes], at: int, vectors: Vector | HalfVectors) -> None:
    # Not through the map: on a full disk that would kill the process instead of raising.
    file.seek(at)
    file.write(np.ascontiguousarray(vectors, dtype=np.float16).data)
    file.flush()
