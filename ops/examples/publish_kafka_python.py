"""Publish conversation turns with kafka-python, from the JSON Schema alone.

Needs `pip install kafka-python jsonschema`, a copy of `conversation-turn-1.json`, and nothing of
Palimpsest itself:

    python publish_kafka_python.py HOST:PORT conversation-turn-1.json TURNS.jsonl [TOPIC]

A line of TURNS.jsonl is `{"scope": …, "occurred_at": …, "turn": {"turn_id": …, "speaker": …,
"content": …}}`. Publishing a file again doubles nothing: the same turn gets the same id.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from jsonschema import Draft202012Validator
from kafka import KafkaProducer


def messages(schema_file: str, turns_file: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The scope and the message of every line. Raises ValidationError for a bad one."""
    validator = Draft202012Validator(json.loads(Path(schema_file).read_text(encoding="utf-8")))
    for line in Path(turns_file).read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        scope, turn = said["scope"], said["turn"]
        # The producer's own id makes a retry harmless, so it must follow from the turn.
        message_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scope}/{turn['turn_id']}"))
        message = {
            "id": message_id,
            "schema": "conversation-turn/1",
            "scope": scope,
            "occurred_at": said["occurred_at"],
            "correlation_id": message_id,
            "body": turn,
        }
        validator.validate(message)
        yield scope, message


def main(servers: str, schema_file: str, turns_file: str, topic: str = "conversation-turns") -> int:
    # Idempotent with acks=all: a retry of the client neither doubles nor reorders. Its default
    # partitioner is murmur2 of the key, as in Java, so a scope goes to its own partition.
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    sent = [
        producer.send(topic, key=scope.encode(), value=json.dumps(message).encode())
        for scope, message in messages(schema_file, turns_file)
    ]
    producer.flush()
    for future in sent:
        future.get(timeout=30)  # raises what the broker refused
    producer.close()
    sys.stdout.write(f"{len(sent)} turns published\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
