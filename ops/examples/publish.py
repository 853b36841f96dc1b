"""Publish conversation turns with a Kafka client, from the JSON Schema alone.

Needs `pip install jsonschema` and the client (`kafka-python`, `confluent-kafka` or `aiokafka`), a
copy of `conversation-turn-1.json`, and nothing of Palimpsest itself:

    python publish.py CLIENT HOST:PORT conversation-turn-1.json TURNS.jsonl [TOPIC]

A line of TURNS.jsonl is `{"scope": …, "occurred_at": …, "turn": {"turn_id": …, "speaker": …,
"content": …}}`. Publishing a file again doubles nothing: the same turn gets the same id.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from jsonschema import Draft202012Validator


def messages(schema_file: str, turns_file: str) -> Iterator[tuple[bytes, bytes]]:
    """The key and the message of every line. Raises ValidationError for a bad one."""
    validator = Draft202012Validator(json.loads(Path(schema_file).read_text(encoding="utf-8")))
    for line in Path(turns_file).read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        scope, turn = given["scope"], given["turn"]
        # The producer's own id makes a retry harmless, so it must follow from the turn.
        message_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scope}/{turn['turn_id']}"))
        message = {
            "id": message_id,
            "schema": "conversation-turn/1",
            "scope": scope,
            "occurred_at": given["occurred_at"],
            "correlation_id": message_id,
            "body": turn,
        }
        validator.validate(message)
        yield scope.encode(), json.dumps(message).encode()


def kafka_python(servers: str, topic: str, records: Iterator[tuple[bytes, bytes]]) -> int:
    from kafka import KafkaProducer

    # Idempotent with acks=all: a retry of the client neither doubles nor reorders. Its default
    # partitioner is murmur2 of the key, as in Java, so a scope goes to its own partition.
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    sent = [producer.send(topic, key=key, value=value) for key, value in records]
    producer.flush()
    for future in sent:
        future.get(timeout=30)  # raises what the broker refused
    producer.close()
    return len(sent)


def confluent(servers: str, topic: str, records: Iterator[tuple[bytes, bytes]]) -> int:
    from confluent_kafka import KafkaError, Message, Producer

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

    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)  # the client's queue is full: let it send
        producer.poll(0)
        count += 1
    left = producer.flush(30)
    if refused or left:
        raise SystemExit(f"{left} not delivered, refused: {refused[:3]}")
    return count


def aiokafka(servers: str, topic: str, records: Iterator[tuple[bytes, bytes]]) -> int:
    from aiokafka import AIOKafkaProducer

    async def publish() -> int:
        # Its default partitioner is murmur2 of the key, as in Java.
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
        await producer.start()
        try:
            sent = [await producer.send(topic, key=key, value=value) for key, value in records]
            await asyncio.gather(*sent)  # raises what the broker refused
        finally:
            await producer.stop()
        return len(sent)

    return asyncio.run(publish())


CLIENTS = {"kafka-python": kafka_python, "confluent-kafka": confluent, "aiokafka": aiokafka}


def main(
    client: str, servers: str, schema: str, turns: str, topic: str = "conversation-turns"
) -> None:
    count = CLIENTS[client](servers, topic, messages(schema, turns))
    sys.stdout.write(f"{count} turns published\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
