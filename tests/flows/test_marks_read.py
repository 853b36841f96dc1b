"""Marks are the same however they are read: of all memories at once, of some, or as they were kept
since the last change."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.stores.recall import marks
from palimpsest.stores.recall.marks import marks_in, marks_of
from tests.rebuilding import live_on, opened


@pytest.mark.parametrize("seed", [3, 8])
def test_they_are_the_same_however_they_are_read(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_on(tmp_path, 4, seed=seed, erases=False)
    found = 0
    with opened(tmp_path) as pipeline:
        shard, now = pipeline.shard, pipeline.clock()
        for scope in ("ana", "ben"):
            ids = set(pipeline.values("SELECT memory_id FROM memory_rows WHERE scope = ?", scope))
            with shard.reading() as reader:
                whole = marks_of(reader, scope, None, now)
                found += len(whole)
                assert marks_of(reader, scope, ids, now) == whole
                for each in ids:
                    alone = {each: whole[each]} if each in whole else {}
                    assert marks_of(reader, scope, {each}, now) == alone
            index = shard.indexes.scope(scope)
            for at_once in (marks.AS_LONG, 0):
                monkeypatch.setattr(marks, "AS_LONG", at_once)
                marks._KNOWN.pop(index, None)
                for _ in range(2):
                    assert marks_in(shard, scope, index, ids, now) == whole
    assert found
