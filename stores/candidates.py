"""Candidate search for decide and the near-duplicate check of apply-writes.

It sees the committed facts of a scope (the resident index) and, over them, what the running
batch has written or foreseen, as if both were one index: the answer does not depend on where a
batch was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schemas.messages import ScoredCandidate
from schemas.rows import MemoryRow
from stores.fulltext import terms_of
from stores.index_cache import IndexCache
from stores.scope_index import (
    Document,
    Floats,
    Mask,
    Part,
    Vector,
    cosines,
    document_of,
    exact_cosine,
    keyword_scores,
    query_terms,
)
from streams.stage import Candidates, FindCandidates, NearDuplicates

POOL = 20


class SearchOptions(Protocol):
    @property
    def dimensions(self) -> int: ...
    @property
    def language(self) -> str: ...
    @property
    def candidate_alpha(self) -> float: ...
    @property
    def keyword_half(self) -> float: ...
    @property
    def min_score(self) -> float: ...


class SearchShard(Protocol):
    @property
    def indexes(self) -> IndexCache: ...
    @property
    def options(self) -> SearchOptions: ...


@dataclass(slots=True)
class _Overlay:
    """What a batch sees over the committed index: new documents, and ids that these hide."""

    part: Part
    hidden: set[str]


class CandidateSearch:
    """Searches of one batch."""

    def __init__(self, shard: SearchShard) -> None:
        self._shard = shard
        self._overlays: dict[str, _Overlay] = {}

    def show(self, row: MemoryRow, vector: Vector | None) -> None:
        """Let later searches of the batch see a staged row."""
        if row.type == "episodic":
            return
        overlay = self._overlay(row.scope)
        overlay.hidden.add(row.memory_id)
        overlay.part.remove(row.memory_id)
        if not row.is_deleted:
            terms = terms_of(row, self._shard.options.language)
            overlay.part.put(document_of(row, terms, vector))

    def candidates(self, ask: FindCandidates, as_of: int) -> Candidates:
        """Up to `limit` active memories by the blended score, best first, ties by id.

        score = alpha x cosine + (1 - alpha) x s / (s + half), s being BM25 over the scope's
        facts. Both legs score every memory that either of them brought into the pool.
        """
        parts = self._parts(ask.scope)
        masks = [self._visible(ask.scope, number, part) for number, part in enumerate(parts)]
        options = self._shard.options
        keyword = keyword_scores(parts, query_terms(ask.text, options.language), masks)
        vector = cosines(parts, ask.vector) if ask.vector is not None else None
        scored = []
        for number, part in enumerate(parts):
            visible = masks[number]
            if not visible.any():
                continue
            pool = _best(np.where(visible, keyword[number], 0.0), POOL)
            if vector is not None:
                pool |= _best(np.where(visible, vector[number], 0.0), POOL)
            for place in pool:
                document = part.documents[place]
                candidate = _candidate(
                    document, float(keyword[number][place]), ask.vector, part, place, options
                )
                if candidate.score >= options.min_score:
                    scored.append(candidate)
        scored.sort(key=lambda candidate: (-candidate.score, candidate.memory_id))
        return Candidates(tuple(scored[: ask.limit]), as_of)

    def near_duplicates(self, ask: NearDuplicates, as_of: int) -> Candidates:
        """Memories that the decision could not have seen and that nearly say the same."""
        found = []
        for number, part in enumerate(self._parts(ask.scope)):
            visible = self._visible(ask.scope, number, part)
            for place in np.flatnonzero(visible):
                document = part.documents[place]
                unseen = document.write_seq > ask.as_of and not (
                    0 <= document.decision_order < ask.decision_order
                )
                if not unseen:
                    continue
                cosine = (
                    exact_cosine(part.vectors[place], ask.vector)
                    if ask.vector is not None
                    else 0.0
                )
                if cosine >= ask.cosine or document.content_hash == ask.content_hash:
                    found.append(_scored(document, cosine, cosine, None))
        found.sort(key=lambda candidate: (-candidate.score, candidate.memory_id))
        return Candidates(tuple(found), as_of)

    def naming(self, scope: str, name: str) -> set[str] | None:
        """Ids of the scope's committed active memories that have all the terms of a name; None
        where it has none to ask for."""
        index = self._shard.indexes.get(scope)
        terms = query_terms(name, self._shard.options.language)
        if not terms:
            return None
        found: set[str] = set()
        for part in (index.turns, index.facts):
            found |= _with_all_terms(part, terms)
        return found

    def _parts(self, scope: str) -> list[Part]:
        return [self._shard.indexes.get(scope).facts, self._overlay(scope).part]

    def _overlay(self, scope: str) -> _Overlay:
        overlay = self._overlays.get(scope)
        if overlay is None:
            overlay = _Overlay(Part(self._shard.options.dimensions), set())
            self._overlays[scope] = overlay
        return overlay

    def _visible(self, scope: str, number: int, part: Part) -> Mask:
        visible = part.alive.copy()
        if number == 0:
            for memory_id in self._overlay(scope).hidden:
                place = part.place_of.get(memory_id)
                if place is not None:
                    visible[place] = False
        return visible


def _best(scores: Floats, count: int) -> set[int]:
    """Places of the `count` highest positive scores."""
    if len(scores) > count:
        chosen = np.argpartition(-scores, count - 1)[:count]
    else:
        chosen = np.arange(len(scores))
    return {int(place) for place in chosen if scores[place] > 0.0}


def _with_all_terms(part: Part, terms: list[str]) -> set[str]:
    places: set[int] | None = None
    for term in terms:
        pair = part.postings(term)
        if pair is None:
            return set()
        here = {int(place) for place in pair[0] if part.alive[place]}
        places = here if places is None else places & here
    return {part.documents[place].memory_id for place in places or ()}


def _candidate(
    document: Document,
    keyword: float,
    vector: Vector | None,
    part: Part,
    place: int,
    options: SearchOptions,
) -> ScoredCandidate:
    scaled = keyword / (keyword + options.keyword_half)
    if vector is None:
        return _scored(document, scaled, None, scaled)
    cosine = exact_cosine(part.vectors[place], vector)
    alpha = options.candidate_alpha
    score = alpha * max(cosine, 0.0) + (1.0 - alpha) * scaled
    return _scored(document, score, cosine, scaled)


def _scored(
    document: Document, score: float, cosine: float | None, keyword: float | None
) -> ScoredCandidate:
    return ScoredCandidate(
        memory_id=document.memory_id,
        version=document.version,
        type=document.type,
        content=document.content,
        score=round(score, 6),
        cosine=None if cosine is None else round(cosine, 6),
        keyword=None if keyword is None else round(keyword, 6),
    )
