"""A branch made by hand: the same turns, run by a second provider into a data folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from palimpsest.ops.maintenance import process
from palimpsest.ops.opening import open_log, publisher
from palimpsest.ops.operations.checking import typed
from palimpsest.ops.operations.lifecycle.pipeline import Status
from palimpsest.ops.operations.memories import List
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.replay.branches import BranchManifest, branch_settings, keep_branch, read_branch
from palimpsest.ops.replay.diff import scope_diffs
from palimpsest.ops.replay.differences import ScopeDiff
from palimpsest.ops.replay.operations import Promotion, PromotionList, Promotions
from palimpsest.ops.replay.requests import Diff
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.queries import queries
from palimpsest.ops.service.sql_queries import limits_of, numbered
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.bootstrap import application
from palimpsest.schemas.commands import Command
from palimpsest.schemas.envelope import Actor
from palimpsest.stores.database.sql import QueryLimits, UnitedQuery, read_only_query
from palimpsest.streams.in_flight import items_in_flight
from palimpsest.streams.logs.settings import LogSettings
from palimpsest.streams.models.base import Prompt
from palimpsest.streams.models.settings import EmbeddingSettings
from palimpsest.streams.runtime.output import outgoing
from palimpsest.streams.settings import DecisionSettings
from tests.messages import BEGIN, HUMAN, commanded, published, topic_of, turn
from tests.spoken_model import ScriptedModel

Extraction = Callable[[str], list[str]]
"""The facts of a turn's text."""


def model_of(extraction: Extraction, name: str) -> ScriptedModel:
    def answer(prompt: Prompt) -> str:
        facts = extraction(str(prompt.subject["content"]))
        said = [{"content": fact, "type": "fact", "confidence": 0.9} for fact in facts]
        entities = [
            {"source": a, "relationship": r, "target": b, "confidence": 0.8}
            for fact in facts
            if fact.count(" ") == 2
            for a, r, b in [fact.split()]
        ]
        return json.dumps({"facts": said, "entities": entities})

    model = ScriptedModel(answer)
    model.model = name
    return model


@dataclass
class Lab:
    """A live memory and its branches, in one folder; commands are numbered as they are given."""

    folder: Path
    live: Extraction
    partitions: int | None = None
    given: int = 0
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        self.settings = Settings(
            data_dir=self.folder,
            log=LogSettings(partitions=self.partitions),
            embedding=EmbeddingSettings(provider="hashing", dimensions=256),
            decision=DecisionSettings(decider="rules", exact=0.98, near=0.98),
        )

    def publish(self, settings: Settings, texts: Iterable[tuple[int, str]], scope: str) -> None:
        records = [outgoing_turn(number, text, scope) for number, text in texts]
        with publisher(settings) as append:
            append(records)

    async def say(self, *texts: str, first: int = 1, scope: str = "ana") -> None:
        self.publish(self.settings, enumerate(texts, first), scope)
        await self.run()

    async def run(self) -> None:
        await run_all(self.settings, model_of(self.live, "first-1"))

    async def branch(
        self,
        extraction: Extraction,
        *texts: str,
        name: str = "better",
        scope: str = "ana",
        settings: tuple[str, ...] = (),
    ) -> BranchManifest:
        """The branch with these turns, as if it had read all of the live log."""
        with open_log(self.settings, "read") as log:
            of_log = {"partitions": log.partitions("memory-writes"), "of_log": log.number()}
        branch = BranchManifest(
            name=name,
            kind="reextraction",
            created_at=BEGIN,
            whole=True,
            settings=settings,
            **of_log,
        )
        keep_branch(self.settings, branch)
        own = branch_settings(self.settings, branch)
        self.publish(own, enumerate(texts, 1), scope)
        await run_all(own, model_of(extraction, "second-2"))
        return await self.caught_up(name)

    async def caught_up(self, name: str = "better") -> BranchManifest:
        async with queries(self.settings) as live:
            status: Any = await live.answer(Status())
        ends = {
            each["partition"]: each["end"]
            for each in status["stages"]
            if each["stage"] == "apply-writes"
        }
        branch = read_branch(self.settings, name).model_copy(update={"read_through": ends})
        keep_branch(self.settings, branch)
        return branch

    async def command(self, *commands: Command, scope: str = "ana", actor: Actor = HUMAN) -> None:
        """Give the commands, and have all carried out that waits."""
        records = []
        for command in commands:
            self.given += 1
            records.append(record(commanded(command, self.given, scope, actor)))
        with publisher(self.settings) as append:
            append(records)
        await self.run()

    async def rows(self, query: str) -> list[dict[str, Any]]:
        """As SQL is answered, without a process for each query."""
        async with queries(self.settings) as asked:
            assert isinstance(asked, DirectQueries)
            return (await over_open_stores(asked.sources, SqlRequest(query))).to_pylist()

    async def facts(self, scope: str = "ana") -> dict[str, str]:
        """Ids of the active memories that are no turns, by what they say."""
        found = await self.rows(
            "SELECT content, memory_id FROM memories WHERE type <> 'episodic'"
            f" AND scope = '{scope}' ORDER BY content"
        )
        return {row["content"]: row["memory_id"] for row in found}

    async def marks(self, scope: str = "ana") -> dict[str, Any]:
        """The marks of what has any, by what it says."""
        async with queries(self.settings) as asked:
            page: Any = await asked.answer(List(scope, limit=100))
        return {each["content"]: each["marks"] for each in page["memories"] if each["marks"]}

    async def differences(self) -> list[ScopeDiff]:
        """Of each scope, between the live memory and the branch."""
        return [each async for each in scope_diffs(self.settings, Diff("better"))]

    async def promotions(self) -> list[Promotion]:
        """Newest first."""
        async with queries(self.settings) as asked:
            return [*typed(PromotionList, await asked.answer(Promotions())).promotions]

    async def holds(self) -> bool:
        rows = await self.rows("SELECT * FROM pipeline_total")
        return all(row["holds"] and row["facts_in_flight"] == 0 for row in rows)


async def over_open_stores(sources: Sources, request: SqlRequest) -> pa.Table:
    """As `palimpsest.ops.service.sql_queries.sql` answers, in this process."""

    def answered(query: str, number: int) -> pa.Table:
        find = partial(items_in_flight, sources.log, number, sources.admit)
        return read_only_query(sources.shard(number), find, query, limits_of(request), number)

    number = numbered(request, sources.partitions)
    if number is not None:
        return answered(request.query, number)
    with UnitedQuery(request.query) as united:
        if united.part is None:
            return answered(request.query, 0)
        parts = [answered(united.part, each) for each in range(sources.partitions)]
        return united.answer(parts, QueryLimits())


def outgoing_turn(number: int, text: str, scope: str) -> Any:
    return record(published(turn(text, number), scope))


def record(message: Any) -> Any:
    return outgoing(topic_of(message), message)


async def run_all(settings: Settings, model: ScriptedModel) -> None:
    """Process what lies in the log, with this model."""
    with mock.patch.object(process, "language_model", return_value=model):
        async with application(settings) as app:
            await app.run(until_drained=True)
