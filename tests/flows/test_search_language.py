"""Questions are analysed as the index is, whatever search.language is set to; a worker with another
language indexes the store again."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest import Memory
from palimpsest.ops.parts import embedding_model, open_shard, shard_options
from palimpsest.ops.settings.sections import Settings
from palimpsest.streams.models.settings import EmbeddingSettings

SAID = "The libraries of Oslo were closed on Sundays."
HASHING = {"embedding.provider": "hashing", "embedding.dimensions": 64}
FOUND = ("library", "closing libraries")


def settings_in(folder: Path, language: str) -> Settings:
    embedding = EmbeddingSettings(provider="hashing", dimensions=64)
    return Settings.model_validate(
        {"data_dir": folder, "embedding": embedding, "search": {"language": language}}
    )


def memory_in(folder: Path, language: str) -> Memory:
    return Memory(folder, settings={**HASHING, "search.language": language})


def found(memory: Memory, question: str) -> list[str]:
    return [each.content for each in memory.search(question).results]


@pytest.fixture
def english(tmp_path: Path) -> Path:
    with memory_in(tmp_path, "english") as memory:
        memory.add(SAID)
        assert [found(memory, each) for each in FOUND] == [[SAID], [SAID]]
    return tmp_path


@pytest.mark.parametrize("language", ["german", "none", "russian"])
def test_a_worker_with_another_language_indexes_the_store_again(
    english: Path, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    with memory_in(english, language) as memory:
        assert found(memory, "libraries") == [SAID]
        memory.add("Die Katzen schliefen.")
        assert found(memory, "Katzen") == ["Die Katzen schliefen."]
    assert f"search.language is {language} now: 1 memory is indexed again" in caplog.text
    caplog.clear()
    with memory_in(english, "english") as memory:
        assert [found(memory, each) for each in FOUND] == [[SAID], [SAID]]
    assert "search.language is english now: 2 memories are indexed again" in caplog.text
    caplog.clear()
    with memory_in(english, "english") as memory:
        assert found(memory, "library") == [SAID]
    assert "indexed again" not in caplog.text


@pytest.mark.parametrize("keeps", [True, False])
def test_a_reader_asks_in_the_language_of_the_index(english: Path, keeps: bool) -> None:
    settings = settings_in(english, "english")
    shard = open_shard(settings, 0, shard_options(settings, embedding_model(settings)))
    if not keeps:  # as an earlier release left it
        with shard.writing() as connection:
            connection.execute("DELETE FROM shard_state WHERE name = 'index_language'")
    shard.close()
    other = settings_in(english, "german")
    shard = open_shard(other, 0, shard_options(other, embedding_model(other)))
    try:
        assert shard.is_analysed_otherwise
        if keeps:
            assert shard.options.search.language == "english"
        assert shard.index_in("german") == 1
        assert shard.options.search.language == "german"
        assert not shard.is_analysed_otherwise
    finally:
        shard.close()
    shard = open_shard(other, 0, shard_options(other, embedding_model(other)))
    assert not shard.is_analysed_otherwise
    shard.close()
