"""What the settings of the log and of a Kafka cluster change."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from palimpsest.ops.maintenance.embedded import application
from palimpsest.ops.opening import open_log
from palimpsest.ops.parts import SetupError
from palimpsest.ops.service.routing import RoutedQueries
from palimpsest.ops.worker.local import ListenAddress, listen_address, local_interface
from palimpsest.streams.kafka.faust_client import application as faust_application
from palimpsest.streams.kafka.role import Role
from palimpsest.streams.logs.base import Outgoing
from palimpsest.streams.runtime.pace import FairQueue
from tests.setting_lab import PATIENCE_S, Case, Lab

CLUSTER = ("log.kind=kafka", "kafka.worker_token=secret")


async def folder_of_log(lab: Lab) -> object:
    open_log(lab.settings, "process").close()
    return sorted(path.parent.parent.name for path in lab.folder.rglob("log.sqlite"))


async def kind_of_log(lab: Lab) -> object:
    try:
        open_log(lab.settings, "process").close()
    except SetupError:
        return "needs a cluster"
    return "a file"


async def partitions(lab: Lab) -> object:
    async with lab.ran() as seen:
        return len(seen.app.shards)


async def dead_letters(lab: Lab) -> object:
    async with lab.ran("tea " * 1_000) as seen:
        return len(seen.column("SELECT * FROM dead_letter_rows"))


async def leaves_in_time(lab: Lab) -> object:
    """Whether a record that grows old beside a running worker leaves within three seconds."""
    async with application(lab.settings, clock=lab.clock) as app:
        running = asyncio.create_task(app.run(until_drained=False))
        app.log.append([Outgoing("conversation-turns", "ana", b"ana", b"no message", {})])
        # Once a stage is at work, what was old at the start has gone.
        while app.log.position("normalize", "conversation-turns", 0) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        app.log.append([Outgoing("cache-invalidations", "ana", b"ana", b"{}", {})])
        lab.clock.advance(days=2)

        async def gone() -> None:
            while app.log.read("cache-invalidations", 0, 0, 1):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        found = await lab.happens(gone(), 3.0)
        app.stop()
        await running
        return found


async def name_of_topic(lab: Lab) -> object:
    return lab.settings.cluster.physical("memory-writes")


class _Faust:
    """What a client of Kafka is made with."""

    def __init__(self, lab: Lab) -> None:
        nothing: Any = None
        options = lab.settings.cluster
        self.role = Role("store", options, (), nothing, nothing, nothing, FairQueue())
        self.made = faust_application(options, "store", lab.folder)


async def addresses_of_brokers(lab: Lab) -> object:
    return [str(url) for url in _Faust(lab).made.conf.broker]


async def name_of_group(lab: Lab) -> object:
    return _Faust(lab).made.conf.id


async def session_timeout(lab: Lab) -> object:
    return _Faust(lab).made.conf.broker_session_timeout


class _Waiting:
    limits: tuple[float, float] = (0.0, 0.0)

    def close(self) -> None:
        pass

    async def join(self, grace_seconds: float, limit_seconds: float) -> None:
        self.limits = (grace_seconds, limit_seconds)


async def limits_of_a_rebalance(lab: Lab) -> tuple[float, float]:
    role, task = _Faust(lab).role, _Waiting()
    role.tasks["decide", 0] = task  # type: ignore[assignment]
    await role.quiesce()
    return task.limits


async def grace(lab: Lab) -> object:
    return (await limits_of_a_rebalance(lab))[0]


async def quiescing(lab: Lab) -> object:
    return (await limits_of_a_rebalance(lab))[1]


async def replicas_asked_for(lab: Lab) -> object:
    from palimpsest.ops.cli.setup import create
    from palimpsest.ops.terminal.common import Cli

    asked: list[int] = []

    class Admin:
        """Takes down what it is asked to make."""

        def __init__(self, **_: object) -> None:
            self.made: dict[str, Any] = {}

        def create_topics(self, wanted: dict[str, Any]) -> None:
            self.made = wanted
            asked.extend({topic["replication_factor"] for topic in wanted.values()})

        def wait_for_topics(self, names: object) -> None:
            pass

        def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
            code, places = (0, [{"replica_nodes": [1]}] * 8) if self.made else (3, [])
            return [{"name": n, "error_code": code, "partitions": places} for n in names]

        def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
            return {
                "topic": {
                    name: {k: {"value": v} for k, v in topic["configs"].items()}
                    for name, topic in self.made.items()
                }
            }

        def close(self) -> None:
            pass

    lab.patch.setattr("palimpsest.streams.kafka.log.KafkaAdminClient", Admin)
    flags = ("log.kind=kafka", *(flag.format() for flag in lab.flags))
    create(Cli(lab.folder, None, flags), json=True)
    return asked


async def partitions_found(lab: Lab) -> object:
    """What a reader finds of a worker on another machine, which has partition 3."""
    settings = lab.settings
    place = ListenAddress(port=lab.port, token="secret")
    nothing: Any = None
    async with local_interface(nothing, lab.folder, place, lambda: [3]):
        routed = RoutedQueries(settings, 8)
        found = sorted(await routed.owners())
        await routed.close()
        return found


async def hosts_that_answer(lab: Lab) -> object:
    nothing: Any = None
    answering = []
    async with local_interface(nothing, lab.folder, listen_address(lab.settings)) as said:
        for host in ("127.0.0.1", "127.0.0.2"):
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
                try:
                    await client.post(f"http://{host}:{said.port}/ping")
                except httpx.ConnectError:
                    continue
                answering.append(host)
    return answering


async def listens_there(lab: Lab) -> object:
    nothing: Any = None
    async with local_interface(nothing, lab.folder, listen_address(lab.settings)) as said:
        return said.port == lab.port


CASES: dict[str, Case] = {
    "data_dir": Case(folder_of_log, ("{folder}/a", "{folder}/b"), (["a"], ["b"])),
    "log.kind": Case(kind_of_log, ("embedded", "kafka"), ("a file", "needs a cluster")),
    "log.partitions": Case(partitions, (1, 3), (1, 3)),
    "log.max_record_bytes": Case(dead_letters, (2_048, 100_000), (1, 0)),
    "log.expire_seconds": Case(leaves_in_time, (1, 600), (True, False)),
    "kafka.bootstrap_servers": Case(
        addresses_of_brokers, ("a:1", "b:2,c:3"), (["kafka://a:1"], ["kafka://b:2", "kafka://c:3"])
    ),
    "kafka.topic_prefix": Case(name_of_topic, ("", "x-"), ("memory-writes", "x-memory-writes")),
    "kafka.group": Case(name_of_group, ("a", "b"), ("a-store", "b-store")),
    "kafka.replication_factor": Case(replicas_asked_for, (1, 3), ([1], [3])),
    "kafka.session_seconds": Case(session_timeout, (7, 20), (7.0, 20.0)),
    "kafka.grace_seconds": Case(grace, (0, 5), (0.0, 5.0)),
    "kafka.quiesce_seconds": Case(quiescing, (7, 30), (7.0, 30.0)),
    "kafka.workers": Case(
        partitions_found, ("", "http://127.0.0.1:{port}"), ([], [3]), CLUSTER
    ),
    "kafka.worker_token": Case(
        partitions_found, ("other", "secret"), ([], [3]),
        ("log.kind=kafka", "kafka.workers=http://127.0.0.1:{port}"),
    ),
    "kafka.listen": Case(
        hosts_that_answer, ("127.0.0.1", "127.0.0.2"), (["127.0.0.1"], ["127.0.0.2"]), CLUSTER
    ),
    "kafka.listen_port": Case(listens_there, (0, "{port}"), (False, True), CLUSTER),
}  # fmt: skip
