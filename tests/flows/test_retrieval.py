"""A retrieval from end to end over a store that the pipeline made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from palimpsest.schemas.identity import turn_memory_id
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.rows.memories import EdgeRow
from palimpsest.stores.ranking import RankingParameters
from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
from palimpsest.stores.recall.context import estimate_tokens
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings
from palimpsest.streams.models.base import Vector
from tests.harness import DIMENSIONS, Clock, Pipeline, pipeline_settings
from tests.messages import published
from tests.spoken_model import ScriptedModel, spoken

# A Sunday; the first turns are of the Monday before.
NOW = datetime(2026, 3, 8, 12, 0, tzinfo=UTC)
TURNS = (
    (0, "Ana", "Ana > works_at > Globex / Ana works at Globex as a welder"),
    (0, "Ben", "That sounds like hard work"),
    (0, "Ana", "The furnace broke and the shift was cancelled"),
    (0, "Ana", "Ana went home early that evening"),
    (4, "Ben", "Ben > lives_in > Lima / Ben lives in Lima by the sea"),
    (4, "Ana", "A ferry crosses the harbour every hour"),
)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    made = Pipeline(
        tmp_path_factory.mktemp("retrieval"),
        settings=pipeline_settings(decider="model"),
        language=ScriptedModel(spoken),
        clock=Clock(NOW),
    )
    with made:
        for number, (days, speaker, content) in enumerate(TURNS, start=1):
            for scope in ("ana", "other"):
                text = content if scope == "ana" else content.replace("Globex", "Initech")
                body = ConversationTurn(
                    turn_id=f"t{number}", session_id=f"s{days}", speaker=speaker, content=text
                )
                at = NOW - timedelta(days=6 - days) + timedelta(minutes=number)
                made.publish(published(body, scope, occurred_at=at))
        made.run()
        yield made


def turn_id(number: int) -> str:
    return turn_memory_id("ana", f"t{number}")


def retriever(pipeline: Pipeline, **settings: object) -> Retriever:
    chosen = RecallSettings.model_validate(settings)
    return Retriever(pipeline.shard, chosen, clock=pipeline.clock, milliseconds=lambda: 0.0)


def search(pipeline: Pipeline, text: str, **query: object) -> Retrieval:
    asked = Query("ana", text, **query)  # type: ignore[arg-type]
    return retriever(pipeline).search(asked)


def shown(found: Retrieval) -> set[str]:
    return {i for result in found.results for i in (result.id, *result.derived_from)}


def test_times_in_a_sentence_are_preferred(pipeline: Pipeline) -> None:
    asked = Query("ana", "Ana and Ben on Friday", 50)
    before = {
        result.id: result.score
        for result in retriever(pipeline, time_words="off").search(asked).results
    }
    found = search(pipeline, asked.query, limit=50, explain=True)
    assert found.explained.times_used == "prefer"
    assert (found.explained.since, found.explained.until) == (None, None)
    assert {result.id for result in found.results} == set(before)
    for result in found.results:
        told_then = result.occurred_at.day == 6
        expected = before[result.id] / (1.0 if told_then else 1.25)
        assert result.score == pytest.approx(expected, abs=2e-6)
        assert result.explanation is not None
        assert ("times" in result.explanation.parts) is not told_then
        assert sum(result.explanation.parts.values()) == pytest.approx(result.score, abs=2e-6)
    order = [(-result.score, result.id) for result in found.results]
    assert order == sorted(order)
    few = search(pipeline, asked.query, limit=2)
    assert [r.id for r in few.results] == [r.id for r in found.results[:2]]


@pytest.mark.parametrize("text", ["what did Ben say 2026-03-06..2026-03-06", "Ben ..2026-03-06"])
def test_times_written_as_a_filter_are_one(pipeline: Pipeline, text: str) -> None:
    found = search(pipeline, text, limit=50)
    assert found.explained.times_used == "filter"
    assert found.explained.until == datetime(2026, 3, 7, tzinfo=UTC)
    assert found.results
    assert all(result.occurred_at.day <= 6 for result in found.results)
    assert found.answer.query == text


def test_times_always_filter_where_so_set(pipeline: Pipeline) -> None:
    asked = Query("ana", "what did Ben say on Friday", 50)
    found = retriever(pipeline, time_words="filter").search(asked)
    assert (found.explained.since, found.explained.until) == (
        datetime(2026, 3, 6, tzinfo=UTC),
        datetime(2026, 3, 7, tzinfo=UTC),
    )
    assert all(result.occurred_at.day == 6 for result in found.results)


def test_where_nothing_is_of_that_time_the_search_is_widened(pipeline: Pipeline) -> None:
    found = search(pipeline, "the welder at Globex 2020-05-01..2020-05-31")
    assert found.explained.times_used == "widened"
    assert (found.explained.since, found.explained.until) == (None, None)
    assert turn_id(1) in shown(found)


def test_given_times_come_before_words(pipeline: Pipeline) -> None:
    found = search(pipeline, "Ben on Monday", since=NOW - timedelta(days=3))
    assert not found.explained.times
    assert all(result.occurred_at.day == 6 for result in found.results)


def test_as_of_is_what_words_are_reckoned_from(pipeline: Pipeline) -> None:
    found = search(pipeline, "Ben yesterday", as_of=NOW - timedelta(days=1))
    assert found.explained.times.since == datetime(2026, 3, 6, tzinfo=UTC)


def test_times_can_be_off(pipeline: Pipeline) -> None:
    plain = retriever(pipeline, time_words="off").search(Query("ana", "the ferry on Monday"))
    assert not plain.explained.times
    assert turn_id(6) in shown(plain)


def test_when_adds_the_turns_around(pipeline: Pipeline) -> None:
    found = search(pipeline, "when did the furnace break", limit=1)
    assert found.intent == "when"
    assert turn_id(3) in shown(found)
    added = {each.id: each.reason for each in found.related}
    assert turn_id(2) in added
    assert turn_id(4) in added
    assert turn_id(5) not in added
    assert "before" in added[turn_id(2)]


def test_why_follows_causes(pipeline: Pipeline) -> None:
    pipeline.shard.tables.insert(
        [EdgeRow(source_id=turn_id(3), target_id=turn_id(4), relation_type="causal", scope="ana")]
    )
    found = search(pipeline, "why did Ana go home early", limit=1)
    assert found.intent == "why"
    assert turn_id(4) in shown(found)
    reasons = [each.reason for each in found.related if each.id == turn_id(3)]
    assert any(reason.startswith("led to") for reason in reasons)


def test_who_adds_what_mentions_the_named(pipeline: Pipeline) -> None:
    found = search(pipeline, "who is Globex", limit=1)
    assert [entity.name for entity in found.explained.boost.named] == ["Globex"]
    assert found.explained.boost.strengths
    assert all("Globex" in each.reason for each in found.related)
    assert found.results


def test_what_is_added_passes_the_filters(pipeline: Pipeline) -> None:
    assert search(pipeline, "when did the furnace break", limit=1).related
    found = search(pipeline, "when did the furnace break", limit=1, who="Ana")
    assert {each.who for each in found.related} == {"Ana"}
    assert not search(pipeline, "when did the furnace break", limit=1, project="x").related


@pytest.mark.parametrize(
    "text", ["why welder Globex", "when furnace", "who is Globex", "what of Ben", "Ana Ben Lima"]
)
def test_nothing_crosses_scopes(pipeline: Pipeline, text: str) -> None:
    found = search(pipeline, text, limit=50)
    ids = {*shown(found), *(each.id for each in found.related)}
    scopes = pipeline.values(
        "SELECT DISTINCT scope FROM memory_rows WHERE memory_id IN (SELECT unnest(?))", list(ids)
    )
    assert scopes == ["ana"]


def test_explain_is_plain_data_with_every_part(pipeline: Pipeline) -> None:
    told = search(pipeline, "when did Ben move to Lima last week?", limit=2).explain()
    assert json.loads(json.dumps(told)) == told
    assert told["intent"] == "when"
    assert told["intent_by"] == "keyword"
    assert told["complexity"] == "simple"
    assert told["time_words"] == ["last week"]
    assert told["boost_error"] is None
    assert told["reranked"] == "off"
    assert "Lima" in told["entities"]  # type: ignore[operator]


def test_a_failing_boost_is_told_and_recall_goes_on(pipeline: Pipeline) -> None:
    def broken() -> float:
        raise OSError("no clock")

    found = Retriever(pipeline.shard, clock=pipeline.clock, milliseconds=broken).search(
        Query("ana", "Globex")
    )
    assert found.explained.boost.error == "OSError: no clock"
    assert found.results


class Backwards:
    """Likes the last the most."""

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        return [np.full(DIMENSIONS, place, dtype=np.float32) for place in range(len(texts))]


def test_the_second_look_is_over_the_same_results_whatever_the_limit(pipeline: Pipeline) -> None:
    looking = Retriever(
        pipeline.shard,
        RecallSettings(rerank="cosine", rerank_top_n=4),
        constants=RetrievalConstants(ranking=RankingParameters(cosine_weight=1.0)),
        model=Backwards(),
        clock=pipeline.clock,
    )
    query = Query("ana", "Ana works at Globex, Ben lives in Lima", explain=True)
    asked = QueryEmbedding(np.full(DIMENSIONS, 0.25 / DIMENSIONS, dtype=np.float32))
    alone = Retriever(pipeline.shard, clock=pipeline.clock)
    before = alone.search(replace(query, limit=4), asked)
    plain = [r.id for r in before.results]
    one = asyncio.run(looking.retrieve(replace(query, limit=1), asked))
    many = asyncio.run(looking.retrieve(replace(query, limit=50), asked))
    assert [r.id for r in many.results[:4]] == plain[::-1]
    assert one.results[0].id == plain[-1]
    assert one.explained.reranked == "cosine"
    assert one.answer.method == f"{before.answer.method}+cosine"
    for result in many.results:
        assert result.explanation is not None
        assert sum(result.explanation.parts.values()) == pytest.approx(result.score, abs=2e-6)


def test_mmr_keeps_all_results(pipeline: Pipeline) -> None:
    settings = RecallSettings(mmr=True)
    query = Query("ana", "Ana works at Globex, Ben lives in Lima")
    varied = asyncio.run(Retriever(pipeline.shard, settings, clock=pipeline.clock).retrieve(query))
    plain = search(pipeline, query.query)
    assert {r.id for r in varied.results} == {r.id for r in plain.results}
    assert varied.answer.method == f"{plain.answer.method}+mmr"


class TestContext:
    @staticmethod
    def block(pipeline: Pipeline, text: str, budget: int | None = None) -> str | None:
        found = asyncio.run(retriever(pipeline).context(Query("ana", text), budget=budget))
        if found is None:
            return None
        assert found.tokens == estimate_tokens(found.text) <= found.budget
        return found.text

    def test_lines_under_their_days(self, pipeline: Pipeline) -> None:
        text = self.block(pipeline, "Where does Ana work?")
        assert text is not None
        assert " March 2026\n- " in text
        assert text.count("Globex as a welder") == 1
        assert "Initech" not in text

    def test_none_in_an_empty_scope(self, pipeline: Pipeline) -> None:
        assert asyncio.run(retriever(pipeline).context(Query("empty", "Ana"))) is None

    def test_the_budget_holds(self, pipeline: Pipeline) -> None:
        small = self.block(pipeline, "Tell me everything about Ana and Ben", budget=60)
        large = self.block(pipeline, "Tell me everything about Ana and Ben")
        assert small is not None
        assert large is not None
        assert len(small) < len(large)
