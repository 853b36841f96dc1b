"""Finds the facts of two extractions that say the same, and the memory of a branch that corresponds
to one of the live memory.

Memories that do not come from a model's words (turns, remembered texts, chunks) have the same id in
both. A fact of the branch corresponds to the nearest of all live facts of the same turns. The
texts of live facts come from the outcomes in the live log; the facts that the branch extracted
come from its store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from palimpsest.ops.replay.live_log import LiveLog
from palimpsest.ops.replay.requests import MatchedBy
from palimpsest.schemas.erasure.quotations import is_mark
from palimpsest.schemas.normal_forms import content_hash, folded, storage_content
from palimpsest.stores.database.derivations import SAID_AGAIN, says_it
from palimpsest.stores.shard import Shard
from palimpsest.streams.claims.contradiction import NEGATIONS, tokens, words_oppose
from palimpsest.streams.models.base import Vector

# --- matching -------------------------------------------------------------------------------------
# Pure functions of texts and vectors. Facts with equal content are the same fact. Others say the
# same, in other words, if they come from the same turn, neither denies the other, and their vectors
# or words are near enough. A comparison of memories pairs them one to one; for a person's command,
# all nearest facts count.

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
TIED: Final = 1e-6
"""Scores that differ by less than this are equal: a cosine is not exact."""

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


@dataclass(frozen=True, slots=True, order=True)
class Likeness:
    """The similarity of two texts, from 0 to 1, and the method that measured it."""

    score: float
    by: MatchedBy


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares texts. `vectors` holds the vector of each text for which a model returned one; two
    texts with a cosine below `near` are unrelated."""

    vectors: Mapping[str, Vector | None]
    near: float

    def of(self, a: str, b: str) -> Likeness | None:
        """Returns None for texts that do not say the same."""
        if folded(a) == folded(b):
            return Likeness(1.0, "equal text")
        if denies(a, b):
            return None
        left, right = self.vectors.get(a), self.vectors.get(b)
        if left is not None and right is not None:
            cosine = min(float(np.dot(left, right)), 1.0)
            return Likeness(cosine, "embedding") if cosine >= self.near else None
        shared = shared_words(a, b)
        return Likeness(shared, "words") if shared >= NEAR_WORDS else None

    def best(self, some: Iterable[str], others: Iterable[str]) -> Likeness | None:
        """Returns the likeness of the nearest pair, None if no pair says the same."""
        theirs = tuple(others)
        found = (self.of(a, b) for a in some for b in theirs)
        return max((each for each in found if each is not None), default=None)

    def nearest(
        self, texts: Iterable[str], among: Mapping[str, tuple[str, ...]]
    ) -> dict[str, Likeness]:
        """Returns the candidates whose texts are nearest to these, by id: several if they are
        equally near, none if nothing says the same."""
        mine = tuple(texts)
        found = {key: self.best(mine, other) for key, other in among.items()}
        known = {key: each for key, each in found.items() if each is not None}
        top = max((each.score for each in known.values()), default=0.0)
        return {key: each for key, each in known.items() if each.score >= top - TIED}


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


# --- pairs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComparedFact:
    """A fact to pair: `digest` is equal for equal content, `sources` are what the fact was
    extracted from. `is_earlier`: it says what the memory said before, and has no vector."""

    memory_id: str
    content: str
    digest: str
    sources: tuple[str, ...]
    is_earlier: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A fact of the live memory with one of the branch; `similarity` is 1.0 for equal content."""

    live: str
    branch: str
    similarity: float


Scores = Mapping[tuple[str, str], float]
"""The similarity of facts that may be pairs, by their ids: live (or forgotten), then branch."""


@dataclass(slots=True)
class Pairs:
    """`paired` by the live memory's id; `repeated` are facts of the branch that say what one of the
    `ended` facts (the pair's `live`) said, by the branch's id."""

    ended: frozenset[str] = frozenset()
    paired: dict[str, Pair] = field(default_factory=dict)
    repeated: dict[str, Pair] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def take(self, scores: Scores) -> None:
        """Pairs the nearest facts first, each once; any number may repeat an ended fact."""
        for (one, other), score in sorted(scores.items(), key=lambda each: (-each[1], each[0])):
            if other in self.taken or one in self.paired:
                continue
            self.taken.add(other)
            if one in self.ended:
                self.repeated[other] = Pair(one, other, score)
            else:
                self.paired[one] = Pair(one, other, score)

    def take_equal(self, live: Iterable[ComparedFact], branch: Iterable[ComparedFact]) -> None:
        """Pairs facts with equal content, whatever their sources: a scope has only one such fact on
        each side."""
        known = {each.digest: each.memory_id for each in branch}
        self.take({(e.memory_id, known[e.digest]): 1.0 for e in live if e.digest in known})

    def take_same_id(self, live: Iterable[str], branch: Iterable[str], score: float) -> None:
        """Pairs the remaining facts that share an id: the same fact in two states."""
        self.take({(known, known): score for known in {*live} & {*branch}})


def may_be_pairs(
    live: Iterable[ComparedFact], branch: Iterable[ComparedFact]
) -> Iterator[tuple[ComparedFact, ComparedFact]]:
    """Yields pairs of facts that share a source, each once, in order."""
    by_source: dict[str, list[ComparedFact]] = defaultdict(list)
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
            yield statement, other


def scored(compared: Comparison, some: Iterable[tuple[ComparedFact, ComparedFact]]) -> Scores:
    """Returns the similarity of those of the pairs that say the same."""
    scores: dict[tuple[str, str], float] = {}
    for one, other in some:
        found = compared.of(one.content, other.content)
        score = 1.0 if one.digest == other.digest else found.score if found else 0.0
        key = (one.memory_id, other.memory_id)
        if score > scores.get(key, 0.0):
            scores[key] = score
    return scores


# --- counterparts ---------------------------------------------------------------------------------

Embedding = Callable[[Sequence[str]], Awaitable[Sequence[Vector | None]]]
"""Returns the vectors of texts, in order; None for a text that the model refuses."""

_DRAWN = f"""
SELECT o.memory_id, f.turn_memory_id, f.content, coalesce(m.is_deleted, true)
FROM fact_rows f
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id
LEFT JOIN memory_rows m ON m.memory_id = o.memory_id
WHERE o.scope = $scope AND {says_it("m.content = f.content")} AND o.memory_id IS NOT NULL AND """
_OF_TURNS = _DRAWN + "f.turn_memory_id IN (SELECT unnest($ids)) ORDER BY ALL"
_OF_MEMORIES = _DRAWN + "o.memory_id IN (SELECT unnest($ids)) ORDER BY ALL"


class Match(NamedTuple):
    """A memory of the branch and how it was found."""

    branch_id: str
    by: MatchedBy
    score: float | None


@dataclass(frozen=True, slots=True)
class DerivedMemory:
    """A memory that facts led to: the texts of these facts, oldest first, and their turns."""

    texts: tuple[str, ...]
    turns: frozenset[str]
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Counterparts:
    """Finds counterparts in one partition of a branch while the branch's stages are idle: of what
    the live memory knew in a `scope` `before` an offset of memory-changes."""

    live: LiveLog
    shard: Shard
    embed: Embedding
    near: float
    scope: str = ""
    before: int = 0

    def has_same_id(self, memory_id: str) -> bool:
        """Returns whether the branch has this memory under the same id regardless of the model: it
        does not come from a model's words, or was imported."""
        rows = self.shard.fetch(
            "SELECT source_type = 'extraction' AND why = 'extracted-fact' FROM memory_rows"
            " WHERE memory_id = ? AND scope = ?",
            [memory_id, self.scope],
        )
        if not rows:
            return False
        told = self.live.ledger.outcomes(self.before, memory_id=memory_id)
        return not rows[0][0] or all(each.turn_id is None for each in told)

    async def of_fact(self, live_id: str) -> list[Match]:
        """Returns the facts that the branch extracted from the same turns and that say the same as
        the live one, best first, active before forgotten. If the live text was erased, returns the
        facts that no other live fact accounts for."""
        live = self._live(live_id)
        if live is None or not live.turns:
            return self.equal(() if live is None else live.texts)
        if not live.texts:
            return await self.unaccounted(live.turns)
        compared, drawn = await self._claimed(live.turns, {live_id: live})
        found = [
            (key, fact, compared.best(fact.texts, live.texts[-1:]) or nearest[live_id])
            for key, (fact, nearest) in drawn.items()
            if live_id in nearest
        ]
        found.sort(key=lambda each: (each[1].is_deleted, -each[2].score, each[0]))
        matches = [Match(key, each.by, round(each.score, 6)) for key, _, each in found]
        return matches or self.equal(live.texts)

    async def unaccounted(self, turns: Iterable[str]) -> list[Match]:
        """Returns the active facts that the branch extracted from these turns alone and that no
        live fact of these turns says."""
        wanted = frozenset(turns)
        _, drawn = await self._claimed(wanted, {})
        return [
            Match(key, "erased", None)
            for key, (fact, nearest) in sorted(drawn.items())
            if fact.turns <= wanted and not fact.is_deleted and not nearest
        ]

    async def of_held(self, item_id: str) -> Match | None:
        """Returns the pending change of the branch that corresponds to the live one."""
        told = self.live.ledger.outcomes(self.before, item_id=item_id)
        turns = sorted({each.turn_id for each in told if each.turn_id is not None})
        texts = [text for each in told for text in self._texts(each.cause, item_id=item_id)]
        rows = self.shard.fetch(
            "SELECT h.item_id, h.content FROM held_proposals h JOIN outcomes o"
            " ON o.item_kind = 'fact' AND o.item_id = h.item_id AND o.event = 'blocked'"
            " WHERE h.scope = ? AND h.turn_memory_id IN (SELECT unnest(?)) ORDER BY 1",
            [self.scope, turns],
        )
        held = {str(key): (str(content),) for key, content in rows}
        facts = [
            DerivedMemory(tuple(texts), frozenset()),
            *(DerivedMemory(t, frozenset()) for t in held.values()),
        ]
        compared = await self._comparison(facts)
        for key, each in sorted(compared.nearest(texts, held).items()):
            return Match(key, each.by, round(each.score, 6))
        return None

    # --- facts of both sides -----------------------------------------------------------------

    async def _claimed(
        self, turns: frozenset[str], also: Mapping[str, DerivedMemory]
    ) -> tuple[Comparison, dict[str, tuple[DerivedMemory, dict[str, Likeness]]]]:
        """Returns the branch's facts of these turns by id, each with those that are nearest to it
        of the live facts of all its turns, and of `also`."""
        first = self.shard.fetch(_OF_TURNS, {"scope": self.scope, "ids": sorted(turns)})
        ids = sorted({row[0] for row in first})
        rows = self.shard.fetch(_OF_MEMORIES, {"scope": self.scope, "ids": ids})
        drawn: dict[str, DerivedMemory] = {}
        for key, some in groupby(rows, itemgetter(0)):  # which they are ordered by
            of_memory = [*some]
            drawn[key] = DerivedMemory(
                texts=tuple(dict.fromkeys(row[2] for row in of_memory if not is_mark(row[2]))),
                turns=frozenset(row[1] for row in of_memory),
                is_deleted=of_memory[0][3],
            )
        everywhere = turns.union(*(fact.turns for fact in drawn.values()))
        named = {
            told.memory_id
            for turn in everywhere
            for told in self.live.ledger.outcomes(self.before, turn_id=turn)
            if told.event in SAID_AGAIN and told.memory_id is not None
        }
        found = {key: self._live(key) for key in sorted(named)}
        live = {key: fact for key, fact in found.items() if fact is not None and fact.texts}
        live |= also
        compared = await self._comparison([*drawn.values(), *live.values()])
        texts = {key: fact.texts for key, fact in live.items()}
        claimed = {key: (fact, compared.nearest(fact.texts, texts)) for key, fact in drawn.items()}
        return compared, claimed

    def _live(self, memory_id: str) -> DerivedMemory | None:
        """Returns None if the live log has no outcome for this memory. Leaves out erased texts."""
        told = self.live.ledger.outcomes(self.before, memory_id=memory_id)
        if not told:
            return None
        said = [each for each in told if each.event in SAID_AGAIN]
        causes = dict.fromkeys(each.cause for each in said)
        texts = [text for cause in causes for text in self._texts(cause, memory_id=memory_id)]
        turns = frozenset(each.turn_id for each in said if each.turn_id is not None)
        return DerivedMemory(tuple(dict.fromkeys(texts)), turns)

    def _texts(self, cause: str | None, **named: str) -> list[str]:
        """Returns the texts of the facts that led to a memory, or the text of the command that
        created it."""
        found = []
        for told in self.live.ledger.outcomes(cause=cause) if cause is not None else ():
            for outcome in self.live.outcomes(told):
                if all(getattr(outcome, name) == value for name, value in named.items()):
                    fact = outcome.metadata.get("fact")
                    created = outcome.new_content if outcome.event == "created" else None
                    found.append(fact if isinstance(fact, str) else created)
            break  # all outcomes are in one record
        return [text for text in found if text and not is_mark(text)]

    def equal(self, texts: Iterable[str]) -> list[Match]:
        """Returns the active memories of the scope whose text equals one of these."""
        hashes = [content_hash(storage_content(text)) for text in texts]
        rows = self.shard.fetch(
            "SELECT memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted"
            " AND type <> 'episodic' AND content_hash IN (SELECT unnest(?)) ORDER BY 1",
            [self.scope, hashes],
        )
        return [Match(str(key), "equal text", 1.0) for (key,) in rows]

    async def _comparison(self, facts: Iterable[DerivedMemory]) -> Comparison:
        texts = list(dict.fromkeys(text for fact in facts for text in fact.texts))
        vectors = await self.embed(texts) if texts else ()
        return Comparison(dict(zip(texts, vectors, strict=True)), self.near)
