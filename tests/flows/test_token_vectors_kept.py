"""Token vectors outlive a rebuild, a restore and another number of partitions; what lacks them is
seen and healed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from palimpsest.ops import parts
from palimpsest.ops.cli.doctor import examine
from palimpsest.ops.embedding.tracker import catch_up, missing
from palimpsest.ops.health.checkup import Checkup
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.replay.live_stores import StoredEmbeddings
from palimpsest.ops.replay.repartition import repartition
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.recall.query import Query
from palimpsest.stores.recall.retriever import Retriever
from palimpsest.stores.recall.token_leg import QueryEmbedding
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.models.late_interaction import DIMENSIONS, MODEL
from palimpsest.streams.models.settings import EmbeddingSettings
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import BEGIN
from tests.rebuilding import rebuilt
from tests.token_model import WordModel
from tests.token_model import tokens_of as tokens_of_text

SAID = ("I live in Oslo.", "I keep bees on the roof.")
SCOPES = ("ana", "ben")
QUESTIONS = tuple(
    f"{word} {rest}"
    for word in ("Where", "Who", "What")
    for rest in ("lives in Oslo", "keeps bees")
)
TOKENS = (
    "SELECT m.memory_id, e.vector, e.tokens FROM memory_rows m LEFT JOIN embeddings e"
    " USING (embedding_key) WHERE NOT is_deleted ORDER BY memory_id"
)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> WordModel:
    """That of every store."""
    made = WordModel()
    monkeypatch.setattr(parts, "_local_embedding_model", lambda name: made)
    return made


@pytest.fixture
def settings(model: WordModel, tmp_path: Path) -> Settings:
    """Those of a folder with a store, which nobody has open."""
    folder = tmp_path / "data"
    (folder / "shards" / "0").mkdir(parents=True)
    (folder / "shard").symlink_to(folder / "shards" / "0", target_is_directory=True)
    update = {"data_dir": folder, "embedding": EmbeddingSettings(provider="local", model=MODEL)}
    found = pipeline_settings(FULL).model_copy(update=update)
    with Pipeline(folder, found, embedding=model) as pipeline:
        parts.note_embedding(pipeline.shard, MODEL)
        for scope in SCOPES:
            pipeline.say(*SAID, scope=scope)
        pipeline.run()
    return found


def tokens_of(settings: Settings, partitions: int = 1) -> list[tuple[object, ...]]:
    """Id, vector and tokens of every active memory."""
    rows = []
    for partition in range(partitions):
        shard = open_shard(settings, partition, shard_options(settings, embedding_model(settings)))
        try:
            rows += shard.fetch(TOKENS)
        finally:
            shard.close()
    return sorted(rows, key=lambda row: str(row[0]))


def answers(settings: Settings, partitions: int = 1) -> list[tuple[object, ...]]:
    """Scope, question, id and score of every result."""
    found = []
    for scope in SCOPES:
        partition = partition_for(scope, partitions)
        shard = open_shard(settings, partition, shard_options(settings, embedding_model(settings)))
        recall = Retriever(shard)
        for question in QUESTIONS:
            made = tokens_of_text(question)
            asked = QueryEmbedding(made.vector, made.tokens)
            results = recall.search(Query(scope, question), asked).answer.results
            found += [(scope, question, each.id, each.score) for each in results]
        shard.close()
    return found


def without_tokens(settings: Settings) -> None:
    shard = open_shard(settings, 0, shard_options(settings, embedding_model(settings)))
    with shard.writing() as connection:
        connection.execute("UPDATE embeddings SET tokens = NULL")
    shard.close()


def test_a_rebuild_keeps_them(settings: Settings, model: WordModel) -> None:
    before, answered = tokens_of(settings), answers(settings)
    assert before
    assert all(tokens for _, _, tokens in before)
    model.asked.clear()
    done = rebuilt(settings, swap=True)
    assert done.is_equal
    assert done.kept
    assert tokens_of(settings) == before
    assert answers(settings) == answered
    assert model.asked == []


def test_a_restored_log_has_them(settings: Settings) -> None:
    before, answered = tokens_of(settings), answers(settings)
    shutil.rmtree(settings.data_dir / "shards")
    assert rebuilt(settings, swap=True).kept
    assert tokens_of(settings) == before
    assert answers(settings) == answered


def test_another_number_of_partitions_keeps_them(settings: Settings, model: WordModel) -> None:
    before, answered = tokens_of(settings), answers(settings)
    assert answered
    model.asked.clear()
    done = asyncio.run(repartition(settings, Rebuild(shards=2, swap=True)))
    assert done.is_equal
    assert tokens_of(settings, 2) == before
    assert answers(settings, 2) == answered
    assert model.asked == []


def test_a_rebuild_that_loses_them_is_not_equal(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredEmbeddings.stored

    def without(self: StoredEmbeddings, keys: Iterable[str]) -> dict[str, Embedding]:
        return {key: Embedding(each.vector) for key, each in stored(self, keys).items()}

    monkeypatch.setattr(StoredEmbeddings, "stored", without)
    done = rebuilt(settings, swap=True)
    assert done.kept is None
    [partition] = done.partitions
    assert partition.differing == {"embeddings": len(tokens_of(settings))}


def test_a_rebuild_makes_those_that_the_live_store_lacks(settings: Settings) -> None:
    before = tokens_of(settings)
    without_tokens(settings)
    done = rebuilt(settings, swap=True)
    assert done.is_equal
    assert done.kept
    assert tokens_of(settings) == before


async def test_missing_ones_are_seen_and_made(settings: Settings, model: WordModel) -> None:
    before = tokens_of(settings)
    without_tokens(settings)
    [stores] = [each for each in await examine(settings) if each.check == "stores"]
    assert f"makes the vectors that {len(before)} memories lack" in stores.found
    shard = open_shard(settings, 0, shard_options(settings, model))
    with open_log(settings, "read") as log:
        checkup = Checkup(shard, 0, settings, log, BEGIN)
        assert checkup.counts("embeddings")["missing"] == len(before)
        assert missing(shard, MODEL, DIMENSIONS).total == len(before)
        table = shard.vector_table()
        done = await catch_up(shard, model, table)
        assert done.complete
        assert checkup.counts("embeddings")["missing"] == 0
    shard.close()
    assert tokens_of(settings) == before
    [stores] = [each for each in await examine(settings) if each.check == "stores"]
    assert "lack" not in stores.found
