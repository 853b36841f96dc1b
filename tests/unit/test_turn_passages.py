"""What an assistant says anywhere in a long turn is found, and costs persons' turns one place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from palimpsest.ops.embedding.turn_passages import EmbeddedTurn, copy_missing_turns, embed_turns
from palimpsest.ops.replay.live_stores import StoredEmbeddings
from palimpsest.schemas.memory_texts import OUTLINE_CHARACTERS
from palimpsest.schemas.rows.memories import MemoryRow
from palimpsest.stores.index.passages import HAS_PASSAGES, TurnText, has_passages, turn_text
from palimpsest.stores.ranking import DEFAULTS
from palimpsest.stores.recall.token_leg import token_leg
from palimpsest.stores.shard import DATABASE_FILE, Shard
from palimpsest.streams.models.late_interaction import MODEL
from palimpsest.streams.store_port import Erase, KeepVector, Load, Progress, Put, Sweep
from tests.memory_rows import BEGIN, SCOPE, turn
from tests.token_model import WordModel
from tests.unit.recall_parts import ids
from tests.unit.test_token_leg import CODEC, ask, embedded, opened

FILLER = " ".join(f"filler{number}" for number in range(40))
SAID = "red car"


def answer(of: str, write_seq: int, **fields: object) -> MemoryRow:
    """A long turn of an assistant, which is about something in a few words of its middle."""
    text = f"{FILLER} {FILLER} {of} {FILLER} {FILLER}"
    return turn("answer", text, write_seq, role="assistant", who="bot", session_id="s2", **fields)


ANSWER = answer(SAID, 500)
OTHERS = [
    turn(f"other{n:03}", f"remark number{n} red", n, role="user", who="Ana", session_id="s1")
    for n in range(1, 151)
]
"""More turns than the pool has room for, nearer to the question than the outline of the answer."""


def write(shard: Shard, *rows: MemoryRow) -> None:
    """With the vectors of their outlines."""
    unit = shard.unit()
    assert CODEC is not None
    for row in rows:
        unit.answer(Load(row.scope, memory_ids=(row.memory_id,)))
        made = embedded(row.content[:OUTLINE_CHARACTERS])
        assert made.tokens is not None
        packed = CODEC.pack(made.tokens)
        unit.stage([KeepVector(row.embedding_key, made.vector, packed), Put(row)])
    unit.commit(Progress("test", {}, (), (), 0))


def kept(shard: Shard) -> list[EmbeddedTurn]:
    columns = "memory_id, embedding_key, content_hash, tokens"
    return [EmbeddedTurn(*row) for row in shard.fetch(f"SELECT {columns} FROM turn_passages")]


def first(shard: Shard, question: str = SAID) -> list[str]:
    return ids(ask(shard, question, limit=3))


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = opened(tmp_path)
    write(shard, *OTHERS, ANSWER)
    yield shard
    shard.close()


async def test_a_sentence_of_an_answer_is_found_behind_the_best(
    shard: Shard, tmp_path: Path
) -> None:
    before = first(shard)
    assert "answer" not in before
    assert shard.may_lack_passages
    assert await embed_turns(shard, WordModel())
    assert first(shard) == [*before[:2], "answer"]
    found = ask(shard, SAID, limit=50)
    assert [each for each in ids(found) if each != "answer"][:3] == before
    lifted = next(each for each in found.results if each.id == "answer")
    assert lifted.explanation is not None
    assert lifted.explanation.parts["passage"] > 0
    again = WordModel()
    assert await embed_turns(shard, again)
    assert again.asked == []
    shard.close()
    other = opened(tmp_path)
    assert ask(other, SAID, limit=50) == found
    other.close()


async def test_the_sentence_is_told_for_the_block(shard: Shard) -> None:
    await embed_turns(shard, WordModel())
    ask(shard, SAID)
    index = shard.indexes.get(SCOPE)
    text = turn_text(index.turns, index.turns.place_of["answer"])
    leg = token_leg(MODEL, embedded(SAID), shard.packed_tokens, shard.packed_turns, DEFAULTS)
    assert leg is not None

    def counts(sentences: Sequence[str]) -> list[int]:
        """The last token of a text counts as the mark with which a model ends it."""
        sizes = [len(each.split()) for each in sentences]
        return [*sizes[:-1], sizes[-1] - 1]

    said = [f"{FILLER} {FILLER}", SAID, f"{FILLER} {FILLER}"]
    assert leg.nearest_sentence(counts, text, said) == 1
    assert leg.of_turns([TurnText("answer", text.embedded, text.content + 1)]) == {}


async def test_a_text_that_was_changed_is_found_by_what_it_says_now(shard: Shard) -> None:
    await embed_turns(shard, WordModel())
    assert "answer" in first(shard)
    changed = answer("azure bicycle", 501, version=2)
    write(shard, replace(changed, updated_at=BEGIN + timedelta(days=1)))
    assert "answer" not in first(shard)
    assert await embed_turns(shard, WordModel())
    assert len(kept(shard)) == 1
    assert "answer" not in first(shard)
    assert "answer" in first(shard, "azure bicycle")


async def test_copies_of_the_same_text_need_no_model(shard: Shard, tmp_path: Path) -> None:
    await embed_turns(shard, WordModel())
    expected, stored = ask(shard, SAID, limit=50), kept(shard)
    other = opened(tmp_path / "other")
    write(other, *OTHERS, ANSWER)
    copy_missing_turns(other, MODEL, lambda ids: [t._replace(content_hash="") for t in stored])
    assert kept(other) == []
    shard.close()
    with StoredEmbeddings(WordModel(), [tmp_path / "shard" / DATABASE_FILE]) as before:
        copy_missing_turns(other, MODEL, before.turns)
    assert kept(other) == stored
    assert ask(other, SAID, limit=50) == expected
    other.close()


@pytest.mark.parametrize("way", ["erased", "swept"])
async def test_nothing_stays_of_what_is_removed(shard: Shard, way: str) -> None:
    await embed_turns(shard, WordModel())
    assert len(kept(shard)) == 1
    gone = replace(ANSWER, is_deleted=True, deleted_at=BEGIN, version=2, write_seq=502)
    unit = shard.unit()
    unit.answer(Load(SCOPE, memory_ids=("answer",)))
    if way == "erased":
        texts = {"answer": ANSWER.content}
        unit.stage([Put(replace(gone, content="")), Erase("e1", SCOPE, texts, ())])
    else:
        unit.stage([Put(gone)])
        unit.commit(Progress("test", {}, (), (), 0))
        assert len(kept(shard)) == 1  # it may be recovered
        unit = shard.unit()
        unit.stage([Sweep(SCOPE, "vectors", BEGIN, BEGIN)])
    unit.commit(Progress("test", {}, (), (), 0))
    assert kept(shard) == []
    assert "answer" not in first(shard)


async def test_it_stops_when_told_and_leaves_out_what_is_skipped(shard: Shard) -> None:
    assert not await embed_turns(shard, WordModel(), skip=lambda scope: scope == SCOPE)
    assert kept(shard) == []

    async def no(seconds: float) -> bool:
        return False

    assert not await embed_turns(shard, WordModel(), pause=no)
    assert len(kept(shard)) == 1


@pytest.mark.parametrize("role", ["tool", "system"])
async def test_a_sentence_of_what_no_person_said_is_found(tmp_path: Path, role: str) -> None:
    shard = opened(tmp_path)
    write(shard, *OTHERS, replace(ANSWER, role=role, who=role))
    assert "answer" not in first(shard)
    assert await embed_turns(shard, WordModel())
    assert first(shard)[2] == "answer"
    shard.close()


def test_the_same_turns_by_row_and_in_the_table(shard: Shard) -> None:
    more = [
        replace(ANSWER, memory_id="tool", role="tool"),
        replace(ANSWER, memory_id="gone", is_deleted=True, deleted_at=BEGIN),
        turn("short", "yes", 503, role="assistant"),
        turn("long", "x" * (OUTLINE_CHARACTERS + 1), 504, role="assistant"),
    ]
    write(shard, *more)
    rows = shard.fetch(f"SELECT memory_id FROM memory_rows m WHERE {HAS_PASSAGES}")
    found = {memory_id for (memory_id,) in rows}
    assert found == {row.memory_id for row in (*OTHERS, ANSWER, *more) if has_passages(row)}
    assert found == {"answer", "tool", "long"}
