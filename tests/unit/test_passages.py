"""What one passage of a long text says is found, however much there is around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np

from palimpsest.ops.embedding.tracker import catch_up, missing
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.token_vectors import PASSAGE_TOKENS, WINDOW_TOKENS
from palimpsest.stores.shard import Shard
from palimpsest.streams.models.base import Embedding
from palimpsest.streams.models.late_interaction import DIMENSIONS, MODEL
from palimpsest.streams.store_port import KeepVector, Load, Progress, Put
from tests.memory_rows import BEGIN, memory
from tests.token_model import WordModel
from tests.unit.recall_parts import ids
from tests.unit.test_token_leg import CODEC, ask, embedded, opened

FILLER = " ".join(f"filler{number}" for number in range(8))
SAID = "crimson motorcar"
MEANT = "red car"
WINDOWS = 20


def long_text(of: str) -> str:
    """In its middle a window that is about something, without end about something else around it:
    every word is a token, and a window has two more."""
    around = (FILLER + " ") * (WINDOW_TOKENS // 8 * (WINDOWS // 2))
    return f"{around}{(of + ' ') * (WINDOW_TOKENS // 4)}{around}".strip()


LONG = memory("long", long_text(SAID), 500)
OTHERS = [memory(f"other{number}", f"remark number {number}", number) for number in range(1, 151)]
"""Nearer to the question than the mean of the long text; more than the pool has room for."""


def text_meant(row: MemoryRow) -> str:
    """What a model knows: these words are of the same meaning, and in none of the texts."""
    if row.memory_id.startswith("other"):
        return f"red {row.memory_id}"
    return row.content.replace(SAID, MEANT)


def made(text: str, of_tokens: int | None = None) -> Embedding:
    found = embedded(text)
    assert CODEC is not None
    assert found.tokens is not None
    return Embedding(found.vector, CODEC.pack(found.tokens[:of_tokens]))


class Model(WordModel):
    """Knows what is meant."""

    async def embed_with_tokens(self, texts: Sequence[str]) -> list[Embedding]:
        return [made(text.replace(SAID, MEANT)) for text in texts]


def write(shard: Shard, rows: Sequence[MemoryRow], of_tokens: int | None = None) -> None:
    """With vectors and, of the long text, this number of tokens (None: all)."""
    unit = shard.unit()
    for row in rows:
        unit.answer(Load(row.scope, memory_ids=(row.memory_id,)))
        found = made(text_meant(row), of_tokens if row is LONG else None)
        unit.stage([KeepVector(row.embedding_key, found.vector, found.tokens), Put(row)])
    unit.commit(Progress("test", {}, (), (), 0))


def first(shard: Shard) -> str:
    return ids(ask(shard, MEANT, limit=3))[0]


def passages(shard: Shard) -> int:
    return len(shard.indexes.get("ana").facts.passages)


def test_one_passage_of_a_long_text_is_found(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    write(shard, [*OTHERS, LONG])
    assert first(shard) == "long"
    before = ask(shard, MEANT)
    shard.close()
    shard = opened(tmp_path)
    assert ask(shard, MEANT) == before
    assert passages(shard) == WINDOWS + 1
    index = shard.indexes.get("ana")
    index.facts.passages.remove(index.facts.place_of["long"])  # by the mean of its words it is not
    assert first(shard) != "long"
    shard.close()


def test_it_is_found_when_it_comes_while_others_search(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    write(shard, OTHERS)
    assert first(shard) != "long"
    write(shard, [LONG])
    assert first(shard) == "long"
    shard.close()


def test_a_text_that_was_changed_is_found_by_what_it_says_now(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    write(shard, [*OTHERS, LONG])
    assert first(shard) == "long"
    new = memory("long", long_text("azure bicycle"), 501, version=2)
    write(shard, [replace(new, updated_at=BEGIN + timedelta(days=1))])
    assert first(shard) != "long"
    assert ids(ask(shard, "azure bicycle", limit=3))[0] == "long"
    shard.close()


def test_what_is_removed_leaves_no_passage(tmp_path: Path) -> None:
    shard = opened(tmp_path)
    write(shard, [*OTHERS, LONG])
    assert first(shard) == "long"
    shard.indexes.get("ana").erase(["long"])
    assert passages(shard) == 0
    assert first(shard) != "long"
    shard.close()


async def test_a_text_that_was_embedded_in_part_is_embedded_whole(tmp_path: Path) -> None:
    """Up to the migration the first four windows of a text had tokens."""
    shard = opened(tmp_path)
    write(shard, [*OTHERS, LONG], of_tokens=PASSAGE_TOKENS)
    shard.close()
    with duckdb.connect(str(tmp_path / "shard" / "memory.duckdb")) as store:
        store.execute("ALTER TABLE internal.embeddings DROP COLUMN passages")
        store.execute("DELETE FROM internal.migrations WHERE name = '0032-long-texts'")
    shard = opened(tmp_path)
    assert shard.migrated == ["0032-long-texts"]
    assert missing(shard, MODEL, DIMENSIONS).total == 1
    assert first(shard) != "long"
    assert (await catch_up(shard, Model())).embedded == 1
    assert first(shard) == "long"
    before = ask(shard, MEANT)
    shard.close()
    shard = opened(tmp_path)
    assert ask(shard, MEANT) == before
    shard.close()


def test_passages_are_the_means_of_windows() -> None:
    assert CODEC is not None
    packed = made(LONG.content).tokens
    assert packed is not None
    tokens = CODEC.unpack(packed)
    found = CODEC.window_means(packed, WINDOW_TOKENS)
    assert len(found) == -(-len(tokens) // WINDOW_TOKENS)
    for number, mean in enumerate(found):
        whole = tokens[number * WINDOW_TOKENS :][:WINDOW_TOKENS].mean(axis=0)
        assert float(mean @ whole) / float(np.linalg.norm(whole)) > 0.999
