"""Who a person is: facts by aspect that every context contains, for any question; and the
constraints of whatever the question names.

Read through a reader's cursor: living memories of one scope that still hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import duckdb

from palimpsest.schemas.rows.memories import SOURCE_LIST
from palimpsest.stores.database.graph_views import WEIGHT
from palimpsest.stores.recall.context import Piece, Profile
from palimpsest.stores.recall.context_lines import owner_of
from palimpsest.stores.recall.filters import VisibilityMask
from palimpsest.stores.recall.marks import Marks
from palimpsest.stores.recall.persons import holders_of, persons_in
from palimpsest.stores.recall.query import in_words

ESSENTIAL: Final = ("rule", "health", "diet")
"""Facts whose absence would do harm."""
IDENTITY: Final = ("name", "home", "work")
"""One line of each of these says who the person is."""
ASPECTS: Final = (
    *ESSENTIAL,
    *IDENTITY,
    *("family", "people", "pets", "plans", "preferences", "languages"),
    *("education", "hobbies", "possessions"),
)
"""In the order in which they are shown."""
_NAMES: Final = {
    "rule": "rules constraint constraints restriction restrictions instruction instructions",
    "health": "allergy allergies medical medicine medication condition illness disability",
    "diet": "dietary food nutrition",
    "name": "identity names age birthday personal",
    "home": "location residence address place origin housing",
    "work": "job occupation career profession employment employer business",
    "family": "relationship relationships marriage children partner",
    "people": "person friends friend colleagues contacts social",
    "pets": "pet animals animal",
    "plans": "plan goal goals project projects decision intention",
    "preferences": "preference likes like dislikes favourite favourites favorite favorites taste",
    "languages": "language",
    "education": "study studies school degree learning",
    "hobbies": "hobby interest interests sport sports activities",
    "possessions": "possession belongings vehicle car property",
}
ASPECT_OF: Final = {word: name for name, words in _NAMES.items() for word in (name, *words.split())}
"""The aspect that a category of a memory belongs to."""
_BY_TYPE: Final = {"rule": "rule", "preference": "preferences", "decision": "plans"}
"""The aspect of a memory without a category that has one, by its type."""
MAX_ROWS: Final = 500
"""Maximum number of memories read: pinned ones first, then the surest and newest."""
MAX_OF_ASPECT: Final = 4
"""Maximum number of memories of an aspect."""
MAX_PREFERENCES: Final = 60
"""Maximum number of preferences of a question that asks for them."""
_ASKS_FOR_PREFERENCES: Final = re.compile(
    r"\b(?:what (?:[\w'’-]+ ){0,5}?(?:do|does|did|would|is|are)(?:n['’]?t)? (?:(?!(?:was|is|be"
    r"|been|it|feels?|looks?|sounds?|tastes?|smells?|seems?) like\b)[\w'’-]+ ){1,6}?"
    r"(?:like|love|enjoy|prefer|hate|dislike|interested in|fond of|into)"
    r"(?: (?:doing|eating|drinking|watching|playing|reading|listening to|most|the most))*+"
    r"(?:\W*$|\W* (?:besides|other than|apart from|in general)\b)"
    r"|hobb(?:y|ies)\b|interests\b|pastimes?\b|(?:free|spare) time\b|likes and dislikes\b)",
    re.IGNORECASE,
)
"""What somebody likes: not one thing that they like, as their favourite, nor why."""
MAX_QUESTION: Final = 4_000
"""Characters of a question in which persons are looked for."""
_WORD: Final = re.compile(r"[^\W_]+")
_DENIALS: Final = frozenset({"not", "no", "never", "t", "longer", "stopped", "without", "nicht"})
"""Words, and parts of words, that negate a sentence."""

_SPEAKERS: Final = """
SELECT who FROM memory_rows
WHERE scope = $scope AND type = 'episodic' AND NOT is_deleted AND who <> ''
    AND role IN ('', 'user')
GROUP BY who ORDER BY count(*) DESC, who LIMIT 100"""

_FACTS: Final = f"""
SELECT memory_id, content, type, categories, who, pinned, occurred_at FROM memory_rows r
WHERE scope = $scope AND NOT is_deleted AND type NOT IN {SOURCE_LIST}
    AND (pinned OR type IN ('rule', 'preference', 'decision')
        OR list_has_any(categories, $categories))
    AND (valid_until IS NULL OR valid_until > $now)
    AND NOT EXISTS (SELECT 1 FROM memory_edges e WHERE e.scope = $scope
        AND e.relation_type = 'supersedes' AND e.target_id = r.memory_id)
ORDER BY pinned DESC, confidence DESC, CASE WHEN occurred_at > created_at + INTERVAL 2 DAY
    THEN created_at ELSE occurred_at END DESC, memory_id LIMIT $limit"""
"""A memory dated long after it was recorded has a wrong date, and is not new."""
_SAID_BY: Final = """
SELECT DISTINCT e.source_id, t.who
FROM memory_edges e JOIN memory_rows t ON t.memory_id = e.target_id
WHERE e.scope = $scope AND e.relation_type = 'derived_from'
    AND e.source_id IN (SELECT unnest($ids)) AND t.type = 'episodic' AND t.role IN ('', 'user')"""
_CONSTRAINTS: Final = f"""
SELECT r.memory_id, r.content, r.who, r.occurred_at
FROM attribute_rows t JOIN aspect_rows a ON a.aspect_id = t.aspect_id
    JOIN name_rows n ON n.name_id = a.name_id JOIN memory_rows r ON r.memory_id = t.memory_id
    LEFT JOIN aspect_weights w ON w.aspect_id = a.aspect_id
WHERE t.scope = $scope AND t.kind = 'constraint' AND t.status = 'active'
    AND (t.text_key IS NULL OR t.text_key = r.embedding_key)
    AND n.entity_id IN (SELECT unnest($entities))
    AND NOT r.is_deleted AND r.type NOT IN {SOURCE_LIST}
    AND (r.valid_until IS NULL OR r.valid_until > $now)
    AND NOT EXISTS (SELECT 1 FROM memory_edges e WHERE e.scope = $scope
        AND e.relation_type = 'supersedes' AND e.target_id = r.memory_id)
GROUP BY r.memory_id, r.content, r.who, r.occurred_at, r.importance, r.pinned
ORDER BY bool_or(t.text_key IS NULL) DESC, greatest(r.importance, r.pinned::DOUBLE) DESC,
    max({WEIGHT}) DESC, r.occurred_at DESC, r.memory_id
LIMIT $limit"""
MAX_CONSTRAINTS: Final = 50
"""Maximum number of constraints that a context may have."""


@dataclass(frozen=True, slots=True)
class _Fact:
    piece: Piece
    aspect: str
    who: str
    pinned: bool


@dataclass(frozen=True, slots=True)
class StandingProfile:
    """Reads what a question may show of its scope, as it holds `now`."""

    reader: duckdb.DuckDBPyConnection
    allowed: VisibilityMask
    now: datetime
    marks_of: Callable[[Set[str]], Marks]

    def of(self, entities: Sequence[str]) -> Profile:
        """Returns the profile of the persons whom the question names, else of the only speaker,
        with the constraints of the `entities` (ids) that it names."""
        constraints: list[Piece] = []
        if entities:
            given = {"entities": [*entities], "now": self.now, "limit": MAX_CONSTRAINTS}
            rules = (
                _Fact(Piece(key, text, at, owner_of(who, text)), "rule", who, False)
                for key, text, who, at in self._rows(_CONSTRAINTS, **given)
            )
            constraints = self._noted(self._visible(rules))
        speakers = [who for (who,) in self._rows(_SPEAKERS)]
        persons = persons_in(self.allowed.query.query[:MAX_QUESTION], speakers)
        if not persons and len(speakers) > 1:
            return Profile(constraints=constraints)
        rows = self._rows(_FACTS, categories=list(ASPECT_OF), now=self.now, limit=MAX_ROWS)
        facts: list[_Fact] = []
        for memory_id, content, kind, categories, who, pinned, at in rows:
            known = [ASPECT_OF[each.lower()] for each in categories if each.lower() in ASPECT_OF]
            assumed = _BY_TYPE.get(kind, "rule" if pinned else None)
            aspect = min(known, key=ASPECTS.index, default=assumed)
            if aspect is not None:
                piece = Piece(memory_id, content, at, owner_of(who, content))
                facts.append(_Fact(piece, aspect, who, pinned))
        about = self._visible(self._about(facts, persons or speakers, speakers))
        chosen = _chosen(about)
        first = {fact.aspect: fact for fact in reversed(chosen) if fact.aspect in IDENTITY}
        profile: tuple[list[Piece], list[Piece], list[Piece]] = ([], [], [])
        for fact, piece in zip(chosen, self._noted(chosen), strict=True):
            is_essential = fact.pinned or fact.aspect in ESSENTIAL
            part = 0 if is_essential else 2 if fact is first.get(fact.aspect) else 1
            profile[part].append(piece)
        preferences: dict[str, list[Piece]] = {}  # by the name with which a statement begins
        if _ASKS_FOR_PREFERENCES.search(self.allowed.query.query[:MAX_QUESTION]):
            wanted = [fact for fact in about if fact.aspect in ("preferences", "hobbies")]
            names = [*sorted(speakers, key=len, reverse=True), "The user"]
            for piece in self._noted(wanted[:MAX_PREFERENCES]):
                name = next((name for name in names if piece.text.startswith(f"{name} ")), "")
                preferences.setdefault(name, []).append(piece)
        return Profile(*profile, constraints, [*preferences.items()])

    def _about(
        self, facts: Sequence[_Fact], persons: Sequence[str], speakers: Sequence[str]
    ) -> list[_Fact]:
        """The facts about the persons: statements of others are about others. Of several who share
        the name with which a fact begins, it is about those from whose turns it was drawn."""
        if len(speakers) < 2:
            return [*facts]
        holders = {fact.piece.id: holders_of(fact.piece.text, speakers) for fact in facts}
        shared = [key for key, found in holders.items() if len(found) > 1]
        said = set(self._rows(_SAID_BY, ids=shared)) if shared else set()
        for key in shared:
            holders[key] = {who for who in holders[key] if (key, who) in said}
        return [f for f in facts if f.who in persons or not holders[f.piece.id].isdisjoint(persons)]

    def _rows(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        return self.reader.execute(query, {"scope": self.allowed.query.scope, **values}).fetchall()

    def _visible(self, facts: Iterable[_Fact]) -> list[_Fact]:
        facts = list(facts)
        visible = self.allowed.among(fact.piece.id for fact in facts)
        return [fact for fact in facts if fact.piece.id in visible]

    def _noted(self, facts: Sequence[_Fact]) -> list[Piece]:
        """The facts as pieces, with what no longer holds of them."""
        marks = self.marks_of({fact.piece.id for fact in facts})
        return [replace(fact.piece, note=in_words(marks.get(fact.piece.id, ()))) for fact in facts]


def _words(name: str) -> list[str]:
    return _WORD.findall(name.casefold())


def _chosen(facts: Sequence[_Fact]) -> list[_Fact]:
    """The first of every aspect, then the second of every aspect, and so on; pinned ones first."""
    of_aspect: dict[str, list[_Fact]] = {}
    for fact in facts:
        taken = of_aspect.setdefault(fact.aspect, [])
        if not fact.pinned and any(_says_all_of(other, fact) for other in taken):
            continue
        less = next(
            (n for n, o in enumerate(taken) if not o.pinned and _says_all_of(fact, o)), None
        )
        if less is not None:
            taken[less] = fact
        elif len(taken) < MAX_OF_ASPECT or fact.pinned:
            taken.append(fact)
    placed = [
        (not fact.pinned, place, ASPECTS.index(aspect), fact)
        for aspect, taken in of_aspect.items()
        for place, fact in enumerate(taken)
    ]
    placed.sort(key=lambda each: each[:3])
    return [fact for *_, fact in placed]


def _says_all_of(one: _Fact, other: _Fact) -> bool:
    """Whether the words of the other one are all in this, and it does not deny them."""
    words, others = set(_words(one.piece.text)), set(_words(other.piece.text))
    return others <= words and not (words - others) & _DENIALS
