"""Finds the memory of a branch that corresponds to one of the live memory.

Memories that do not come from a model's words (turns, remembered texts, chunks) have the same id in
both. A fact of the branch corresponds to the nearest of all live facts of the same turns. The
texts of live facts come from the outcomes in the live log; the facts that the branch extracted
come from its store.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from palimpsest.ops.replay.ledger import MatchedBy
from palimpsest.ops.replay.live_log import LiveLog
from palimpsest.schemas.messages import Outcome
from palimpsest.schemas.normal_forms import content_hash, storage_content
from palimpsest.schemas.redaction import folded, is_mark
from palimpsest.stores.database.derivations import SAID_AGAIN
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.base import Vector

# --- matching -------------------------------------------------------------------------------------
# Finds the facts of two extractions of the same turns that say the same. Pure functions of texts
# and vectors.

LEAST_WORDS: Final = 0.5
"""Minimum share of common words at which two texts without vectors may say the same."""
TIED: Final = 1e-6
"""Scores that differ by less than this are equal: a cosine is not exact."""
_WORD: Final = re.compile(r"\w+")


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
        left, right = self.vectors.get(a), self.vectors.get(b)
        if left is not None and right is not None:
            cosine = min(float(np.dot(left, right)), 1.0)
            return Likeness(cosine, "embedding") if cosine >= self.near else None
        shared = word_overlap(a, b)
        return Likeness(shared, "words") if shared >= LEAST_WORDS else None

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


def word_overlap(a: str, b: str) -> float:
    """Returns the words common to both texts as a share of all their words, 0 if neither text has
    any."""
    left, right = set(_WORD.findall(a.lower())), set(_WORD.findall(b.lower()))
    return len(left & right) / len(left | right) if left or right else 0.0


# --- counterparts ---------------------------------------------------------------------------------

Embedding = Callable[[Sequence[str]], Awaitable[Sequence[Vector | None]]]
"""Returns the vectors of texts, in order; None for a text that the model refuses."""

_DRAWN = f"""
SELECT o.memory_id, f.turn_memory_id, f.content, coalesce(m.is_deleted, true),
    coalesce(m.is_deleted AND m.content_hash = '', true)
FROM fact_rows f
JOIN outcomes o ON o.item_kind = 'fact' AND o.item_id = f.item_id
LEFT JOIN memory_rows m ON m.memory_id = o.memory_id
WHERE o.scope = $scope AND o.event IN {SAID_AGAIN} AND o.memory_id IS NOT NULL AND """
_OF_TURNS = _DRAWN + "f.turn_memory_id IN (SELECT unnest($ids)) ORDER BY ALL"
_OF_MEMORIES = _DRAWN + "o.memory_id IN (SELECT unnest($ids)) ORDER BY ALL"


@dataclass(frozen=True, slots=True)
class Match:
    """A memory of the branch and how it was found."""

    branch_id: str
    by: MatchedBy
    score: float | None


@dataclass(frozen=True, slots=True)
class Fact:
    """A memory that facts led to: the texts of these facts, oldest first, and their turns."""

    texts: tuple[str, ...]
    turns: frozenset[str]
    is_deleted: bool = False
    is_erased: bool = False


@dataclass(frozen=True, slots=True)
class Counterparts:
    """Finds counterparts in one partition of a branch while the branch's stages are idle."""

    live: LiveLog
    shard: Shard
    embed: Embedding
    near: float

    def has_same_id(self, scope: str, memory_id: str, before: int) -> bool:
        """Returns whether the branch has this memory under the same id regardless of the model: it
        does not come from a model's words, or was imported."""
        with self.shard.reading() as reader:
            row = reader.execute(
                "SELECT source_type = 'extraction' AND why = 'extracted-fact' FROM memory_rows"
                " WHERE memory_id = ? AND scope = ?",
                [memory_id, scope],
            ).fetchone()
        if row is None:
            return False
        told = self.live.ledger.told_of_memory(memory_id, before)
        return not row[0] or all(each.turn_id is None for each in told)

    def has(self, scope: str, memory_id: str) -> bool:
        with self.shard.reading() as reader:
            row = reader.execute(
                "SELECT 1 FROM memory_rows WHERE memory_id = ? AND scope = ?", [memory_id, scope]
            ).fetchone()
        return row is not None

    def known(self, memory_id: str, before: int) -> bool:
        """Returns whether the live memory had it before an offset of memory-changes."""
        return bool(self.live.ledger.told_of_memory(memory_id, before))

    async def of_fact(self, scope: str, live_id: str, before: int) -> list[Match]:
        """Returns the facts that the branch extracted from the same turns and that say the same as
        the live one, best first, active before forgotten. If the live text was erased, returns the
        facts that no other live fact accounts for."""
        live = self._live(live_id, before)
        if live is None or not live.turns:
            return self.equal(scope, () if live is None else live.texts)
        if not live.texts:
            return await self.unaccounted(scope, live.turns, before)
        drawn, others = self._compared(scope, live.turns, before)
        others = {**others, live_id: live}
        compared = await self._comparison([*drawn.values(), *others.values()])
        texts = {key: other.texts for key, other in others.items()}
        found = [
            (key, fact, compared.best(fact.texts, live.texts[-1:]) or nearest[live_id])
            for key, fact in drawn.items()
            if live_id in (nearest := compared.nearest(fact.texts, texts))
        ]
        found.sort(key=lambda each: (each[1].is_deleted, -each[2].score, each[0]))
        matches = [Match(key, each.by, round(each.score, 6)) for key, _, each in found]
        return matches or self.equal(scope, live.texts)

    async def unaccounted(self, scope: str, turns: Iterable[str], before: int) -> list[Match]:
        """Returns the active facts that the branch extracted from these turns alone and that no
        live fact of these turns says."""
        wanted = frozenset(turns)
        drawn, others = self._compared(scope, wanted, before)
        alone = {
            key: fact for key, fact in drawn.items() if fact.turns <= wanted and not fact.is_deleted
        }
        compared = await self._comparison([*alone.values(), *others.values()])
        texts = {key: other.texts for key, other in others.items()}
        return [
            Match(key, "erased", None)
            for key, fact in sorted(alone.items())
            if not compared.nearest(fact.texts, texts)
        ]

    async def of_held(self, scope: str, item_id: str, before: int) -> Match | None:
        """Returns the pending change of the branch that corresponds to the live one."""
        told = self.live.ledger.told_of_item(item_id, before)
        turns = sorted({each.turn_id for each in told if each.turn_id is not None})
        texts = [text for each in told for text in self._texts(each.cause, item_id=item_id)]
        with self.shard.reading() as reader:
            rows = reader.execute(
                "SELECT h.item_id, h.content FROM held_proposals h JOIN outcomes o"
                " ON o.item_kind = 'fact' AND o.item_id = h.item_id AND o.event = 'blocked'"
                " WHERE h.scope = ? AND h.turn_memory_id IN (SELECT unnest(?)) ORDER BY 1",
                [scope, turns],
            ).fetchall()
        held = {str(key): (str(content),) for key, content in rows}
        facts = [Fact(tuple(texts), frozenset()), *(Fact(t, frozenset()) for t in held.values())]
        compared = await self._comparison(facts)
        for key, each in sorted(compared.nearest(texts, held).items()):
            return Match(key, each.by, round(each.score, 6))
        return None

    # --- facts of both sides -----------------------------------------------------------------

    def _compared(
        self, scope: str, turns: frozenset[str], before: int
    ) -> tuple[dict[str, Fact], dict[str, Fact]]:
        """Returns the branch's facts of these turns and the live facts of all their turns, by
        id."""
        first = self._rows(_OF_TURNS, scope, turns)
        drawn = _facts(self._rows(_OF_MEMORIES, scope, {row[0] for row in first}))
        everywhere = turns.union(*(fact.turns for fact in drawn.values()))
        named = {
            told.memory_id
            for turn in everywhere
            for told in self.live.ledger.told_of_turn(turn, before)
            if told.event in SAID_AGAIN and told.memory_id is not None
        }
        found = {key: self._live(key, before) for key in sorted(named)}
        return drawn, {key: fact for key, fact in found.items() if fact is not None and fact.texts}

    def _rows(
        self, query: str, scope: str, ids: Iterable[str]
    ) -> list[tuple[str, str, str, bool, bool]]:
        with self.shard.reading() as reader:
            found: list[tuple[str, str, str, bool, bool]] = reader.execute(
                query, {"scope": scope, "ids": sorted(ids)}
            ).fetchall()
        return found

    def _live(self, memory_id: str, before: int) -> Fact | None:
        """Returns None if the live log has no outcome for this memory. Leaves out erased texts."""
        told = self.live.ledger.told_of_memory(memory_id, before)
        if not told:
            return None
        said = [each for each in told if each.event in SAID_AGAIN]
        causes = dict.fromkeys(each.cause for each in said)
        texts = [text for cause in causes for text in self._texts(cause, memory_id=memory_id)]
        turns = frozenset(each.turn_id for each in said if each.turn_id is not None)
        return Fact(tuple(dict.fromkeys(texts)), turns)

    def _texts(self, cause: str | None, **named: str) -> list[str]:
        """Returns the texts of the facts that led to a memory, or the text of the command that
        created it."""
        found = []
        for told in self.live.ledger.told_by(cause) if cause is not None else ():
            for outcome in self.live.outcomes(told):
                if all(getattr(outcome, name) == value for name, value in named.items()):
                    found.append(_text(outcome))
            break  # all outcomes are in one record
        return [text for text in found if text and not is_mark(text)]

    def equal(self, scope: str, texts: Iterable[str]) -> list[Match]:
        """Returns the active memories of the scope whose text equals one of these."""
        hashes = [content_hash(storage_content(text)) for text in texts]
        with self.shard.reading() as reader:
            rows = reader.execute(
                "SELECT memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted"
                " AND type <> 'episodic' AND content_hash IN (SELECT unnest(?)) ORDER BY 1",
                [scope, hashes],
            ).fetchall()
        return [Match(str(key), "equal text", 1.0) for (key,) in rows]

    async def _comparison(self, facts: Iterable[Fact]) -> Comparison:
        texts = list(dict.fromkeys(text for fact in facts for text in fact.texts))
        vectors = await self.embed(texts) if texts else ()
        return Comparison(dict(zip(texts, vectors, strict=True)), self.near)


def _facts(rows: Iterable[tuple[str, str, str, bool, bool]]) -> dict[str, Fact]:
    texts: dict[str, dict[str, None]] = {}
    turns: dict[str, set[str]] = {}
    found: dict[str, tuple[bool, bool]] = {}
    for memory_id, turn, content, is_deleted, is_erased in rows:
        if not is_mark(content):
            texts.setdefault(memory_id, {})[content] = None
        turns.setdefault(memory_id, set()).add(turn)
        found[memory_id] = (is_deleted, is_erased)
    return {
        key: Fact(tuple(texts.get(key, ())), frozenset(turns[key]), *found[key]) for key in found
    }


def _text(outcome: Outcome) -> str | None:
    fact = outcome.metadata.get("fact")
    if isinstance(fact, str):
        return fact
    return outcome.new_content if outcome.event == "created" else None
