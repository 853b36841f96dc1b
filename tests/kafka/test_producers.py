"""The examples for producers work alone, on a real broker, and what they send is taken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from palimpsest.ops.kafka.broker import Broker
from palimpsest.ops.kafka.topics import create_topics
from palimpsest.schemas.codec import decode
from palimpsest.schemas.messages import ConversationTurn
from palimpsest.schemas.topics import CONVERSATION_TURNS
from palimpsest.streams.kafka.cluster import Cluster
from palimpsest.streams.kafka.log import KafkaLog
from palimpsest.streams.logs.base import partition_for
from palimpsest.streams.logs.settings import KafkaSettings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "ops" / "examples" / "publish.py"
CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
PARTITIONS = 4
SCOPES = ["ana", "ben", "日本語", "Zoë", "a scope with spaces", "x" * 200]


def lines() -> list[dict[str, object]]:
    return [
        {
            "scope": scope,
            "occurred_at": "2026-03-01T09:30:00Z",
            "turn": {"turn_id": f"t{n}", "speaker": "Ana", "content": f"I like tea, cup {n}."},
        }
        for scope in SCOPES
        for n in range(5)
    ]


def run(client: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The file alone in a folder, in a Python that finds nothing of the project beside it."""
    alone = Path(shutil.copy(EXAMPLE, folder))
    shutil.copy(ROOT / "schemas" / "json" / "conversation-turn-1.json", folder)
    command = [sys.executable, "-I", str(alone), client, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=60, check=False
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_turns_arrive_in_their_partitions_in_order(
    client: str, broker: Broker, tmp_path: Path
) -> None:
    if client == "confluent-kafka":
        pytest.importorskip("confluent_kafka")
    prefix = f"e{uuid.uuid4().hex[:8]}-"
    servers = broker.bootstrap_servers
    settings = KafkaSettings(bootstrap_servers=servers, topic_prefix=prefix)
    cluster = Cluster(settings, PARTITIONS)
    create_topics(cluster, 1)
    turns = tmp_path / "turns.jsonl"
    turns.write_text("\n".join(json.dumps(line) for line in lines()), encoding="utf-8")
    topic = cluster.physical("conversation-turns")
    given = (broker.bootstrap_servers, "conversation-turn-1.json", str(turns), topic)
    done = run(client, tmp_path, *given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "30 turns published"
    with KafkaLog.open(cluster) as log:
        found: dict[str, list[str]] = {}
        for partition in range(PARTITIONS):
            for record in log.read("conversation-turns", partition, 0, 100):
                message = decode(record.value, CONVERSATION_TURNS, record.timestamp)
                assert record.key == message.scope.encode()
                assert partition_for(message.scope, PARTITIONS) == partition
                assert isinstance(message.body, ConversationTurn)
                found.setdefault(message.scope, []).append(message.body.turn_id)
    assert found == {scope: [f"t{n}" for n in range(5)] for scope in SCOPES}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_bad_turn_is_told_before_it_is_sent(client: str, broker: Broker, tmp_path: Path) -> None:
    if client == "confluent-kafka":
        pytest.importorskip("confluent_kafka")
    turns = tmp_path / "turns.jsonl"
    bad = {"scope": "", "occurred_at": "2026-03-01T09:30:00Z", "turn": {"turn_id": "t1"}}
    turns.write_text(json.dumps(bad), encoding="utf-8")
    given = (broker.bootstrap_servers, "conversation-turn-1.json", str(turns), "nowhere")
    done = run(client, tmp_path, *given)
    assert done.returncode != 0
    assert "ValidationError" in done.stderr
