"""Scheduled jobs, also those that ask a language model, and a change of the embedding model on two
workers, one of which is killed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from palimpsest.ops.operations.lifecycle.embeddings import (
    EmbeddingBack,
    EmbeddingStatus,
    MigrateEmbedding,
)
from palimpsest.ops.operations.lifecycle.jobs import RunJob
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.service.commanding import CommandRequest, commands_of
from palimpsest.ops.service.queries import queries
from palimpsest.schemas.commands import Command, ForgetCommand, RememberCommand, SessionEndCommand
from palimpsest.streams.logs.base import partition_for
from tests.branches_by_hand import outgoing_turn
from tests.flows.test_graph import told
from tests.servers import Behaviour, Call, ScriptedProvider, Text
from tests.soak.lab import Lab, MakeLab

SCOPES = {partition_for(name, 2): name for name in ("ana", "ben", "eva", "tom", "rita", "omar")}
SECONDS = 90.0


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab(2)


def submit(lab: Lab, scope: str, command: Command) -> Any:
    request = CommandRequest(scope, command)
    return asyncio.run(commands_of(lab.settings).submit(request, SECONDS)).result()


def ask(lab: Lab, operation: Any) -> Any:
    async def answer() -> Any:
        async with queries(lab.settings) as asked:
            return await asked.answer(operation)

    return asyncio.run(asyncio.wait_for(answer(), SECONDS))


def until_searching_with(lab: Lab, model: str) -> None:
    async def look() -> None:
        async with queries(lab.settings) as asked:
            while True:
                states = (await asked.answer(EmbeddingStatus()))["partitions"]
                if [each["live"] for each in states] == [model, model]:
                    return
                await asyncio.sleep(0.2)

    asyncio.run(asyncio.wait_for(look(), SECONDS))


@pytest.mark.soak
def test_jobs_and_a_migration_reach_every_partition(lab: Lab) -> None:
    assert len(SCOPES) == 2
    lab.choose("pipeline.recovery_days=0")
    lab.start("one")
    lab.start("two")
    lab.until_owned(2, SECONDS)
    for scope in SCOPES.values():
        submit(lab, scope, RememberCommand(content="Ana likes green tea"))
        gone = submit(lab, scope, RememberCommand(content="Ana likes black coffee"))
        submit(lab, scope, ForgetCommand(memory_ids=(gone["id"],), reason="wrong"))

    runs = ask(lab, RunJob("retention", SECONDS))["runs"]
    assert [(run["partition"], run["outcome"]) for run in runs] == [(0, "ok"), (1, "ok")]
    assert all("memories: 1" in run["detail"] for run in runs), runs
    runs = ask(lab, RunJob("decay", SECONDS))["runs"]
    assert [run["outcome"] for run in runs] == ["ok", "ok"]

    [before] = {each["live"] for each in ask(lab, EmbeddingStatus())["partitions"]}
    ask(lab, MigrateEmbedding(to="hashing/second", dimensions=96, switch=True))
    lab.kill("two")
    lab.start("three")
    lab.until_owned(2, SECONDS)
    changed = "hashing-1-96"
    until_searching_with(lab, changed)
    for scope in SCOPES.values():
        [found] = ask(lab, Recall("what tea?", scope))["results"]
        assert found["content"] == "Ana likes green tea"
    ask(lab, EmbeddingBack())
    until_searching_with(lab, before)
    lab.until_drained()


BAKING = "To bake, Ana lets the dough rise and heats the oven."
REPLIES = {
    "You sort facts": {
        "type": "person",
        "facts": [{"i": n, "aspect": "drinks", "kind": "attribute"} for n in (1, 2, 3, 4)],
    },
    "from a session of a conversation": {
        "facts": [{"turns": [1, 2], "content": BAKING, "type": "procedural", "confidence": 0.9}]
    },
    "You keep notes on people": {"summary": "Ana likes several kinds of tea."},
    "You read pairs": {"causal": [1]},
}
OTHERS = {
    "from one turn of a conversation": {"facts": [], "entities": []},
    "You keep the notes of a conversation": {"summary": "Ana bakes."},
}


def reply(call: Call) -> Behaviour | None:
    said = json.dumps(call.body)
    answers = (answer for words, answer in (REPLIES | OTHERS).items() if words in said)
    return next((Text(json.dumps(answer)) for answer in answers), None)


@pytest.mark.soak
async def test_jobs_that_ask_a_model_reach_every_partition_once(lab: Lab) -> None:
    async with ScriptedProvider(refusing=reply) as server:
        lab.choose(
            *("llm.provider=openai", "llm.model=scripted", f"llm.base_url={server.url}/v1"),
            "decision.decider=rules",
        )
        await asyncio.to_thread(ask_the_model, lab)
        asked = [json.dumps(call.body) for call in server.posts]
    paid = {words: sum(words in said for said in asked) for words in REPLIES}
    assert paid == dict.fromkeys(REPLIES, 2)  # once in each scope


def ask_the_model(lab: Lab) -> None:
    lab.start("one")
    lab.start("two")
    lab.until_owned(2, SECONDS)
    for scope in SCOPES.values():
        # Other words in each scope: the recorded reply to the same question is not paid for again.
        for tea in ("green tea", "black tea", "mint tea"):
            submit(lab, scope, told(f"Ana likes {tea} of {scope}", ("Ana", "likes", tea)))
        said = (
            f"The dough of {scope} has to rise first.",
            "Then I heat the oven.",
            "It takes an hour.",
        )
        lab.publish(outgoing_turn(n, text, scope) for n, text in enumerate(said))
        submit(lab, scope, SessionEndCommand(session_id="s1"))
    lab.until_drained()
    jobs = ("consolidation", "classification", "profiles", "causes")
    for job in jobs:
        runs = ask(lab, RunJob(job, SECONDS))["runs"]
        assert [run["outcome"] for run in runs] == ["ok", "ok"], runs
        lab.until_drained()
    lab.kill("two")
    lab.start("three")
    lab.until_owned(2, SECONDS)
    for job in jobs:  # another worker has the partition, and nothing is left to ask
        assert [run["outcome"] for run in ask(lab, RunJob(job, SECONDS))["runs"]] == ["ok", "ok"]
    lab.until_drained()
    placed = "SELECT scope, count(*) AS facts FROM entity_attributes GROUP BY scope ORDER BY scope"
    assert lab.rows(placed) == [{"scope": scope, "facts": 4} for scope in sorted(SCOPES.values())]
    kinds = "SELECT type, count(*) AS number FROM memories WHERE type <> 'episodic' GROUP BY type"
    assert {row["type"]: row["number"] for row in lab.rows(kinds)} == {
        "preference": 6, "procedural": 2, "profile": 2,
    }  # fmt: skip
    causes = "SELECT count(*) AS causes FROM edges WHERE relation_type = 'causal'"
    assert lab.rows(causes) == [{"causes": 2}]
