"""Who is asked for what when the memory lies in several processes: real interfaces, no broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import duckdb
import pytest
from pydantic import JsonValue

from palimpsest.ops.errors import (
    NotFoundError,
    NotOpenError,
    RequestError,
    SqlInvalidError,
    SqlRefusedError,
    SqlTooLargeError,
    SqlTooSlowError,
    UnavailableError,
)
from palimpsest.ops.kafka.application import ShardSet
from palimpsest.ops.opening import open_log
from palimpsest.ops.operations import awaited_results
from palimpsest.ops.operations.dead_letters import Redrive
from palimpsest.ops.operations.documents import Documents
from palimpsest.ops.operations.graph import Entities, GetEntity
from palimpsest.ops.operations.lifecycle.fading import Weak
from palimpsest.ops.operations.memories import Context, Get, List, Recall, Search
from palimpsest.ops.operations.operation import Read
from palimpsest.ops.operations.scopes import Stats
from palimpsest.ops.operations.selection import PreviewForget
from palimpsest.ops.operations.sessions import SessionMemory, Sessions
from palimpsest.ops.reading.sources import Sources
from palimpsest.ops.replay.operations import Agreement
from palimpsest.ops.requests import CopyRequest, JsonObject, SqlRequest
from palimpsest.ops.server.serving import without_owner
from palimpsest.ops.service import client, routing
from palimpsest.ops.service import queries as reading
from palimpsest.ops.service.announcement import FILE_NAME, own_folder
from palimpsest.ops.service.client import NotThereError, RemoteQueries
from palimpsest.ops.service.commanding import CommandRequest, Commands
from palimpsest.ops.service.direct_queries import DirectQueries
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.worker.local import ListenAddress, local_interface
from palimpsest.schemas.commands import RememberCommand
from palimpsest.stores.shard import Shard
from palimpsest.streams.logs.base import partition_for
from tests.flows.program import PATIENCE_S
from tests.harness import Pipeline

PARTITIONS = 4
WAITING = 20
PARTITION = partition_for("ana", PARTITIONS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "PATIENCE_SECONDS", 0.3)


@pytest.fixture
def patient(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what succeeds when it is asked again, however long the first question took."""
    monkeypatch.setattr(routing, "PATIENCE_SECONDS", PATIENCE_S)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a worker that is suspended: the system accepts connections to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.asynccontextmanager
async def cluster(
    folder: Path,
    announced: Sequence[int] = (PARTITION,),
    others: Sequence[str] = (),
    token: str | None = "shared",
) -> AsyncIterator[tuple[RoutedQueries, Sources]]:
    """One worker that has the partition of `ana` alone; the others have no owner, but for those
    that are `announced`. `others`: addresses of workers on other machines."""
    settings = Settings(data_dir=folder, kafka={"workers": [*others], "worker_token": token})
    with Pipeline(folder / "parts") as pipeline:
        pipeline.say("I work at Globex in Lima.")
        await pipeline.drain()
        shards = {PARTITION: pipeline.shard}
        model, append = pipeline.embedding, pipeline.log.append
        sources = Sources(settings, pipeline.log, shards, PARTITIONS, model, append)
        sources.now = pipeline.clock
        queries = DirectQueries(sources)
        routed = RoutedQueries(settings, PARTITIONS)
        async with local_interface(queries, own_folder(folder), partitions=lambda: [*announced]):
            yield routed, sources
            await routed.close()


@pytest.mark.parametrize(
    "request_",
    [
        Context("where does Ana work?", "ana"),
        Recall("where does Ana work?", "ana"),
        List("ana"),
        PreviewForget(scope="ana", query="where does Ana work?"),
        Search("Globex", "ana"),
        Entities(scope="ana"),
        GetEntity("Globex", "ana"),
        Weak("ana", below=1.0),
        SessionMemory("s1", "ana"),
    ],
)
async def test_what_is_asked_of_a_scope_needs_its_partition_alone(
    tmp_path: Path, request_: Read[Any]
) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert "Globex" in str(await routed.answer(request_))


async def test_sessions_of_a_scope_need_its_partition_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert "'session_id': 's1'" in str(await routed.answer(Sessions("ana")))


async def test_what_is_asked_by_id_needs_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (routed, _):
        with pytest.raises(RequestError, match="no worker has the partitions 1, 2, 3 open"):
            await routed.answer(Get("0123456789"))


async def test_counts_of_a_scope_need_its_partition_and_counts_of_all_need_all(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert "'active': 2" in str(await routed.answer(Stats("ana")))
        with pytest.raises(RequestError, match="no worker has the partitions 1, 2, 3 open"):
            await routed.answer(Stats())
        compared = await routed.answer(Agreement("ana"))
        assert isinstance(compared, dict)
        assert isinstance(compared["deciders"], list)
        with pytest.raises(RequestError, match="no worker has the partitions 1, 2, 3 open"):
            await routed.answer(Agreement())


async def test_documents_of_a_scope_need_its_partition_and_those_of_all_need_all(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (routed, _):
        assert await routed.answer(Documents("ana")) == {"documents": [], "next_cursor": None}
        with pytest.raises(RequestError, match="no worker has the partitions 1, 2, 3 open"):
            await routed.answer(Documents())


async def test_errors_keep_their_kind_on_the_way(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (routed, sources):
        [client] = set((await routed.owners()).values())
        with pytest.raises(NotFoundError, match="there is no memory"):
            await client.answer(Get("0123456789"))
        with pytest.raises(RequestError) as refused:
            await client.answer(GetEntity(" ", "ana"))
        assert type(refused.value) is RequestError
        sources.shards = {}
        with pytest.raises(NotOpenError, match="not open"):
            await client.answer(Recall("Globex", "ana"))


@pytest.mark.usefixtures("patient")
async def test_a_partition_on_the_move_is_asked_again(tmp_path: Path) -> None:
    """Told by the kind of the error: whatever the text says."""
    async with cluster(tmp_path) as (routed, sources):
        shards, asked = sources.shards, asyncio.Event()

        class Moving(dict[int, object]):
            def get(self, number: int, default: object = None) -> object:
                asked.set()
                sources.shards = shards
                raise NotOpenError("elsewhere now")

        sources.shards = Moving(shards)  # type: ignore[assignment]
        assert "Globex" in str(await routed.answer(Recall("Globex", "ana")))
        assert asked.is_set()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("error", [NotThereError("killed"), NotOpenError("elsewhere now")])
async def test_a_worker_that_dies_while_all_are_asked_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What only reads is asked again of whoever has its partitions then."""
    answer, died = RemoteQueries.answer, []

    async def dies(client: RemoteQueries, request: Read[Any]) -> JsonValue:
        if not died:
            died.append(request)
            raise error
        return await answer(client, request)

    monkeypatch.setattr(RemoteQueries, "answer", dies)
    async with cluster(tmp_path, [*range(PARTITIONS)]) as (routed, _):
        assert "'active': 2" in str(await routed.answer(Stats()))
        assert len(died) == 1
        died.clear()
        with pytest.raises(UnavailableError, match="went away meanwhile"):
            await routed.answer(Redrive(all=True))


async def test_who_does_not_answer_delays_only_what_may_be_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr(client, "PING_SECONDS", 3600.0)
    async with cluster(tmp_path, [*range(PARTITIONS)], [silent]) as (routed, _):
        assert "Globex" in str(await routed.answer(Recall("Globex", "ana")))
        assert "'active': 2" in str(await routed.answer(Stats()))
        table = await routed.table(SqlRequest("SELECT count(*) AS n FROM turns", PARTITION))
        assert table.to_pylist() == [{"n": 1}]
        assert await without_owner(routed, PARTITIONS) is None


async def test_who_does_not_answer_is_named_where_a_partition_has_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    ping, nobody = RemoteQueries.ping, "http://127.0.0.1:9"

    async def briefly(asked: RemoteQueries) -> JsonObject:
        # On a busy machine the worker that answers needs longer.
        is_silent = str(asked._client.base_url).startswith(silent)
        monkeypatch.setattr(client, "PING_SECONDS", 0.1 if is_silent else PATIENCE_S)
        return await ping(asked)

    monkeypatch.setattr(RemoteQueries, "ping", briefly)
    async with cluster(tmp_path, others=[silent, nobody]) as (routed, _):
        with pytest.raises(UnavailableError) as refused:
            await routed.answer(Stats())
    told = str(refused.value)
    assert "no worker has the partitions 1, 2, 3 open" in told
    assert f"{silent} does not answer: no answer within 0.1 s" in told
    assert f"{nobody} does not answer" in told
    async with cluster(tmp_path, others=[silent], token=None) as (routed, _):
        with pytest.raises(UnavailableError, match=r"kafka\.worker_token is not set"):
            await routed.answer(Stats())


async def test_a_name_that_nothing_resolves_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it asked for again before the first question has an answer."""
    monkeypatch.setattr(routing, "CONNECT_SECONDS", 0.05)
    resolve, asked, answered = socket.getaddrinfo, [], threading.Event()

    def waits(host: Any, *rest: Any, **named: Any) -> Any:
        if host != "away.example":
            return resolve(host, *rest, **named)
        asked.append(host)
        answered.wait()
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", waits)
    async with cluster(tmp_path, others=["http://away.example:80"]) as (routed, _):
        assert "Globex" in str(await routed.answer(Recall("Globex", "ana")))
        with pytest.raises(UnavailableError, match="partitions 1, 2, 3 open"):
            await routed.answer(Stats())
        assert len(asked) == 1
        answered.set()


async def test_a_process_that_does_not_answer_is_told_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """On the embedded log, where a worker has the folder."""
    monkeypatch.setattr(client, "PING_SECONDS", 0.1)
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.3)
    settings = Settings(data_dir=tmp_path)
    with open_log(settings, "process"):
        announcement = {"pid": os.getpid(), "port": int(silent.rpartition(":")[2]), "token": "t"}
        (tmp_path / FILE_NAME).write_text(json.dumps(announcement), encoding="utf-8")
        with pytest.raises(UnavailableError, match="does not answer; if it is busy, try again"):
            async with reading.queries(settings):
                pass


async def test_who_waits_for_a_command_asks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty that wait, all are told after the commit, by one search for all of them."""
    asked, searched, all_asked = [], [], asyncio.Event()
    ask, search = DirectQueries.result, awaited_results.command_results

    async def counted(queries: DirectQueries, *given: Any) -> Any:
        asked.append(given)
        if len(asked) == WAITING:
            all_asked.set()
        return await ask(queries, *given)

    def counted_search(sources: Sources, ids: Sequence[str]) -> Any:
        searched.append(ids)
        return search(sources, ids)

    monkeypatch.setattr(DirectQueries, "result", counted)
    monkeypatch.setattr(awaited_results, "command_results", counted_search)
    monkeypatch.setattr(awaited_results, "LOOK_SECONDS", 3600.0)
    settings = Settings(data_dir=tmp_path)
    with Pipeline(tmp_path / "parts") as pipeline:
        shards = {PARTITION: pipeline.shard}
        model, append = pipeline.embedding, pipeline.log.append
        sources = Sources(settings, pipeline.log, shards, PARTITIONS, model, append)
        queries = DirectQueries(sources)
        routed = RoutedQueries(settings, PARTITIONS)

        @contextlib.asynccontextmanager
        async def asking() -> AsyncIterator[RoutedQueries]:
            yield routed

        commands = Commands(settings, append, asking)
        interface = local_interface(queries, own_folder(tmp_path), partitions=lambda: [PARTITION])
        async with interface:
            given = await commands.submit(CommandRequest("ana", RememberCommand(content="I ski.")))
            waiting = [
                asyncio.create_task(commands.result(given.command_id, "ana", 60.0))
                for _ in range(WAITING)
            ]
            await all_asked.wait()
            await pipeline.drain()
            told = await asyncio.gather(*waiting)
            await routed.close()
    assert len(asked) == WAITING
    assert len({str(each) for each in told}) == 1
    assert told[0] is not None
    assert told[0]["error"] is None
    # Each batch that is committed meanwhile is looked at once, whoever waits.
    assert {ids for each in searched for ids in each} == {given.command_id}
    assert len(searched) < WAITING


async def test_a_worker_that_stops_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as undo:
        pipeline = undo.enter_context(Pipeline(tmp_path / "parts"))
        shards = {PARTITION: pipeline.shard}
        settings = Settings(data_dir=tmp_path)
        model, append = pipeline.embedding, pipeline.log.append
        sources = Sources(settings, pipeline.log, shards, PARTITIONS, model, append)
        asked = asyncio.Event()

        class Waited(DirectQueries):
            async def result(self, *given: Any) -> Any:
                asked.set()
                return await super().result(*given)

        async with local_interface(Waited(sources), own_folder(tmp_path)) as announced:
            remote = RemoteQueries.announced(announced)
            undo.push_async_callback(remote.close)
            waiting = asyncio.create_task(remote.result("none", "ana", 3600.0))
            await asked.wait()
        with pytest.raises(NotThereError, match="the worker stops; command none waits in the log"):
            await waiting


def test_shards_may_be_closed_while_they_are_listed() -> None:
    """As a rebalance does while another thread answers a question to all partitions."""
    shards = ShardSet()
    for partition in range(3):
        shards.add(partition, cast("Shard", object()))
    seen = []
    for partition, _ in shards.items():
        seen.append(partition)
        shards.remove(1)
    assert seen == [0, 1, 2]
    for _ in shards.values():
        shards.remove(2)
    assert [*shards] == [0]


async def test_sql_and_copies_come_from_all_workers(tmp_path: Path) -> None:
    said = ("I work at Globex in Lima.", "I live in Oslo.")
    place = ListenAddress(token="shared")
    async with contextlib.AsyncExitStack() as undo:
        addresses = []
        for number, content in enumerate(said):
            pipeline = undo.enter_context(Pipeline(tmp_path / str(number)))
            pipeline.say(content)
            await pipeline.drain()
            shards, log = {number: pipeline.shard}, pipeline.log
            own = Settings(data_dir=tmp_path)
            sources = Sources(own, log, shards, 2, pipeline.embedding, log.append)
            worker = local_interface(
                DirectQueries(sources), tmp_path / str(number), place, lambda held=shards: [*held]
            )
            announcement = await undo.enter_async_context(worker)
            addresses.append(f"http://127.0.0.1:{announcement.port}")
        kafka = {"workers": addresses, "worker_token": "shared"}
        routed = RoutedQueries(Settings(data_dir=tmp_path, kafka=kafka), 2)
        undo.push_async_callback(routed.close)

        turns = await routed.table(SqlRequest("SELECT partition, content FROM turns ORDER BY 1"))
        assert turns.to_pylist() == [
            {"partition": number, "content": content} for number, content in enumerate(said)
        ]
        second = await routed.table(SqlRequest("SELECT content FROM turns", partition=1))
        assert second.to_pylist() == [{"content": said[1]}]
        assert (await routed.table(SqlRequest("SELECT 1 AS one"))).to_pylist() == [{"one": 1}]
        for query, kind in (
            ("SELECT * FROM read_text('/etc/passwd')", SqlRefusedError),
            ("SELECT nothing FROM turns", SqlInvalidError),
            (
                "SELECT sum(a.range * b.range) FROM range(9999999) a, range(9999999) b",
                SqlTooSlowError,
            ),
            ("FROM range(50)", SqlTooLargeError),
            ("SELECT m.* FROM turns m, range(50)", SqlTooLargeError),
        ):
            seconds = 1.0 if kind is SqlTooSlowError else 30.0
            for partition in (None, 0):
                with pytest.raises(kind):
                    await routed.table(SqlRequest(query, partition, seconds=seconds, rows=10))
        for wrong in (SqlRequest("SELECT 1", rows=0), SqlRequest("SELECT 1", seconds=float("nan"))):
            with pytest.raises(RequestError, match="a query may"):
                await routed.table(wrong)

        await routed.write_file(CopyRequest(1), tmp_path / "copy.duckdb")
        with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as copy:
            rows = copy.execute("SELECT content FROM shard_1.memory_rows WHERE type = 'episodic'")
            assert rows.fetchall() == [(said[1],)]
