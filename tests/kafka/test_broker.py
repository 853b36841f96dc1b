"""The broker without Docker keeps what Kafka promises: durability, compaction, purge."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from palimpsest.ops.kafka import broker as broker_module
from palimpsest.ops.kafka.broker import Broker, BrokerError, MissingProgramError

CreateTopic = Callable[..., str]
Record = tuple[bytes | None, bytes | None]

COMPACTED = {
    "cleanup__policy": "compact",
    "segment__ms": "1000",
    "min__cleanable__dirty__ratio": "0.01",
    "delete__retention__ms": "100",
}
COMPACTION_SECONDS = 120.0


def produce(broker: Broker, topic: str, records: Iterable[Record]) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")) as producer:
        sent = [producer.send(topic, value=value, key=key) for key, value in records]
        for future in sent:
            future.get(timeout=60)


def read_all(broker: Broker, topic: str) -> list[Record]:
    """Every record of the one partition, from the beginning to the end as it is now."""
    partition = TopicPartition(topic, 0)
    with closing(
        KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    ) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        found: list[Record] = []
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=500).values():
                found.extend((record.key, record.value) for record in batch)
        return found


def numbered(count: int) -> list[Record]:
    return [(f"k{i}".encode(), f"v{i}".encode()) for i in range(count)]


def nudges(broker: Broker, topic: str) -> Iterator[list[Record]]:
    """Reads the topic again and again, each time after one more record.

    The record starts a new segment: the active one is never compacted.
    """
    deadline = time.monotonic() + COMPACTION_SECONDS
    for number in itertools.count():
        produce(broker, topic, [(b"nudge", str(number).encode())])
        yield read_all(broker, topic)
        assert time.monotonic() < deadline, f"not compacted within {COMPACTION_SECONDS:.0f} s"
        time.sleep(0.5)


def test_what_is_produced_is_consumed_in_order(broker: Broker, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(broker, topic, numbered(100))
    assert read_all(broker, topic) == numbered(100)


def test_records_survive_kill_and_restart_on_the_same_port(tmp_path: Path, broker: Broker) -> None:
    with Broker(tmp_path / "kafka") as mine:
        address = mine.bootstrap_servers
        with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
            admin.create_topics({"kept": {"num_partitions": 1, "replication_factor": 1}})
            admin.wait_for_topics(["kept"])
        produce(mine, "kept", numbered(50))
        mine.kill()
        assert not mine.running
        mine.start()
        assert mine.bootstrap_servers == address
        assert read_all(mine, "kept") == numbered(50)
        produce(mine, "kept", [(b"after", b"kill")])
        assert read_all(mine, "kept")[-1] == (b"after", b"kill")
    assert not mine.running


def test_compaction_keeps_the_last_value_of_a_key(
    broker: Broker, create_topic: CreateTopic
) -> None:
    topic = create_topic(**COMPACTED)
    produce(broker, topic, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3")])
    for records in nudges(broker, topic):
        values = [record for record in records if record[0] != b"nudge"]
        if len(values) == 2:
            break
    assert values == [(b"b", b"1"), (b"a", b"3")]


def test_a_null_value_purges_its_key(broker: Broker, create_topic: CreateTopic) -> None:
    topic = create_topic(**COMPACTED)
    produce(broker, topic, [(b"gone", b"secret"), (b"stays", b"1"), (b"gone", None)])
    for records in nudges(broker, topic):
        values = [record for record in records if record[0] != b"nudge"]
        if values == [(b"stays", b"1")]:
            break
    assert b"secret" not in {value for _, value in values}


def test_topics_do_not_appear_by_themselves(broker: Broker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        before = set(admin.list_topics())
        with (
            closing(
                KafkaProducer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=1000)
            ) as producer,
            pytest.raises(KafkaError),
        ):
            producer.send("never-created", b"x").get(timeout=60)
        assert "never-created" not in before | set(admin.list_topics())


def test_start_of_a_running_broker_changes_nothing(broker: Broker) -> None:
    again = Broker(broker.folder)
    assert again.pid == broker.pid
    again.start()
    assert again.pid == broker.pid
    assert again.bootstrap_servers == broker.bootstrap_servers


def run_command(action: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "palimpsest.ops.kafka.broker", action, "--folder", str(folder)]
    root = Path(broker_module.__file__).parents[2]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=120, check=False
    )


def test_the_command_line_starts_detached_and_stops(broker: Broker, tmp_path: Path) -> None:
    started = run_command("start", tmp_path)
    try:
        assert started.returncode == 0, started.stderr
        address = started.stdout.strip()
        assert address == f"127.0.0.1:{(tmp_path / 'broker.port').read_text().strip()}"
        assert run_command("status", tmp_path).stdout.strip() == address
        assert int((tmp_path / "broker.pid").read_text()) == Broker(tmp_path).pid
    finally:
        stopped = run_command("stop", tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    status = run_command("status", tmp_path)
    assert status.returncode == 1
    assert "down" in status.stderr
    assert not (tmp_path / "broker.pid").exists()


def test_a_pid_file_of_another_process_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "broker.pid").write_text(f"{os.getpid()}\n")
    stale = Broker(tmp_path)
    assert stale.pid is None
    stale.stop()  # would end this very test run


def test_a_taken_port_is_told(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"port {broker.port} .* is taken"):
        Broker(tmp_path, port=broker.port).start()


def test_a_broker_that_ends_while_starting_shows_its_log(broker: Broker, tmp_path: Path) -> None:
    bad = Broker(tmp_path, settings={"num.io.threads": "0"})
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        bad.start()
    assert not bad.running


def test_missing_programs_are_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgramError, match=r"java not found.*openjdk"):
        Broker(tmp_path / "kafka").start()
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingProgramError, match=r"mvn not found.*maven"):
        Broker(tmp_path / "kafka").start()


def test_a_failed_fetch_shows_maven_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho no route to the repository\nexit 3\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert shutil.which("mvn") == str(maven)
    with pytest.raises(BrokerError, match=r"exit 3.*\n?.*no route to the repository"):
        broker_module.fetch_jars()
    assert list(broker_module.jars_folder().parent.iterdir()) == []
