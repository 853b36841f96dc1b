"""Publish conversation turns with confluent-kafka, from the JSON Schema alone.

Needs `pip install confluent-kafka jsonschema`, a copy of `conversation-turn-1.json`, and nothing of
Palimpsest itself:

    python publish_confluent.py HOST:PORT conversation-turn-1.json TURNS.jsonl [TOPIC]

A line of TURNS.jsonl is `{"scope": …, "occurred_at": …, "turn": {"turn_id": …, "speaker": …,
"content": …}}`. Publishing a file again doubles nothing: the same turn gets the same id.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from jsonschema import Draft202012Validator


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
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            # librdkafka's own default is CRC32 of the key: another partition than every other
            # client's. Turns in a wrong partition are moved, which costs them a round trip more.
            "partitioner": "murmur2_random",
        }
    )
    refused: list[str] = []
    count = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    for scope, message in messages(schema_file, turns_file):
        value = json.dumps(message).encode()
        while True:
            try:
                producer.produce(topic, key=scope.encode(), value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)  # the client's queue is full: let it send
        producer.poll(0)
        count += 1
    left = producer.flush(30)
    if refused or left:
        sys.stderr.write(f"{left} not delivered, refused: {refused[:3]}\n")
        return 1
    sys.stdout.write(f"{count} turns published\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
