"""Every filter has one meaning: whatever an answer shows passes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.ops.operations.memories import List
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.settings.sections import Settings
from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.graph import MentionRow, NameRow
from palimpsest.schemas.rows.memories import EdgeRow, MemoryRow
from palimpsest.stores.ranking import ModelParameters, RankingParameters
from palimpsest.stores.recall import filters
from palimpsest.stores.recall.answers import Retrieval, RetrievalConstants
from palimpsest.stores.recall.filters import VisibilityMask, in_sql
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from tests.memory_rows import (
    BEGIN,
    DIMENSIONS,
    SCOPE,
    after,
    drawn,
    embed,
    memory,
    open_shard,
    turn,
    write,
)

Passes = Callable[[MemoryRow, str], bool]
"""Whether a memory may be shown, who said it or what it was drawn from being told apart."""


SEVEN = {"ticket": 7, "customer": "Åsa & Sons"}
METADATA = (SEVEN, {**SEVEN, "ticket": 77}, {"customer": SEVEN})


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


FILTERS: dict[str, tuple[dict[str, object], Passes]] = {
    "types": ({"types": ("episodic", "decision")}, lambda row, by: row.type != "fact"),
    "who": ({"who": "ANA"}, lambda row, by: by == "Ana"),
    "roles": ({"roles": ("assistant", "tool")}, lambda row, by: by == "Ben"),
    "tags": ({"tags": ("work", "x")}, lambda row, by: "work" in row.tags),
    "all_tags": (
        {"all_tags": ("work", "home")},
        lambda row, by: {"work", "home"} <= set(row.tags),
    ),
    "categories": ({"categories": ("tools",)}, lambda row, by: "tools" in row.categories),
    "metadata": (
        {"metadata": ("ticket=7", "customer=Åsa & Sons")},
        lambda row, by: json.loads(row.metadata) == SEVEN,
    ),
    "pinned": ({"pinned": True}, lambda row, by: row.pinned),
    "unpinned": ({"pinned": False}, lambda row, by: not row.pinned),
    "min_importance": (
        {"min_importance": 0.7},
        lambda row, by: row.importance >= 0.7 or row.pinned,
    ),
    "project": ({"project": "boats"}, lambda row, by: row.project == "boats"),
    "no project": ({"project": ""}, lambda row, by: not row.project),
    "session": ({"session_id": "s1"}, lambda row, by: row.session_id == "s1"),
    "since": ({"since": BEGIN + at(10)}, lambda row, by: row.occurred_at >= BEGIN + at(10)),
    "until": ({"until": BEGIN + at(10)}, lambda row, by: row.occurred_at < BEGIN + at(10)),
    "as_of": ({"as_of": BEGIN + at(9)}, lambda row, by: row.created_at <= BEGIN + at(9)),
    "valid at": (
        {"valid_at": BEGIN + at(4)},
        lambda row, by: row.valid_until is None or row.valid_until > BEGIN + at(4),
    ),
}


FERRY = NameRow(
    name_id="ferry",
    entity_id="ferry",
    scope=SCOPE,
    name="the ferry",
    canonical_name="the ferry",
    entity_type="thing",
    first_seen=BEGIN,
    updated_at=BEGIN,
)


def _mention(fact: MemoryRow) -> MentionRow:
    return MentionRow(
        memory_id=fact.memory_id,
        text_key=fact.embedding_key,
        name_id="ferry",
        scope=SCOPE,
        mention_text="ferry",
        confidence=0.9,
    )


def _because(effect: str, cause: str) -> EdgeRow:
    return EdgeRow(source_id=effect, target_id=cause, relation_type="causal", scope=SCOPE)


def _rows() -> list[Row]:
    """Two who talk in two sessions, and what was drawn from each of their turns."""
    rows: list[Row] = []
    previous = ""
    for number in range(16):
        who, session = ("Ana", "Ben")[number % 2], f"s{1 + number // 8}"
        fields = {
            "session_id": session,
            "tags": (("work", "home"), ("work",), ())[number % 3],
            "categories": (("tools",), ())[number // 2 % 2],
            "pinned": number % 4 < 2,
            "importance": (0.9, 0.7, 0.3)[number % 3],
            "project": ("boats", None)[number // 3 % 2],
            "metadata": json.dumps(METADATA[number % 3], ensure_ascii=number % 2 == 0),
            "valid_until": (None, BEGIN + at(number), None)[number % 3],
        }
        text = f"the ferry harbour engine broke on trip {number}"
        role = ("user", "assistant")[number % 2]
        said = turn(f"t{number:02}", text, 2 * number + 1, who=who, role=role, **fields)
        kind = "decision" if number % 5 == 0 else "fact"
        fact = memory(f"f{number:02}", f"ferry trip {number}", 2 * number + 2, type=kind, **fields)
        rows += [said, fact, drawn(fact.memory_id, said.memory_id)]
        rows.append(_mention(fact))
        if previous and number != 8:
            rows += [after(previous, said.memory_id), _because(said.memory_id, previous)]
        previous = said.memory_id
    return [*rows, FERRY]


ROWS = _rows()
MEMORIES = {row.memory_id: row for row in ROWS if isinstance(row, MemoryRow)}
SAID_BY = {i: MEMORIES[i.replace("f", "t")].who for i in MEMORIES}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    shard = open_shard(tmp_path_factory.mktemp("filters") / "shard")
    write(shard, ROWS)
    yield shard
    shard.close()


def retriever(shard: Shard) -> Retriever:
    # Everything is much alike here: nothing shall be unlikely.
    ranking = RankingParameters(of_vectors=ModelParameters(0.5, unlikely=0.0))
    return Retriever(
        shard,
        RecallSettings(time_words="off"),
        constants=RetrievalConstants(ranking=ranking),
        clock=lambda: BEGIN,
        milliseconds=lambda: 0.0,
    )


def shown(found: Retrieval) -> set[str]:
    """Every memory whose text an answer shows or stands for."""
    ids = {related.id for related in found.related}
    for result in found.results:
        assert result.explanation is not None
        ids |= {result.id, *result.explanation.grouped, *(n.id for n in result.neighbours)}
    return ids


@pytest.mark.parametrize("name", FILTERS)
def test_whatever_is_shown_passes_the_filter(shard: Shard, name: str) -> None:
    given, passes = FILTERS[name]
    for question in ("why did trip 5", "when was trip 9", "what about the ferry"):
        for group in (True, False):
            query = Query(SCOPE, question, 3, group=group, explain=True, neighbours=2)
            query = replace(query, **given)  # type: ignore[arg-type]
            found = retriever(shard).search(query, QueryEmbedding(embed(question)))
            assert found.results
            wrong = {i for i in shown(found) if not passes(MEMORIES[i], SAID_BY[i])}
            assert wrong == set(), (question, group)


@pytest.mark.parametrize("name", FILTERS)
def test_related_memories_are_those_that_pass_and_no_fewer(shard: Shard, name: str) -> None:
    """The filters come before the count of what is added."""
    given, passes = FILTERS[name]
    query = replace(Query(SCOPE, "what about the ferry", 1), **given)  # type: ignore[arg-type]
    found = retriever(shard).search(query)
    expected = {i for i, row in MEMORIES.items() if i[0] == "f" and passes(row, SAID_BY[i])}
    of_hits = {r.id for r in found.results} | {i for r in found.results for i in r.derived_from}
    assert {related.id for related in found.related} - of_hits == expected - of_hits


@pytest.mark.parametrize("name", FILTERS)
def test_the_evidence_and_timeline_of_a_context_pass_the_filter(shard: Shard, name: str) -> None:
    given, passes = FILTERS[name]
    query = replace(Query(SCOPE, "what about the ferry trip 9"), **given)  # type: ignore[arg-type]
    made = asyncio.run(retriever(shard).context(query, QueryEmbedding(embed(query.query)), 3_000))
    assert made is not None
    ids = [i for section, found in made.ids.items() if section != "entities" for i in found]
    assert [i for i in ids if not passes(MEMORIES[i], SAID_BY[i])] == []


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_in_sql_passes_what_its_mask_passes(shard: Shard, name: str) -> None:
    given, passes = FILTERS[name]
    query = Query(SCOPE, "", **given)  # type: ignore[arg-type]
    condition, values = in_sql(query)
    with shard.reading() as reader:
        rows = reader.execute(
            f"SELECT m.memory_id FROM memory_rows m WHERE m.scope = $scope AND {condition}",
            {"scope": SCOPE, **values},
        ).fetchall()
    expected = {i for i, row in MEMORIES.items() if passes(row, SAID_BY[i])}
    assert {memory_id for (memory_id,) in rows} == expected
    assert VisibilityMask.by(shard.indexes.get(SCOPE), query).among(MEMORIES) == expected


def test_every_filter_is_tried() -> None:
    assert {name for given, _ in FILTERS.values() for name in given} == filters.FILTERS.keys()


def test_who_means_the_same_in_a_list(shard: Shard, tmp_path: Path) -> None:
    model = HashingEmbeddingModel(DIMENSIONS)
    with EmbeddedLog(tmp_path, 1, lambda: BEGIN) as log:
        sources = Sources(Settings(data_dir=tmp_path), log, {0: shard}, 1, model, log.append)
        page = List(scope=SCOPE, who="ana", limit=100).read(sources)
    listed = page["memories"]
    assert isinstance(listed, list)
    ids = {str(row["id"]) for row in listed if isinstance(row, dict)}
    assert ids == {i for i in MEMORIES if SAID_BY[i] == "Ana"}
