"""The whole pipeline on a real broker, in worker processes that are killed, frozen and replaced.

Whatever is done to them: every turn counts once, and every scope holds what the embedded log makes
of the same turns.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import duckdb
import pytest
from kafka import KafkaAdminClient, TopicPartition

from palimpsest.ops.bench.throughput import Load, records
from palimpsest.ops.operations.memories import Recall
from palimpsest.ops.requests import SqlRequest
from palimpsest.ops.service.queries import queries
from palimpsest.streams.kafka.cluster import ROLES, STATELESS, STORE
from palimpsest.streams.logs.base import Outgoing, partition_for
from tests.soak.lab import Lab, MakeLab, States, different, embedded_states

PARTITIONS = 4
TURNS = 160
SCOPES = 8
TURN_TOPIC = "conversation-turns"


@pytest.fixture(scope="module")
def turns() -> list[Outgoing]:
    return list(records(Load(TURNS, SCOPES)))


@pytest.fixture(scope="module")
def expected(turns: list[Outgoing], tmp_path_factory: pytest.TempPathFactory) -> States:
    """What the embedded log makes of them, undisturbed."""
    return embedded_states(tmp_path_factory.mktemp("embedded"), turns)


def finish(
    lab: Lab, turns: Sequence[Outgoing], expected: States, tables: Collection[str] = ()
) -> None:
    """Nothing is lost, doubled or changed, these tables left aside."""
    lab.until_drained()
    balance = lab.status()["balance"]
    assert isinstance(balance, dict)
    assert balance["holds"] is True
    counted = balance["turns"]
    assert isinstance(counted, dict)
    assert (counted["accepted"], counted["stored"]) == (len(turns), len(turns))
    for name in sorted(lab.workers):
        lab.stop(name)
    assert different(without(tables, lab.states()), without(tables, expected)) == []


def without(tables: Collection[str], states: States) -> States:
    return {
        scope: {table: digest for table, digest in found.items() if table not in tables}
        for scope, found in states.items()
    }


def test_roles_in_processes_of_their_own(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    lab.start("stateless", *ROLES[STATELESS])
    lab.start("store-1", *ROLES[STORE])
    lab.start("store-2", *ROLES[STORE])
    lab.until_owned(2)
    lab.publish(turns)
    finish(lab, turns, expected)


def test_kills_a_joining_and_a_leaving_worker(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    lab.start("one")
    lab.start("two")
    lab.until_owned(2)
    third = len(turns) // 3
    lab.publish(turns[:third])
    lab.kill("one")
    lab.start("three")
    lab.publish(turns[third : 2 * third])
    lab.until_owned(2)
    lab.kill("two")
    lab.publish(turns[2 * third :])
    lab.until_owned(1)
    lab.start("four")
    lab.until_owned(2)
    assert lab.stop("three") < 60.0
    finish(lab, turns, expected)


def test_a_frozen_worker_does_no_harm_when_it_wakes(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    lab.start("one")
    lab.start("two")
    lab.until_owned(2)
    half = len(turns) // 2
    lab.publish(turns[:half])
    lab.signal("one", signal.SIGSTOP)
    lab.publish(turns[half:])
    # Its session is over when the group goes on without it. The other one cannot open the stores
    # that the frozen one keeps; a machine of its own would.
    until(lambda: lab.members(STORE) == 1)
    lab.signal("one", signal.SIGCONT)
    lab.until_owned(2)
    finish(lab, turns, expected)


@pytest.mark.soak
def test_a_rolling_restart_loses_nothing(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    lab.start("old-1")
    lab.until_owned(1)
    lab.publish(turns[::2])
    lab.start("new-1")
    lab.until_owned(2)
    lab.stop("old-1")
    lab.publish(turns[1::2])
    lab.start("new-2")
    lab.until_owned(2)
    lab.stop("new-1")
    lab.until_drained()
    balance = lab.status()["balance"]
    assert isinstance(balance, dict)
    assert balance["holds"] is True


def test_turns_in_a_wrong_partition_are_moved_home(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    wrong = [
        Outgoing(
            out.topic,
            out.scope,
            out.key,
            out.value,
            out.headers,
            (partition_for(out.scope, PARTITIONS) + 1) % PARTITIONS,
        )
        for out in turns
    ]
    lab.publish(wrong)
    lab.start("one")
    finish(lab, turns, expected)


def test_a_lost_store_is_built_again_from_the_log(
    make_lab: MakeLab, turns: list[Outgoing], expected: States
) -> None:
    lab = make_lab(PARTITIONS)
    lab.publish(turns)
    lab.start("one")
    lab.until_drained()
    lab.stop("one")
    shutil.rmtree(lab.folder / "data" / "shards" / "1")
    lab.start("two")
    lab.until_owned(1)
    # The group has acknowledged everything long ago; only the stores know that they are behind.
    until(lambda: not stages_behind(lab))
    # What decide considers when it is asked again is what it decided before; its old intents
    # lie in the log, and apply-writes knows them.
    finish(lab, turns, expected, tables={"proposals"})


def until(true: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


def stages_behind(lab: Lab) -> list[object]:
    stages = lab.status()["stages"]
    assert isinstance(stages, list)
    return [stage for stage in stages if isinstance(stage, dict) and stage["lag"]]


def test_a_store_of_another_log_is_refused(make_lab: MakeLab, turns: list[Outgoing]) -> None:
    lab, other = make_lab(PARTITIONS), make_lab(PARTITIONS)
    lab.publish(turns[:20])
    lab.start("one")
    lab.until_drained()
    lab.stop("one")
    shutil.copytree(lab.folder / "data" / "shards", other.folder / "data" / "shards")
    other.start("one")
    assert other.workers["one"].wait(180) == 1
    told = other.tail("one")
    assert "was made from another log" in told
    assert "Traceback" not in told


def refused(lab: Lab) -> str:
    """What a worker says that ends because store and log do not belong together."""
    lab.start("refused")
    assert lab.workers["refused"].wait(180) == 1
    told = lab.tail("refused")
    assert "Traceback" not in told
    return told


def processed(lab: Lab, turns: Sequence[Outgoing]) -> None:
    lab.publish(turns)
    lab.start("one")
    lab.until_drained()
    lab.stop("one")


def test_a_store_that_is_ahead_of_its_log_is_refused(
    make_lab: MakeLab, turns: list[Outgoing]
) -> None:
    lab = make_lab(PARTITIONS)
    processed(lab, turns[:20])
    place = partition_for(turns[0].scope, PARTITIONS)
    file = lab.folder / "data" / "shards" / str(place) / "memory.duckdb"
    with duckdb.connect(str(file)) as store:
        store.execute(
            "UPDATE internal.cursors SET next_offset = 10000 WHERE topic = 'memory-writes'"
        )
    told = " ".join(refused(lab).split())
    assert f"memory-writes[{place}] up to offset 10000, but the log ends at" in told
    assert "Restore the log" in told


def test_records_removed_before_they_were_processed_are_told(
    make_lab: MakeLab, turns: list[Outgoing]
) -> None:
    lab = make_lab(PARTITIONS)
    processed(lab, turns[:20])
    lab.publish(turns[20:60])
    place = partition_for(turns[0].scope, PARTITIONS)
    end = lab.log.end_offset(TURN_TOPIC, place)
    admin = KafkaAdminClient(bootstrap_servers=lab.broker.bootstrap_servers)
    try:
        admin.delete_records({TopicPartition(f"{lab.prefix}-{TURN_TOPIC}", place): end})
    finally:
        admin.close()
    told = " ".join(refused(lab).split())
    assert f"the log begins at {end}" in told
    assert "removed before it was processed" in told
    assert "topics describe" in told


def test_a_role_runs_whole(make_lab: MakeLab) -> None:
    lab = make_lab(PARTITIONS)
    lab.start("part", "decide", "audit")
    assert lab.workers["part"].wait(180) == 1
    assert "run together with apply-writes, graph-persist" in lab.tail("part")


def test_a_run_until_all_is_processed_ends_where_others_have_all_partitions(
    make_lab: MakeLab, turns: list[Outgoing]
) -> None:
    lab = make_lab(1)
    lab.publish(turns[:20])
    lab.start("one")
    lab.until_owned(1)
    lab.begin("once", "run", "--once")
    assert lab.workers.pop("once").wait(180) == 0, lab.tail("once")
    assert lab.log.drained()
    lab.until_owned(1)
    lab.stop("one")


def test_reads_reach_the_owner_of_the_scope(make_lab: MakeLab, turns: list[Outgoing]) -> None:
    lab = make_lab(PARTITIONS)
    lab.publish(turns[:80])
    lab.start("one")
    lab.start("two")
    lab.until_owned(2)
    lab.until_drained()

    async def ask() -> None:
        async with queries(lab.settings) as routed:
            for scope in sorted({out.scope for out in turns[:80]}):
                number = partition_for(scope, PARTITIONS)
                table = await routed.table(
                    SqlRequest("SELECT DISTINCT scope FROM memories", number)
                )
                assert scope in table.column(0).to_pylist()
                found = await routed.answer(Recall("I keep", scope))
                assert json.dumps(found)

    asyncio.run(ask())
    for name in ("one", "two"):
        lab.stop(name)


@contextmanager
def provider(port: int = 0) -> Iterator[str]:
    """A model server in a process of its own; its address."""
    command = [sys.executable, "-m", "tests.servers", "--port", str(port)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def counted(lab: Lab, kind: str) -> dict[str, int]:
    balance = lab.status()["balance"]
    assert isinstance(balance, dict)
    assert balance["holds"] is True
    return cast("dict[str, int]", balance[kind])


def test_an_outage_of_the_provider_holds_up_facts_and_nothing_else(
    make_lab: MakeLab, turns: list[Outgoing]
) -> None:
    sent = turns[:60]
    with provider() as url:
        model = ("llm.provider=openai", f"llm.base_url={url}/v1", "llm.model=scripted")
        lab = make_lab(PARTITIONS, overrides=model)
        lab.start("one")
        lab.until_owned(1)
        lab.publish(sent[:20])
        lab.until_drained()
        before = counted(lab, "facts")["extracted"]
        assert before >= 1
    lab.publish(sent[20:])
    until(lambda: counted(lab, "turns")["stored"] == len(sent))
    assert counted(lab, "facts")["extracted"] == before
    # A rebalance waits for no model: the batches that wait for one give way.
    lab.start("two")
    lab.until_owned(2)
    assert lab.stop("one") < 60.0
    lab.until_owned(1)
    with provider(int(url.rpartition(":")[2])):
        lab.until_drained()
        assert counted(lab, "facts")["extracted"] > before
        assert counted(lab, "facts")["in_flight"] == 0
        lab.stop("two")
