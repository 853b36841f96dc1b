"""Workers wait for their broker and their partitions, say so, and end only for what waiting cannot
mend."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    KafkaError,
)
from aiokafka.protocol.group import HeartbeatRequest
from faust.types import TP

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.errors import UnavailableError
from palimpsest.ops.kafka.application import kafka_application
from palimpsest.ops.kafka.broker import Broker
from palimpsest.ops.server.serving import without_owner
from palimpsest.ops.service.announcement import announcements
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.streams.kafka import faust_agents
from palimpsest.streams.kafka.cluster import STORE
from palimpsest.streams.kafka.faust_client import _ConsumerThread
from palimpsest.streams.logs.base import LogError, LogUnavailable, Outgoing
from tests.kafka.test_pipeline import finish, until
from tests.soak.lab import Lab, MakeLab, States, embedded_states
from tests.soak.steady_load import SteadyLoad

PARTITIONS = 4
SESSION_SECONDS = 2.0
QUICK = ("kafka.quiesce_seconds=5",)
AWAY_SECONDS = 4.0
"""Longer than a session: the group forgets its members."""


@pytest.fixture(scope="module")
def turns() -> list[Outgoing]:
    return list(records(Load(160, 8)))


@pytest.fixture(scope="module")
def expected(turns: list[Outgoing], tmp_path_factory: pytest.TempPathFactory) -> States:
    return embedded_states(tmp_path_factory.mktemp("embedded"), turns)


def ready(lab: Lab) -> str | None:
    """What `/ready` of a gateway says is lacking."""

    async def ask() -> str | None:
        routed = RoutedQueries(lab.settings, lab.partitions)
        try:
            return await without_owner(routed, lab.partitions)
        finally:
            await routed.close()

    return asyncio.run(ask())


def waiting_metrics(lab: Lab) -> dict[str, set[float]]:
    """The gauge of all workers, by what is waited for."""
    found: dict[str, set[float]] = {}
    for address, token in announcements(lab.folder / "data").items():
        answer = httpx.get(
            f"{address}/metrics", headers={"authorization": f"Bearer {token}"}, timeout=60
        )
        assert answer.status_code == 200
        for awaited, value in re.findall(r'palimpsest_waiting\{for="(\w+)"\} (\S+)', answer.text):
            found.setdefault(awaited, set()).add(float(value))
    return found


@pytest.mark.soak
def test_a_broker_that_is_killed_ends_no_worker(
    tmp_path: Path, turns: list[Outgoing], expected: States
) -> None:
    with (
        Broker(tmp_path / "broker") as own,
        Lab(tmp_path / "lab", own, "own", PARTITIONS, SESSION_SECONDS) as lab,
    ):
        lab.start("one")
        lab.start("two")
        lab.until_owned(2)
        workers = dict(lab.workers)
        load = SteadyLoad(lab, turns, rate=30)
        load.start()
        until(lambda: load.done >= 60)
        own.kill()
        killed = time.monotonic()
        told = f"waiting for the broker at {own.bootstrap_servers} since "
        until(lambda: str(ready(lab)).count(told) == 2)
        assert waiting_metrics(lab) == {"broker": {1.0}, "partitions": {0.0}}
        with pytest.raises(UnavailableError, match=re.escape(told)):
            lab.status(wait_for_broker=False)
        lab.start("three")  # says the same before it ever had a broker
        until(lambda: str(ready(lab)).count(told) == 3)
        assert lab.stop("three") < 60.0
        until(lambda: time.monotonic() - killed > AWAY_SECONDS)
        own.start()
        load.join()
        lab.until_owned(2)
        until(lambda: ready(lab) is None)
        assert lab.status()["waiting"] == []
        assert lab.workers == workers
        finish(lab, turns, expected)


@pytest.mark.soak
def test_a_gateway_serves_before_its_broker_is_there(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "broker") as own,
        Lab(tmp_path / "lab", own, "own", PARTITIONS, SESSION_SECONDS) as lab,
    ):
        own.kill()
        url = lab.serve("gateway")
        told = f"waiting for the broker at {own.bootstrap_servers} since "
        with httpx.Client(base_url=url, trust_env=False, timeout=60.0) as client:
            assert client.get("/health").status_code == 200
            answer = client.get("/ready")
            assert (answer.status_code, told in answer.text) == (503, True)
            refused = client.post(
                "/api/memory/remember", json={"scope": "ana", "content": "Ana lives in Lima"}
            )
            assert refused.status_code == 503
            own.start()
            lab.start("one")
            lab.until_owned(1)
            until(lambda: client.get("/ready").status_code == 200)
        assert lab.stop("gateway") < 30.0


@pytest.mark.soak
def test_workers_that_are_stopped_without_a_broker_leave_nothing_undone(
    tmp_path: Path, turns: list[Outgoing], expected: States
) -> None:
    with (
        Broker(tmp_path / "broker") as own,
        Lab(tmp_path / "lab", own, "own", PARTITIONS, SESSION_SECONDS, QUICK) as lab,
    ):
        lab.start("one")
        lab.until_owned(1)
        lab.publish(turns)
        own.kill()
        assert lab.stop("one", 60.0) < 30.0
        assert "did not stop" not in lab.tail("one")
        lab.start("two")
        own.start()
        finish(lab, turns, expected)


@pytest.mark.soak
def test_a_worker_that_is_killed_during_a_rebalance_ends_no_other(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS, SESSION_SECONDS)
    lab.start("one")
    lab.start("two")
    lab.until_owned(2)
    load = SteadyLoad(lab, turns, rate=40)
    load.start()
    lab.start("three")
    until(lambda: lab.members(STORE) == 3)  # it has asked to join, and has nothing yet
    lab.kill("two")
    load.join()
    lab.until_owned(2)
    finish(lab, turns, expected)


BROKEN_ONCE = """
import sys
from pathlib import Path
from aiokafka.errors import IllegalGenerationError
from palimpsest.ops.cli.main import main
from palimpsest.streams.kafka.faust_agents import Member

marker, assigned = Path(sys.argv.pop(1)), Member._on_assigned

async def crashes(self, *args, **options):
    await assigned(self, *args, **options)
    if not marker.exists():
        marker.touch()
        await self._app.crash(IllegalGenerationError())

Member._on_assigned = crashes
main()
"""


def test_a_worker_whose_client_ends_begins_again(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS, SESSION_SECONDS)
    lab.forks = False
    lab.program = (sys.executable, "-c", BROKEN_ONCE, str(lab.folder / "broken"))
    lab.start("one")
    pid = lab.workers["one"].pid
    lab.publish(turns)
    until(lambda: "begins again" in lab.tail("one"))
    assert "IllegalGenerationError" in lab.tail("one")
    lab.until_owned(1)
    assert set(lab.owners().values()) == {pid}
    finish(lab, turns, expected)


@pytest.mark.parametrize(
    ("reason", "passes"),
    [(IllegalGenerationError(), True), (GroupAuthorizationFailedError(), False)],
)
async def test_what_waiting_cannot_mend_is_told_apart(
    broker: Broker, tmp_path: Path, reason: KafkaError, passes: bool
) -> None:
    with Lab(tmp_path, broker, f"apart{passes}".lower(), partitions=1) as lab:
        async with kafka_application(lab.settings) as app, asyncio.timeout(180):
            running = asyncio.create_task(app.run(until_drained=False))
            first, *_ = app.roles
            await reached(first, running)
            await app.members[0]._app.crash(reason)
            with pytest.raises(LogError, match=type(reason).__name__) as ended:
                await running
        assert isinstance(ended.value, LogUnavailable) is passes


async def test_an_error_of_the_group_that_passes_ends_no_member(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka stands still after one until somebody looks at it, and keeps no heartbeats."""
    answers = [GroupLoadInProgressError()]
    usual = _ConsumerThread.seek_to_beginning

    async def seek_to_beginning(self: _ConsumerThread, *partitions: TP) -> None:
        if answers:
            raise answers.pop()
        await usual(self, *partitions)

    monkeypatch.setattr(_ConsumerThread, "seek_to_beginning", seek_to_beginning)
    with Lab(tmp_path, broker, "passes", partitions=1) as lab:
        async with kafka_application(lab.settings) as app, asyncio.timeout(180):
            running = asyncio.create_task(app.run(until_drained=False))
            first, *_ = app.roles
            await reached(first, running)
            coordinator = app.members[0]._app.consumer._thread._consumer._coordinator
            generation, send = coordinator.generation, coordinator._send_req

            async def loading(request: object) -> object:
                if not isinstance(request, HeartbeatRequest):
                    return await send(request)
                coordinator._send_req = send
                return SimpleNamespace(error_code=GroupLoadInProgressError.errno)

            coordinator._send_req = loading
            await reached(first, running, lambda: coordinator.generation > generation)
            app.stop()
            await running


@pytest.mark.soak
async def test_a_client_that_does_not_stop_is_left(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: _ConsumerThread) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(_ConsumerThread, "on_thread_stop", never)
    monkeypatch.setattr(faust_agents, "STOP_SECONDS", 0.5)
    with Lab(tmp_path, broker, "left", partitions=1) as lab:
        async with kafka_application(lab.settings) as app, asyncio.timeout(180):
            running = asyncio.create_task(app.run(until_drained=False))
            first, *_ = app.roles
            await reached(first, running)
            threads = [member._app.consumer._thread._thread for member in app.members]
            app.stop()
            async with asyncio.timeout(120):
                await running
            for thread in threads:
                await asyncio.to_thread(thread.join, 60.0)
                assert not thread.is_alive()


async def reached(
    role: faust_agents.Role,
    running: asyncio.Task[None],
    also: Callable[[], bool] = lambda: True,
) -> None:
    """Wait for the role's partitions, or raise what `running` ended for."""
    while not (also() and role.works() and role.tasks):
        if running.done():
            running.result()
        await asyncio.sleep(0.01)
