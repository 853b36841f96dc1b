"""Upkeep: how long it rests between two syncs, that neither an error nor a shard which is closed
meanwhile ends it, what is frozen, and what leaves the log."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from palimpsest.ops.embedding import tracker
from palimpsest.ops.embedding.models import EmbeddingModels
from palimpsest.ops.embedding.tracker import EmbeddingTracker, Missing, missing
from palimpsest.ops.maintenance import process
from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.maintenance.process import (
    LOOK_SECONDS,
    MOST_SECONDS,
    SHARE,
    Upkeep,
    expiring,
    pause_after,
)
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.schemas.rows.pipeline import FlagsRow
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.logs.embedded import EmbeddedLog
from palimpsest.streams.models.base import TransientModelError, Vector
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.settings import Flags
from tests.harness import Clock
from tests.memory_rows import DIMENSIONS, MODEL, memory, open_shard, write
from tests.messages import published, turn


def test_syncs_take_their_share_of_the_time_and_no_more() -> None:
    assert pause_after(0.0) == LOOK_SECONDS
    assert 0.1 / (0.1 + pause_after(0.1)) <= SHARE
    assert pause_after(30.0) == MOST_SECONDS


def tracking(
    shards: dict[int, Shard], model: HashingEmbeddingModel, flags: Flags | None = None
) -> EmbeddingTracker:
    return EmbeddingTracker(shards.copy, EmbeddingModels(Settings(), model), flags or Flags())


class Watched(HashingEmbeddingModel):
    """Says when it made vectors."""

    def __init__(self) -> None:
        super().__init__(DIMENSIONS)
        self.went_on = asyncio.Event()

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.went_on.set()
        return await super().embed_passages(texts)


class Revoking(Watched):
    """Partition 0 is given up while its vectors are made, and until then the provider refuses those
    of the others, whichever partition is looked at first."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        super().__init__()
        self._shards = shards

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        if any("coffee" in text for text in texts):
            await asyncio.to_thread(self._shards.pop(0).close)
            return await HashingEmbeddingModel.embed_passages(self, texts)
        if 0 in self._shards:
            raise TransientModelError("later")
        return await super().embed_passages(texts)


async def test_what_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = open_shard(tmp_path)
    write(shard, [memory("m", "Ana likes tea", 1)], vectors=False)
    model = Watched()
    tried = []

    def failing_once(*given: Any) -> Missing:
        tried.append(given)
        if len(tried) == 1:
            raise duckdb.IOException("no space left")
        return missing(*given)

    monkeypatch.setattr(tracker, "missing", failing_once)
    monkeypatch.setattr(tracker, "TRACK_SECONDS", 0.01)
    async with tracking({0: shard}, model).tasks()[0].running(), asyncio.timeout(30):
        await model.went_on.wait()
    shard.close()


async def test_a_shard_that_is_closed_meanwhile_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = {number: open_shard(tmp_path / str(number)) for number in range(2)}
    for number, drink in enumerate(("coffee", "tea")):
        write(shards[number], [memory("m", f"Ana likes {drink}", 1)], vectors=False)
    model = Revoking(shards)
    monkeypatch.setattr(tracker, "TRACK_SECONDS", 0.01)
    async with tracking(shards, model).tasks()[0].running(), asyncio.timeout(30):
        await model.went_on.wait()
    shards[1].close()


# --- what nothing but a person may change -----------------------------------------------------


def frozen(scope: str, is_frozen: bool) -> FlagsRow:
    return FlagsRow(scope=scope, autonomous_frozen=is_frozen)


@pytest.mark.parametrize(
    ("default", "rows", "embedded"),
    [
        (False, [frozen("b", True)], {"a"}),
        (True, [frozen("b", False)], {"b"}),
        (True, [], set()),
    ],
)
async def test_a_frozen_scope_gets_no_vectors_by_timer(
    tmp_path: Path, default: bool, rows: list[FlagsRow], embedded: set[str]
) -> None:
    shard = open_shard(tmp_path)
    write(
        shard,
        [*rows, *(memory(f"m-{s}", f"{s} likes tea", 1, scope=s) for s in "ab")],
        vectors=False,
    )
    model = HashingEmbeddingModel(DIMENSIONS)
    model.model = MODEL
    kept = tracking({0: shard}, model, Flags(autonomous_frozen=default))
    await Upkeep(lambda: {0: shard}, kept).finish()
    with shard.reading() as reader:
        found = reader.execute(
            "SELECT scope FROM memory_rows JOIN embeddings USING (embedding_key)"
        ).fetchall()
    assert {scope for (scope,) in found} == embedded
    shard.close()


# --- at rest ----------------------------------------------------------------------------------

KEPT = "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"


async def test_a_shard_at_rest_gives_back_memory_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, until something is written or read again."""
    monkeypatch.setattr("palimpsest.stores.shard.RESTING_MIB", 1)
    monkeypatch.setattr(process, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(process, "FILES_SECONDS", 0.0)
    with contextlib.closing(open_shard(tmp_path)) as shard:
        upkeep = Upkeep(lambda: {0: shard})

        def files() -> int:
            return sum(1 for each in (tmp_path / "vectors.lance").rglob("*") if each.is_file())

        def kept() -> int:
            shard.fetch("SELECT sum(length(content)) FROM memory_rows")
            [(found,)] = shard.fetch(KEPT)
            return int(found)

        for number in range(1, 7):
            texts = [f"{number} {random.Random(n).randbytes(2_000).hex()}" for n in range(200)]
            each = [memory(f"m{number}-{n}", said, number) for n, said in enumerate(texts)]
            write(shard, each)
            await upkeep._once()
        shard.fetch("CHECKPOINT")
        before, many = kept(), files()
        await upkeep._once()  # gives back memory
        [(left,)] = shard.fetch(KEPT)
        assert left < before / 2
        monkeypatch.setattr("palimpsest.stores.index.lance.KEEP_VERSIONS", timedelta(0))
        await upkeep._once()  # gives back files
        assert files() < many
        assert len(shard.vector_table().vectors([f"m{n}-7" for n in range(1, 7)]) or ()) == 6
        await upkeep._once()  # what was just read
        rested: list[object] = []
        monkeypatch.setattr(shard, "rest", lambda: rested.append(1) or True)
        for _ in range(3):
            await upkeep._once()
        assert rested == []
        shard.fetch("SELECT 1")
        for _ in range(3):
            await upkeep._once()
        assert rested.pop() == 1
        assert rested == []
        write(shard, [memory("new", "a new one", 7)])
        for _ in range(2):
            await upkeep._once()
        assert rested == [1]


async def test_a_shard_that_is_read_without_a_pause_gives_back_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gives back it reads from its file again."""
    now, rested = 0.0, []
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: now))
    with contextlib.closing(open_shard(tmp_path)) as shard:
        monkeypatch.setattr(shard, "rest", lambda: rested.append(now) or True)
        upkeep = Upkeep(lambda: {0: shard})
        while now < 3_600:
            shard.fetch("SELECT 1")
            await upkeep._once()
            now += 30
        assert rested[0] == process.IDLE_SECONDS
        pauses = [later - before for before, later in pairwise(rested)]
        assert len(pauses) > 5
        assert min(pauses) >= process.FILES_SECONDS


async def test_a_shard_that_is_read_keeps_its_memory_until_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "IDLE_SECONDS", 0.0)
    with contextlib.closing(open_shard(tmp_path)) as shard:
        with shard.reading() as reader:
            reader.execute("BEGIN TRANSACTION READ ONLY")
            assert not shard.rest()
        assert shard.rest()
        assert shard.fetch("SELECT current_setting('memory_limit')") != [("16.0 MiB",)]


# --- what leaves the log ----------------------------------------------------------------------


def invalidation(scope: str = "ana") -> Outgoing:
    return Outgoing("cache-invalidations", scope, scope.encode(), b"{}", {})


def program_settings(folder: Path, *flags: str) -> Settings:
    return load_settings(["embedding.provider=hashing", *flags], folder, None, {}).settings


@pytest.mark.parametrize("is_frozen", [False, True])
async def test_a_worker_removes_what_its_topic_keeps_no_longer(
    tmp_path: Path, is_frozen: bool
) -> None:
    """By the whole program: cache-invalidations are kept a day, turns for ever."""
    clock = Clock()
    settings = program_settings(tmp_path, f"pipeline.autonomous_frozen={is_frozen}")
    async with application(settings, clock=clock) as app:
        app.log.append([outgoing(CONVERSATION_TURNS, published(turn("I like tea")))])
        await app.run(until_drained=True)
        app.log.append([invalidation()])
        old = app.log.end_offset("cache-invalidations", 0)
        kept = len(app.log.read("conversation-turns", 0, 0, 10))
    clock.advance(days=2)
    async with application(settings, clock=clock) as app:
        await app.run(until_drained=True)
        # What was sent last may be sent again: it is new then.
        left = app.log.read("cache-invalidations", 0, 0, 10)
        assert [r.offset for r in left if r.offset < old] == [*range(old)] * is_frozen
        assert len(app.log.read("conversation-turns", 0, 0, 10)) == kept == 1


async def test_what_is_too_old_leaves_at_the_rhythm_that_is_set(tmp_path: Path) -> None:
    clock, waited, thrice = Clock(), list[float](), asyncio.Event()

    async def pass_a_day(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            thrice.set()
            await asyncio.Event().wait()
        log.append([invalidation()])
        clock.advance(days=1, seconds=1)

    with EmbeddedLog(tmp_path, 1, clock) as log:
        task = replace(
            expiring([log, None], clock, 7.0), wait=pass_a_day, monotonic=lambda: sum(waited)
        )
        async with task.running(), asyncio.timeout(30):
            await thrice.wait()
            assert log.read("cache-invalidations", 0, 0, 10) == []
            assert log.end_offset("cache-invalidations", 0) == 2
    assert waited == [7.0, 7.0, 7.0]


async def test_a_log_that_cannot_be_written_ends_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        EmbeddedLog(tmp_path, 1, Clock()),
        EmbeddedLog(tmp_path, 1, Clock(), "read") as log,
    ):
        await expiring([log], Clock(), 60.0).once()
    assert "what is too old, to be tried again" in caplog.text
