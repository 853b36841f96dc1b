"""A cache of what is known about a question, which forgets it as soon as memory changes.

Over HTTP, by the events of one scope, or on Kafka, by the topic `cache-invalidations` of all:

    python context_cache.py http://127.0.0.1:7245 SCOPE QUESTION [HOST:PORT]

asks the question once a line of standard input, and says whether the cache had the answer. Both
words come after the change is stored, never before: who asks again at once sees it.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections import Counter

import httpx


class ContextCache:
    """Blocks of context by scope and question, from the HTTP service at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=30)
        self._blocks: dict[tuple[str, str], str] = {}
        self._changes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def context(self, scope: str, question: str) -> tuple[str, bool]:
        """What is known, and whether the cache had it."""
        with self._lock:
            known = self._blocks.get((scope, question))
            changes = self._changes[scope]
        if known is not None:
            return known, True
        body = {"scope": scope, "query": question}
        answer = self._client.post("/api/memory/context", json=body).raise_for_status()
        block = str(answer.json()["text"])
        with self._lock:
            # What was asked before a change and came back after it must not be kept.
            if self._changes[scope] == changes:
                self._blocks[scope, question] = block
        return block, False

    def drop(self, scope: str) -> None:
        """Forget the answers of a scope."""
        with self._lock:
            self._changes[scope] += 1
            self._blocks = {key: each for key, each in self._blocks.items() if key[0] != scope}

    def follow_events(self, scope: str, following: threading.Event) -> None:
        """Drop what changes in a scope, until the service ends; `following` is set once it sees
        every change from then on."""
        path, asked = "/api/events", {"scope": scope}
        with self._client.stream("GET", path, params=asked, timeout=None) as stream:
            for line in stream.iter_lines():
                if line.startswith(": follows"):
                    following.set()
                elif line.startswith("event: "):
                    self.drop(scope)

    def follow_topic(self, servers: str, following: threading.Event, topic: str) -> None:
        """The same for all scopes, from Kafka. Without a group: every process has a cache of its
        own, so every process reads all."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
        numbers = consumer.partitions_for_topic(topic) or {0}
        consumer.assign([TopicPartition(topic, number) for number in numbers])
        consumer.seek_to_end()
        for place in consumer.assignment():
            consumer.position(place)  # what is appended from now on is read
        following.set()
        for record in consumer:
            self.drop(json.loads(record.value)["scope"])


def main(
    url: str, scope: str, question: str, servers: str = "", topic: str = "cache-invalidations"
) -> None:
    cache, following = ContextCache(url), threading.Event()
    if servers:
        follow = functools.partial(cache.follow_topic, servers, following, topic)
    else:
        follow = functools.partial(cache.follow_events, scope, following)
    threading.Thread(target=follow, daemon=True).start()
    following.wait()
    for _ in sys.stdin:
        block, was_known = cache.context(scope, question)
        sys.stdout.write(json.dumps({"known": was_known, "context": block}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
