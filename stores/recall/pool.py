"""The pool of memories that a query considers: the hits of both legs and the memories around them.

The pool does not depend on how many results are requested, up to its size, so the first ten are the
same whether ten or fifty are. All of it passes the query's filters (`stores.recall.filters`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from palimpsest.schemas.echoes import spoken
from palimpsest.schemas.memory_texts import EMBEDDED_WHOLE
from palimpsest.stores.database.analysis import asks, only_asks
from palimpsest.stores.index.passages import turn_text
from palimpsest.stores.index.scope_index import FACTS, TURNS, ScopeIndex
from palimpsest.stores.index.scoring import (
    CenteredQuery,
    best_of_legs,
    best_of_segments,
    keyword_sums,
    row_products,
)
from palimpsest.stores.index.search_plan import SearchPlan
from palimpsest.stores.index.segment import Floats, Integers, Mask, Segment, mean_vector
from palimpsest.stores.index.vector_column import Codes, Passages, Vector
from palimpsest.stores.ranking import DEFAULTS, RankingParameters, keyword_coverage
from palimpsest.stores.recall.filters import VisibilityMask, in_sql
from palimpsest.stores.recall.intent import asks_when
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.ranking_steps import Ranking
from palimpsest.stores.recall.time_words import tells_time
from palimpsest.stores.recall.token_leg import TokenLeg
from palimpsest.stores.settings import RecallSettings

Scalar = TypeVar("Scalar", bound=np.generic)


def search_plan(
    query: Query,
    terms: Sequence[str],
    vector: Vector | None,
    ids: Collection[str],
    settings: RecallSettings,
    parameters: RankingParameters = DEFAULTS,
) -> SearchPlan:
    """What the pool of a query needs of a scope; `ids` are in it, too, if they pass."""
    passes, values = in_sql(query)
    return SearchPlan(
        query.scope,
        terms=terms,
        vector=vector,
        ranking=parameters,
        count=max(settings.pool, query.limit),
        ids=ids,
        # The words of turns near the furthest ones count as theirs.
        reach=parameters.reach + parameters.context_reach + query.neighbours,
        passes=passes,
        values=values,
    )


class PoolSearch:
    """One search of one index."""

    def __init__(
        self,
        index: ScopeIndex,
        query: Query,
        plan: SearchPlan,
        language: str,
        settings: RecallSettings,
        tokens: TokenLeg | None = None,
    ) -> None:
        """`plan` is that of the query. With `tokens` the pool is scored by token vectors; vectors
        only select it."""
        self._index = index
        self._query = query
        self._plan = plan
        self._settings = settings
        self._parameters = plan.ranking
        self._language = language
        self._tokens = tokens
        self._centred: CenteredQuery | None = None
        self._near: list[Vector] = []
        self._outlined: Vector | None = None
        """Of the turns, how near the nearest passage is of those that no person said."""
        with index.lock:
            mean, count = mean_vector(index.segments)
            if plan.vector is None or not count:
                return
            self._centred = CenteredQuery.of(plan.vector, mean, count, plan.ranking)
            codes = [segment.codes for segment in index.segments]
            passages = [segment.passages.all() for segment in index.segments]
            whole = [index.numbers.of(role) for role in EMBEDDED_WHOLE]
            is_outlined = ~np.isin(index.turns.meta["role"], whole)
            rest = [index.rest_lengths(number, self._centred.off) for number in (TURNS, FACTS)]
        # The slow part, during which others may change the index.
        self._near = [_near(c, self._centred, r) for c, r in zip(codes, rest, strict=True)]
        of_turns, of_facts = (
            _raised(near, found, self._centred.nearest(found))
            for near, found in zip(self._near, passages, strict=True)
        )
        if is_outlined.any():
            # The passages of these turns count apart: one is near to any question.
            self._outlined = np.where(is_outlined, of_turns, -np.inf)
            of_turns = np.where(is_outlined, self._near[TURNS], of_turns)
        self._near = [of_turns, of_facts]

    @property
    def has_vectors(self) -> bool:
        """Whether the query has a vector, and anything in the scope has one."""
        return self._centred is not None

    def pool(self, graph: Mapping[str, float]) -> tuple[Ranking, VisibilityMask]:
        """Returns all memories to consider, turns first, with the scores of both legs; and what of
        the scope the query may show."""
        index = self._index
        with index.lock:
            allowed = VisibilityMask.by(index, self._query)
            sums, query_idf = self._keyword()
            hits = self._hits(sums, allowed.passes)
            nearest = self._nearest_outlined(allowed.passes[TURNS])
            turns, facts = places = self._widened(hits, nearest, graph, allowed.passes)
            # (m, 2) pairs of places among `turns` and `facts`, both ascending.
            pairs = self._index.pairs
            both = self._mask(TURNS, turns)[pairs[:, 0]] & self._mask(FACTS, facts)[pairs[:, 1]]
            kept = pairs[both]
            links = np.stack(
                (np.searchsorted(turns, kept[:, 0]), np.searchsorted(facts, kept[:, 1])), axis=1
            ).astype(np.int64)
            ids, texts = self._listed(places, "ids"), self._listed(places, "contents")
            said = [*map(spoken, texts[: len(turns)])]
            bm25 = np.concatenate([found[here] for found, here in zip(sums, places, strict=True)])
            rows = Ranking(
                ids=ids,
                turns=len(turns),
                meta=self._columns(places, lambda segment: segment.meta),
                keyword=keyword_coverage(bm25, query_idf) if self._plan.terms else None,
                vector=None,
                graph=np.array([graph.get(memory_id, 0.0) for memory_id in ids], dtype=np.float64),
                of_named=self._of_named(turns, facts, links),
                links=links,
                questions=np.array([asks(text) for text in said], dtype=np.bool_),
                nearby=self._nearby(turns, allowed.passes[TURNS]),
                of_assistant=self._of_assistant(turns, facts, links),
            )
            rows.only_questions = _only_questions(rows, said)
            # Notes which turns echo a context block.
            echoing = [row for row, text in enumerate(said) if text is not texts[row]]
            if echoing:
                rows.echoes, rows.only_echoes = np.zeros((2, len(rows.ids)), dtype=np.bool_)
                rows.echoes[echoing] = True
                rows.only_echoes[[row for row in echoing if not said[row]]] = True
            if self._settings.when_weight and asks_when(self._query.question):
                rows.tells_time = np.array([*map(tells_time, texts)], dtype=np.bool_)
            if self._tokens is None:
                rows.vector = self._cosines(places)
            said_long = [turn_text(index.turns, place) for place in nearest.tolist()]
        if self._tokens and self.is_by_tokens:
            rows.vector = self._by_tokens(self._tokens, places, rows)
            if said_long:
                rows.passage = np.full(len(rows.ids), np.nan)
                scores = self._tokens.passage_scores(said_long)
                rows.passage[np.searchsorted(turns, nearest)] = scores
        return rows, allowed

    @property
    def is_by_tokens(self) -> bool:
        """Whether the vector leg compares token vectors."""
        by_keywords = self._settings.fusion == "keyword" and bool(self._plan.terms)
        return self._tokens is not None and self.has_vectors and not by_keywords

    def _nearest_outlined(self, passes: Mask | None) -> Integers:
        """The turns that no person said of which a passage is nearest, ascending."""
        near, parameters = self._outlined, self._parameters
        if near is None or not self.is_by_tokens or not parameters.passage_rank:
            return np.zeros(0, dtype=np.int64)
        segment = self._index.turns
        may = segment.alive if passes is None else passes
        places = np.flatnonzero(may[: len(near)] & (near > -np.inf))
        scores = near[places].astype(np.float64)
        return best_of_segments([segment], [places], [scores], parameters.assistant_pool)[0]

    def _of_assistant(self, turns: Integers, facts: Integers, links: Integers) -> Mask | None:
        """Turns of assistants, and memories derived only from such turns."""
        segment = self._index.turns
        role = segment.meta["role"] == segment.numbers.of("assistant")
        if not role.any():
            return None
        said = role[turns]
        derived = np.zeros(len(facts), dtype=np.bool_)
        derived[links[said[links[:, 0]], 1]] = True
        derived[links[~said[links[:, 0]], 1]] = False
        return np.concatenate((said, derived))

    def _nearby(self, turns: Integers, passes: Mask | None) -> dict[int, list[str]]:
        """By offset, the id of the turn that far from each in its session; empty where there is
        none, or it may not be shown."""
        segment, slots = self._index.turns, self._index.turns_by_session
        may = segment.alive if passes is None else passes
        sessions = segment.meta["session"][turns].tolist()
        positions = segment.meta["position"][turns].tolist()
        offsets = {-1, *(offset for offset, _ in self._parameters.context_shares)}
        found: dict[int, list[str]] = {offset: [] for offset in sorted(offsets)}
        for session, position in zip(sessions, positions, strict=True):
            places = slots[session] if session >= 0 else ()
            for offset, ids in found.items():
                there = position + offset
                place = places[there] if 0 <= there < len(places) else -1
                ids.append(segment.ids[place] if place >= 0 and may[place] else "")
        return found

    def _by_tokens(self, tokens: TokenLeg, places: Sequence[Integers], rows: Ranking) -> Floats:
        """Reads tokens from a table, so without the index's lock."""
        scores, vector = tokens.scores(rows.ids, rows.nearby), self._plan.vector
        lacking = np.isnan(scores)
        if lacking.any() and vector is not None:
            with self._index.lock:
                vectors = self._columns(places, lambda segment: segment.vectors)[lacking]
                known = self._columns(places, lambda segment: segment.has_vector)[lacking]
            scores[lacking] = np.where(
                known, tokens.estimates(row_products(vectors, vector)), np.nan
            )
        return scores

    def _listed(self, places: Sequence[Integers], column: Literal["ids", "contents"]) -> list[str]:
        segments = zip(self._index.segments, places, strict=True)
        return [getattr(each, column)[place] for each, here in segments for place in here.tolist()]

    def _columns(
        self, places: Sequence[Integers], column: Callable[[Segment], NDArray[Scalar]]
    ) -> NDArray[Scalar]:
        """A column of the segments at these places, one after the other."""
        segments = self._index.segments
        return np.concatenate([column(s)[here] for s, here in zip(segments, places, strict=True)])

    def _cosines(self, places: Sequence[Integers]) -> Floats | None:
        if self._centred is None:
            return None
        cosines = self._centred.cosines(self._columns(places, lambda segment: segment.vectors))
        vector: Floats = np.clip(cosines, 0.0, 1.0)
        vector[~self._columns(places, lambda segment: segment.has_vector)] = np.nan
        return vector

    def _keyword(self) -> tuple[list[Floats], float]:
        segments = self._index.segments
        if self._settings.fusion == "vector" and self.has_vectors:
            return [np.zeros(segment.places) for segment in segments], 0.0
        alive = [None if segment.has_no_tombstones else segment.alive for segment in segments]
        return keyword_sums(segments, self._plan.terms, alive, self._parameters)

    def _hits(self, sums: Sequence[Floats], visible: Sequence[Mask | None]) -> list[Integers]:
        """Returns the best hits of each leg over both segments, ascending; if they are fewer than
        the pool holds, also the nearest of the others that pass, or the newest without vectors."""
        segments, count = self._index.segments, self._plan.count
        legs: list[Sequence[NDArray[np.floating]]] = [sums]
        by_vector = self.has_vectors and self._settings.fusion != "keyword"
        if by_vector:
            # What came meanwhile is not yet found by its vector.
            legs.append([_grown(n, s.places) for n, s in zip(self._near, segments, strict=True)])
        hits = best_of_legs(segments, legs, visible, count)
        missing = count - sum(map(len, hits))
        if missing <= 0:
            return hits
        nearness = legs[1] if by_vector else [segment.meta["occurred"] for segment in segments]
        rest = [np.ones(segment.places, dtype=np.bool_) for segment in segments]
        for mask, found, passes in zip(rest, hits, visible, strict=True):
            mask[found] = False
            _leave_out(mask, passes)
        places = [np.flatnonzero(mask) for mask in rest]
        near = [each[p].astype(np.float64) for each, p in zip(nearness, places, strict=True)]
        more = best_of_segments(segments, places, near, missing)
        return [np.union1d(a, b) for a, b in zip(hits, more, strict=True)]

    def _widened(
        self,
        hits: Sequence[Integers],
        nearest: Integers,
        graph: Collection[str],
        passes: Sequence[Mask | None],
    ) -> tuple[Integers, Integers]:
        """Returns the hits with the turns that facts were derived from, the turns next to all these
        in the session, the `nearest` turns of no person, the facts derived from them, and what the
        graph adds."""
        index, reach = self._index, self._parameters.reach
        pairs = index.pairs
        wide, derived = self._mask(TURNS, hits[TURNS]), self._mask(FACTS, hits[FACTS])
        wide[pairs[derived[pairs[:, 1]], 0]] = True
        near = index.turns.meta[wide]
        adjacent: set[int] = set()
        for session, position in zip(
            near["session"].tolist(), near["position"].tolist(), strict=True
        ):
            if session >= 0:
                adjacent.update(
                    index.turns_by_session[session][max(position - reach, 0) : position + reach + 1]
                )
        wide[[place for place in adjacent if place >= 0]] = True
        wide[nearest] = True
        _leave_out(wide, passes[TURNS])
        derived[pairs[wide[pairs[:, 0]], 1]] = True
        for mask, segment, visible in zip((wide, derived), index.segments, passes, strict=True):
            known = (segment.place_of.get(memory_id) for memory_id in graph)
            mask[[place for place in known if place is not None]] = True
            _leave_out(mask, visible)
        return np.flatnonzero(wide), np.flatnonzero(derived)

    def _mask(self, number: int, places: Integers) -> Mask:
        mask = np.zeros(self._index.segments[number].places, dtype=np.bool_)
        mask[places] = True
        return mask

    def _of_named(self, turns: Integers, facts: Integers, links: Integers) -> Mask | None:
        """Marks the rows of the named speaker: said by them, derived from that, or naming them.
        None unless the query names exactly one speaker."""
        index = self._index
        speaker = index.named_speaker(frozenset(self._plan.terms), self._language)
        if speaker is None:
            return None
        by_speaker = index.turns.meta["who"][turns] == speaker
        about = index.facts.meta["who"][facts] == speaker
        for terms in index.speaker_names(self._language)[speaker]:
            pairs = [index.facts.postings.get(term) for term in terms]
            held = [np.isin(facts, pair[0]) for pair in pairs if pair is not None]
            if len(held) == len(terms):
                about |= np.logical_and.reduce(held)
        about[links[by_speaker[links[:, 0]], 1]] = True
        return np.concatenate((by_speaker, about))


def _only_questions(rows: Ranking, texts: Sequence[str]) -> Mask:
    """People's turns that are nothing but questions."""
    only = np.zeros(len(rows.ids), dtype=np.bool_)
    for row in np.flatnonzero(rows.questions).tolist():
        if rows.of_assistant is None or not rows.of_assistant[row]:
            only[row] = only_asks(texts[row])
    return only


def _near(codes: Codes, query: CenteredQuery, rest: Vector) -> Vector:
    """Approximate centred cosines (n,) of all places: they select what is scored exactly."""
    products = codes.products(query.query[None, :])[0]
    cosines: Vector = (products - np.float32(query.off @ query.query)) / rest[: len(products)]
    return cosines


def _raised(near: Vector, passages: Passages, nearest: Vector) -> Vector:
    """With the cosine of its nearest passage where that is nearer than the whole text."""
    raised = near.copy()
    raised[passages.places] = np.maximum(near[passages.places], nearest)
    return raised


def _grown(near: Vector, places: int) -> Vector:
    """With zeros up to this number of places."""
    return np.concatenate((near, np.zeros(places - len(near), dtype=np.float32)))


def _leave_out(mask: Mask, passes: Mask | None) -> None:
    """Clears the places that a query may not show."""
    if passes is not None:
        mask &= passes
