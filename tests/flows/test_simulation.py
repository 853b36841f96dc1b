"""What a simulation names against what then happens: the memories that go, the recalls that
differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palimpsest.ops.lifecycle.decay import fading
from palimpsest.ops.lifecycle.retention import SWEEPER, next_step
from palimpsest.ops.operations.lifecycle.simulation import Simulate
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.scheduling.jobs import JobContext
from palimpsest.schemas.commands import (
    ConfirmCommand,
    ForgetCommand,
    RememberCommand,
    SweepCommand,
    SweepStep,
)
from palimpsest.schemas.identity import command_memory_id
from tests.a_year import night
from tests.flows.test_access import Reader
from tests.harness import FULL, Pipeline, pipeline_settings
from tests.messages import commanded

PEOPLE = ("Ana", "Ben", "Rita", "Omar", "Li", "Eva")
THINGS = ("green tea", "chess", "the sea", "old maps", "rye bread", "jazz", "tulips", "trams")
TEXTS = [f"{person} likes {thing}" for person in PEOPLE for thing in THINGS]
QUESTIONS = [f"What does {person} like?" for person in PEOPLE] + [
    f"Who likes {thing}?" for thing in THINGS
]
IDS = [
    command_memory_id("ana", commanded(RememberCommand(content=""), number).id)
    for number in range(1, len(TEXTS) + 1)
]
DAYS_AHEAD = 55


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """48 memories; some recalled long ago, some lately, one person's confirmed, some forgotten at
    two times."""
    folder = tmp_path_factory.mktemp("simulated")
    with Pipeline(folder, pipeline_settings(FULL)) as pipeline:
        pipeline.command(*(RememberCommand(content=text) for text in TEXTS))
        pipeline.run()
        reader = Reader(pipeline)
        pipeline.clock.advance(days=2)
        reader.records(*(Recall(text, "ana", limit=4) for text in QUESTIONS[:9]))
        pipeline.command(
            *(ForgetCommand(memory_ids=(each,), reason="done") for each in IDS[:3]),
            *(ConfirmCommand(memory_id=each) for each in IDS[8:16]),
            first=200,
        )
        pipeline.run()
        pipeline.clock.advance(days=20)
        night(pipeline, pipeline.clock())
        pipeline.run()
        reader.records(*(Recall(text, "ana", limit=4) for text in QUESTIONS[7:]))
        pipeline.command(
            *(ForgetCommand(memory_ids=(each,), reason="done") for each in IDS[4:6]), first=300
        )
        pipeline.run()
        pipeline.clock.advance(days=5)
        yield pipeline


def simulated(pipeline: Pipeline, **given: Any) -> dict[str, Any]:
    """All pages."""
    reader = Reader(pipeline)
    request = {"scope": "ana", "days_ahead": DAYS_AHEAD, "limit": 7, **given}
    [page] = reader.asks(Simulate(**request))
    found = {**page, "memories": [*page["memories"]], "recalls": [*page["recalls"]]}
    while page["next_cursor"] is not None:
        [page] = reader.asks(Simulate(**{**request, "cursor": page["next_cursor"]}))
        found["memories"] += page["memories"]
        found["recalls"] += page["recalls"]
    assert len(found["memories"]) == found["total"]
    assert len(found["recalls"]) == found["recalls_missing"]
    return found


def ids_of(found: dict[str, Any], reason: str) -> set[str]:
    return {each["id"] for each in found["memories"] if each["reason"] == reason}


def there(pipeline: Pipeline, where: str) -> set[str]:
    return set(pipeline.values(f"SELECT memory_id FROM memory_rows WHERE {where}"))


def sweep_now(pipeline: Pipeline) -> None:
    """The steps that remove tombstones, as the job finds them."""
    context = JobContext(
        pipeline.shard, 0, pipeline.clock(), pipeline.settings, pipeline.log, pipeline.log.append
    )
    number = 400
    steps: tuple[SweepStep, ...] = ("mentions", "vectors", "memories")
    for step in steps:
        while (found := next_step(context, "ana", step)) is not None:
            number += 1
            command = SweepCommand(step=step, before=found.before)
            pipeline.command(command, first=number, actor=SWEEPER)
            pipeline.run()


def test_what_is_named_is_what_goes(running: Pipeline) -> None:
    before = running.state()
    found = simulated(running)
    assert running.state() == before
    rows = running.rows(
        "SELECT r.recall_id, r.question, list(x.memory_id ORDER BY x.rank) AS ids FROM recalls r"
        " JOIN recall_results x USING (recall_id) GROUP BY ALL"
    )
    assert found["recalls_recorded"] == len(rows) == len(QUESTIONS) + 2
    forgotten, active = there(running, "is_deleted"), there(running, "NOT is_deleted")

    running.clock.advance(days=DAYS_AHEAD)
    night(running, running.clock())
    running.run()
    faded = active & there(running, "is_deleted")
    sweep_now(running)
    swept = forgotten - there(running, "true")

    assert ids_of(found, "faded") == faded
    assert ids_of(found, "swept") == swept
    assert 5 < len(faded) < len(active) - 5
    assert len(swept) == 5

    # The named recalls are those that now lack a result, and those results.
    questions = [row["question"] for row in rows]
    answers = Reader(running).asks(*(Recall(text, "ana", limit=48) for text in questions))
    lacking = {}
    for row, answer in zip(rows, answers, strict=True):
        now = {result["id"] for result in answer["results"]}
        gone = {(rank, key) for rank, key in enumerate(row["ids"], 1) if key not in now}
        if gone:
            lacking[row["recall_id"]] = gone
    named = {
        recall["id"]: {(each["rank"], each["memory_id"]) for each in recall["missing"]}
        for recall in found["recalls"]
    }
    assert named == lacking
    assert 0 < len(named) < len(rows)


def test_rules_of_the_request(running: Pipeline) -> None:
    assert simulated(running, decay_rate=0.0, deleted_days=36_500)["total"] == 0
    everything = simulated(running, decay_rate=10.0, deleted_days=0)
    fades = {row.memory_id for row, _ in fading(running.shard, "ana", running.clock())}
    assert ids_of(everything, "faded") == fades
    assert ids_of(everything, "swept") == there(running, "is_deleted")
    assert simulated(running, scope="ben")["total"] == 0
    recent = simulated(running, decay_rate=10.0, recall_days=1)
    assert recent["recalls_recorded"] == 0
