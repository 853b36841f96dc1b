"""The retention sweep: what it removes and keeps, and that a crash or a rebuild changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from palimpsest.ops.lifecycle.retention import SWEEPER, next_step, sweep
from palimpsest.schemas.commands import (
    ForgetCommand,
    MemoryPatch,
    ModifyCommand,
    RecoverCommand,
    RememberCommand,
    SetFlagsCommand,
    SetRetentionCommand,
    SweepCommand,
)
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.memory_texts import embedding_key
from palimpsest.schemas.topics import MEMORY_HISTORY, MEMORY_WRITES
from palimpsest.stores.index.loading import load_index
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.output import own_command
from tests.fault import driver
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.rebuilding import live_on, opened, rebuilt, settings_of, state_of
from tests.resident_index import graph_of
from tests.spoken_model import ScriptedModel, spoken
from tests.sweeping import context_of, swept

TABLES = (
    *("memory_rows", "memory_archive", "mention_rows", "name_rows", "relation_rows"),
    *("fts_docs", "fts_postings", "embeddings", "history_rows", "accepted_turns", "outcomes"),
    *("extractions", "fact_rows", "proposals", "dead_letter_rows", "memory_edges"),
)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(tmp_path, pipeline_settings(FULL, "model"), ScriptedModel(spoken)) as made:
        yield made


def counts(pipeline: Pipeline, scope: str | None = None) -> dict[str, int]:
    of_scope = "" if scope is None else f"WHERE scope = '{scope}'"
    without = {"embeddings"} if scope else set()
    return {
        table: pipeline.values(f"SELECT count(*) FROM {table} {of_scope}")[0]
        for table in TABLES
        if table not in without
    }


def ids(pipeline: Pipeline, scope: str = "ana") -> tuple[str, ...]:
    query = "SELECT memory_id FROM memory_rows WHERE scope = ? AND NOT is_deleted ORDER BY 1"
    return tuple(pipeline.values(query, scope))


def forget_all(pipeline: Pipeline, number: int = 100, scope: str = "ana") -> None:
    forget = ForgetCommand(memory_ids=ids(pipeline, scope), reason="over", force=True)
    pipeline.command(forget, first=number, scope=scope)
    pipeline.run()


def test_everything_past_its_window_is_gone(pipeline: Pipeline) -> None:
    for scope in ("ana", "ben"):
        pipeline.say("Ana lives in Oslo", "Ben likes Bergen", "? what", scope=scope)
        pipeline.command(RememberCommand(content="Ana plays the harp"), scope=scope)
    pipeline.run()
    kept = counts(pipeline, "ben")
    forget_all(pipeline)
    assert swept(pipeline) == []
    pipeline.clock.advance(days=31)
    pipeline.command(SetFlagsCommand(autonomous_frozen=True), scope="ben", first=50)
    pipeline.run()
    steps = swept(pipeline, lambda: holds(pipeline))
    expected = ("mentions", "vectors", "memories", "completed", "dead-letters")
    assert steps == [f"ana: {step}" for step in expected]
    pipeline.clock.advance(days=150)
    assert "ana: history" in swept(pipeline, lambda: holds(pipeline))
    now = counts(pipeline, "ana")
    assert {table: number for table, number in now.items() if number} == {}
    assert counts(pipeline, "ben") == {**kept, "history_rows": kept["history_rows"] + 1}
    assert swept(pipeline) == []
    # On the compacted topic, every event of the scope has a null value.
    records = pipeline.records(MEMORY_HISTORY)
    events = pipeline.values("SELECT event_id FROM history_rows")
    newest = {record.key: record.value for record in records}
    assert {key.decode() for key, value in newest.items() if key and value} == set(events)


def holds(pipeline: Pipeline) -> None:
    assert pipeline.balance().holds
    [held] = pipeline.values("SELECT holds FROM main.pipeline_total")
    assert held


def test_what_can_be_recovered_is_kept_and_no_more(pipeline: Pipeline) -> None:
    for number, text in enumerate(("one thing", "another thing"), 1):
        pipeline.command(RememberCommand(content=text), first=number)
    pipeline.run()
    one, other = ids(pipeline)
    forget_all(pipeline)
    pipeline.clock.advance(days=10)
    pipeline.command(SetRetentionCommand(deleted_days=10), first=3)
    pipeline.command(RecoverCommand(memory_id=one), first=4)
    pipeline.run()
    assert pipeline.result(4)[0] is None  # on its last day
    assert swept(pipeline)[:3] == ["ana: mentions", "ana: vectors", "ana: memories"]
    assert ids(pipeline) == (one,)
    forget_all(pipeline, 200)
    pipeline.clock.advance(days=10, seconds=1)
    pipeline.command(RecoverCommand(memory_id=one), first=5)
    pipeline.command(RecoverCommand(memory_id=other), first=6)
    pipeline.run()
    assert str(pipeline.result(5)[0]).startswith("retention_expired")  # before any sweep
    assert str(pipeline.result(6)[0]).startswith("not_found")


def test_vectors_of_earlier_texts_go_after_the_window(pipeline: Pipeline) -> None:
    """Also from LanceDB, with those of the tokens; a text that another memory has, or that may be
    brought back, keeps its own."""
    table = pipeline.shard.vector_table()

    def held() -> tuple[set[str], int]:
        table.sync()
        keys = set(pipeline.values("SELECT embedding_key FROM embeddings"))
        return keys, table._table.count_rows()

    def append(records: Sequence[Outgoing]) -> None:
        pipeline.log.append(records)
        pipeline.run()

    def job() -> str:
        return asyncio.run(sweep(replace(context_of(pipeline), append=append)))

    for number, text in enumerate(("Ana has a cat", "Ana has a dog", "Ben has a cat"), start=1):
        pipeline.command(RememberCommand(content=text), first=number)
    pipeline.command(RememberCommand(content="Ana has a dog"), scope="ben")
    pipeline.run()
    assert len(held()[0]) == 3
    for number, (old, new) in enumerate((("Ana has a cat", "one"), ("Ana has a dog", "two")), 20):
        [found] = pipeline.values(
            "SELECT memory_id FROM memory_rows WHERE content = ? AND scope = 'ana'", old
        )
        patch = MemoryPatch(memory_id=found, content=f"Ana has a bird, {new}")
        pipeline.command(ModifyCommand(patches=(patch,), reason="so it is"), first=number)
    pipeline.run()
    before = held()
    assert (len(before[0]), before[1]) == (5, 4)
    pipeline.clock.advance(days=29)
    assert "vectors" not in job()
    assert held() == before
    pipeline.clock.advance(days=2)
    pipeline.run()
    assert "earlier vectors: 1" in job()
    kept, rows = held()
    assert before[0] - kept == {embedding_key("Ana has a cat")}
    assert rows == 4
    assert "vectors" not in job()
    # The text is said again, and has a vector again.
    pipeline.command(RememberCommand(content="Ana has a cat"), first=40)
    pipeline.run()
    assert held() == (before[0], 5)
    # What is forgotten leaves LanceDB at once, and DuckDB after its window, however it was changed.
    forget_all(pipeline)
    assert held() == (before[0], 1)
    pipeline.clock.advance(days=31)
    swept(pipeline)
    assert held()[0] == {embedding_key("Ana has a dog")}
    assert table.compare().removed == 0


@pytest.mark.parametrize(
    ("command", "actor", "told"),
    [
        (SetRetentionCommand(history_days=1), "agent", "forbidden"),
        (SweepCommand(step="history", before="2026-01-01T00:00:00Z"), "agent", "forbidden"),
        (SweepCommand(step="history", before="2030-01-01T00:00:00Z"), "system", "invalid_request"),
        (SweepCommand(step="mentions", before="2026-03-01T00:00:00Z"), "human", "invalid_request"),
        (SweepCommand(step="memories", before="2026-01-01T00:00:00Z"), "human", "invalid_request"),
    ],
)
def test_what_may_not_be_swept(
    pipeline: Pipeline, command: SweepCommand, actor: str, told: str
) -> None:
    pipeline.command(command, actor=Actor.model_validate({"id": "x", "type": actor}))
    pipeline.run()
    assert str(pipeline.result()[0]).partition(":")[0] == told


def test_nothing_is_swept_while_frozen(pipeline: Pipeline) -> None:
    command = SweepCommand.model_validate({"step": "history", "before": "2026-01-01T00:00:00Z"})
    for number, flag in enumerate(("autonomous_frozen", "mutations_frozen")):
        pipeline.command(SetFlagsCommand.model_validate({flag: True}), first=10 * number)
        system = Actor(id="retention", type="system")
        pipeline.command(command, first=10 * number + 1, actor=system)
        pipeline.command(SetFlagsCommand.model_validate({flag: False}), first=10 * number + 2)
        pipeline.run()
        assert str(pipeline.result(10 * number + 1)[0]).startswith("frozen")


def test_a_step_is_answered_once_its_rows_are_gone(pipeline: Pipeline) -> None:
    """Else a long sweep would run ahead of what removes the rows, and end before it."""
    pipeline.say("Ana lives in Oslo", "Ben likes Bergen / Ben > knows > Ana")
    pipeline.run()
    forget_all(pipeline)
    pipeline.clock.advance(days=200)
    for step in ("mentions", "vectors", "memories"):
        context = context_of(pipeline)
        found = next_step(context, "ana", step)
        assert found is not None
        command = SweepCommand(step=step, before=found.before)
        command_id, record = own_command("ana", command, SWEEPER, pipeline.clock())
        pipeline.log.append([record])
        pipeline.run("normalize", "apply-writes")
        before = counts(pipeline)
        assert context._results([command_id]) == {}
        pipeline.run("graph-persist")
        assert '"swept"' in context._results([command_id])[command_id]
        assert counts(pipeline) != before
    assert ids(pipeline) == ()
    assert counts(pipeline)["memory_rows"] == 0


def test_a_resident_graph_loses_what_the_tables_lose(pipeline: Pipeline) -> None:
    """Without being loaded again: in a large scope recall would wait for that at every step."""
    indexes = pipeline.shard.indexes
    pipeline.say(
        "Ana lives in Oslo / Ana > lives in > Oslo", "Ben likes Bergen / Ben > knows > Ana"
    )
    pipeline.run()
    gone = ids(pipeline)
    more = ("Ben is glad / Ben > likes > Bergen", "Cleo met Ben / Cleo > met > Ben")
    pipeline.say(*more, first=50)
    pipeline.run()
    index = indexes.get("ana")
    forget = ForgetCommand(memory_ids=gone, reason="over", force=True)
    pipeline.command(forget, first=100)
    pipeline.run()
    pipeline.clock.advance(days=31)
    before = graph_of(index)

    def same() -> None:
        assert indexes.resident("ana") is index
        with pipeline.shard.reading() as reader:
            options = pipeline.shard.options
            loaded = load_index(reader, "ana", options.embedding_model, options.dimensions)
        assert graph_of(index) == graph_of(loaded)

    assert "ana: mentions" in swept(pipeline, same)
    after = graph_of(index)
    assert after["names"].keys() < before["names"].keys()
    assert all(now < then for now, then in zip(after["counts"], before["counts"], strict=True))
    assert after["found"].keys() < before["found"].keys()


def swept_with(folder: Path, *crash: str) -> dict[str, str]:
    """The state after a sweep of all; with a crash there each time that it is armed again."""
    with Pipeline(folder, pipeline_settings(FULL, "model"), ScriptedModel(spoken)) as pipeline:
        pipeline.say("Ana lives in Oslo", "Ben likes Bergen / Ben > knows > Ana")
        pipeline.run()
        forget_all(pipeline)
        pipeline.clock.advance(days=200)

        def arm() -> None:
            if crash:
                pipeline.crash_at(*crash)

        arm()
        swept(pipeline, arm)
        pipeline.disarm()
        return pipeline.state_by_table()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return swept_with(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("stage", ["apply-writes", "graph-persist"])
@pytest.mark.parametrize("step", ["step", "commit", "send"])
def test_a_crash_at_any_step_ends_the_same(
    stage: str, step: str, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    assert swept_with(tmp_path, stage, step) == undisturbed


def sweep_and_tell(folder: Path, told: Connection) -> None:
    with driver.opened(folder) as pipeline:
        pipeline.on_step = lambda stage, step: driver.tell(told, f"{stage} {step}")
        pipeline.clock.advance(days=200)
        swept(pipeline)
    driver.tell(told, "")


@pytest.mark.soak
def test_kill_9_at_every_step_ends_the_same(tmp_path: Path) -> None:
    ends, places = [], []
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        with driver.opened(folder) as pipeline:
            pipeline.say("Ana lives in Oslo", "Ben likes Bergen / Ben > knows > Ana")
            pipeline.run()
            forget_all(pipeline)
        if folder.name == "killed":
            for steps in (3, 4, 5, 6, 7, 8, 10, 13, 17, 22):
                places.append(driver.run_and_kill(sweep_and_tell, folder, after=steps))
        with driver.opened(folder) as pipeline:
            pipeline.clock.advance(days=200)
            swept(pipeline)
            assert pipeline.balance().holds
            assert swept(pipeline) == []
            kept = {each.key: each.value for each in pipeline.records(MEMORY_HISTORY)}
            ends.append((pipeline.state_by_table(), kept))
    assert None not in places
    assert len({*places}) > 5
    assert ends[0] == ends[1]


def test_a_rebuild_ends_the_same(tmp_path: Path) -> None:
    chance = random.Random(0)
    took: set[str] = set()
    for number in range(3):
        live_on(tmp_path, 2, seed=number, start=2 * number, erases=False)
        with opened(tmp_path) as pipeline:
            newest = pipeline.records(MEMORY_WRITES)[-1].timestamp
            pipeline.clock.time = newest + timedelta(days=chance.choice((20, 35, 200)))
            took |= {each.partition(": ")[2] for each in swept(pipeline)}
    settings = settings_of(tmp_path)
    before = state_of(settings)
    assert rebuilt(settings, swap=True).is_equal
    assert state_of(settings) == before
    assert {"mentions", "vectors", "memories"} <= took


def test_what_a_swept_memory_stated_is_not_shown_again(tmp_path: Path) -> None:
    """When another statement of its source is forgotten, the text is made anew of both."""
    with Pipeline(tmp_path, pipeline_settings(FULL)) as pipeline:
        pipeline.say("I live in Ghent. I have a red bike. I like pasta. The rain is loud today.")
        pipeline.run()
        for number, word in enumerate(("Ghent", "pasta"), start=50):
            [fact] = pipeline.values(
                "SELECT memory_id FROM memory_rows WHERE type <> 'episodic' AND NOT is_deleted"
                " AND content LIKE ?",
                f"%{word}%",
            )
            pipeline.command(ForgetCommand(memory_ids=(fact,), reason="private"), first=number)
            pipeline.run()
            pipeline.clock.advance(days=200)
            assert "ana: memories" in swept(pipeline)
            assert pipeline.values("SELECT 1 FROM memory_rows WHERE memory_id = ?", fact) == []
        [text] = pipeline.values("SELECT content FROM memory_rows WHERE type = 'episodic'")
        assert "Ghent" not in text
        assert "pasta" not in text
        assert "red bike" in text
