"""A migration to another embedding model while turns come in and recall runs: no search mixes the
models, wherever it is killed, and a rebuild comes to the same state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palimpsest.ops.embedding import tracker
from palimpsest.ops.embedding.tracker import EmbeddingTracker, missing, partition_scope
from palimpsest.ops.errors import RequestError
from palimpsest.ops.maintenance.embedded import Application, application
from palimpsest.ops.operations.lifecycle.embeddings import (
    CancelEmbedding,
    DropEmbedding,
    EmbeddingBack,
    EmbeddingStatus,
    MigrateEmbedding,
    SwitchEmbedding,
)
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.replay.rebuild import rebuild
from palimpsest.ops.replay.requests import Rebuild
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import load_settings
from palimpsest.ops.worker.local import sources_of
from palimpsest.schemas.commands import ChangeEmbeddingCommand, EmbeddingChoice
from palimpsest.schemas.envelope import Actor
from palimpsest.schemas.rows.pipeline import EmbeddingRow
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.stores.database.state_hash import state_hash
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.models.base import Vector
from palimpsest.streams.models.hashing import HashingEmbeddingModel, hashed
from palimpsest.streams.runtime.output import outgoing, own_command
from tests.harness import Clock, Crash
from tests.messages import BEGIN, published, turn

HALF = 64
PLACES = ("Lisbon", "Oslo", "Bergen", "Porto", "Ghent", "Turin", "Malmo", "Basel")
MIGRATE = MigrateEmbedding(to="hashing/second", switch=True)


class Tagged(HashingEmbeddingModel):
    """Vectors of two such models have nothing in common: each uses a half of its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(HALF)
        self.model = settings.embedding_model
        self.dimensions = 2 * HALF

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        offset = HALF if self.model == "second" else 0
        return [np.pad(hashed(text, HALF), (offset, HALF - offset)) for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return (await self.embed_passages([text]))[0]


def settings_of(folder: Path, *more: str) -> Settings:
    given = ("embedding.provider=hashing", "embedding.model=first", *more)
    return load_settings(given, folder, None, {}).settings


def words(number: int) -> str:
    return f"I live in {PLACES[number % 8]}. I like the bread of shop number {number}."


def say(app: Application, first: int, count: int, scope: str = "ana") -> None:
    said = [published(turn(words(n % 50), n), scope) for n in range(first, first + count)]
    app.log.append([outgoing(CONVERSATION_TURNS, each) for each in said])


@contextlib.asynccontextmanager
async def at_work(settings: Settings, **given: Any) -> AsyncIterator[tuple[Application, Any]]:
    """A worker on the folder, and a function that answers operations."""
    make = given.pop("make_embedding", Tagged)
    async with application(settings, make_embedding=make, **given) as app:
        sources = sources_of(app)
        running = asyncio.create_task(app.run(until_drained=False))
        try:
            yield app, DirectQueries(sources).answer
        finally:
            app.stop()
            await running
            sources.sql.close()


async def drained(settings: Settings, **given: Any) -> None:
    async with application(settings, make_embedding=Tagged, **given) as app:
        await app.run(until_drained=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def settled(app: Application, count: int) -> bool:
    """Whether so many turns are done with, facts and all."""
    total = 0
    for shard in app.shards.values():
        with shard.reading() as reader:
            total += reader.execute(
                "SELECT count(*) FROM outcomes WHERE item_kind = 'turn'"
            ).fetchall()[0][0]
    return total == count and not any((*app.left().values(), *app.under_way().values()))


def spaces(app: Application) -> set[str]:
    return {shard.embedding_space for shard in app.shards.values()}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "TRACK_SECONDS", 0.05)


async def test_no_search_mixes_two_models(tmp_path: Path) -> None:
    """Every recall of a text that was said finds it by its vector, before, during and after; of
    two models its cosine would be 0. So do the candidates of every decision."""
    settings = settings_of(tmp_path, "log.partitions=2")
    async with at_work(settings) as (app, answer):
        say(app, 0, 30)
        say(app, 0, 30, "ben")
        seen: list[tuple[str, float]] = []
        stop = asyncio.Event()

        async def recalling() -> None:
            number = 0
            while not stop.is_set():
                scope, number = ("ana", "ben")[number % 2], number + 1
                text = words(number % 16)
                found = await answer(Recall(query=text, scope=scope, limit=1))
                if found["results"]:
                    seen.append((found["method"], found["results"][0]["scores"]["vector"]))
                await asyncio.sleep(0.02)

        async def talking() -> None:
            number = 30
            while not stop.is_set():
                say(app, number, 1, ("ana", "ben")[number % 3 == 0])
                number += 1
                await asyncio.sleep(0.2)

        await until(lambda: settled(app, 60))
        async with asyncio.TaskGroup() as group:
            group.create_task(recalling())
            group.create_task(talking())
            await until(lambda: len(seen) > 10)
            for ask, live in ((MIGRATE, "second"), (EmbeddingBack(), "first")):
                given = await answer(ask)
                # A loaded machine may take longer than the answer waits.
                assert {each["state"] for each in given["changes"]} <= {"done", "sent"}
                await until(lambda live=live: spaces(app) == {live})  # type: ignore[misc]
                before = len(seen)
                await until(lambda before=before: len(seen) > before + 10)  # type: ignore[misc]
            stop.set()
        assert {method for method, _ in seen} == {"hybrid"}
        assert min(score for _, score in seen) > 0.5
        with app.shards[partition_for("ana", 2)].reading() as reader:
            found = reader.execute("SELECT candidates FROM proposals").fetchall()
        best = [max(c["cosine"] for c in given) for (text,) in found if (given := json.loads(text))]
        assert best
        assert min(best) > 0.5


async def test_status_switch_back_and_drop(tmp_path: Path) -> None:
    async with at_work(settings_of(tmp_path)) as (app, answer):
        with pytest.raises(RequestError, match="there is no migration"):
            await answer(SwitchEmbedding())
        with pytest.raises(RequestError, match="former embedding model"):
            await answer(EmbeddingBack())
        say(app, 0, 20)
        [shard] = app.shards.values()
        await until(lambda: settled(app, 20))
        await answer(MigrateEmbedding(to="hashing/second"))
        [state] = (await answer(EmbeddingStatus()))["partitions"]
        assert (state["live"], state["upcoming"], state["switches"]) == ("first", "second", False)
        await until(lambda: missing(shard, "second", 2 * HALF).total == 0)
        [state] = (await answer(EmbeddingStatus()))["partitions"]
        assert state["made"] == state["memories"] > 0
        assert state["live"] == "first"
        await answer(CancelEmbedding())
        await answer(MigrateEmbedding(to="hashing/second"))
        [done] = (await answer(SwitchEmbedding()))["changes"]
        assert (done["state"], spaces(app)) == ("done", {"second"})
        [shown] = (await answer(DropEmbedding()))["changes"]
        assert (shown["state"], shown["to"], shown["bytes"] > 0) == ("preview", "first", True)
        await answer(DropEmbedding(confirm=True))
        await until(lambda: "first" in shard.progress and shard.progress["first"].dropped)
        stored = (await answer(EmbeddingStatus()))["vectors"]
        assert [each["model"] for each in stored] == ["second"]
        with pytest.raises(RequestError, match="former embedding model"):
            await answer(EmbeddingBack())


async def test_a_switch_is_told_as_done_when_searches_use_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result is in the tables a moment earlier."""
    begun, goes_on = threading.Event(), threading.Event()
    use = Shard.use

    def late(shard: Shard, row: EmbeddingRow) -> None:
        if row.switched_seq:
            begun.set()
            goes_on.wait(120)
        use(shard, row)

    async with at_work(settings_of(tmp_path)) as (app, answer):
        say(app, 0, 5)
        [shard] = app.shards.values()
        await until(lambda: settled(app, 5))
        await answer(MigrateEmbedding(to="hashing/second"))
        await until(lambda: missing(shard, "second", 2 * HALF).total == 0)
        monkeypatch.setattr(Shard, "use", late)
        switching = asyncio.create_task(answer(SwitchEmbedding()))
        try:
            await until(begun.is_set)
            await asyncio.wait([switching], timeout=0.5)
            assert not switching.done()
        finally:
            goes_on.set()
        [done] = (await switching)["changes"]
        assert (done["state"], spaces(app)) == ("done", {"second"})


async def test_a_command_that_names_a_wrong_model_in_use_harms_nothing(tmp_path: Path) -> None:
    """Whoever may publish commands may publish any: the worker goes on with the model that it has,
    its vectors stay, and the next migration works."""
    wrong = EmbeddingChoice(provider="hashing", model="wrong", space="wrong", dimensions=40)
    first = EmbeddingChoice(provider="hashing", model="first", space="first", dimensions=2 * HALF)
    scope = partition_scope(0, 1)
    async with at_work(settings_of(tmp_path)) as (app, answer):
        [shard] = app.shards.values()
        say(app, 0, 10)
        await until(lambda: settled(app, 10))
        for number, (action, live, to) in enumerate(
            [("drop", wrong, first), ("migrate", wrong, first.model_copy(update={"dimensions": 9}))]
        ):
            command = ChangeEmbeddingCommand.model_validate(
                {"action": action, "live": live, "to": to}
            )
            app.log.append([own_command(scope, command, Actor(), BEGIN, number)[1]])
        say(app, 10, 10)
        await until(lambda: settled(app, 20) and shard.embedding is not None)
        assert spaces(app) == {"first"}
        await until(lambda: missing(shard, "first", 2 * HALF).total == 0)
        await answer(MIGRATE)
        await until(lambda: spaces(app) == {"second"})


async def test_the_switch_waits_for_all_vectors(tmp_path: Path) -> None:
    class Refusing(Tagged):
        async def check(self) -> str | None:
            return "asleep" if self.model == "second" and awake.is_set() else None

    awake = asyncio.Event()
    async with at_work(settings_of(tmp_path), make_embedding=Refusing) as (app, answer):
        say(app, 0, 5)
        [shard] = app.shards.values()
        await until(lambda: settled(app, 5))
        awake.set()
        with pytest.raises(RequestError, match="asleep"):
            await answer(MIGRATE)
        awake.clear()
        await answer(MigrateEmbedding(to="hashing/second"))
        awake.set()
        say(app, 5, 5)
        await until(lambda: settled(app, 10))
        await until(
            lambda: "second" in shard.progress and shard.progress["second"].failure == "asleep"
        )
        with pytest.raises(RequestError, match="memories lack a vector of second"):
            await answer(SwitchEmbedding())
        [done] = (await answer(SwitchEmbedding(allow_missing=1_000)))["changes"]
        assert done["state"] == "done", done
        assert spaces(app) == {"second"}


BOUNDARIES = ("_write", "writing", "append", "use", "sync")


async def crashing(
    settings: Settings, clock: Clock, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ends at this boundary of a migration."""
    armed = True

    def crash(*_: object, **__: object) -> Any:
        nonlocal armed
        armed = False
        raise Crash(boundary)

    with monkeypatch.context() as patched:
        if boundary == "_write":  # embedded, not stored
            patched.setattr(tracker, "_write", crash)
        elif boundary == "writing":  # stored, not yet shown
            patched.setattr(tracker.KnownKeys, "add", crash)
        elif boundary == "append":  # all vectors exist
            patched.setattr(EmbeddingTracker, "_switch", crash)
        elif boundary == "use":  # the switch is committed, and not in use
            use = Shard.use

            def used(shard: Shard, row: Any) -> None:
                return crash() if row.former and shard.embedding else use(shard, row)

            patched.setattr(Shard, "use", used)
        elif boundary == "sync":
            patched.setattr(EmbeddingTracker, "_catch_up", crash)
        with contextlib.suppress(BaseException):
            await drained(settings, clock=clock)
    assert not armed


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a migration was asked for, and the state that it ends in undisturbed."""
    folder, clock = tmp_path_factory.mktemp("asked"), Clock()

    async def ask() -> None:
        settings = settings_of(folder)
        async with application(settings, make_embedding=Tagged, clock=clock) as app:
            say(app, 0, 12)
            sources = sources_of(app)
            sources.now, sources.running = clock, frozenset()
            await app.run(until_drained=True)
            await DirectQueries(sources).answer(MIGRATE)
            sources.sql.close()

    asyncio.run(ask())
    whole = settings_of(shutil.copytree(folder, tmp_path_factory.mktemp("whole") / "copy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracker, "TRACK_SECONDS", 0.05)
        return folder, asyncio.run(migrated(whole, clock))


@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_wherever_it_is_killed_it_goes_on(
    asked: tuple[Path, str], tmp_path: Path, boundary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, undisturbed = asked
    settings, clock = settings_of(shutil.copytree(folder, tmp_path / "killed")), Clock()
    for _ in range(1 if boundary == "use" else 3):
        await crashing(settings, clock, boundary, monkeypatch)
    assert await migrated(settings, clock) == undisturbed


async def migrated(settings: Settings, clock: Clock) -> str:
    """The state that a migration ends in."""
    await drained(settings, clock=clock)
    async with application(settings, make_embedding=Tagged) as app:
        [shard] = app.shards.values()
        assert shard.embedding_space == "second"
        assert missing(shard, "second", 2 * HALF).total == 0
        with shard.reading() as reader:
            return state_hash(reader)


async def test_a_rebuild_comes_to_the_same_state(tmp_path: Path) -> None:
    """Also where decisions were made by one model and carried out with another; the settings may
    name either."""
    real = ("embedding.model=hashing-1", "embedding.dimensions=64")
    settings = settings_of(tmp_path, *real)
    from palimpsest.ops.parts import embedding_model

    async with at_work(settings, make_embedding=embedding_model) as (app, answer):
        say(app, 0, 6)
        await answer(MigrateEmbedding(to="hashing", dimensions=96, switch=True))
        say(app, 6, 6)
        await until(lambda: spaces(app) == {"hashing-1-96"})
        say(app, 0, 4, "ben")
        say(app, 12, 6)
        await until(lambda: settled(app, 22))
    for dimensions in (64, 96):
        own = settings_of(tmp_path, real[0], f"embedding.dimensions={dimensions}")
        async with application(own) as app:
            assert spaces(app) == {"hashing-1-96"}
            assert len(app.warnings) == (dimensions == 64)
            await app.run(until_drained=True)
        [done] = (await rebuild(own, Rebuild(name=f"with-{dimensions}"))).partitions
        assert (done.not_compared, done.differing) == (None, {})


def test_a_scope_for_every_partition() -> None:
    for partitions in (1, 2, 3, 16, 100):
        named = [partition_scope(number, partitions) for number in range(partitions)]
        assert [partition_for(name, partitions) for name in named] == [*range(partitions)]
