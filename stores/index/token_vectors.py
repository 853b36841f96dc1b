"""Token vectors in 66 bytes each, and the similarity of a question to many memories by them.

A memory has one vector for each of its tokens, and so has a question. The similarity of the two
is, for each of the question's tokens, that of the nearest token of the memory, and of these the
mean (MaxSim: Khattab and Zaharia, "ColBERT", 2020). A long memory is compared by passages, of which
the nearest counts: in ten thousand words there is something near to any token. Vectors are kept as
their first 128 principal directions, not centred, 4 bits each: as good as all 384 numbers.

Everything that decides an order is computed in whole numbers or number by number, so a memory has
the same similarity whatever stands alongside it, today and after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from typing import Final

import numpy as np
import simsimd
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEVELS: Final = 16
BEST_STEP: Final = 0.3352
"""Of a standard deviation, for 16 equal steps: Max, "Quantizing for Minimum Distortion" (1960)."""
PASSAGE_TOKENS: Final = 1_024
"""Of a passage, the last one of a text excepted: some 750 words."""
PROMISING: Final = 4
"""Passages of a longer text that are compared with all of a long question."""
MOST_COMPARED: Final = PROMISING * PASSAGE_TOKENS
SHORT_QUESTION: Final = 32
"""Tokens of a question that is compared with all of any text."""
SAMPLED: Final = 16
"""Tokens of a longer question by which the promising passages are told."""
GROUP_TOKENS: Final = 16_384
"""Of texts that are compared at a time: with a question of a whole window, some 50 MB."""
WINDOW_TOKENS: Final = 256
"""That the embedding model reads at a time, with a mark as the first and as the last of them."""
TURN_WINDOW_TOKENS: Final = 128
"""Of the passages of an assistant's turn, by whose means it becomes a candidate."""
SENTENCE_TOKENS: Final = 32
"""Two of these, one after the other, are compared as a passage of an assistant's turn."""
MOST_BEFORE: Final = 64
"""Tokens of a text's day and speaker."""
_LENGTH: Final = np.dtype("<f2")
_LARGEST: Final = 127
_SMALLEST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """A question's tokens in whole numbers: a token's product with the levels of a vector, times
    its `scales` and plus its `offsets`, is nearly its product with the vector."""

    numbers: NDArray[np.int8]
    scales: Vectors
    offsets: Vectors

    def __len__(self) -> int:
        return len(self.numbers)

    def sampled(self) -> QueryTokens:
        """SAMPLED of a long question's tokens, from its beginning to its end."""
        some = np.linspace(0, len(self) - 1, SAMPLED).astype(np.int64)
        return QueryTokens(self.numbers[some], self.scales[some], self.offsets[some])


@dataclass(frozen=True, slots=True)
class TokenCodec:
    """`basis` (d, k) of orthonormal columns, k even; level n of a direction stands for
    `low + n x step`, both (k,).

    Vectors are brought to unit length within the basis, and again by their length after rounding,
    which is kept alongside the levels: without both, R@1 is .02 less.
    """

    basis: Vectors
    low: Vectors
    step: Vectors

    @property
    def token_bytes(self) -> int:
        return self._level_bytes + _LENGTH.itemsize

    @property
    def _level_bytes(self) -> int:
        return int(self.basis.shape[1]) // 2

    def pack(self, tokens: Vectors) -> bytes:
        """Unit vectors (n, d) as n x `token_bytes` bytes: the levels of all, then the lengths."""
        levels = np.rint((self._projected(tokens) - self.low) / self.step)
        whole = np.clip(levels, 0, LEVELS - 1).astype(np.uint8)
        lengths = np.linalg.norm(self.low + whole * self.step, axis=1).astype(_LENGTH)
        half = self._level_bytes
        nibbles: NDArray[np.uint8] = whole[:, :half] | (whole[:, half:] << 4)
        return bytes(nibbles.tobytes() + lengths.tobytes())

    def unpack(self, packed: bytes) -> Vectors:
        """The unit vectors (n, d) that packed bytes stand for. Raises ValueError for cut bytes."""
        _, levels, lengths = self._read([packed])
        vectors = (self.low + levels * self.step) / lengths[:, None]
        return (vectors @ self.basis.T).astype(np.float32)

    def window_means(self, packed: bytes, window: int) -> Vectors:
        """The directions (n, d), unit vectors, of the means of `window` tokens each. Raises
        ValueError for cut bytes."""
        _, levels, lengths = self._read([packed])
        vectors = (self.low + levels * self.step) / lengths[:, None]
        sums = np.add.reduceat(vectors, np.arange(0, len(vectors), window), axis=0)
        return _unit((sums @ self.basis.T).astype(np.float32))

    def query(self, tokens: Vectors) -> QueryTokens:
        """A question's unit vectors (n, d), made ready."""
        projected = self._projected(tokens)
        weighed = projected * self.step
        scales = np.maximum(np.abs(weighed).max(axis=1, initial=0.0), _SMALLEST) / _LARGEST
        numbers = np.rint(weighed / scales[:, None]).astype(np.int8)
        offsets = (projected * self.low).sum(axis=1)
        return QueryTokens(numbers, scales.astype(np.float32), offsets.astype(np.float32))

    def similarities(
        self,
        query: QueryTokens,
        packed: Sequence[bytes],
        nearby: Sequence[tuple[Integers, float]] = (),
    ) -> Floats:
        """MaxSim (n,) of a question and memories, each by its nearest passage, -1..1 but for
        rounding; NaN where either has no token. Raises ValueError for cut bytes.

        Each of `nearby` has, for every memory, the place among `packed` (n,) of a turn near it in
        its session, -1 for none, and the share at which the words of that turn count as the
        memory's own, so an answer need not repeat its question.
        """
        found = np.full(len(packed), np.nan)
        some = np.flatnonzero(self._sizes(packed))
        if not len(some) or not len(query):
            return found
        best = np.empty((len(query), len(some)), dtype=np.float32)
        for group, sizes, nearness in self._nearness_by_group(
            query, [packed[n] for n in some.tolist()]
        ):
            best[:, group] = _of_nearest_passages(nearness, sizes)
        raised = best.copy() if nearby else best
        for places, share in nearby:
            column = np.full(len(places) + 1, -1)
            column[some] = np.arange(len(some))
            other = column[places[some]]
            has = other >= 0
            raised[:, has] = np.maximum(raised[:, has], np.float32(share) * best[:, other[has]])
        found[some] = _sums(raised) / len(query)
        return found

    def nearest_passages(self, query: QueryTokens, packed: Sequence[bytes]) -> Floats:
        """MaxSim (n,) of a question and the nearest passage of each memory, of `SENTENCE_TOKENS`
        twice: as long as a person's turn. NaN and errors as of `similarities`."""
        found = np.full(len(packed), np.nan)
        some = np.flatnonzero(self._sizes(packed))
        if not len(some) or not len(query):
            return found
        for group, sizes, nearness in self._nearness_by_group(
            query, [packed[n] for n in some.tolist()]
        ):
            starts, owners = _starts(sizes, SENTENCE_TOKENS)
            best = np.maximum.reduceat(nearness, starts, axis=1)
            both = best.copy()
            follows = np.flatnonzero(owners[1:] == owners[:-1])
            both[:, follows] = np.maximum(best[:, follows], best[:, follows + 1])
            first = np.flatnonzero(np.diff(owners, prepend=-1))
            found[some[group]] = np.maximum.reduceat(_sums(both), first) / len(query)
        return found

    def nearest_sentence(
        self, query: QueryTokens, packed: bytes, sizes: Sequence[int]
    ) -> int | None:
        """Returns the number of the sentence of a text with the largest MaxSim. The text ends with
        sentences of these numbers of tokens, after its day and speaker; None if it has other
        tokens. Raises ValueError for cut bytes."""
        _, levels, lengths = self._read([packed])
        places = np.arange(len(levels))
        within = places % WINDOW_TOKENS
        marks = (within == 0) | (within == WINDOW_TOKENS - 1) | (places == len(levels) - 1)
        own = places[~marks]
        counts = np.array(sizes, dtype=np.int64)
        some = np.flatnonzero(counts)
        before = len(own) - int(counts.sum())
        if not len(some) or not len(query) or not 0 <= before <= MOST_BEFORE:
            return None
        own = own[before:]
        counts = counts[some]
        nearness = _nearness(query, levels[own], lengths[own])
        best = np.maximum.reduceat(nearness, np.cumsum(counts) - counts, axis=1)
        return int(some[_sums(best).argmax()])

    def _projected(self, tokens: Vectors) -> Vectors:
        """Vectors (n, d) within the basis (n, k), at unit length. Not by `@`, for which numpy wakes
        a thread a processor unless its program forbids that: they wait for each other several
        times as long as this takes (on two busy processors 8 ms of both, where this takes 0.2)."""
        if not len(tokens):
            return tokens[:, : self.basis.shape[1]]
        basis = np.ascontiguousarray(self.basis.T)
        products = simsimd.cdist(np.ascontiguousarray(tokens), basis, "dot", threads=1)
        return _unit(np.asarray(products).astype(np.float32))

    def _nearness_by_group(
        self, query: QueryTokens, packed: Sequence[bytes]
    ) -> Iterator[tuple[slice, Integers, Vectors]]:
        """The products of a question's tokens and those of texts, of some texts at a time: their
        places, how many tokens each has, and the products (m, n). Of a text of many passages it has
        the most promising where the question is long, too: all of both would be gigabytes, and
        seconds for everyone who asks."""
        for group in _groups(self._sizes(packed).tolist()):
            sizes, levels, lengths = self._read(packed[group])
            if len(levels) > MOST_COMPARED and len(sizes) == 1 and len(query) > SHORT_QUESTION:
                chosen = _promising(_nearness(query.sampled(), levels, lengths))
                sizes, levels, lengths = np.array([len(chosen)]), levels[chosen], lengths[chosen]
            yield group, sizes, _nearness(query, levels, lengths)

    def _sizes(self, packed: Sequence[bytes]) -> Integers:
        lengths_in_bytes = np.array([len(one) for one in packed], dtype=np.int64)
        sizes, rest = np.divmod(lengths_in_bytes, self.token_bytes)
        if rest.any():
            raise ValueError(f"packed token vectors are not whole tokens of {self.token_bytes}")
        return sizes

    def _read(self, packed: Sequence[bytes]) -> tuple[Integers, NDArray[np.int8], Vectors]:
        """How many tokens each has, and of all tokens, in order, levels (n, k) and lengths (n,)."""
        sizes = self._sizes(packed)
        half = self._level_bytes
        ends = (sizes * half).tolist()
        pairs = b"".join(one[:end] for one, end in zip(packed, ends, strict=True))
        lengths = b"".join(one[end:] for one, end in zip(packed, ends, strict=True))
        both = np.frombuffer(pairs, dtype=np.uint8).reshape(-1, half)
        levels = np.empty((len(both), 2 * half), dtype=np.int8)
        np.bitwise_and(both, LEVELS - 1, out=levels[:, :half], casting="unsafe")
        np.right_shift(both, 4, out=levels[:, half:], casting="unsafe")
        return sizes, levels, np.frombuffer(lengths, dtype=_LENGTH).astype(np.float32)


def _nearness(query: QueryTokens, levels: NDArray[np.int8], lengths: Vectors) -> Vectors:
    """The products (m, n) of a question's tokens and these (n, k) and (n,)."""
    products = np.asarray(simsimd.cdist(query.numbers, levels, "dot", threads=1))
    nearness = products.astype(np.float32)
    nearness *= query.scales[:, None]
    nearness += query.offsets[:, None]
    nearness /= lengths
    return nearness


def _groups(sizes: Sequence[int]) -> Iterator[slice]:
    """Texts of these sizes that are compared at a time: of GROUP_TOKENS together, and alone what
    has more than MOST_COMPARED, so that its similarity never depends on its neighbours."""
    start = tokens = 0
    for place, size in enumerate(sizes):
        is_apart = max(sizes[max(place - 1, 0) : place + 1]) > MOST_COMPARED
        if place > start and (is_apart or tokens + size > GROUP_TOKENS):
            yield slice(start, place)
            start, tokens = place, 0
        tokens += size
    if sizes:
        yield slice(start, len(sizes))


def _promising(nearness: Vectors) -> Integers:
    """The places of the tokens, in order, of the PROMISING passages of a text of `n` tokens that
    are nearest by some of a question's tokens (m, n)."""
    count = nearness.shape[1]
    starts = np.arange(0, count, PASSAGE_TOKENS)
    sums = _sums(np.maximum.reduceat(nearness, starts, axis=1))
    nearest = np.sort(np.argsort(-sums, kind="stable")[:PROMISING])
    places = starts[nearest, None] + np.arange(PASSAGE_TOKENS)
    chosen: Integers = places[places < count]
    return chosen


def _of_nearest_passages(nearness: Vectors, sizes: Integers) -> Vectors:
    """From the nearness (tokens of the question, tokens of all memories) that of the nearest token
    in the nearest passage of each memory (tokens of the question, memories)."""
    starts, owners = _starts(sizes, PASSAGE_TOKENS)
    counts = np.bincount(owners)
    places = np.cumsum(counts) - counts
    best = np.maximum.reduceat(nearness, starts, axis=1)
    if len(starts) == len(sizes):
        return best
    sums = _sums(best)
    chosen = places.copy()
    for memory in np.flatnonzero(counts > 1).tolist():
        chosen[memory] += int(sums[places[memory] : places[memory] + counts[memory]].argmax())
    return best[:, chosen]


def _starts(sizes: Integers, tokens: int) -> tuple[Integers, Integers]:
    """Where the passages of so many tokens begin of texts of these sizes, one after the other; and
    the number of the text that each is of."""
    counts = -(-sizes // tokens)
    owners = np.repeat(np.arange(len(sizes)), counts)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.cumsum(sizes) - sizes, counts) + tokens * numbers, owners


def _sums(rows: Vectors) -> Floats:
    """The sums (n,) of columns (m, n), row by row: a sum along an axis may differ with how many
    columns there are."""
    total = np.zeros(rows.shape[1])
    for row in rows:
        total += row
    return total


def learned(tokens: Vectors, directions: int) -> TokenCodec:
    """A codec for tokens like these (n, d): the first principal directions of them, not centred,
    and levels that leave the least error for a normal distribution in each."""
    _, vectors = np.linalg.eigh((tokens.T @ tokens).astype(np.float64))
    basis = vectors[:, ::-1][:, :directions].astype(np.float32)
    projected = _unit(tokens @ basis)
    step = (BEST_STEP * projected.std(axis=0)).astype(np.float32)
    low = (projected.mean(axis=0) - step * (LEVELS - 1) / 2).astype(np.float32)
    return TokenCodec(basis, low, step)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, _SMALLEST)
    return unit


def keeps_tokens(model: str) -> bool:
    """Whether memories have token vectors by this model."""
    return token_codec(model) is not None


@cache
def token_codec(model: str) -> TokenCodec | None:
    """The codec that comes with the program for a model's tokens; None where there is none."""
    found = files(__package__) / "data" / f"{model}.tokens.npz"
    if not found.is_file():
        return None
    with as_file(found) as path, np.load(path) as kept:
        basis, low, step = (kept[name].astype(np.float32) for name in ("basis", "low", "step"))
    return TokenCodec(basis, low, step)
