"""Pairs the facts of two memories that have the same or the nearest content. Pure.

Two facts with equal content are the same fact. Otherwise they are a pair if they come from the same
turn, are near enough, and neither denies the other: one fact in other words.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from palimpsest.streams.text.contradiction import NEGATIONS, tokens, words_oppose

NEAR_COSINES: Final[Mapping[str, float]] = {
    "multilingual-e5-small": 0.92,
    "answerai-colbert-small": 0.93,
    "hashing": 0.40,
}
"""Minimum cosine at which two facts of one turn are the same in other words, by prefix of the
model's name: models differ in how close they put any two texts. `ops/docs/promotion.md` reports
the measurements."""
NEAR_COSINE: Final = 0.70
"""The same for models that were not measured."""
NEAR_WORDS: Final = 0.40
"""The same for the share of common words, where a text has no vector."""

_NEGATIONS: Final = NEGATIONS | frozenset(
    # de, nl, da, sv, fr, es, it, pt, pl, ru
    "nicht kein keine keinen keiner keinem keines nie niemals nichts niemand ohne niet geen nooit"
    " ikke aldrig inte inga ingen jamais pas aucun aucune rien nunca nada jamás sin non mai senza"
    " não nunca sem nie nigdy bez не нет никогда ни без нельзя".split()
)
_JAPANESE: Final = re.compile(r"(?:ない|なかった|ません|なく|ぬ)(?:です|でした)?[。.!！\s]*$")
_CHINESE: Final = re.compile(r"[不没沒]")
_KANA: Final = re.compile(r"[\u3040-\u30ff]")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\u0e00-\u0e7f]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact to pair: `digest` is equal for equal content, `sources` are what the fact was
    extracted from."""

    memory_id: str
    content: str
    digest: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A fact of the live memory with one of the branch; `similarity` is 1.0 for equal content."""

    live: str
    branch: str
    similarity: float


@dataclass(slots=True)
class Pairs:
    """`paired` by the live memory's id; `forgotten` are facts of the branch that say what a
    forgotten fact (the pair's `live`) said, by the branch's id."""

    paired: dict[str, Pair] = field(default_factory=dict)
    forgotten: dict[str, Pair] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def join(self, pair: Pair) -> None:
        self.paired[pair.live] = pair
        self.taken.add(pair.branch)


Scores = Mapping[tuple[str, str], float]
"""The similarity of facts that may be pairs, by their ids: live (or forgotten), then branch."""


def near_cosine(model: str) -> float:
    """Returns the minimum cosine for an embedding model."""
    bars = (bar for name, bar in NEAR_COSINES.items() if model.startswith(name))
    return next(bars, NEAR_COSINE)


def denies(a: str, b: str) -> bool:
    """Returns whether only one of the texts is negated, or they contain opposites. Compares words,
    so that texts that differ in this are never paired, however similar."""
    return negates(a) != negates(b) or words_oppose(a, b)


def negates(text: str) -> bool:
    """Returns whether a text has a word of negation in one of the supported languages."""
    if _KANA.search(text):
        return _JAPANESE.search(text) is not None
    return not _NEGATIONS.isdisjoint(tokens(text)) or _CHINESE.search(text) is not None


def shared_words(a: str, b: str) -> float:
    """Returns the share of common words, from 0 to 1; for scripts without spaces, of pairs of
    characters."""
    left, right = _words(a), _words(b)
    if not left or not right:
        return 0.0
    return 2 * len(left & right) / (len(left) + len(right))


def _words(text: str) -> set[str]:
    words = {word for word in tokens(text) if not _UNSPACED.search(word)}
    for run in _UNSPACED.findall(text):
        words |= {run[place : place + 2] for place in range(max(1, len(run) - 1))}
    return words


def same(live: Sequence[Statement], branch: Sequence[Statement]) -> Pairs:
    """Pairs facts with equal content, whatever their sources: a scope has only one such fact on
    each side."""
    pairs = Pairs()
    by_digest = {statement.digest: statement.memory_id for statement in branch}
    for statement in live:
        found = by_digest.get(statement.digest)
        if found is not None:
            pairs.join(Pair(statement.memory_id, found, 1.0))
    return pairs


def pair_by_id(pairs: Pairs, live: Sequence[Statement], branch: Sequence[Statement]) -> None:
    """Pairs the remaining facts that share an id: the same fact in two states. An id depends on the
    position in a reply, so pairing by similarity comes first."""
    ids = {statement.memory_id for statement in branch}
    for statement in live:
        known = statement.memory_id
        if known in ids and known not in pairs.paired and known not in pairs.taken:
            pairs.join(Pair(known, known, 0.0))


def may_be_pairs(
    live: Iterable[Statement], branch: Iterable[Statement]
) -> Iterator[tuple[Statement, Statement]]:
    """Yields pairs of facts that share a source and do not deny each other, each once, in order."""
    by_source: dict[str, list[Statement]] = defaultdict(list)
    for statement in branch:
        for source in statement.sources:
            by_source[source].append(statement)
    for statement in live:
        beside = {
            other.memory_id: other
            for source in statement.sources
            for other in by_source.get(source, ())
        }
        for _, other in sorted(beside.items()):
            if statement.digest == other.digest or not denies(statement.content, other.content):
                yield statement, other


def pair_nearest(pairs: Pairs, scores: Scores, forgotten: frozenset[str]) -> None:
    """Pairs the nearest facts first, each once; any number may repeat a forgotten fact."""
    for (one, other), score in sorted(scores.items(), key=lambda each: (-each[1], each[0])):
        if other in pairs.taken or one in pairs.paired:
            continue
        if one in forgotten:
            pairs.forgotten[other] = Pair(one, other, score)
            pairs.taken.add(other)
        else:
            pairs.join(Pair(one, other, score))
