"""A branch takes the vectors of texts that the live memory has from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.replay import live_stores
from palimpsest.ops.replay.branches import branch_folder
from palimpsest.ops.worker.local import serving_reads
from palimpsest.streams.models.base import Vector
from palimpsest.streams.models.hashing import HashingEmbeddingModel
from tests.flows.test_reextraction import NEW, OLD, TURNS
from tests.harness import differing
from tests.replayed import Live, facts, live_settings, provider, rows, state

SAID = {"old": OLD, "new": {**OLD, TURNS[2]: NEW[TURNS[2]]}}


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of which a model was asked for the vectors."""
    asked: list[str] = []
    embed = HashingEmbeddingModel.embed_passages

    async def told(self: HashingEmbeddingModel, texts: Sequence[str]) -> list[Vector]:
        asked.extend(texts)
        return await embed(self, texts)

    monkeypatch.setattr(HashingEmbeddingModel, "embed_passages", told)
    return asked


@pytest.mark.parametrize("worker", [False, True])
async def test_only_what_the_live_memory_does_not_have_is_embedded(
    tmp_path: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch, worker: bool
) -> None:
    async with provider(SAID) as server:
        live = Live(live_settings(tmp_path, server.url))
        live.say(*TURNS[:8])
        await live.run()
        await live.branch("whole")  # of few records: all is embedded anew
        assert len(embedded) > 8
        embedded.clear()
        monkeypatch.setattr(live_stores, "LEAST_RECORDS", 1)
        if worker:
            async with application(live.settings) as app, serving_reads(app):
                await live.branch()
        else:
            unchanged = live.unchanged()
            await live.branch()
            assert live.unchanged() == unchanged
    new = {text for text in NEW[TURNS[2]] if text not in OLD[TURNS[2]]}
    assert new
    assert set(embedded) <= new
    assert new <= set(facts(live.of_branch()))
    assert differing(state(live.of_branch()), state(live.of_branch("whole"))) == []
    for name in ("new", "whole"):
        without = "SELECT count(*) FROM memory_rows m WHERE NOT is_deleted AND embedding_key NOT IN"
        assert rows(live.of_branch(name), f"{without} (SELECT embedding_key FROM embeddings)") == [
            (0,)
        ]
    assert not (branch_folder(live.settings, "new") / "live").exists()
