"""What was recorded is folded into another store: it holds what the live one holds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.ops.maintenance.erasing import execute_in
from palimpsest.schemas.topics import DEAD_LETTERS, FACTS_EXTRACTED, MEMORY_CHANGES, MEMORY_WRITES
from tests.fault.stops import Stop, run_and_copy
from tests.folded_history import (
    TALK,
    beside,
    ends_of,
    fold,
    hashes,
    live,
    live_to_an_erasure,
    recorded,
)
from tests.harness import Pipeline, differing
from tests.spoken_model import ScriptedModel

STATEFUL = ("apply-writes", "graph-persist", "audit")
STOPPED = ("decide", *STATEFUL)
FEW = 5


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A history that was lived, with all its files."""
    with recorded(tmp_path_factory.mktemp("lived")) as pipeline:
        live(pipeline)
        assert pipeline.balance().holds
        yield pipeline


def asked(pipeline: Pipeline) -> int:
    """How often the language model was."""
    assert isinstance(pipeline.language, ScriptedModel)
    return len(pipeline.language.prompts)


def test_the_history_has_everything(lived: Pipeline) -> None:
    lived.reopen()
    outcomes = set(lived.values("SELECT DISTINCT event FROM outcomes"))
    assert outcomes >= {"created", "modified", "none", "blocked", "skipped", "shadowed", "dropped"}
    events = set(lived.values("SELECT DISTINCT event FROM history_rows"))
    assert events >= {"recovered", "deleted", "purged", "imported", "session-ended", "flags"}
    for table in ("memory_archive", "held_proposals", "short_term_rows", "dead_letter_rows"):
        assert lived.values(f"SELECT count(*) FROM {table}")[0], table


def test_all_tables_are_the_same_and_a_worker_goes_on(lived: Pipeline, tmp_path: Path) -> None:
    before = hashes(lived.reopen())
    questions = asked(lived)
    with beside(lived, tmp_path / "folded") as folded, beside(lived, tmp_path / "other") as other:
        ends = ends_of(folded)
        for pipeline, stored in ((folded, [lived.folder]), (other, [])):
            result = fold(pipeline, ends, *stored)
            assert differing(hashes(pipeline), before) == []
            assert not result.stopped
            assert {
                stage: {topic: pipeline.shard.cursor_of(stage, topic) for topic in topics}
                for stage, topics in ends.items()
            } == ends
            # Facts that became no memory have no stored vector.
            assert (result.embedded < FEW) == bool(stored)
            assert asked(lived) == questions
            assert ends_of(pipeline) == ends  # nothing was appended
            assert [pipeline.shard.unsent(stage) for stage in STATEFUL] == [[], [], []]
            assert pipeline.balance().holds
        # What comes afterwards comes to the same in both.
        for pipeline in (folded, other):
            pipeline.run()  # finds nothing to do
            assert ends_of(pipeline) == ends
            pipeline.say(TALK[0], TALK[2], "Now Ana likes blue tea", first=500)
            pipeline.say(TALK[4], first=501, scope="dora")
            pipeline.run()
            assert pipeline.balance().holds
        assert differing(folded.state_by_table(), other.state_by_table()) == []
        memories = folded.memories()
    with Pipeline(tmp_path / "folded", lived.settings, lived.language) as again:
        assert again.memories() == memories


@pytest.mark.parametrize("seed", [1])
def test_an_erasure_that_was_not_carried_out(seed: int, tmp_path: Path) -> None:
    """The log has the text still; afterwards nothing has."""
    with recorded(tmp_path / "lived", seed) as lived:
        live_to_an_erasure(lived).run()
        with beside(lived, tmp_path / "folded") as folded:
            fold(folded, ends_of(folded), lived.folder)
            execute_in(folded.log, 0, folded.shard)
            execute_in(lived.reopen().log, 0, lived.shard)
            assert differing(hashes(folded), hashes(lived)) == []


def test_it_goes_on_where_it_stopped(
    lived: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hashes(lived.reopen())
    monkeypatch.setattr("palimpsest.ops.replay.fold.BATCH_RECORDS", 20)
    chance = random.Random(1)
    with beside(lived, tmp_path) as folded:
        ends = ends_of(folded)
        records: Counter[str] = Counter()
        stops = 0
        stopped = True
        while stopped:
            looks = iter([False] * chance.randint(1, 7))
            result = fold(folded, ends, lived.folder, stopping=lambda of=looks: next(of, True))
            folded.reopen()
            records.update(result.by_stage)
            stopped = result.stopped
            stops += 1
        assert stops > 5
        assert records == {stage: sum(topics.values()) for stage, topics in ends.items()}
        assert fold(folded, ends).records == 0
        assert differing(hashes(folded), before) == []


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[Stop, Path]]:
    """What a run ends in, and what it leaves where it is killed on its way."""

    def is_tried(stop: Stop) -> bool:
        stage, step, nth = stop
        return stage in STOPPED and step in ("commit", "send") and nth == 2

    with recorded(tmp_path_factory.mktemp("said")) as pipeline:
        pipeline.say(*TALK)
        stopped = run_and_copy(pipeline, is_tried, tmp_path_factory.mktemp("stops"))
        return pipeline.state_by_table(), stopped


@pytest.mark.parametrize("stage", STOPPED)
@pytest.mark.parametrize("step", ["commit", "send"])
def test_what_a_crash_left_unsent_is_sent(
    stage: str, step: str, tmp_path: Path, said: tuple[dict[str, str], dict[Stop, Path]]
) -> None:
    """Committed by a process that was killed then: its store is lost, or a copy of it is there."""
    state, stopped = said
    with recorded(stopped[stage, step, 2]) as killed:
        for known in (False, True):
            with beside(killed, tmp_path / f"folded-{known}") as folded:
                fold(folded, ends_of(folded), *[killed.folder] * known)
                folded.run()
                balance = folded.balance()
                assert balance.holds
                assert (balance.turns["in_flight"], balance.facts["in_flight"]) == (0, 0)
                assert _ids_are_unique(folded)
                # Without the times of the log: what was missing was appended by each.
                if known:
                    assert differing(folded.state_by_table(), state) == []


def _ids_are_unique(pipeline: Pipeline) -> bool:
    """Nothing was sent twice."""
    for topic in (MEMORY_WRITES, FACTS_EXTRACTED, MEMORY_CHANGES, DEAD_LETTERS):
        ids = [message.id for message in pipeline.messages(topic)]
        if len(set(ids)) != len(ids):
            return False
    return True


def test_a_partition_without_records(tmp_path: Path) -> None:
    with recorded(tmp_path) as pipeline:
        result = fold(pipeline, ends_of(pipeline))
        assert not result.stopped
        assert result.by_stage == dict.fromkeys(STATEFUL, 0)
        assert pipeline.balance().holds


def test_files_that_cannot_be_read_have_no_vectors(lived: Pipeline, tmp_path: Path) -> None:
    before = hashes(lived.reopen())
    broken = tmp_path / "broken" / "shard" / "memory.duckdb"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no store" * 1000)
    with beside(lived, tmp_path / "folded") as folded:
        result = fold(folded, ends_of(folded), tmp_path / "broken", tmp_path / "gone", lived.folder)
        assert result.embedded < FEW
        assert differing(hashes(folded), before) == []
